"""Score matching: what a score model minimises. Equations 1, 2, 3, 5 and 6 of the paper.

`explicit`, `denoising` and `sliced` take clean x, perturb it by σ themselves, return one loss per example, (B,), and
are least for the score of the perturbed data q_σ; in expectation they differ by constants. With σ = 0, `explicit` and
`sliced` are Eq. 1 and 3 to the letter. The score must treat the examples of a batch apart (no batch normalisation).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from scorefield.derivatives import QuadraticForm, dot, either_mode
from scorefield.noise import DrawSigma, RandnLike, gaussian, perturb
from scorefield.score import Score, checked, expand, same_shape

Objective = Callable[[Score, Tensor, Tensor], Tensor]
"""(score, x, sigma) -> one loss per example, (B,)."""


def explicit(
    score: Score,
    x: Tensor,
    sigma: Tensor | float,
    *,
    randn_like: RandnLike = torch.randn_like,
    quadratic_form: QuadraticForm = either_mode,
) -> Tensor:
    """Eq. 1:  tr ∇s(x̃) + ½ ‖s(x̃)‖².  The trace is exact, at one derivative per entry of x: for small x only."""
    sigma = checked(x, sigma)
    x = perturb(x, sigma, randn_like=randn_like)
    trace = x.new_zeros(len(x))
    for e in torch.eye(x[0].numel(), dtype=x.dtype, device=x.device):
        s, diagonal = quadratic_form(lambda x: score(x, sigma), x, e.reshape(x.shape[1:]).expand_as(x))
        trace = trace + diagonal
    return trace + dot(s, s) / 2


def denoising(score: Score, x: Tensor, sigma: Tensor | float, *, randn_like: RandnLike = torch.randn_like) -> Tensor:
    """Eq. 2 and 5:  ½ ‖s(x̃, σ) + (x̃ − x)/σ²‖²,  x̃ = x + σz."""
    sigma = checked(x, sigma, zero=False)
    std, z = expand(sigma, x), same_shape(randn_like(x), x, "randn_like")
    error = same_shape(score(x + std * z, sigma), x) + z / std
    return dot(error, error) / 2


def sliced(
    score: Score,
    x: Tensor,
    sigma: Tensor | float,
    *,
    randn_like: RandnLike = torch.randn_like,
    direction: Callable[[Tensor], Tensor] = gaussian,
    quadratic_form: QuadraticForm = either_mode,
) -> Tensor:
    """Eq. 3:  vᵀ∇s(x̃)v + ½ ‖s(x̃)‖²,  the trace as seen from one random direction v.

    `direction` makes v of standard normal noise: `noise.gaussian` leaves it, `noise.rademacher` takes its signs.
    """
    sigma = checked(x, sigma)
    x = perturb(x, sigma, randn_like=randn_like)
    v = same_shape(direction(randn_like(x)), x, "randn_like")
    s, trace = quadratic_form(lambda x: score(x, sigma), x, v)
    return trace + dot(s, s) / 2


def annealed(
    score: Score,
    x: Tensor,
    *,
    objective: Objective = denoising,
    draw_sigma: DrawSigma,
    weight: Callable[[Tensor], Tensor] = torch.square,
) -> Tensor:
    """Eq. 6:  1/L Σᵢ λ(σᵢ) ℓ(θ; σᵢ),  averaged over the batch: the number to minimise, ().

    `draw_sigma`: `noise.one_level(sigmas)` for a random level per example, `noise.every_level(sigmas)` for the sum.
    λ(σ) = σ² makes the levels' losses alike, because ‖s(x, σ)‖ ∝ 1/σ.
    """
    sigma = draw_sigma(x)
    rows = sigma if sigma.ndim == 2 else sigma.unsqueeze(0)
    return torch.stack([weighted(score, x, row, objective=objective, weight=weight).mean() for row in rows]).mean()


def weighted(
    score: Score,
    x: Tensor,
    sigma: Tensor,
    *,
    objective: Objective = denoising,
    weight: Callable[[Tensor], Tensor] = torch.square,
) -> Tensor:
    """λ(σ) ℓ(θ; σ) for each example, (B,): the terms of Eq. 6, for losses by noise level."""
    return weight(sigma) * objective(score, x, sigma)


def unit_weight(sigma_data: float) -> Callable[[Tensor], Tensor]:
    """λ(σ) = σ² (1 + σ²/σ_d²):  with it a network of `networks.UNet` has the loss D/2 at all σ before it is trained,
    for data of standard deviation σ_d in D dimensions (Karras et al. 2022, there for a denoiser's square error)."""

    def weight(sigma: Tensor) -> Tensor:
        return sigma.square() * (1 + sigma.square() / sigma_data**2)

    return weight


def uncertain(losses: Tensor, log_variance: Tensor, dimensions: int) -> Tensor:
    """λℓ/eᵘ + D u/2  for each example: least for eᵘ = 2λℓ/D, so that u(σ) learns how large the losses are at σ, and the
    first term weighs all σ alike (Kendall et al. 2018; Karras et al. 2024)."""
    return losses * (-log_variance).exp() + log_variance * (dimensions / 2)
