"""Reports with made-up numbers, and the results page that is made of them."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from scorefield.cli import main
from scorefield.evaluation.digits import share_error
from scorefield.models.recipes import RECIPES

PICTURES = {
    "samples": ["samples.png", "samples_denoised.png"],
    "stages": ["stages.png"],
    "neighbors": ["neighbors.png", "neighbors_inception.png"],
}

REAL = {"accuracy": 0.9966, "n": 10_000, "accepted": 0.985, "distance_to_uniform": 0.0216}
"""What the classifier of digits says of real ones: in its file there is no more."""


def fake(folder: Path, name: str, *, seed: int, **changes: Any) -> dict[str, Any]:  # noqa: ANN401
    """A report with numbers that no other has, and its pictures."""
    rng = np.random.default_rng(seed)
    recipe = RECIPES[name] if name in RECIPES else RECIPES["mnist"]
    sigmas = np.geomspace(recipe.sigma_max, recipe.sigma_min, recipe.levels).tolist()

    def numbers() -> dict[str, Any]:
        fid, kid, error, precision, recall = rng.uniform(0.1, 1, 5).tolist()
        found = {"fid": 50 * fid, "kid": kid, "kid_standard_error": error, "precision": precision, "recall": recall}
        return {**found, "inception_score": None, "n": 5000, "kept_n": [4000, 3000], "notes": []}

    def verdict() -> dict[str, Any]:
        share, distance, chance = rng.uniform(0.1, 1, 3).tolist()
        words = {"n": 4321, "accepted": share, "accepted_standard_error": share_error(share, 4321)}
        return {**words, "distance_to_uniform": distance, "distance_by_chance": chance}

    def copies() -> dict[str, Any]:
        return {"n": 1000, "copies": [], "held_out_copies": 2, "held_out_n": 900, "ratio": {"0.5": rng.uniform()}}

    losses = rng.uniform(1, 99, len(sigmas)).tolist()
    columns = ["step", "held_out", *(f"held_out_{k}" for k in range(1, len(sigmas) + 1))]
    rows = [[step, *rng.uniform(1, 99, len(sigmas) + 1).tolist()] for step in (1000, 2000, 3000)]
    report: dict[str, Any] = {
        "command": f"scorefield report runs/{name} --out docs/results/{name} -n 5000",
        "made_on": {part: {"machine": "a machine"} for part in (*PICTURES, "sampling", "numbers", "digits")},
        "sampler": {"steps": recipe.sample_steps, "step_size": recipe.step_size, "denoise": False, "seed": 0},
        "model": {
            "step": recipe.steps,
            "weights": "raw",
            "parameters": 7_643_210,
            "shape": [1, 28, 28],
            "sigmas": sigmas,
            "recipe": asdict(recipe),
        },
        "training": {
            "held_out": {"columns": columns, "rows": rows},
            "log": {"columns": [], "rows": []},
            "seconds": 1700.0 + seed,
            "images_per_second": 15_058.4,
        },
        "seconds": {
            "preparing": 40,
            "sampling": 180 + seed,
            "samples": 0.2,
            "stages": 7,
            "neighbors": 31,
            "numbers": 9,
        },
        "sampling": {"images": 5000},
        "samples": {"files": PICTURES["samples"], "shown": 100},
        "stages": {"files": PICTURES["stages"], "steps": [0, 500, 1000]},
        "neighbors": {
            "files": PICTURES["neighbors"],
            "others": "held-out images",
            "neighbors": copies(),
            "neighbors_inception": copies(),
        },
        "numbers": {
            "plain": numbers(),
            "denoised": numbers(),
            "reference": {"name": "mnist", "digest": "0123456789ab", "n": 60_000},
            "loss": float(np.mean(losses)),
            "loss_per_level": losses,
            "loss_n": 1000,
        },
        "digits": {"plain": verdict(), "denoised": verdict(), "test": REAL},
        "real": {**numbers(), "name": "mnist:test", "digest": "abcdefabcdef"},
    }
    report = {key: value for key, value in {**report, **changes}.items() if value is not None}
    (folder / name).mkdir(parents=True)
    (folder / name / "report.json").write_text(json.dumps(report))
    for part, files in PICTURES.items():
        for file in files if part in report else []:
            Image.new("L", (4, 4)).save(folder / name / file)
    return report


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    """Reports on all of MNIST's models."""
    for seed, name in enumerate(("mnist", "mnist-small", "mnist-baseline")):
        fake(tmp_path / "docs" / "results", name, seed=seed)
    return tmp_path / "docs"


def made(docs: Path) -> str:
    main(["results", str(docs / "results")])
    return (docs / "results.md").read_text(encoding="utf-8")


def row_of(text: str, name: str) -> list[str]:
    """The cells of the table row that begins with that name."""
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {name} |")]
    return [cell.strip() for cell in line.strip("| ").split("|")]
