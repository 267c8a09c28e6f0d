"""The Metropolis test, for samplers whose score can tell its log density."""

from __future__ import annotations

import torch
from torch import Tensor

from scorefield.noise import RandnLike
from scorefield.samplers.base import draw
from scorefield.score import LogDensity, Score, log_density_of


def log_density_for(score: Score, metropolis: bool | None) -> LogDensity | None:
    """log q_σ for the Metropolis test; None for no test."""
    if metropolis is False:
        return None
    found = log_density_of(score)
    if metropolis and found is None:
        raise ValueError(
            "the Metropolis test needs log q_σ(x), which this score does not tell (use from_energy or the score of a "
            "GaussianMixture, or leave metropolis out)"
        )
    return found


def accept(log_ratio: Tensor, randn_like: RandnLike) -> Tensor:
    """True with probability min(1, exp(log_ratio)) for each example, (B,); False where that is NaN."""
    uniform = torch.special.log_ndtr(draw(randn_like, log_ratio))  # log Φ(z), where Φ(z) is uniform
    return uniform < log_ratio


def choose(accepted: Tensor, new: Tensor, old: Tensor) -> Tensor:
    """The new state of the examples that were accepted, the old one of the others."""
    return torch.where(accepted.reshape(-1, *(1 for _ in old.shape[1:])), new, old)


def squared_norm(x: Tensor) -> Tensor:
    """|x|² of each example, (B,)."""
    return x.flatten(1).square().sum(1)
