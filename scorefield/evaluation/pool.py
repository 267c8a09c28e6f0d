"""Samples of a model on the disk: drawn once, by one process or many, and found there by whoever asks again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from scorefield.checkpoint import Model
from scorefield.data import folder_of
from scorefield.data.images import Pixels
from scorefield.distributed import Group
from scorefield.generate import generate
from scorefield.images import save_npy, to_bytes
from scorefield.noise import sample_seeds
from scorefield.progress import Track, silent
from scorefield.samplers import State

CHUNK = 50
"""Images in a file. Sampling that was interrupted goes on at the files that are missing."""
VERSION = 1
"""Raised when the same settings would give other images."""


@dataclass(frozen=True)
class How:
    """All that decides on a model's sample number k, but k."""

    steps: int
    step_size: float
    denoise: bool
    seed: int


class Pool:
    """Sample number 0, 1, 2, ... of a model, as many as were ever asked for."""

    def __init__(self, model: Model, how: How) -> None:
        key = hashlib.sha256(repr((VERSION, model.digest, model.weights, astuple(how))).encode()).hexdigest()
        self.model, self.how = model, how
        self.folder: Path = folder_of("samples") / key[:24]

    def draw(self, n: int, group: Group, *, batch_size: int, track: Track[object] = silent) -> Samples:
        """The first n samples; what is missing of them is drawn by all processes of the group together."""
        chunks = range(0, n, CHUNK)
        missing = [start for start in chunks if not self._has(start, min(start + CHUNK, n))]
        group.wait()  # all have looked before any writes
        mine = missing[group.rank :: group.world]
        together = max(1, batch_size // CHUNK)
        batches = [mine[k : k + together] for k in range(0, len(mine), together)]
        if batches:
            calls = self.how.steps * len(self.model.sigmas) + self.how.denoise
            states = chain.from_iterable(self._drawn(batch, n) for batch in batches)
            what = f"sampling {CHUNK * len(missing) if len(missing) < len(chunks) else n} images"
            for _ in track(states, what, calls * len(batches)):
                pass
        group.wait()
        if lost := [start for start in chunks if not self._has(start, min(start + CHUNK, n))]:
            raise OSError(f"{self._file(lost[0])} is missing (all machines must share that folder: SCOREFIELD_DATA)")
        return Samples(self, n)

    def _drawn(self, starts: list[int], n: int) -> Iterator[State]:
        """The states of a batch that makes these chunks, which are written at its end."""
        places = [range(start, min(start + CHUNK, n)) for start in starts]
        seeds = [seed for part in places for seed in sample_seeds(self.how.seed, part)]
        state = None
        for state in generate(
            self.model.score,
            self.model.sigmas,
            self.model.shape,
            seeds,
            step_size=self.how.step_size,
            steps=self.how.steps,
            denoise=self.how.denoise,
        ):
            yield state
        assert state is not None
        pixels, first = to_bytes(state.x), 0
        for part in places:
            save_npy(self._file(part.start), pixels[first : first + len(part)])
            first += len(part)

    def _file(self, start: int) -> Path:
        return self.folder / f"{start:08d}.npy"

    def _has(self, start: int, stop: int) -> bool:
        try:
            return len(np.load(self._file(start), mmap_mode="r")) >= stop - start
        except (OSError, ValueError):
            return False

    def chunk(self, start: int) -> Pixels:
        return np.load(self._file(start))


class Samples:
    """The first n images of a pool, read from the disk as they are asked for, by slices."""

    def __init__(self, pool: Pool, n: int) -> None:
        self.pool, self.n = pool, n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, part: slice) -> Pixels:
        start, stop, _ = part.indices(self.n)
        first = start // CHUNK * CHUNK
        chunks = [self.pool.chunk(k) for k in range(first, stop, CHUNK)]
        return np.concatenate(chunks)[start - first : stop - first]
