"""A disk under a training run that dies at a chosen operation, as if the process or the machine had gone down."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeVar

import pytest

T = TypeVar("T")
How = Literal["before", "half", "most", "after", "power cut"]
HOWS: tuple[How, ...] = ("before", "half", "most", "after", "power cut")


class Killed(BaseException):
    """Raised where the process dies. Nothing catches it."""


class FailingDisk:
    """Counts what changes the disk: files opened to be written, writes, syncs, renames, removals and new folders.

    Number `moment` of these is the last. It is not done (`before`); if it is a write, its first half is done (`half`),
    or all but its last two bytes (`most`); it is done (`after`); or it is not done and everything that was not synced
    is lost with it (`power cut`). What the dying program does after that changes nothing any more.
    """

    def __init__(self, folder: Path, *, moment: int = 0, how: How = "before") -> None:
        self.folder, self.moment, self.how = folder, moment, how
        self.operations, self.dead = 0, False
        self._on_disk: dict[int, int] = {}
        """The size of each file that is safe from a power cut, by inode."""

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Put it in place of the real one."""
        opened = Path.open

        def open_(path: Path, mode: str = "r", *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            if not set(mode) & set("wxa+"):
                return opened(path, mode, *args, **kwargs)
            return self.do(lambda: self._open(path, mode)) or io.BytesIO()

        patch.setattr(Path, "open", open_)
        patch.setattr(os, "fsync", lambda descriptor: self.do(lambda: self._sync(descriptor)))
        for place, name in ((os, "replace"), (Path, "unlink"), (Path, "mkdir"), (Path, "rmdir")):
            patch.setattr(place, name, self._counted(getattr(place, name)))

    def do(self, operation: Callable[[], T], part: Callable[[bool], object] = lambda half: None) -> T | None:
        """One operation, the last one if its number is up. After that, nothing. `part` does a part of it."""
        if self.dead:
            return None
        self.operations += 1
        if self.operations != self.moment:
            return operation()
        self.dead = True
        if self.how == "after":
            done = operation()
            if isinstance(done, io.IOBase):
                done.close()
        elif self.how in ("half", "most"):
            part(self.how == "half")
        elif self.how == "power cut":
            self._lose_what_was_not_synced()
        raise Killed

    def _counted(self, real: Callable[..., T]) -> Callable[..., T | None]:
        return lambda *args, **kwargs: self.do(lambda: real(*args, **kwargs))

    def _open(self, path: Path, mode: str) -> io.IOBase:
        raw = _Raw(path, mode.replace("b", ""), self)
        status = os.fstat(raw.fileno())
        self._on_disk.setdefault(status.st_ino, status.st_size)
        buffered = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
        return buffered if "b" in mode else io.TextIOWrapper(buffered, encoding="utf-8", newline="")

    def _sync(self, descriptor: int) -> None:
        status = os.fstat(descriptor)
        self._on_disk[status.st_ino] = status.st_size

    def _lose_what_was_not_synced(self) -> None:
        for path in self.folder.rglob("*"):
            status = path.stat()
            if self._on_disk.get(status.st_ino, status.st_size) < status.st_size:
                os.truncate(path, self._on_disk[status.st_ino])


class _Raw(io.FileIO):
    def __init__(self, path: Path, mode: str, disk: FailingDisk) -> None:
        super().__init__(path, mode)
        self._disk = disk

    def write(self, data: Any) -> int:  # noqa: ANN401
        content, write = bytes(data), super().write
        self._disk.do(lambda: write(content), lambda half: write(content[: len(content) // 2 if half else -2]))
        return len(content)
