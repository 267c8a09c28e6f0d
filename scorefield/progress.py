"""Progress of long work, on stderr: a bar on a terminal, a plain line now and then elsewhere (log files, CI)."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")
Track = Callable[[Iterable[T], str, int], Iterator[T]]
"""(items, what is being done, how many items) -> the items."""

SECONDS_BETWEEN_LINES = 5.0


def track(items: Iterable[T], what: str, total: int) -> Iterator[T]:
    """The items, while a bar or lines on stderr tell how far they are and how long the rest will take."""
    return _bar(items, what, total) if sys.stderr.isatty() else _lines(items, what, total)


def silent(items: Iterable[T], what: str, total: int) -> Iterator[T]:
    """The items, and not a word."""
    return iter(items)


def _bar(items: Iterable[T], what: str, total: int) -> Iterator[T]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    left = (TextColumn("[dim]left"), TimeRemainingColumn())
    with Progress(*columns, *left, console=Console(stderr=True)) as progress:
        task = progress.add_task(what, total=total)
        for item in items:
            yield item
            progress.advance(task)


def _lines(items: Iterable[T], what: str, total: int) -> Iterator[T]:
    start = said = time.monotonic()
    done = 0
    for done, item in enumerate(items, 1):
        yield item
        now = time.monotonic()
        if now - said >= SECONDS_BETWEEN_LINES:
            said = now
            left = (now - start) / done * (total - done)
            print(f"{what}: {done} of {total}, {left:.0f} s left", file=sys.stderr, flush=True)
    print(f"{what}: {done} of {total} in {time.monotonic() - start:.1f} s", file=sys.stderr, flush=True)
