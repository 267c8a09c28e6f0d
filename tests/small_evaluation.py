"""Random images, and a small random network in Inception's place."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from scorefield.data.images import Pixels
from scorefield.distributed import Group
from scorefield.evaluation import inception
from scorefield.models.model import Model
from scorefield.samplers import State

ALONE = Group(0, 1, torch.device("cpu"))


class Small:
    """Grey images of 8 × 8 pixels, to which others are resized, times a random matrix: 24 features, 5 classes."""

    def __init__(self, *, with_classes: bool = True, **_: object) -> None:
        generator = torch.Generator().manual_seed(5)
        self.matrix = torch.randn(64, 24, generator=generator)
        self.classes: Tensor | None = torch.randn(5, 24, generator=generator) if with_classes else None
        self.digest, self.calls = "small", 0

    def __call__(self, pixels: Tensor) -> Tensor:
        self.calls += 1
        x = torch.nn.functional.interpolate(pixels.permute(0, 3, 1, 2).float() / 255, (8, 8)).mean(1)
        return x.flatten(1) @ self.matrix

    def logits(self, features: Tensor) -> Tensor:
        assert self.classes is not None
        return features @ self.classes.T


def dots(n: int, seed: int, size: tuple[int, ...] = (8, 8)) -> Pixels:
    """n images of random pixels."""
    return np.random.default_rng(seed).integers(0, 256, (n, *size), dtype=np.uint8)


def read_json(path: Path) -> Any:  # noqa: ANN401
    return json.loads(path.read_text())


@pytest.fixture(autouse=True)
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Small:
    """The network in Inception's place, and a data folder of the test's own."""
    monkeypatch.setenv("SCOREFIELD_DATA", str(tmp_path / "store"))
    network = Small()
    monkeypatch.setattr(inception, "load_inception", lambda **_: network)
    return network


@pytest.fixture
def sampled(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many images each run of the sampler for the sample cache draws, as they come."""
    drawn: list[int] = []
    states = Model.states

    def watched(model: Model, numbers: Sequence[int], **options: Any) -> Iterator[State]:  # noqa: ANN401
        if "size" in options and "known" not in options:  # as only the cache calls it
            drawn.append(len(numbers))
        return states(model, numbers, **options)

    monkeypatch.setattr(Model, "states", watched)
    return drawn
