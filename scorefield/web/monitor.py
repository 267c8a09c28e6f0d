"""Training runs, read from their folders, also while another process writes there."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import quote

from scorefield.models.checkpoint import model_files
from scorefield.models.export import published
from scorefield.training.folder import is_locked, saved_recipe
from scorefield.training.history import last_step, read_log

ROWS = 300
"""The most rows of a log that are sent."""


def summary(name: str, run: Path) -> dict[str, Any]:
    """How far a run is, for JSON. It is training until it has drawn its last samples."""
    steps, step = saved_recipe(run).steps, _steps_done(run)
    state = "training" if is_locked(run) else "done" if step >= steps else "stopped"
    return {"name": name, "step": step, "steps": steps, "state": state}


def details(name: str, run: Path) -> dict[str, Any]:
    """A run's recipe, logs and samples, for JSON."""
    recipe = saved_recipe(run)
    log, held_out = (read_log(run / file, recipe) for file in ("log.csv", "held_out.csv"))
    address = f"/api/runs/{quote(name, safe='')}/samples"
    return {
        **summary(name, run),
        "recipe": published(recipe),
        "log": asdict(log.thinned(ROWS)),
        "held_out": asdict(held_out.thinned(ROWS)),
        "samples": [{"step": step, "image": f"{address}/{step}.png"} for step in sorted(sample_files(run))],
        "images_per_second": log.last("images_per_second"),
        "seconds": log.last("seconds"),
    }


def sample_files(run: Path) -> dict[int, Path]:
    """The run's pictures of samples, by step."""
    files = (run / "samples").glob("*.png")
    return {int(file.stem): file for file in files if file.stem.isascii() and file.stem.isdigit()}


def _steps_done(run: Path) -> int:
    """The last step in the log, or that of the last checkpoint if it is later."""
    saved = [int(file.stem.partition("-")[2]) for file in model_files(run)[-1:] if file.stem[6:].isdigit()]
    return max(last_step(run / "log.csv"), *saved, 0)
