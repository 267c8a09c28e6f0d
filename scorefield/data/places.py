"""Where data lie on this machine, and files that are either whole or not there."""

from __future__ import annotations

import os
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

SECONDS_TO_FORGET = 24 * 3600.0
"""A file that nobody has written to for so long is what a killed run left behind."""


def folder_of(name: str) -> Path:
    """Where a named data set, the FID network or the cache lives: $SCOREFIELD_DATA/name, or in the user's cache."""
    if root := os.environ.get("SCOREFIELD_DATA"):
        return Path(root).expanduser() / name
    return _user_cache() / "scorefield" / name


def _user_cache() -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


@contextmanager
def new_file(target: Path) -> Iterator[BinaryIO]:
    """A file to write, which becomes `target` when all of it is on the disk, and vanishes if anything goes wrong.

    Its name until then is its own, so several processes can make the same target at once: the last one to finish wins.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    _forget(target)
    part = target.with_name(f"{target.name}.{uuid.uuid4().hex}.part")
    try:
        with part.open("x+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)


def _forget(target: Path) -> None:
    """Remove the unfinished files of runs that were killed while they made this target."""
    for part in target.parent.glob(f"{target.name}.*.part"):
        with suppress(OSError):
            if time.time() - part.stat().st_mtime > SECONDS_TO_FORGET:
                part.unlink()
