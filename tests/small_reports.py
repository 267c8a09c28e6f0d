"""Reports on a small run, with a small random network in Inception's place."""

from __future__ import annotations

import struct
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_evaluation import dots as dots_of
from small_evaluation import read_json
from small_evaluation import sampled as sampled
from small_evaluation import small as small

from scorefield.cli import main
from scorefield.data.images import Pixels

N = 30
OPTIONS = "--width 2 --levels 2 --held-out 6 --batch-size 4 --log-every 1 --previews 0 --sample-steps 7 --ema 0.5"


def dots(n: int, seed: int, size: tuple[int, ...] = (12, 12)) -> Pixels:
    return dots_of(n, seed, size)


@pytest.fixture(autouse=True)
def store(small: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data folder of the test. Reports need no matplotlib."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    return tmp_path / "store"


@pytest.fixture
def run() -> Path:
    """A run with two checkpoints, on 60 grey images of 12 × 12. No test changes it."""
    return Path(_trained().name) / "run"


@cache
def _trained() -> tempfile.TemporaryDirectory[str]:
    """A folder with that run, which is deleted at the end of the tests."""
    place = tempfile.TemporaryDirectory()
    folder = Path(place.name)
    np.save(folder / "dots.npy", dots(60, 0))
    call = ["train", "tiny", "--data", str(folder / "dots.npy"), "--out", str(folder / "run"), "--image-size", "None"]
    main([*call, *OPTIONS.split(), "--steps", "4", "--checkpoint-every", "2", "--evaluate-every", "2"])
    return place


def put_mnist(store: Path, parts: dict[str, int]) -> None:
    """Files of MNIST with random digits and labels: this number of them in each part."""
    (store / "mnist").mkdir(parents=True, exist_ok=True)
    for part, n in parts.items():
        images = struct.pack(">4I", 0x803, n, 28, 28) + dots(n, n, (28, 28)).tobytes()
        (store / "mnist" / f"{part}-images-idx3-ubyte").write_bytes(images)
        (store / "mnist" / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 0x801, n) + bytes(n))


def report(model: Path, out: Path, *options: str) -> dict[str, Any]:
    """The content of report.json, made by the command line."""
    main(["report", str(model), "--out", str(out), "-n", str(N), *options])
    found: dict[str, Any] = read_json(out / "report.json")
    return found
