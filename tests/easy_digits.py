"""Images in digits' place that are as easy to tell apart as can be, and a folder of the test's own for data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from scorefield.data.images import Pixels


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SCOREFIELD_DATA", str(tmp_path / "store"))
    return tmp_path / "store"


def bars(n: int, seed: int) -> tuple[Pixels, Tensor]:
    """Ten classes as easy as can be: a bright bar at one of ten heights, on faint noise."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 10, n)
    pixels = rng.integers(0, 30, (n, 28, 28, 1), dtype=np.uint8)
    for k, label in enumerate(labels):
        pixels[k, 2 + 2 * label : 6 + 2 * label, 4:24] = 255
    return pixels, torch.tensor(labels)
