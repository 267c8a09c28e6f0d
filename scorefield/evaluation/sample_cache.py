"""The sample cache: samples of a model on disk, drawn once, by one process or several, and found again later."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from scorefield import samplers
from scorefield.acceleration import sampling_precision
from scorefield.data import folder_of
from scorefield.data.images import Pixels
from scorefield.data.npy import map_array
from scorefield.distributed import Group
from scorefield.files import check_writable
from scorefield.images import save_npy, to_bytes
from scorefield.models.model import Model, class_name
from scorefield.progress import Track, plural, silent
from scorefield.samplers import State

CHUNK = 50
"""Images per file. Sampling that was interrupted goes on with the files that are missing."""
VERSION = 1
"""Raised whenever the same settings would give other images."""


def cached_batch_size(size: int, group: Group) -> int:
    """How many samples to draw at once, at most `size`: larger batches gain nothing on a CPU, where an interrupt would
    lose more."""
    return size if group.device.type == "cuda" else min(size, CHUNK)


class SampleCache:
    """Samples number 0, 1, 2, ... of a model by one sampler and seed. The key of their folder is made from everything
    that decides what they look like.

    `label` and `guidance` are those of `Model.sample`, with one label for all."""

    def __init__(
        self,
        model: Model,
        sampler: Any,  # noqa: ANN401
        *,
        seed: int = 0,
        precision: str = "auto",
        label: str | int | None = None,
        guidance: float = 0.0,
    ) -> None:
        if getattr(sampler, "name", None) not in samplers.SAMPLERS:
            raise ValueError(
                f"samples by {type(sampler).__name__} cannot be kept on disk, because that sampler has no name in the "
                "registry (give its class a `name` and decorate it with scorefield.samplers.register)"
            )
        if not model.digest:
            raise ValueError("samples of a model without a file cannot be kept on disk (save it, and load the file)")
        model.check_guidance(guidance, label)
        number = model.class_numbers(label, 1)
        self.model, self.sampler, self.seed, self.guidance = model, sampler, seed, float(guidance)
        self.label = None if number is None else class_name(model.labels, number[0])
        self.precision = sampling_precision(model.network, precision)
        settings = json.dumps(samplers.to_dict(sampler), sort_keys=True)
        key: tuple[object, ...] = (VERSION, model.digest, model.weights, settings, seed, self.precision)
        if number is not None or guidance:  # older caches have neither
            key += (number, self.guidance)
        self.folder: Path = folder_of("samples") / hashlib.sha256(repr(key).encode()).hexdigest()[:24]

    @property
    def settings(self) -> dict[str, Any]:
        """How to sample, for `Model.states`."""
        return {
            "sampler": self.sampler,
            "seed": self.seed,
            "precision": self.precision,
            "label": self.label,
            "guidance": self.guidance,
        }

    def with_sampler(self, sampler: Any) -> SampleCache:  # noqa: ANN401
        """The cache of samples by another sampler, with the same other settings."""
        return SampleCache(self.model, **self.settings | {"sampler": sampler})

    def with_denoising(self, denoise: bool) -> SampleCache:
        """The cache of the same samples with or without the last denoising step; of these samples themselves if the
        sampler has no such setting."""
        return self.with_sampler(samplers.with_denoising(self.sampler, denoise))

    def pair(
        self, n: int, group: Group, *, batch_size: int, track: Track[object] = silent
    ) -> tuple[CachedSamples, CachedSamples]:
        """The first n samples without and with the last denoising step, from one run of the sampler where possible.

        A sampler that has no such setting gives the same samples twice.
        """
        plain, denoised = (self.with_denoising(denoise) for denoise in (False, True))
        second = denoised.draw(n, group, batch_size=batch_size, track=track)
        if plain.folder == denoised.folder:
            return second, second
        return plain.draw(n, group, batch_size=batch_size, track=track), second

    def missing(self, n: int) -> list[range]:
        """The chunks of the first n samples that are not on disk yet."""
        chunks = [range(start, min(start + CHUNK, n)) for start in range(0, n, CHUNK)]
        return [chunk for chunk in chunks if self.read(chunk) is None]

    def draw(self, n: int, group: Group, *, batch_size: int, track: Track[object] = silent) -> CachedSamples:
        """The first n samples. All processes of the group together draw those that are missing."""
        missing = group.all(self.missing(n))[0]
        if missing:
            needed = sum(map(len, missing)) * math.prod(self.model.shape)
            check_writable(self.folder, size=needed, fix="name another folder for samples with SCOREFIELD_DATA")
        mine = missing[group.rank :: group.world]
        together = max(1, batch_size // CHUNK)
        batches = [mine[k : k + together] for k in range(0, len(mine), together)]
        size = min(batch_size, n)
        parts = sum(-(-sum(map(len, batch)) // size) for batch in batches)
        states = chain.from_iterable(self._states(batch, size) for batch in batches)
        problem: FloatingPointError | None = None
        try:
            if batches:
                for _ in track(
                    states, f"sampling {plural(sum(map(len, missing)), 'image')}", self.sampler.updates * parts
                ):
                    pass
        except FloatingPointError as error:
            problem = error
        for each in group.all(problem):  # sampling that diverges fails in all processes
            if each is not None:
                raise each
        if lost := self.missing(n):
            raise OSError(f"{self._file(lost[0])} is missing (all machines must share that folder: SCOREFIELD_DATA)")
        return CachedSamples(self, n)

    def _states(self, chunks: list[range], size: int) -> Iterator[State]:
        """The states after each update of the samples in these chunks, which are written in the end.

        At most `size` samples are drawn at once. The state before a last denoising step is the sample without it, and
        is written to the cache of such samples.
        """
        numbers = [number for chunk in chunks for number in chunk]
        plain = self.with_denoising(False)
        caches = {plain.sampler.updates: plain} | {self.sampler.updates: self}
        images: dict[int, list[Pixels]] = {step: [] for step in caches}
        for first in range(0, len(numbers), size):
            for state in self.model.states(numbers[first : first + size], size=size, **self.settings):
                if state.step in caches:
                    images[state.step].append(to_bytes(state.x))
                if state.step:
                    yield state
        for step, cache in caches.items():
            cache._write(chunks, np.concatenate(images[step]))

    def _write(self, chunks: list[range], pixels: Pixels) -> None:
        first = 0
        for chunk in chunks:
            save_npy(self._file(chunk), pixels[first : first + len(chunk)])
            first += len(chunk)

    def _file(self, chunk: range) -> Path:
        """The length is in the name: the last chunk may be short, and a longer one may be drawn later."""
        return self.folder / f"{chunk.start:08d}-{len(chunk)}.npy"

    def read(self, chunk: range) -> Pixels | None:
        """The images of a chunk, from its own file or that of the full chunk; None if neither is there and whole."""
        shape = (*self.model.shape[1:], self.model.shape[0])
        for wanted in (chunk, range(chunk.start, chunk.start + CHUNK)):
            with suppress(OSError, ValueError):
                pixels: Pixels = map_array(self._file(wanted))
                if pixels.shape == (len(wanted), *shape) and pixels.dtype == np.uint8:
                    return pixels[: len(chunk)]
        return None


class CachedSamples:
    """The first n images of a cache, read from disk slice by slice."""

    def __init__(self, cache: SampleCache, n: int) -> None:
        self.cache, self.n = cache, n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, part: slice) -> Pixels:
        start, stop, _ = part.indices(self.n)
        first = start // CHUNK * CHUNK
        chunks = [self.cache.read(range(k, min(k + CHUNK, self.n))) for k in range(first, stop, CHUNK)]
        if any(chunk is None for chunk in chunks):
            raise OSError(f"samples disappeared from {self.cache.folder} while they were read (run it again)")
        return np.concatenate([chunk for chunk in chunks if chunk is not None])[start - first : stop - first]
