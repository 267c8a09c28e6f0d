"""Small model files, with weights from seeds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from torch import Tensor

from scorefield.models.build import build_network
from scorefield.models.model import save_model
from scorefield.models.recipes import Recipe

RECIPE = Recipe(width=4, levels=3, sigma_max=0.5, ema=0.9, sample_steps=2, data="/home/somebody/photos")


def weights(seed: int) -> dict[str, Tensor]:
    return build_network(replace(RECIPE, seed=seed), channels=1).state_dict()


def model(path: Path, *, step: int = 7, ema: bool = True, raw: dict[str, Tensor] | None = None) -> Path:
    """A model file with the weights of seeds 1 (raw) and 2 (average)."""
    metadata = {"data": "/home/somebody/photos/", "data_digest": "abc", "data_images": "12"}
    average = weights(2) if ema else None
    save_model(
        path,
        raw or weights(1),
        {"ema": average} if average else None,
        recipe=RECIPE,
        shape=(1, 16, 16),
        step=step,
        metadata=metadata,
    )
    return path
