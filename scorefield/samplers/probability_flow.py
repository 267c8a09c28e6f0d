"""Deterministic samplers: the probability flow  dx/dσ = −σ s(x, σ)  followed from large to small σ.

    x = last(heun(model.score, sigma_max * torch.randn(64, 3, 32, 32), [*karras(80, 0.002, 18), 0]))

Each visits the given sigmas in order, from x at sigmas[0], and ends at sigmas[-1], which may be 0. Along the flow x has
the distribution q_σ at every σ if it has it at the first, so the only error is that of the steps. In other words, with
the denoised image D = x + σ² s:  dx/dσ = (x − D)/σ.

`resample` r makes every step r times, with the noise of that step added again in between. Together with `known_pixels`
this is RePaint (Lugmayr et al. 2022), which brings what is filled in into harmony with what is known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise

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
from scorefield.samplers.checks import check_churn, check_count, check_order
from scorefield.score import Score

History = Sequence[tuple[Tensor | float, Tensor]]
"""(σ, x) on the flow before the first state, the largest σ first."""


def euler(
    score: Score,
    x: Tensor,
    sigmas: Tensor | Sequence[float],
    *,
    constraint: Constraint = unconstrained,
    randn_like: RandnLike = torch.randn_like,
    resample: int = 1,
) -> Iterator[State]:
    """x ← x + (σᵢ₊₁ − σᵢ) dᵢ,  dᵢ = −σᵢ s(x, σᵢ).  Order 1, one call a step. Also known as DDIM."""
    levels, sigma = path_from(x, sigmas)

    def update(x: Tensor, i: int) -> Tensor:
        return x + (sigma[i + 1] - sigma[i]) * _slope(score, x, levels[i], sigma[i])

    return walk(x, levels, _plan(update, sigma, randn_like, resample), constraint)


def heun(
    score: Score,
    x: Tensor,
    sigmas: Tensor | Sequence[float],
    *,
    churn: float = 0.0,
    churn_min: float = 0.0,
    churn_max: float = math.inf,
    churn_noise: float = 1.0,
    constraint: Constraint = unconstrained,
    randn_like: RandnLike = torch.randn_like,
    resample: int = 1,
) -> Iterator[State]:
    """Karras et al. (2022). An Euler step, then the mean of the slopes at both its ends. Order 2, two calls a step.

        x' = x + (σᵢ₊₁ − σᵢ) d,   d = −σᵢ s(x, σᵢ),
        x ← x + (σᵢ₊₁ − σᵢ)(d + d')/2,   d' = −σᵢ₊₁ s(x', σᵢ₊₁).

    A step to σ = 0 is Euler's, with one call. `churn` > 0 (Algorithm 2 there, S_churn) first raises the noise of each
    step from σᵢ in [churn_min, churn_max] to σ̂ = (1 + γ)σᵢ,  γ = min(churn/number of steps, √2 − 1),  by fresh noise
    of standard deviation churn_noise √(σ̂² − σᵢ²). The score must then accept these σ̂ too.
    """
    levels, sigma = path_from(x, sigmas)
    check_churn(churn, churn_min, churn_max, churn_noise)
    gamma = min(churn / (len(sigma) - 1), math.sqrt(2) - 1)

    def update(x: Tensor, i: int) -> Tensor:
        level, start, end = levels[i], sigma[i], sigma[i + 1]
        if gamma > 0 and churn_min <= start <= churn_max:
            level, start = level * (1 + gamma), start * (1 + gamma)
            x = x + churn_noise * math.sqrt(start**2 - sigma[i] ** 2) * draw(randn_like, x)
        d = _slope(score, x, level, start)
        predicted = x + (end - start) * d
        if end == 0:
            return predicted
        return x + (end - start) * (d + _slope(score, predicted, levels[i + 1], end)) / 2

    return walk(x, levels, _plan(update, sigma, randn_like, resample), constraint)


def dpmpp_2m(
    score: Score,
    x: Tensor,
    sigmas: Tensor | Sequence[float],
    *,
    history: History = (),
    constraint: Constraint = unconstrained,
    randn_like: RandnLike = torch.randn_like,
    resample: int = 1,
) -> Iterator[State]:
    """DPM-Solver++(2M) of Lu et al. (2022): order 2, one call a step.

    In λ = −ln σ, with h = λᵢ₊₁ − λᵢ and the step before it h₁,  x ← e⁻ʰ x + (1 − e⁻ʰ)(Dᵢ + h/(2h₁) (Dᵢ − Dᵢ₋₁)).  The
    first step, and one to σ = 0, take Dᵢ alone. `history` gives it exact values to start from.
    """
    levels, sigma = path_from(x, sigmas)
    past = _past(score, history, sigma[0], _denoised)

    def update(x: Tensor, i: int) -> Tensor:
        past[i] = sigma[i], _denoised(score, x, levels[i], sigma[i])
        d, *before = _newest(past, i, 2)
        ratio = sigma[i + 1] / sigma[i]
        mixed = d[1]
        if before and ratio > 0:
            h, h1 = -math.log(ratio), math.log(before[0][0] / d[0])
            mixed = mixed + h / (2 * h1) * (d[1] - before[0][1])
        return ratio * x + (1 - ratio) * mixed

    return walk(x, levels, _plan(update, sigma, randn_like, resample), constraint)


def dpmpp_3m(
    score: Score,
    x: Tensor,
    sigmas: Tensor | Sequence[float],
    *,
    history: History = (),
    constraint: Constraint = unconstrained,
    randn_like: RandnLike = torch.randn_like,
    resample: int = 1,
) -> Iterator[State]:
    """DPM-Solver++(3M): order 3, one call a step.

    In λ = −ln σ the flow is  x(λ + h) = e⁻ʰ x + ∫₀ʰ e^(u−h) D(λ + u) du.  D is replaced by the parabola through its
    last three values, by a line or a constant while there are fewer, and by a constant in a step to σ = 0:

        x ← e⁻ʰ x + I₀ D + I₁ D[1] + (I₂ + h₁ I₁) D[2],   Iₖ = ∫₀ʰ e^(u−h) uᵏ du,

    with the divided differences D[1] and D[2]. The code released with the paper has I₂/2 in the place of I₂, which is a
    method of order 2. `history` gives it exact values to start from.
    """
    levels, sigma = path_from(x, sigmas)
    past = _past(score, history, sigma[0], _denoised)

    def update(x: Tensor, i: int) -> Tensor:
        past[i] = sigma[i], _denoised(score, x, levels[i], sigma[i])
        (s0, d0), *before = _newest(past, i, 3)
        ratio = sigma[i + 1] / sigma[i]
        new = ratio * x + (1 - ratio) * d0
        if not before or ratio == 0:
            return new
        h = -math.log(ratio)
        i1 = h - (1 - ratio)
        (s1, d1), *older = before
        h1 = math.log(s1 / s0)
        slope = (d0 - d1) / h1
        new = new + i1 * slope
        if older:
            (s2, d2) = older[0]
            h2 = math.log(s2 / s1)
            bend = (slope - (d1 - d2) / h2) / (h1 + h2)
            new = new + (h**2 - 2 * i1 + h1 * i1) * bend
        return new

    return walk(x, levels, _plan(update, sigma, randn_like, resample), constraint)


def adams_bashforth(
    score: Score,
    x: Tensor,
    sigmas: Tensor | Sequence[float],
    *,
    order: int = 4,
    history: History = (),
    constraint: Constraint = unconstrained,
    randn_like: RandnLike = torch.randn_like,
    resample: int = 1,
) -> Iterator[State]:
    """Adams and Bashforth's method of order 1 to 4, one call a step. Also known as LMS, and with even steps as iPNDM.

    x ← x + ∫ p(σ) dσ from σᵢ to σᵢ₊₁,  where the polynomial p goes through the last `order` slopes d = −σ s, fewer in
    the first steps. The coefficients are exact for steps of any lengths. `history` gives it exact values to start from.
    """
    levels, sigma = path_from(x, sigmas)
    check_order(order)
    past = _past(score, history, sigma[0], _slope)

    def update(x: Tensor, i: int) -> Tensor:
        past[i] = sigma[i], _slope(score, x, levels[i], sigma[i])
        used = _newest(past, i, order)
        weights = adams_weights([s for s, _ in used], sigma[i], sigma[i + 1])
        return x + sum(weight * d for weight, (_, d) in zip(weights, used, strict=True))

    return walk(x, levels, _plan(update, sigma, randn_like, resample), constraint)


def adams_weights(nodes: Sequence[float], start: float, end: float) -> list[float]:
    """∫ ℓⱼ(σ) dσ from start to end, where ℓⱼ is the polynomial that is 1 at node j and 0 at the others, up to four.

    Gauss's rule with two points is exact for polynomials of degree 3.
    """
    middle, reach = (start + end) / 2, (end - start) / (2 * math.sqrt(3))
    points = (middle - reach, middle + reach)

    def basis(j: int, at: float) -> float:
        return math.prod((at - node) / (nodes[j] - node) for k, node in enumerate(nodes) if k != j)

    return [(end - start) / 2 * sum(basis(j, at) for at in points) for j in range(len(nodes))]


def _slope(score: Score, x: Tensor, level: Tensor, sigma: float) -> Tensor:
    """dx/dσ = −σ s(x, σ)."""
    return -sigma * score_at(score, x, level)


def _denoised(score: Score, x: Tensor, level: Tensor, sigma: float) -> Tensor:
    """D = x + σ² s(x, σ)."""
    return x + sigma**2 * score_at(score, x, level)


def _plan(
    update: Callable[..., Tensor], sigma: list[float], randn_like: RandnLike, resample: int
) -> Iterator[tuple[Update, int]]:
    """The updates of a sampler and the levels they lead to: each step `resample` times, with jumps back between."""
    check_count("resample", resample)

    def jump(x: Tensor, i: int) -> Tensor:
        return x + math.sqrt(sigma[i] ** 2 - sigma[i + 1] ** 2) * draw(randn_like, x)

    def updates() -> Iterator[tuple[Update, int]]:
        for i in range(len(sigma) - 1):
            for k in range(resample):
                if k:
                    yield partial(jump, i=i), i
                yield partial(update, i=i), i + 1

    return updates()


Past = dict[int, tuple[float, Tensor]]
"""What a multistep method remembers: σ and a value for each step; negative numbers for what came before the first."""


def _past(
    score: Score, history: History, first: float, value: Callable[[Score, Tensor, Tensor, float], Tensor]
) -> Past:
    past: Past = {}
    for k, (sigma, x) in enumerate(reversed(history), 1):
        level = torch.as_tensor(sigma, dtype=x.dtype, device=x.device)
        past[-k] = level.item(), value(score, x, level, level.item())
    known = [past[k][0] for k in sorted(past)] + [first]
    if any(a <= b for a, b in pairwise(known)):
        raise ValueError(
            f"history must come before the first sigma, {first:g}, with decreasing sigmas; got {known[:-1]}"
        )
    return past


def _newest(past: Past, i: int, n: int) -> list[tuple[float, Tensor]]:
    """The last n values up to step i, the newest first. Older ones are forgotten."""
    past.pop(i - n, None)
    return [past[k] for k in range(i, i - n, -1) if k in past]
