"""Samples and completions of a trained model, each from a seed of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scorefield.constraints import known_pixels
from scorefield.images import to_bytes
from scorefield.noise import SampleNoise, sample_seeds
from scorefield.progress import Track, silent
from scorefield.samplers import Constraint, State, annealed_langevin, unconstrained
from scorefield.score import Score


def generate(
    score: Score,
    sigmas: Tensor,
    shape: tuple[int, ...],
    seeds: Sequence[int],
    *,
    step_size: float,
    steps: int,
    denoise: bool = False,
    known: tuple[Tensor, Tensor] | None = None,
) -> Iterator[State]:
    """One sample for each seed, by annealed Langevin dynamics from uniform noise, on the sigmas' device.

    `known`: an image y of that shape and a mask, 1 where it is known, for samples that complete it. A single σ makes
    this plain Langevin dynamics.
    """
    x, noise = start_of(seeds, shape, sigmas.device)
    constraint: Constraint = unconstrained
    if known is not None:
        y, mask = known
        constraint = known_pixels(y.to(x).expand_as(x), mask, randn_like=noise.randn_like)
    return annealed_langevin(
        score,
        x,
        sigmas,
        step_size=step_size,
        steps=steps,
        constraint=constraint,
        randn_like=noise.randn_like,
        denoise=denoise,
    )


def start_of(seeds: Sequence[int], shape: tuple[int, ...], device: torch.device) -> tuple[Tensor, SampleNoise]:
    """Uniform noise, which is the first draw of each sample's; and the noise that goes on from there."""
    noise = SampleNoise(seeds)
    return noise.rand_like(torch.empty(len(seeds), *shape, device=device)), noise


def kept_steps(total: int, frames: int) -> set[int]:
    """At most so many of the steps 0 ... total, evenly spaced, the first and the last among them."""
    return set(np.linspace(0, total, min(frames, total + 1)).round().astype(int).tolist())


def drawn_batches(
    score: Score,
    sigmas: Tensor,
    shape: tuple[int, int, int],
    numbers: range,
    *,
    seed: int,
    step_size: float,
    steps: int,
    batch_size: int,
    denoise: bool = False,
    known: tuple[Tensor, Tensor] | None = None,
    frames: int = 1,
    track: Track[tuple[int, State]] = silent,
    what: str = "sampling",
) -> Iterator[tuple[range, np.ndarray]]:
    """Samples of these numbers, batch by batch: the numbers, and bytes (N, frames, H, W, C), the last frame being the
    end of the sampling.

    Number k depends on (seed, k) alone. There are fewer frames where the sampler has fewer states.
    """
    batches = [numbers[k : k + batch_size] for k in range(0, len(numbers), batch_size)]
    total = steps * len(sigmas) + denoise
    keep = set(np.linspace(total, 0, frames, endpoint=False).round().astype(int).tolist()) - {0}
    kept: list[np.ndarray] = []
    one = partial(generate, score, sigmas, shape, step_size=step_size, steps=steps, denoise=denoise, known=known)

    def states() -> Iterator[tuple[int, State]]:
        for number, batch in enumerate(batches):
            for state in one(sample_seeds(seed, batch)):
                yield number, state

    for number, state in track(states(), what, total * len(batches)):
        if state.step in keep:
            kept.append(to_bytes(state.x))
        if state.step == total:
            yield batches[number], np.stack(kept, axis=1)
            kept = []


def drawn(
    score: Score,
    sigmas: Tensor,
    shape: tuple[int, int, int],
    numbers: range,
    **settings: Any,  # noqa: ANN401
) -> np.ndarray:
    """The samples of `drawn_batches` all together, (N, frames, H, W, C)."""
    return np.concatenate([images for _, images in drawn_batches(score, sigmas, shape, numbers, **settings)])
