"""Progress of long work on stderr: a bar on a terminal, and plain lines elsewhere (log files, CI)."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress

T = TypeVar("T")
Track = Callable[[Iterable[T], str, int], Iterator[T]]
"""(items, a description of the work, the number of items) -> the items."""

SECONDS_BETWEEN_LINES = 5.0


def track(items: Iterable[T], what: str, total: int) -> Iterator[T]:
    """The items, while stderr shows how many are done and how long the rest will take."""
    with Bar(what, total) as bar:
        for done, item in enumerate(items, 1):
            yield item
            bar.advance(done)


def silent(items: Iterable[T], what: str, total: int) -> Iterator[T]:
    """The items, without any output."""
    return iter(items)


class Bar:
    """Progress of work with `total` parts, of which `done` were done before. Use it as a context manager."""

    def __init__(self, what: str, total: int, *, done: int = 0) -> None:
        self.what, self.total, self.first, self.done = what, total, done, done
        self.note, self.ends = "", math.inf
        """`ends`: the time, by `time.monotonic`, at which the work stops in any case."""
        self.start = self.said = time.monotonic()
        self._rich: Progress | None = _rich() if sys.stderr.isatty() else None

    def __enter__(self) -> Bar:
        if self._rich:
            self._rich.start()
            self._rich.add_task(self.what, total=self.total, completed=self.done, note="", left="")
        return self

    def advance(self, done: int, note: str = "") -> None:
        """`done` parts are done now. `note` is shown beside them, a loss for instance."""
        self.done, self.note = done, note or self.note
        if self._rich:
            left = f"{duration(self._left())} left" if done > self.first else ""
            self._rich.update(self._rich.task_ids[0], completed=done, total=self.total, note=self.note, left=left)
        elif time.monotonic() - self.said >= SECONDS_BETWEEN_LINES:
            self.said = time.monotonic()
            self._line(f"{duration(self._left())} left")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._rich:
            self._rich.stop()
        elif kind is None:
            self._line(f"took {duration(time.monotonic() - self.start)}")

    def _left(self) -> float:
        """How many seconds the rest will take."""
        now = time.monotonic()
        rest = (now - self.start) / (self.done - self.first) * (self.total - self.done)
        return max(0.0, min(rest, self.ends - now))

    def _line(self, time_words: str) -> None:
        note = f", {self.note}" if self.note else ""
        print(f"{self.what}: {self.done} of {self.total}{note}, {time_words}", file=sys.stderr, flush=True)


def _rich() -> Progress:
    from rich import progress
    from rich.console import Console

    return progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TextColumn("{task.fields[note]}"),
        progress.TimeElapsedColumn(),
        progress.TextColumn("[dim]{task.fields[left]}"),
        console=Console(stderr=True),
    )


def plural(n: int, noun: str) -> str:
    """1 image, 2 images, 10,000 images."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def duration(seconds: float) -> str:
    """12 s, 3 min 20 s, 5 h 7 min, 3 d 4 h."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    whole = int(seconds)
    if whole < 100 * 60:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 100 * 3600:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"
