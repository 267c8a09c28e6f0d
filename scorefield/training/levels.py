"""At which noise levels losses are measured, with which weight, and how much of the training each level stands for."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from scorefield.models.build import build_schedule
from scorefield.models.recipes import Recipe
from scorefield.objectives import unit_weight

BINS = 10
"""The number of levels at which a network for a range of σ is measured."""


def log_bins(sigma_min: float, sigma_max: float, bins: int = BINS) -> Tensor:
    """The centres of equal bins of log σ, the largest first: levels for a network that accepts a range."""
    edges = torch.linspace(math.log(sigma_max), math.log(sigma_min), bins + 1)
    return ((edges[1:] + edges[:-1]) / 2).exp()


def loss_levels(recipe: Recipe, network: nn.Module) -> tuple[Tensor, Tensor | None]:
    """The noise levels (L,) at which losses are recorded, and the share of the training examples at each, (L,); None if
    these are all the same. A network for a range of σ has its losses recorded in bins."""
    ends = getattr(network, "sigma_range", None)
    if ends is None:
        return build_schedule(recipe), None
    sigmas = log_bins(*ends)
    return sigmas, shares(sigmas, recipe) if recipe.sigma_draw == "log_normal" else None


def shares(sigmas: Tensor, recipe: Recipe) -> Tensor:
    """The probability that a σ that is drawn in training is nearest to each of these levels, on a log scale."""
    logs = sigmas.double().log()
    between = (log_mean(recipe) - (logs[1:] + logs[:-1]) / 2) / recipe.log_sigma_std
    above = torch.special.ndtr(between)  # the probability of a σ above each limit between two levels
    return torch.cat([above, above.new_ones(1)]).diff(prepend=above.new_zeros(1)).float()


def log_mean(recipe: Recipe) -> float:
    """The mean of ln σ in training, for a log-normal distribution."""
    return recipe.log_sigma_mean + math.log(recipe.sigma_data)


def loss_weight(recipe: Recipe) -> Callable[[Tensor], Tensor]:
    """λ(σ) of the losses that are recorded; learned weights come on top of it."""
    return torch.square if recipe.weight == "paper" else unit_weight(recipe.sigma_data)
