"""Files that are either whole or absent, JSON without NaN, and paths for messages."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

SECONDS_TO_FORGET = 24 * 3600.0
"""An unfinished file of this age was left behind by a killed run."""


@contextmanager
def new_file(target: Path, *, tidy: bool = True) -> Iterator[BinaryIO]:
    """A file to write, which becomes `target` when all of it is on the disk, and is removed if anything goes wrong.

    It has a temporary name until then, so several processes can make the same target at once: the last one wins.
    `tidy` removes what killed processes left of the same target, which takes a search of the folder. A link stays a
    link, and the file it points to is replaced; a device or a pipe is written to directly.
    """
    target = target.resolve() if target.is_symlink() else target
    with writing(target):
        if target.exists() and not (target.is_file() or target.is_dir()):
            with target.open("wb") as file:
                yield file
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        if tidy:
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


@contextmanager
def writing(target: Path) -> Iterator[None]:
    """Around writes to `target`: turn the system's errors into messages that name the file and the fix."""
    cures = {errno.ENOSPC: " (free some space)", errno.EDQUOT: " (free some space)", errno.EROFS: " (name another)"}
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise  # not an error of the system
        cure = cures.get(error.errno, "")
        raise OSError(error.errno, f"could not write {target}: {os.strerror(error.errno)}{cure}") from error


def check_writable(folder: Path, *, size: int = 0, fix: str) -> None:
    """Check before long work that a file of that many bytes can be written into this folder, which is made if it is
    missing. `fix` is the end of the error's message."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(f"cannot make the folder {folder}: {error.strerror} ({fix})") from error
    try:
        with tempfile.TemporaryFile(dir=folder) as file:  # permissions do not tell: /proc has those of a usual folder
            file.write(bytes(4096))
            file.flush()
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise OSError(f"cannot write into {folder}: {error.strerror} ({fix})") from error
    if free < size:
        have, wanted = (f"{number / 1e6:,.0f} MB" for number in (free, size))
        raise OSError(f"{folder} has {have} of free space, but {wanted} are needed ({fix})")


def _forget(target: Path) -> None:
    """Remove unfinished files of runs that were killed while they wrote this target."""
    for part in target.parent.glob(f"{target.name}.*.part"):
        with suppress(OSError):
            if time.time() - part.stat().st_mtime > SECONDS_TO_FORGET:
                part.unlink()


def plain(value: Any) -> Any:  # noqa: ANN401
    """The value for JSON, which has no NaN: null takes its place."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_json(path: Path, numbers: dict[str, Any]) -> None:
    """Write numbers for programs. A list of numbers is one line, so that people can read it too."""
    text = json.dumps(plain(numbers), indent=2, ensure_ascii=False)
    text = re.sub(r"\[\n([^\[\]{}\"]+)\n *\]", lambda found: f"[{' '.join(found[1].split())}]", text)
    with new_file(path) as file:
        file.write(text.encode() + b"\n")


def parse_json(text: str | bytes) -> Any:  # noqa: ANN401
    """The value in a JSON text. Nesting that is too deep is a ValueError, too."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_json(path: Path) -> Any:  # noqa: ANN401
    """The value in a JSON file. If the file is damaged, a ValueError names it."""
    try:
        return parse_json(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is damaged or no JSON file: {error}") from error


def from_here(path: Path) -> str | None:
    """A full path relative to the current folder; None if it is elsewhere."""
    here = Path.cwd()
    return path.relative_to(here).as_posix() if path.is_relative_to(here) else None
