"""What a recipe describes, made: its noise schedule, its network and its default sampler."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from scorefield.models.recipes import RECIPES, Recipe
from scorefield.networks import RefineNet, UNet
from scorefield.noise import geometric
from scorefield.samplers import AnnealedLangevin, Sampler, from_dict

ON_A_CPU: dict[str, Any] = {"batch_size": 32, "learning_rate": 3e-2, "warmup": 100, "decay": 1500, "dropout": 0.0}
"""Settings that the recipe unet changes on a CPU, where its network is small."""


def build_schedule(recipe: Recipe) -> Tensor:
    """The noise levels that the recipe trains on, (L,)."""
    return geometric(recipe.sigma_max, recipe.sigma_min, recipe.levels)


def build_sampler(recipe: Recipe) -> Sampler:
    """The default sampler of a model trained by this recipe."""
    settings: dict[str, Any] = {"calls": recipe.sample_calls}
    if recipe.sampler == AnnealedLangevin.name:
        sigmas = build_schedule(recipe).tolist()
        settings = {"sigmas": sigmas, "step_size": recipe.step_size, "steps": recipe.sample_steps}
    sampler: Sampler = from_dict({"name": recipe.sampler, **settings})
    return sampler


def sized(recipe: Recipe, height: int, width: int) -> Recipe:
    """The recipe with the sizes that it leaves open chosen for images of that size, for a U-Net.

    A U-Net halves the image until about 8 pixels are left, and attends at the stage before, unless that is larger than
    24 × 24 pixels. Larger images have fewer filters, because the time for a filter grows with the number of pixels.
    """
    if recipe.network != "unet":
        return recipe
    if min(height, width) < 2:
        raise ValueError(f"images must have at least 2 × 2 pixels; these have {height} × {width} (--image-size)")
    stages = recipe.stages or (1, *[2] * max(1, min(round(math.log2(min(height, width) / 8)), 5)))
    side, attention = math.sqrt(height * width), recipe.attention
    if not recipe.stages and not attention:
        stage = len(stages) - 2
        attention = (stage,) if side / 2**stage <= 24 else ()
    filters = recipe.width or (128 if side <= 40 else 96 if side <= 80 else 64)
    return replace(
        recipe, width=filters, stages=stages, blocks=recipe.blocks or (3,) * len(stages), attention=attention
    )


def sized_for_cpu(recipe: Recipe, height: int, width: int) -> Recipe:
    """The recipe with a U-Net that a CPU can train, if it leaves the width of the U-Net open: few filters and blocks
    where images have many pixels, and more filters and attention where they have few.

    It goes down to about 6 pixels, so that it sees the whole image: with 128 filters there, half as many at each size
    above, and 16 where it begins. Settings of ON_A_CPU take the place of the defaults: small batches, so that there are
    many updates, with a high learning rate, and no dropout. Short trainings on drawn shapes that compare some of these
    choices are in docs/measurements/shapes_settings.json.
    """
    if recipe.network != "unet" or recipe.width or recipe.stages or recipe.blocks or recipe.attention:
        return recipe
    halvings = max(1, min(round(math.log2(max(2, min(height, width)) / 6)), 5))
    side = math.sqrt(height * width)
    recipe = replace(
        recipe,
        width=16,
        stages=(1, *(2 ** max(0, 3 + stage - halvings) for stage in range(1, halvings + 1))),
        blocks=tuple(1 if stage < 2 else 2 for stage in range(halvings + 1)),
        attention=tuple(stage for stage in range(1, halvings + 1) if side / 2**stage <= 16),
    )
    return replace(recipe, **{name: ON_A_CPU[name] for name in left_open(recipe)})


def left_open(recipe: Recipe) -> list[str]:
    """The settings of ON_A_CPU that this recipe leaves at the defaults of the recipe unet."""
    return [name for name in ON_A_CPU if getattr(recipe, name) == getattr(RECIPES["unet"], name)]


def with_sigma_data(recipe: Recipe, pixels: np.ndarray) -> Recipe:
    """The recipe with σ_data measured on these images, bytes (N, H, W, C), if it leaves that open: to three digits."""
    if recipe.sigma_data:
        return recipe
    some = pixels[:: max(1, len(pixels) // 5000)].astype(np.float32) / 255 - 0.5
    return replace(recipe, sigma_data=float(f"{np.sqrt(np.square(some).mean(dtype=np.float64)):.3g}"))


def _refinenet(recipe: Recipe, channels: int, labels: int) -> RefineNet:
    return RefineNet(channels=channels, width=recipe.width, sigmas=build_schedule(recipe))


def _unet(recipe: Recipe, channels: int, labels: int) -> UNet:
    return UNet(
        channels=channels,
        width=recipe.width,
        stages=recipe.stages,
        blocks=recipe.blocks,
        attention=recipe.attention,
        labels=labels,
        dropout=recipe.dropout,
        sigma_range=(recipe.sigma_min, recipe.sigma_max),
        sigma_data=recipe.sigma_data or 0.25,
    )


NETWORKS: dict[str, Callable[[Recipe, int, int], nn.Module]] = {"refinenet": _refinenet, "unet": _unet}
"""Networks that recipes and model files can name: (recipe, channels, number of classes) -> the network."""


def build_network(recipe: Recipe, *, channels: int, labels: int = 0) -> nn.Module:
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
        network = NETWORKS[recipe.network](recipe, channels, labels)
    return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
