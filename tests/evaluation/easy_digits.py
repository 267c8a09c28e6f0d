"""Made-up digits that are easy to tell apart, real ones, and a data folder for one test."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from scorefield.data.images import Pixels

LABELS = torch.arange(10).repeat_interleave(10)
"""The labels of `hundred`."""


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SCOREFIELD_DATA", str(tmp_path / "store"))
    return tmp_path / "store"


@pytest.fixture(scope="module")
def hundred() -> Pixels:
    """The first ten images of each digit in MNIST's test set, one digit in each row of the picture."""
    with Image.open(Path(__file__).parents[1] / "digits.png") as sheet:
        return np.asarray(sheet).reshape(10, 28, 10, 28).transpose(0, 2, 1, 3).reshape(100, 28, 28, 1)


def bars(n: int, seed: int) -> tuple[Pixels, Tensor]:
    """Ten classes that are easy to tell apart: a bright bar at one of ten heights, on faint noise."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 10, n)
    pixels = rng.integers(0, 30, (n, 28, 28, 1), dtype=np.uint8)
    for k, label in enumerate(labels):
        pixels[k, 2 + 2 * label : 6 + 2 * label, 4:24] = 255
    return pixels, torch.tensor(labels)
