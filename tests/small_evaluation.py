"""Random images, and a small random network to measure them in Inception's place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_network import Small

from scorefield.evaluation import inception
from scorefield.data.images import Pixels
from scorefield.distributed import Group

ALONE = Group(0, 1, torch.device("cpu"))


def dots(n: int, seed: int, size: tuple[int, ...] = (8, 8)) -> Pixels:
    return np.random.default_rng(seed).integers(0, 256, (n, *size), dtype=np.uint8)


@pytest.fixture(autouse=True)
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Small:
    monkeypatch.setenv("SCOREFIELD_DATA", str(tmp_path / "store"))
    network = Small()
    monkeypatch.setattr(inception, "load_inception", lambda **_: network)
    return network


def numbers_of(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())
