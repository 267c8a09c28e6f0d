"""Stochastic samplers: each step takes noise away by the score and adds fresh noise.

    x = last(ancestral(model.score, sigma_max * torch.randn(64, 3, 32, 32), [*karras(80, 0.002, 50), 0]))

Like the deterministic ones they visit the given sigmas in order, from x at sigmas[0], and end at sigmas[-1]. A step to
σ = 0 is the denoising x + σ² s, without fresh noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from scorefield.noise import RandnLike
from scorefield.samplers.base import (
    Constraint,
    State,
    Update,
    draw,
    path_from,
    score_at,
    unconstrained,
    walk,
)
from scorefield.samplers.checks import check_corrector, check_count, check_fresh, check_taken
from scorefield.score import Score


def ancestral(
    score: Score,
    x: Tensor,
    sigmas: Tensor | Sequence[float],
    *,
    eta: float = 1.0,
    constraint: Constraint = unconstrained,
    randn_like: RandnLike = torch.randn_like,
) -> Iterator[State]:
    """Ancestral sampling: x at σ' is drawn from q(x_σ' | x_σ, x₀ = D), the reverse of adding noise, D = x + σ² s(x, σ).

        x ← D + (σ_down/σ)(x − D) + σ_up z,   σ_up² = η² σ'² (σ² − σ'²)/σ²,   σ_down² = σ'² − σ_up².

    η = 0 is the deterministic `euler`. One call a step.
    """
    levels, sigma = path_from(x, sigmas)
    check_fresh(eta)

    def update(x: Tensor, i: int) -> Tensor:
        now, after = sigma[i], sigma[i + 1]
        up = eta * after * math.sqrt(now**2 - after**2) / now
        down = math.sqrt(after**2 - up**2)
        x = x + (1 - down / now) * now**2 * score_at(score, x, levels[i])
        return x + up * draw(randn_like, x) if up else x

    return walk(x, levels, ((partial(update, i=i), i + 1) for i in range(len(sigma) - 1)), constraint)


def predictor_corrector(
    score: Score,
    x: Tensor,
    sigmas: Tensor | Sequence[float],
    *,
    corrections: int = 1,
    snr: float = 0.16,
    norms: Literal["expected", "measured"] = "expected",
    constraint: Constraint = unconstrained,
    randn_like: RandnLike = torch.randn_like,
) -> Iterator[State]:
    """Song et al. (2021), Algorithm 2, for noise of growing variance: at each σᵢ first `corrections` Langevin steps,

        x ← x + ε s + √(2ε) z,   ε = 2 (r |z|/|s|)²,   r = snr,

    then the reverse-diffusion predictor  x ← x + (σᵢ² − σᵢ₊₁²) s + √(σᵢ² − σᵢ₊₁²) z.  1 + corrections calls a level.

    At noise σ in many dimensions |z|/|s| is σ, and that is what "expected" `norms` take: ε = 2 (r σ)². "measured" ones
    are those of each example (Song's code takes their mean over the batch, by which images would depend on their
    neighbours). They make ε depend on x, which in a few dimensions is a large error; ε is then at most σᵢ². As in that
    code the corrector comes first, so that the first level has one and the last step denoises.
    """
    levels, sigma = path_from(x, sigmas)
    check_count("corrections", corrections, least=0)
    check_corrector(snr, norms)

    def correct(x: Tensor, i: int) -> Tensor:
        s, z = score_at(score, x, levels[i]), draw(randn_like, x)
        if norms == "expected":
            return x + 2 * (snr * sigma[i]) ** 2 * s + 2 * snr * sigma[i] * z
        epsilon = (2 * (snr * _norm(z) / _norm(s)).square()).clamp(max=sigma[i] ** 2)
        return x + epsilon * s + (2 * epsilon).sqrt() * z

    def predict(x: Tensor, i: int) -> Tensor:
        variance = sigma[i] ** 2 - sigma[i + 1] ** 2
        x = x + variance * score_at(score, x, levels[i])
        return x + math.sqrt(variance) * draw(randn_like, x) if sigma[i + 1] else x

    def plan() -> Iterator[tuple[Update, int]]:
        for i in range(len(sigma) - 1):
            yield from [(partial(correct, i=i), i)] * corrections
            yield partial(predict, i=i), i + 1

    return walk(x, levels, plan(), constraint)


def consistent_annealed(
    score: Score,
    x: Tensor,
    sigmas: Tensor | Sequence[float],
    *,
    eta: float,
    steps: int = 1,
    constraint: Constraint = unconstrained,
    randn_like: RandnLike = torch.randn_like,
) -> Iterator[State]:
    """Consistent annealed sampling (Jolicoeur-Martineau et al. 2021): the noise that is left is just that of σᵢ₊₁.

        x ← x + η σᵢ² s(x, σᵢ) + β σᵢ₊₁ z,   β² = 1 − ((1 − η) σᵢ/σᵢ₊₁)².

    Annealed Langevin dynamics leaves more noise than its level says. `steps` updates are made from each level, the last
    of them to the next level and those before to the same level, σᵢ₊₁ = σᵢ. (The paper has more levels instead, which
    a network that knows a list of levels does not accept.) Where the next level is so far that β² < 0, η is raised to
    1 − σᵢ₊₁/σᵢ, which is Euler's step.
    """
    levels, sigma = path_from(x, sigmas)
    check_count("steps", steps)
    check_taken(eta, sigma)

    def update(x: Tensor, i: int, after: float) -> Tensor:
        taken = max(eta, 1 - after / sigma[i]) if after else 1.0
        x = x + taken * sigma[i] ** 2 * score_at(score, x, levels[i])
        fresh = after**2 - ((1 - taken) * sigma[i]) ** 2
        return x + math.sqrt(fresh) * draw(randn_like, x) if fresh > 1e-12 * after**2 and after else x

    def plan() -> Iterator[tuple[Update, int]]:
        for i in range(len(sigma) - 1):
            yield from [(partial(update, i=i, after=sigma[i]), i)] * (steps - 1)
            yield partial(update, i=i, after=sigma[i + 1]), i + 1

    return walk(x, levels, plan(), constraint)


def _norm(x: Tensor) -> Tensor:
    """|x| of each example, shaped to multiply x."""
    return x.flatten(1).norm(dim=1).reshape(-1, *(1 for _ in x.shape[1:]))
