"""Langevin dynamics at one noise level (Eq. 4), and annealed over many (Algorithm 1).

    x = last(annealed_langevin(model.score, torch.rand(64, 1, 28, 28), sigmas, step_size=2e-5, steps=100))

The step size is the paper's: x + α/2 s + √α z. (The code released with the paper takes x + α s + √(2α) z, so that its
2e-5 is 4e-5 here.)
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from scorefield.noise import RandnLike, as_schedule
from scorefield.samplers.base import (
    Constraint,
    State,
    check_start,
    draw,
    lost,
    score_at,
    unconstrained,
    warn_if_unstable,
)
from scorefield.samplers.metropolis import accept, choose, log_density_for, squared_norm
from scorefield.score import LogDensity, Score, denoised, same_shape


def langevin(
    score: Score,
    x: Tensor,
    sigma: Tensor | float,
    *,
    step_size: float,
    steps: int,
    constraint: Constraint = unconstrained,
    randn_like: RandnLike = torch.randn_like,
    denoise: bool = False,
    metropolis: bool = False,
) -> Iterator[State]:
    """Eq. 4:  x ← x + ε/2 s(x, σ) + √ε z,  `steps` times, with ε = step_size.

    `denoise` ends with one more state, x + σ²s(x, σ), constrained as without noise.

    `metropolis` makes the Metropolis-adjusted form (MALA): the move from x to x' is made with probability

        min(1, q_σ(x') N(x; x' + ε/2 s(x', σ), ε) / (q_σ(x) N(x'; x + ε/2 s(x, σ), ε))),

    by which the samples are exact in the limit of many steps, whatever ε is. That needs log q_σ, which only a score of
    `from_energy` or of an object with `log_prob`, such as a mixture, can tell.
    """
    sigma = check_start(x, sigma, step_size, steps)
    if metropolis:
        log_density = log_density_for(score, metropolis)
        assert log_density is not None
        return _adjusted(score, log_density, x, sigma, step_size, steps, constraint, randn_like, denoise)
    warn_if_unstable(sigma, step_size)
    return _descend(score, x, [sigma], [step_size], steps, constraint, randn_like, denoise)


def annealed_langevin(
    score: Score,
    x: Tensor,
    sigmas: Tensor | Sequence[float],
    *,
    step_size: float,
    steps: int,
    constraint: Constraint = unconstrained,
    randn_like: RandnLike = torch.randn_like,
    denoise: bool = False,
) -> Iterator[State]:
    """Algorithm 1:  for each σᵢ, `steps` updates  x ← x + αᵢ/2 s(x, σᵢ) + √αᵢ z,  αᵢ = ε σᵢ²/σ_L²,  ε = step_size.

    `denoise` ends with one more state, x + σ_L²s(x, σ_L), constrained as without noise. Results with and without it
    differ, so a report must say which it used.
    """
    sigmas = as_schedule(sigmas)
    check_start(x, sigmas[0], step_size, steps)
    warn_if_unstable(sigmas[-1], step_size)
    alphas = [step_size * (sigma / sigmas[-1].item()) ** 2 for sigma in sigmas.tolist()]
    return _descend(score, x, sigmas.to(x.device), alphas, steps, constraint, randn_like, denoise)


@torch.no_grad()
def _descend(
    score: Score,
    x: Tensor,
    sigmas: Tensor | list[Tensor],
    alphas: list[float],
    steps: int,
    constraint: Constraint,
    randn_like: RandnLike,
    denoise: bool,
) -> Iterator[State]:
    step = 0
    yield State(x, sigmas[0], step)
    for i, (sigma, alpha) in enumerate(zip(sigmas, alphas, strict=True)):
        constrain = constraint(sigma)
        for _ in range(steps):
            before, s = x, same_shape(score(x, sigma), x)
            z = same_shape(randn_like(x), x, "randn_like")
            x = same_shape(constrain(x + alpha / 2 * s.to(x.dtype) + math.sqrt(alpha) * z), x, "a constraint")
            step += 1
            if not x.isfinite().all():
                broken = not s.isfinite().all() and bool(before.abs().max() < 1e6)  # and not because x had grown huge
                raise _diverged(broken, sigma, alpha, f"level {i + 1} of {len(alphas)}", step - i * steps, alphas[-1])
            yield State(x, sigma, step)
    if denoise:
        zero = torch.zeros_like(sigma)
        x = constraint(zero)(denoised(score, x, sigma))
        if not x.isfinite().all():
            raise _diverged(True, sigma, alphas[-1], "the final denoising", 1, alphas[-1])
        yield State(x, zero, step + 1)


@torch.no_grad()
def _adjusted(
    score: Score,
    log_density: LogDensity,
    x: Tensor,
    sigma: Tensor,
    epsilon: float,
    steps: int,
    constraint: Constraint,
    randn_like: RandnLike,
    denoise: bool,
) -> Iterator[State]:
    yield State(x, sigma, 0)
    constrain = constraint(sigma)
    s = score_at(score, x, sigma)
    for step in range(1, steps + 1):
        z = draw(randn_like, x)
        new = x + epsilon / 2 * s + math.sqrt(epsilon) * z
        there = score_at(score, new, sigma)
        back = (x - new - epsilon / 2 * there) / math.sqrt(epsilon)  # the noise of the move back
        gain = log_density(new, sigma) - log_density(x, sigma) + (squared_norm(z) - squared_norm(back)) / 2
        accepted = accept(gain, randn_like)
        before, x, s = x, choose(accepted, new, x), choose(accepted, there, s)
        if constraint is not unconstrained:
            x = same_shape(constrain(x), x, "a constraint")
            s = score_at(score, x, sigma)
        if not x.isfinite().all():
            raise lost(before, step, sigma.max().item())
        yield State(x, sigma, step, accepted)
    if denoise:
        zero = torch.zeros_like(sigma)
        yield State(constraint(zero)(denoised(score, x, sigma)), zero, steps + 1)


def _diverged(broken: bool, sigma: Tensor, alpha: float, level: str, step: int, step_size: float) -> FloatingPointError:
    """The error for a state that is not finite; `broken`: because the score was not."""
    narrow = sigma.min().item() ** 2
    where = f"diverged at {level}: sigma {math.sqrt(narrow):g}, step size {alpha:g}, step {step}: x is not finite"
    if broken:
        cure = "the score itself returned NaN or infinity: check the model, or compute in --precision float32"
    elif alpha >= 4 * narrow > 0:
        cure = f"stable is a step size below 4σ² = {4 * narrow:g}: pass step_size < {step_size * 4 * narrow / alpha:g}"
    else:
        cure = f"pass a smaller step_size; {step_size / 10:g} is worth a try"
    return FloatingPointError(f"{where} ({cure})")
