"""Reports on a small run, with a small random network in Inception's place."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_network import Small

from scorefield.evaluation import inception
from scorefield.cli import main
from scorefield.data.images import Pixels
from scorefield.evaluation import pool
from scorefield.models.generate import generate
from scorefield.samplers import State

N = 30


def dots(n: int, seed: int, size: tuple[int, ...] = (12, 12)) -> Pixels:
    return np.random.default_rng(seed).integers(0, 256, (n, *size), dtype=np.uint8)


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    network = Small()
    monkeypatch.setattr(inception, "load_inception", lambda **_: network)
    monkeypatch.setenv("SCOREFIELD_DATA", str(tmp_path / "store"))
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    return tmp_path / "store"


@pytest.fixture
def sampled(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many images each run of the pool's sampler draws, as they come."""
    drawn: list[int] = []

    def watched(*arguments: Any, **options: Any) -> Iterator[State]:  # noqa: ANN401
        drawn.append(len(arguments[3]))
        return generate(*arguments, **options)

    monkeypatch.setattr(pool, "generate", watched)
    return drawn


OPTIONS = "--width 2 --levels 2 --held-out 6 --batch-size 4 --log-every 1 --previews 0 --sample-steps 7 --ema 0.5"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of 60 grey images of 12 × 12, with two checkpoints."""
    folder = tmp_path_factory.mktemp("trained")
    np.save(folder / "dots.npy", dots(60, 0))
    call = ["train", "tiny", "--data", str(folder / "dots.npy"), "--out", str(folder / "run"), "--image-size", "None"]
    main([*call, *OPTIONS.split(), "--steps", "4", "--checkpoint-every", "2", "--evaluate-every", "2"])
    return folder / "run"


def report(model: Path, out: Path, *options: str) -> dict[str, Any]:
    main(["report", str(model), "--out", str(out), "-n", str(N), *options])
    return read(out / "report.json")


def read(path: Path) -> Any:  # noqa: ANN401
    return json.loads(path.read_text())
