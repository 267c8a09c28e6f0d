"""How long jobs take on this machine, from measured speed."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import NamedTuple

NEAR = 4
"""The speed for a batch says little about one that is more than this many times larger or smaller."""


class Work(NamedTuple):
    """What a job computes."""

    what: Hashable
    """What tells one network from another."""
    n: int
    """Images in the batch."""
    calls: int
    """Calls of the network."""


class Speeds:
    """Seconds for one call of each network, for the sizes of batches that were measured."""

    def __init__(self) -> None:
        self._seconds: dict[Hashable, dict[int, float]] = {}

    def record(self, work: Work, seconds: float) -> None:
        """Keep the seconds that one call took. The latest measurement counts."""
        self._seconds.setdefault(work.what, {})[work.n] = seconds

    def knows(self, work: Work) -> bool:
        """Whether a batch of nearly this size was measured."""
        return any(max(n, work.n) <= NEAR * min(n, work.n) for n in self._seconds.get(work.what, ()))

    def estimate(self, work: Work) -> float | None:
        """Seconds for this work: calls × images × seconds for each, from the nearest size that was measured."""
        measured = self._seconds.get(work.what)
        if not measured:
            return None
        n = min(measured, key=lambda size: abs(math.log(size / work.n)))
        return work.calls * work.n * measured[n] / n


def rounded(seconds: float | None) -> float | None:
    """Seconds for JSON."""
    return None if seconds is None else round(seconds, 1)


def in_words(seconds: float) -> str:
    """A duration for a message: 40 seconds, 7 minutes, 2.5 hours."""
    if seconds < 100:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 6000 else f"{seconds / 3600:.3g} hours"
