"""Reports with made-up numbers, and the results page from them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from scorefield.evaluation import records
from scorefield.evaluation.records import Report, from_json, to_json
from scorefield.models.export import published
from scorefield.models.recipes import RECIPES
from scorefield.paper.results import load, page

MACHINE = records.Machine(machine="a machine", processes=1, scorefield="0", torch="2")
PARTS = ("samples", "stages", "neighbors", "numbers", "digits", "inpainting", "robustness", "real", "sampling")
TEST = {"accuracy": 0.9966, "n": 10_000, "accepted": 0.985, "histogram": [1], "distance_to_uniform": 0.0216}
TEST |= {"noisy_accepted": 0.98, "rejected": {"noise": 1.0, "composed": 0.89}, "rejected_unseen": {"torn": 0.984}}


def report_on(name: str, *, seed: int = 0, **changes: Any) -> Report:  # noqa: ANN401
    """A report with numbers that no report of another seed has, without inpainting and robustness.

    `changes`: other values for its fields; None takes a part away. A key MODEL.FIELD changes a field of the model.
    """
    rng = np.random.default_rng(seed)
    recipe = RECIPES[name] if name in RECIPES else RECIPES["mnist"]
    sigmas = np.geomspace(recipe.sigma_max, recipe.sigma_min, recipe.levels).tolist()

    def metrics() -> dict[str, Any]:
        keys = ("fid", "kid", "kid_standard_error", "precision", "recall")
        found = dict(zip(keys, rng.uniform(0.1, 1, 5).tolist(), strict=True))
        return {**found, "inception_score": None, "n": 5000, "kept_n": [4000, 3000]}

    def verdict() -> dict[str, Any]:
        keys = ("accepted", "distance_to_uniform", "distance_by_chance", "accepted_standard_error")
        found = dict(zip(keys, rng.uniform(0.1, 1, 4).tolist(), strict=True))
        return {**found, "n": 4321, "histogram": [1], "confidence": 0.9}

    def memorisation() -> dict[str, Any]:
        quantiles = {
            key: {"0.5": rng.uniform()} for key in ("ratio", "held_out_ratio", "isolation", "held_out_isolation")
        }
        copies = {"copies": [], "held_out_copies": 2, "held_out_n": 900, "chance": 1.0, "alarm": False}
        return {"n": 1000, "held_out_distance": 1.0, **quantiles, **copies}

    columns = ["step", "held_out", *(f"held_out@{sigma:.4g}" for sigma in sigmas)]
    rows = [[step, *rng.uniform(1, 99, len(sigmas) + 1).tolist()] for step in (1000, 2000, 3000)]
    losses = [{"sigma": sigma, "loss": rng.uniform(1, 99)} for sigma in sigmas]
    values: dict[str, Any] = {
        "command": f"scorefield report runs/{name} --out docs/results/{name} -n 5000",
        "n": 5000,
        "model": {
            "step": recipe.steps,
            "weights": "raw",
            "digest": "0123456789ab",
            "parameters": 7_643_210,
            "shape": [1, 28, 28],
            "sigmas": sigmas,
            "recipe": published(recipe) | {"start": recipe.start},
        },
        "sampler": {"name": "annealed_langevin", "sigmas": sigmas, "step_size": 2e-5, "steps": 100, "denoise": False},
        "seed": 0,
        "precision": "float32",
        "calls": 1000,
        "training": {
            "log": {},
            "held_out": {"columns": columns, "rows": rows},
            "seconds": 1700.0 + seed,
            "images_per_second": 15_058.4,
        },
        "seconds": dict.fromkeys(PARTS, 31.0) | {"sampling": 180.0 + seed, "samples": 0.2},
        "made_on": {part: to_json(MACHINE) for part in PARTS},
        "sampling": {"images": 5000},
        "samples": {"files": ["samples.png", "samples_denoised.png"], "shown": 100},
        "stages": {"files": ["stages.png"], "rows": 3, "steps": [0, 500, 1000], "sigmas": [None, 1.0, 0.01]},
        "neighbors": {
            "files": ["neighbors.png", "neighbors_inception.png"],
            "others": "held-out images",
            "data": "mnist",
            "data_digest": "0123456789ab",
            "neighbors": memorisation(),
            "neighbors_inception": memorisation(),
        },
        "numbers": {
            "plain": metrics(),
            "denoised": metrics(),
            "reference": {"name": "mnist", "digest": "0123456789ab", "n": 60_000},
            "inception": "abc",
            "loss": float(np.mean([each["loss"] for each in losses])),
            "loss_by_sigma": losses,
            "loss_n": 1000,
        },
        "real": {**metrics(), "name": "mnist:test", "digest": "abcdefabcdef"},
    }
    if recipe.data == "mnist" and name in RECIPES:
        values["digits"] = {"plain": verdict(), "denoised": verdict(), "test": TEST}
    report = from_json(Report, values)
    model = {key.partition(".")[2]: value for key, value in changes.items() if key.startswith("model.")}
    whole = {key: value for key, value in changes.items() if "." not in key}
    return replace(report, model=replace(report.model, **model), **whole)


def write(folder: Path, name: str, report: Report) -> Path:
    """folder/NAME/report.json, with its pictures."""
    (folder / name).mkdir(parents=True, exist_ok=True)
    for part in (report.samples, report.stages, report.neighbors, report.inpainting):
        for file in part.files if part is not None else ():
            Image.new("L", (4, 4)).save(folder / name / file)
    path = folder / name / "report.json"
    path.write_text(json.dumps(to_json(report)), encoding="utf-8")
    return path


def page_of(docs: Path, **reports: Report) -> str:
    """The page docs/results.md from these reports, and those that are there; _ in a name stands for -."""
    for name, report in reports.items():
        write(docs / "results", name.replace("_", "-"), report)
    return page(load(docs / "results", docs / "results.md"))


def row(text: str, name: str) -> list[str]:
    """The cells of the only table row that begins with that name."""
    (line,) = [line for line in text.splitlines() if line.startswith((f"| {name} |", f"| **{name}**: "))]
    return [cell.strip() for cell in line.strip("| ").split(" | ")]
