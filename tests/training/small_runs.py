"""A training run of a few steps, and what it leaves."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from scorefield.distributed import Group
from scorefield.models import checkpoint
from scorefield.models.recipes import Recipe
from scorefield.training import train

ALONE = Group(0, 1, torch.device("cpu"))


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    """Six steps on 20 grey images of 5 × 6, a checkpoint every second."""
    rng = np.random.default_rng(0)
    np.save(tmp_path / "dots.npy", rng.integers(0, 256, (20, 5, 6), dtype=np.uint8))
    return Recipe(
        data=str(tmp_path / "dots.npy"),
        width=2,
        levels=3,
        held_out=4,
        steps=6,
        batch_size=4,
        ema=0.9,
        checkpoint_every=2,
        evaluate_every=3,
        log_every=1,
        previews=2,
        preview_steps=1,
    )


class Small(nn.Module):
    """s(x, σ) = conv(x)/σ, with the same weights each time: an update takes about a millisecond."""

    def __init__(self, size: int = 3) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(1, 1, size, padding=size // 2)

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        return self.conv(x) / sigma.reshape(-1, 1, 1, 1)


def quick(recipe: Recipe, out: Path, **options: Any) -> Path:  # noqa: ANN401
    """A run of that network."""
    return train(recipe, out, ALONE, network=Small(), **options)


def files_of(run: Path) -> dict[str, bytes]:
    """All that a run folder holds."""
    return {str(path.relative_to(run)): path.read_bytes() for path in sorted(run.rglob("*")) if path.is_file()}


def final(run: Path, step: int = 6) -> dict[str, Tensor]:
    return checkpoint.read(run / "checkpoints" / f"model-{step:08d}.safetensors")[0]


def assert_same(a: dict[str, Tensor], b: dict[str, Tensor]) -> None:
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))
