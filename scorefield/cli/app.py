"""What the commands share."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

if TYPE_CHECKING:
    from scorefield.distributed import Group
    from scorefield.progress import Track

app = tyro.extras.SubcommandApp()

ModelName = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
"""A run folder, a model file, or the name of a shipped model."""


def say(line: str) -> None:
    """A message for people: to stderr, so that stdout holds results alone."""
    print(line, file=sys.stderr, flush=True)


def check_seed(seed: int) -> None:
    if not 0 <= seed < 2**32:
        raise ValueError(f"--seed must be a whole number from 0 to 2³² − 1; got {seed}")


def prepare_file(out: Path, option: str = "--out") -> None:
    """What would stop the writing of this file at the work's end is found before its start."""
    if out.is_dir():
        raise OSError(f"{out} is a folder (name a file with {option})")
    prepare_folder(out.parent, option=option)


def prepare_folder(out: Path, seed: int = 0, *, option: str = "--out") -> None:
    """What would stop the work at its end is found before its start."""
    check_seed(seed)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(f"cannot make the folder {out}: {error.strerror} (name another one with {option})") from error
    if not os.access(out, os.W_OK):
        raise OSError(f"cannot write into {out} (name another folder with {option})")


def tracker(group: Group) -> Track[Any]:
    """Progress for the main process, silence for the others."""
    from scorefield.progress import silent, track

    return track if group.main else silent


def write_json(path: Path, numbers: dict[str, Any]) -> None:
    """Numbers for programs. A list of numbers is one line, so that a person can read it too."""
    from scorefield.files import new_file, plain

    text = json.dumps(plain(numbers), indent=2, ensure_ascii=False)
    text = re.sub(r"\[\n([^\[\]{}\"]+)\n *\]", lambda found: f"[{' '.join(found[1].split())}]", text)
    with new_file(path) as file:
        file.write(text.encode() + b"\n")
