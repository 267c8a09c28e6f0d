"""What all commands share."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

if TYPE_CHECKING:
    from scorefield.distributed import Group
    from scorefield.progress import Track

app = tyro.extras.SubcommandApp()
arguments: list[str] = []
"""The words of the command line that is being run."""

MODEL_HELP = "A run folder, a model file, or the name of a pretrained model such as mnist-small."
ModelName = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL", help=MODEL_HELP)]
Flag = tyro.conf.FlagCreatePairsOff[bool]
"""A switch that has no opposite on the command line: --quick, but not --no-quick."""
JsonFile = Annotated[Path | None, tyro.conf.arg(name="json", help="Write the numbers to this file as well.")]
Device = Annotated[str, tyro.conf.arg(help="auto (a GPU if there is one), cpu, cuda, cuda:1, ...")]


def say(line: str) -> None:
    """Print a message to stderr: stdout holds results only."""
    print(line, file=sys.stderr, flush=True)


def check_seed(seed: int) -> None:
    if not 0 <= seed < 2**32:
        raise ValueError(f"--seed must be a whole number from 0 to 2³² − 1; got {seed}")


def prepare_file(out: Path | None, option: str = "--out", *, suffix: str = "") -> None:
    """Check before long work that this file, if one is wanted, can be written. It must end with the suffix, if any."""
    if out is None:
        return
    if suffix and out.suffix != suffix:
        raise ValueError(f"cannot write {out.suffix or 'a folder'} ({option} FILE{suffix})")
    if out.is_dir():
        raise OSError(f"{out} is a folder (name a file with {option})")
    prepare_folder(out.parent, option=option)


def prepare_folder(out: Path, seed: int = 0, *, option: str = "--out") -> None:
    """Check before long work that files can be written into this folder; make it if it is missing."""
    check_seed(seed)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(f"cannot make the folder {out}: {error.strerror} (name another one with {option})") from error
    if not os.access(out, os.W_OK):
        raise OSError(f"cannot write into {out} (name another folder with {option})")


def tracker(group: Group) -> Track[Any]:
    """Progress bars for the main process, silence for the others."""
    from scorefield.progress import silent, track

    return track if group.main else silent
