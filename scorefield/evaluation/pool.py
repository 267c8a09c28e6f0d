"""Samples of a model on the disk: drawn once, by one process or many, and found there by whoever asks again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import astuple, dataclass, replace
from itertools import chain
from pathlib import Path

import numpy as np

from scorefield.acceleration import kernels
from scorefield.models.checkpoint import Model
from scorefield.data import folder_of
from scorefield.data.images import Pixels
from scorefield.distributed import Group
from scorefield.acceleration.fast import for_sampling
from scorefield.models.generate import generate
from scorefield.images import save_npy, to_bytes
from scorefield.noise import sample_seeds
from scorefield.progress import Track, silent
from scorefield.samplers import State
from scorefield.score import Score

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
    precision: str = "auto"


def at_once(size: int, group: Group) -> int:
    """How many samples to draw together, `size` at most: a CPU gains nothing by many, and an interrupt costs more."""
    return size if group.device.type == "cuda" else min(size, CHUNK)


class Pool:
    """Sample number 0, 1, 2, ... of a model, as many as were ever asked for."""

    def __init__(self, model: Model, how: How) -> None:
        plain = how.precision == "float32" or not kernels.usable(model.sigmas)
        settings = replace(how, precision="float32" if plain else "float16")
        key = hashlib.sha256(repr((VERSION, model.digest, model.weights, astuple(settings))).encode()).hexdigest()
        self.model, self.how = model, settings
        self.folder: Path = folder_of("samples") / key[:24]

    def pair(self, n: int, group: Group, *, batch_size: int, track: Track[object] = silent) -> tuple[Samples, Samples]:
        """The first n samples without and with the last denoising step, from one run of the sampler where possible."""
        pools = (Pool(self.model, replace(self.how, denoise=denoise)) for denoise in (True, False))
        denoised, plain = (pool.draw(n, group, batch_size=batch_size, track=track) for pool in pools)
        return plain, denoised

    def missing(self, n: int) -> list[range]:
        """What is not on the disk yet of the first n samples."""
        chunks = [range(start, min(start + CHUNK, n)) for start in range(0, n, CHUNK)]
        return [chunk for chunk in chunks if self._found(chunk) is None]

    def draw(self, n: int, group: Group, *, batch_size: int, track: Track[object] = silent) -> Samples:
        """The first n samples; what is missing of them is drawn by all processes of the group together."""
        missing = group.all(self.missing(n))[0]
        mine = missing[group.rank :: group.world]
        together = max(1, batch_size // CHUNK)
        batches = [mine[k : k + together] for k in range(0, len(mine), together)]
        problem: FloatingPointError | None = None
        try:
            self._draw(batches, min(batch_size, n), f"sampling {sum(map(len, missing))} images", track)
        except FloatingPointError as error:
            problem = error
        for each in group.all(problem):  # sampling that diverges fails for all processes
            if each is not None:
                raise each
        if lost := self.missing(n):
            raise OSError(f"{self._file(lost[0])} is missing (all machines must share that folder: SCOREFIELD_DATA)")
        return Samples(self, n)

    def _draw(self, batches: list[list[range]], size: int, what: str, track: Track[object]) -> None:
        if batches:
            calls = self.how.steps * len(self.model.sigmas) + self.how.denoise
            parts = sum(-(-sum(map(len, batch)) // size) for batch in batches)
            score = for_sampling(self.model.network, self.model.shape, size=size, precision=self.how.precision)
            states = chain.from_iterable(self._drawn(score, batch, size) for batch in batches)
            for _ in track(states, what, calls * parts):
                pass

    def _drawn(self, score: Score, chunks: list[range], size: int) -> Iterator[State]:
        """The states of a batch that makes these chunks, at most `size` images at once; its end writes them.

        The state before the last denoising step is the sample without it, and is written as well.
        """
        seeds = [seed for chunk in chunks for seed in sample_seeds(self.how.seed, chunk)]
        plain = Pool(self.model, replace(self.how, denoise=False))
        made: dict[Pool, list[Pixels]] = {plain: [], self: []} if self.how.denoise else {self: []}
        ends = dict(enumerate(made, self.how.steps * len(self.model.sigmas)))
        for first in range(0, len(seeds), size):
            for state in generate(
                score,
                self.model.sigmas,
                self.model.shape,
                seeds[first : first + size],
                step_size=self.how.step_size,
                steps=self.how.steps,
                denoise=self.how.denoise,
            ):
                if state.step in ends:
                    made[ends[state.step]].append(to_bytes(state.x))
                yield state
        for pool, parts in made.items():
            pool._write(chunks, np.concatenate(parts))

    def _write(self, chunks: list[range], pixels: Pixels) -> None:
        first = 0
        for chunk in chunks:
            save_npy(self._file(chunk), pixels[first : first + len(chunk)])
            first += len(chunk)

    def _file(self, chunk: range) -> Path:
        """Its length is in its name: the last one may be short, and grow when more are asked for."""
        return self.folder / f"{chunk.start:08d}-{len(chunk)}.npy"

    def _found(self, chunk: range) -> Pixels | None:
        """The images of a chunk, from its own file or that of the whole one."""
        for wanted in (chunk, range(chunk.start, chunk.start + CHUNK)):
            with suppress(OSError, ValueError, EOFError):
                pixels: Pixels = np.load(self._file(wanted), mmap_mode="r")
                if len(pixels) == len(wanted):
                    return pixels[: len(chunk)]
        return None


class Samples:
    """The first n images of a pool, read from the disk as they are asked for, by slices."""

    def __init__(self, pool: Pool, n: int) -> None:
        self.pool, self.n = pool, n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, part: slice) -> Pixels:
        start, stop, _ = part.indices(self.n)
        first = start // CHUNK * CHUNK
        chunks = [self.pool._found(range(k, min(k + CHUNK, self.n))) for k in range(first, stop, CHUNK)]
        if any(chunk is None for chunk in chunks):
            raise OSError(f"samples vanished from {self.pool.folder} while they were read (run it again)")
        return np.concatenate([chunk for chunk in chunks if chunk is not None])[start - first : stop - first]
