"""Hamiltonian dynamics at each noise level.

    x = last(annealed_hmc(model.score, torch.rand(64, 1, 28, 28), [*sigmas, 0], step_size=0.5, steps=10, leapfrog=5))

The paper (Section 2.2) leaves open which sampler uses the score. Hamiltonian dynamics gives x a momentum, by which it
goes farther in a few steps than the random walk of Langevin dynamics.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from scorefield.noise import RandnLike
from scorefield.samplers.base import (
    Constraint,
    State,
    draw,
    lost,
    path_from,
    score_at,
    unconstrained,
)
from scorefield.samplers.checks import check_count, check_leapfrog_size
from scorefield.samplers.metropolis import accept, choose, log_density_for, squared_norm
from scorefield.score import LogDensity, Score, denoised, same_shape


def annealed_hmc(
    score: Score,
    x: Tensor,
    sigmas: Tensor | Sequence[float],
    *,
    step_size: float = 0.5,
    steps: int = 10,
    leapfrog: int = 5,
    metropolis: bool | None = None,
    constraint: Constraint = unconstrained,
    randn_like: RandnLike = torch.randn_like,
) -> Iterator[State]:
    """At each σᵢ, `steps` times: a fresh momentum p ~ N(0, I), then `leapfrog` times, with ε = step_size σᵢ,

        x ← x + ε/2 p,   p ← p + ε s(x, σᵢ),   x ← x + ε/2 p.

    `leapfrog` calls each time. A last σ of 0 ends with the denoising x + σ² s. Stable below step_size 2.

    With `metropolis`, the move to (x', p') is made with probability min(1, exp(H(x, p) − H(x', p'))),
    H = |p|²/2 − log q_σ(x), and the samples of each level are exact in the limit of many steps. That needs log q_σ,
    which only a score of `from_energy` or of an object with `log_prob`, such as a mixture, can tell. Without the test
    the steps leave an error of the order of step_size². None: the test is made where it can be.
    """
    levels, sigma = path_from(x, sigmas)
    check_count("steps", steps)
    check_count("leapfrog", leapfrog)
    check_leapfrog_size("step_size", step_size)
    log_density = log_density_for(score, metropolis)
    return _trajectories(score, x, levels, sigma, step_size, steps, leapfrog, log_density, constraint, randn_like)


@torch.no_grad()
def _trajectories(
    score: Score,
    x: Tensor,
    levels: Tensor,
    sigma: list[float],
    step_size: float,
    steps: int,
    leapfrog: int,
    log_density: LogDensity | None,
    constraint: Constraint,
    randn_like: RandnLike,
) -> Iterator[State]:
    yield State(x, levels[0], 0)
    step = 0
    for level, now in zip(levels, sigma, strict=True):
        constrain = constraint(level)
        if now == 0:
            x = constrain(denoised(score, x, levels[-2]))
            yield State(x, level, step + 1)
            return
        x, epsilon = same_shape(constrain(x), x, "a constraint"), step_size * now
        for _ in range(steps):
            step, before, accepted = step + 1, x, None
            p = draw(randn_like, x)
            x, momentum = _leapfrog(score, x, p, level, epsilon, leapfrog)
            if log_density is not None:
                gain = log_density(x, level) - log_density(before, level)
                gain = gain - (squared_norm(momentum) - squared_norm(p)) / 2
                accepted = accept(gain, randn_like)
                x = choose(accepted, x, before)
            x = same_shape(constrain(x), x, "a constraint")
            if not x.isfinite().all():
                raise lost(before, step, now)
            yield State(x, level, step, accepted)


def _leapfrog(score: Score, x: Tensor, p: Tensor, level: Tensor, epsilon: float, steps: int) -> tuple[Tensor, Tensor]:
    """x and p after so many leapfrog steps: half a step of x, a step of p, half a step of x."""
    for _ in range(steps):
        x = x + epsilon / 2 * p
        p = p + epsilon * score_at(score, x, level)
        x = x + epsilon / 2 * p
    return x, p
