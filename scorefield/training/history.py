"""What a run's logs tell of a model's training, short enough to be kept beside its results."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np

from scorefield.models.checkpoint import Model
from scorefield.training.folder import FIXED, saved_recipe

ROWS = 200
"""Of each log, at most."""


def run_of(model: Path) -> Path | None:
    """The run folder that the model lies in, or is; None for a model file elsewhere."""
    if not model.exists():  # the name of a shipped model
        return None
    places = [model, model.parent, model.resolve().parent.parent]
    return next((place for place in places if (place / "recipe.json").is_file()), None)


def history(run: Path, model: Model) -> dict[str, Any]:
    """The losses over the run, with the seconds that it took up to this model and the images per second over all."""
    if not (run / "recipe.json").is_file():
        raise FileNotFoundError(f"{run} holds no run: recipe.json is missing (name the folder of the training run)")
    before = saved_recipe(run)
    if changed := [name for name in FIXED if getattr(before, name) != getattr(model.recipe, name)]:
        raise ValueError(f"{run} is the run of another model: it differs in {', '.join(changed)} (name another run)")
    log, held_out = read_log(run / "log.csv"), read_log(run / "held_out.csv")
    found: dict[str, Any] = {"log": thinned(log), "held_out": thinned(held_out)}
    column = log["columns"].index("seconds") if "seconds" in log["columns"] else 0
    spent = [row[column] for row in log["rows"] if column and row[0] <= model.step and row[column]]
    if spent:
        found |= {"seconds": spent[-1], "images_per_second": model.step * model.recipe.batch_size / spent[-1]}
    return found


def read_log(path: Path) -> dict[str, Any]:
    """Columns and rows of a run's CSV file; what was not measured is None. A file that is not there has no rows."""
    if not path.is_file():
        return {"columns": [], "rows": []}
    with path.open(newline="") as file:
        header, *lines = list(csv.reader(file)) or [[]]
    rows = [[float(word) if word else None for word in line] for line in lines if len(line) == len(header)]
    return {"columns": header, "rows": [[int(row[0] or 0), *row[1:]] for row in rows]}


def thinned(log: dict[str, Any], rows: int = ROWS) -> dict[str, Any]:
    """At most so many of its rows, evenly spaced, the first and the last among them."""
    n = len(log["rows"])
    kept = np.linspace(0, n - 1, min(n, rows)).round().astype(int).tolist()
    return {"columns": log["columns"], "rows": [log["rows"][k] for k in kept]}
