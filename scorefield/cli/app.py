"""What the commands share."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import tyro

app = tyro.extras.SubcommandApp()


def say(line: str) -> None:
    """A message for people: to stderr, so that stdout holds results alone."""
    print(line, file=sys.stderr, flush=True)


def prepare_folder(out: Path, seed: int) -> None:
    """What would stop the work at its end is found before its start."""
    if not 0 <= seed < 2**32:
        raise ValueError(f"--seed must be a whole number from 0 to 2³² − 1; got {seed}")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(f"cannot make the folder {out}: {error.strerror} (name another one with --out)") from error
    if not os.access(out, os.W_OK):
        raise OSError(f"cannot write into {out} (name another folder with --out)")
