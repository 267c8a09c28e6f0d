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
    words = tyro.conf.arg(metavar=_metavar(kind), help_behavior_hint=_default_in_words)
    parts = (kind, words, *extras, *_parsers(kind))
    return Annotated[parts]


def _kinds(kind: Any) -> list[Any]:  # noqa: ANN401
    """What a value may be, apart from None."""
    several = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    return [each for each in several if each is not NoneType]


def _word(kind: Any) -> str:  # noqa: ANN401
    """What stands for a value of this kind in a help text: INT, {a,b}, or INT INT."""
    if get_origin(kind) is tuple:
        return " ".join(_word(each) for each in get_args(kind) if each is not ...)
    return f"{{{','.join(map(str, get_args(kind)))}}}" if get_origin(kind) is Literal else kind.__name__.upper()


def _metavar(kind: Any) -> str | None:  # noqa: ANN401
    """What stands for the value of an optional option, or None if tyro's own word will do."""
    kinds = _kinds(kind)
    several = len(kinds) > 1 and not any(get_origin(each) is tuple for each in kinds)
    return None if kinds == [kind] or several else "|".join(map(_word, kinds))  # INT|INT INT


def _parsers(kind: Any) -> list[PrimitiveConstructorSpec[Any]]:  # noqa: ANN401
    """For numbers, choices and lists of them: how words are read, with plain errors."""
    kinds = _kinds(kind)
    lists = [each for each in kinds if get_origin(each) is tuple]
    any_number = bool(lists) and get_args(lists[0])[-1] is ...
    single = {part for each in kinds for part in (get_args(each) if each in lists else (each,)) if part is not ...}
    if len(single) != 1 or len(lists) > 1 or (any_number and len(kinds) > 1):
        return []
    (one,) = single
    choices = get_args(one) if get_origin(one) is Literal else ()
    if (one not in (int, float) and not choices) or not all(isinstance(each, str) for each in choices):
        return []

    lengths = tuple(sorted({len(get_args(each)) if each in lists else 1 for each in kinds}))

    def read(word: str) -> Any:  # noqa: ANN401
        if choices:
            if word not in choices:
                raise ValueError(f"there is no {word} (choose from {', '.join(choices)})")
            return word
        try:
            return one(word)
        except ValueError:
            raise ValueError(f"{word} is not a {'whole ' * (one is int)}number") from None

    def from_words(words: list[str]) -> Any:  # noqa: ANN401
        if words == ["None"] and kinds != [kind]:
            return None
        values = tuple(map(read, words))
        if not any_number and len(values) not in lengths:
            raise ValueError(f"{' or '.join(map(str, sorted(lengths)))} values are wanted, not {len(values)}")
        return values if lists and (any_number or len(values) > 1) else values[0]

    return [
        PrimitiveConstructorSpec(
            nargs="*" if any_number else lengths if len(lengths) > 1 else lengths[0],
            metavar=f"{_word(one)} [{'' if choices else _word(one)}...]" if any_number else "|".join(map(_word, kinds)),
            instance_from_str=from_words,
            is_instance=lambda value: True,  # defaults are checked by the type checker
            str_from_instance=lambda value: [*map(str, value)] if isinstance(value, tuple) else [str(value)],
        )
    ]


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
