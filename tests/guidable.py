"""A small network with three classes that can do without, as a model and as a file."""

from __future__ import annotations

from pathlib import Path

import torch

from scorefield import Heun, Model
from scorefield.models.build import build_network
from scorefield.models.model import save_model
from scorefield.models.recipes import Recipe
from scorefield.networks import UNet

NAMES = ("cat", "dog", "7")
SHAPE = (1, 4, 4)
RECIPE = Recipe(
    network="unet",
    width=8,
    stages=(1, 1),
    blocks=(1, 1),
    labels=True,
    sigma_max=2.0,
    sigma_min=0.1,
    sigma_draw="log_normal",
    sampler="heun",
    sample_calls=3,
    data="/home/somebody/pets",
)


def guidable_network() -> UNet:
    """Untrained, but with gains that make the label matter, which start at 0."""
    network = build_network(RECIPE, channels=SHAPE[0], labels=len(NAMES))
    assert isinstance(network, UNet)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if name.endswith("gain"):
                parameter.fill_(2.0)
    return network.eval().requires_grad_(False)


def guidable(labels: tuple[str, ...] = NAMES) -> Model:
    return Model(guidable_network(), SHAPE, Heun(calls=3), labels=labels, recipe=RECIPE)


def guidable_file(path: Path) -> Path:
    weights = guidable_network().state_dict()
    save_model(path, weights, None, recipe=RECIPE, shape=SHAPE, step=5, labels=NAMES)
    return path
