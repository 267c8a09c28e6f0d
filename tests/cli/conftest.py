"""A tiny trained model for the tests of the command line."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from scorefield.cli import main


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of grey images of 33 × 47, trained for two steps on a folder of images, through the command line."""
    folder = tmp_path_factory.mktemp("odd")
    rng = np.random.default_rng(0)
    (folder / "images").mkdir()
    for k in range(12):
        Image.fromarray(rng.integers(0, 256, (33, 47), dtype=np.uint8)).save(folder / "images" / f"{k}.png")
    os.environ["SCOREFIELD_DATA"] = str(folder / "data")
    try:
        main(
            f"train tiny --data {folder}/images --out {folder}/run --image-size None --width 2 --levels 2 --steps 2 "
            "--sigma-min 0.01 --batch-size 4 --held-out 2 --sample-steps 2 --step-size 1e-5 --preview-steps 1 "
            "--device cpu".split()
        )
    finally:
        del os.environ["SCOREFIELD_DATA"]
    return folder / "run"
