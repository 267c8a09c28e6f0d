"""What all commands share: how they are registered, the options that many have, and checks before long work."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from inspect import cleandoc
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import tyro
from tyro.constructors import PrimitiveConstructorSpec

from scorefield.cli.streams import say as say
from scorefield.files import check_writable

if TYPE_CHECKING:
    from scorefield.distributed import Group
    from scorefield.progress import Track

T = TypeVar("T", bound=Callable[..., Any])

FUNCTIONS: dict[str, Callable[..., None]] = {}
"""The functions of the commands whose modules have been imported."""
arguments: list[str] = []
"""The words of the command line that is being run."""


def command(function: T) -> T:
    """Register a command under the function's name, without the _ of names such as import_.

    The help text of an option is one paragraph, however many lines it has in the docstring.
    """
    function.__doc__ = re.sub(r"\n {8}", " ", cleandoc(function.__doc__ or ""))
    FUNCTIONS[function.__name__.removesuffix("_")] = plain_help(function)
    return function


def run(name: str, argv: list[str]) -> None:
    """Run a registered command with these words as its options."""
    arguments[:] = [name, *argv]
    tyro.cli(FUNCTIONS[name], prog=f"scorefield {name}", args=argv)


def plain_help(options: T) -> T:
    """The same function or dataclass of options with plain help texts: INT and not {None}|INT, and no default where
    that is None. The text says what happens if the option is not given."""
    hints = get_type_hints(options, include_extras=True)
    options.__annotations__ = {name: _plain(hint) for name, hint in hints.items()}
    return options


def _plain(hint: Any) -> Any:  # noqa: ANN401
    for each in get_args(hint) if get_origin(hint) is Union else ():
        if get_origin(each) is Annotated:  # Python 3.10 puts Optional around the hint of what is None by default
            hint = each
    kind, *extras = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    words = (kind, tyro.conf.arg(metavar=_metavar(kind), help_behavior_hint=_default_in_words), *extras)
    words += tuple(_parsers(kind))
    return Annotated[words]


def _parsers(kind: Any) -> list[PrimitiveConstructorSpec[Any]]:  # noqa: ANN401
    """For numbers and choices: how a word is read, with plain errors."""
    kinds = [each for each in get_args(kind) if each is not NoneType] if _is_union(kind) else [kind]
    if len(kinds) != 1 or (kinds[0] not in (int, float) and get_origin(kinds[0]) is not Literal):
        return []
    (one,), optional = kinds, kinds != [kind]
    choices = get_args(one) if get_origin(one) is Literal else ()
    if not all(isinstance(each, str) for each in choices):
        return []

    def read(words: list[str]) -> Any:  # noqa: ANN401
        if optional and words[0] == "None":
            return None
        if choices:
            if words[0] not in choices:
                raise ValueError(f"there is no {words[0]} (choose from {', '.join(choices)})")
            return words[0]
        try:
            return one(words[0])
        except ValueError:
            raise ValueError(f"{words[0]} is not a {'whole ' * (one is int)}number") from None

    return [
        PrimitiveConstructorSpec(
            nargs=1,
            metavar=f"{{{','.join(choices)}}}" if choices else one.__name__.upper(),
            instance_from_str=read,
            is_instance=lambda value: True,  # defaults are checked by the type checker
            str_from_instance=lambda value: [str(value)],
        )
    ]


def _is_union(kind: Any) -> bool:  # noqa: ANN401
    return get_origin(kind) in (Union, UnionType)


def _metavar(kind: Any) -> str | None:  # noqa: ANN401
    """What stands for the value of an optional option, or None if tyro's own word will do."""
    kinds = [each for each in get_args(kind) if each is not NoneType]
    if not _is_union(kind):
        return None
    if any(get_origin(each) is tuple for each in kinds):  # INT|INT INT
        return "|".join(" ".join(word.__name__.upper() for word in get_args(each) or (each,)) for each in kinds)
    if len(kinds) != 1:
        return None
    (kind,) = kinds
    return f"{{{','.join(map(str, get_args(kind)))}}}" if get_origin(kind) is Literal else kind.__name__.upper()


def _default_in_words(default: str) -> str:
    words = {"None": "", "": "", "True": "(default: on)", "False": "(default: off)", "inf": "(default: no limit)"}
    return words.get(default, f"(default: {default})")


MODEL_HELP = "A run folder, a model file, the name of a pretrained model such as mnist-small, or hf:OWNER/NAME."
ModelName = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL", help=MODEL_HELP)]
Flag = Annotated[tyro.conf.FlagCreatePairsOff[bool], tyro.conf.arg(help_behavior_hint="")]
"""A switch that has no opposite on the command line: --quick, but not --no-quick."""
JsonFile = Annotated[Path | None, tyro.conf.arg(name="json", help="Write the numbers to this file as well.")]
Device = Annotated[
    str, tyro.conf.arg(help="auto (a CUDA GPU if there is one), cpu, cuda, cuda:1, ..., or mps for an Apple GPU.")
]


def check_seed(seed: int) -> None:
    if not 0 <= seed < 2**32:
        raise ValueError(f"--seed must be a whole number from 0 to 2³² − 1; got {seed}")


def prepare_file(out: Path | None, option: str = "--out", *, suffix: str = "") -> None:
    """Check before long work that this file, if one is wanted, can be written. It must end with the suffix, if any."""
    if out is None:
        return
    if suffix and out.suffix.lower() != suffix:
        raise ValueError(f"{option} must be a file, FILE{suffix}; got {out}")
    out = out.resolve() if out.is_symlink() else out
    if out.is_dir():
        raise OSError(f"{out} is a folder (name a file with {option})")
    if not out.exists() or out.is_file():
        prepare_folder(out.parent, option=option)
    elif not os.access(out, os.W_OK):  # a device or a pipe, which is written to directly
        raise OSError(f"cannot write to {out} (name a file with {option})")


def prepare_folder(out: Path, seed: int = 0, *, size: int = 0, option: str = "--out") -> None:
    """Check before long work that files of that many bytes can be written into this folder, which is made if it is
    missing."""
    check_seed(seed)
    check_writable(out, size=size, fix=f"name another place with {option}")


def say_notes(notes: Iterable[str], group: Group) -> None:
    """Print what a user should know about images, each line once, in the main process."""
    for note in dict.fromkeys(notes if group.main else ()):
        say(f"note: {note}")


def tracker(group: Group) -> Track[Any]:
    """Progress bars for the main process, silence for the others."""
    from scorefield.progress import silent, track

    return track if group.main else silent
