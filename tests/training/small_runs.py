"""A training run of a few steps, and what it leaves."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from scorefield.distributed import Group
from scorefield.models import checkpoint
from scorefield.models.recipes import Recipe

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


def final(run: Path, step: int = 6) -> dict[str, Tensor]:
    return checkpoint.read(run / "checkpoints" / f"model-{step:08d}.safetensors")[0]


def assert_same(a: dict[str, Tensor], b: dict[str, Tensor]) -> None:
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))
