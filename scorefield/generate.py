"""Samples and completions of a trained model, each from a seed of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from scorefield.constraints import known_pixels
from scorefield.noise import SampleNoise
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
    noise = SampleNoise(seeds)
    x = noise.rand_like(torch.empty(len(seeds), *shape, device=sigmas.device))
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
