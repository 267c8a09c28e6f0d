"""Training runs, as their folders tell of them at the moment: also while another process writes there."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from scorefield.models.checkpoint import model_files
from scorefield.models.export import published
from scorefield.training.folder import saved_recipe
from scorefield.training.history import thinned

ROWS = 300
"""Of each log, at most."""


def runs_among(folders: Mapping[str, Path]) -> dict[str, Path]:
    """The training runs among these folders."""
    return {name: folder for name, folder in folders.items() if (folder / "recipe.json").is_file()}


def summary(name: str, run: Path) -> dict[str, Any]:
    """How far a run is, for JSON."""
    steps, step = saved_recipe(run).steps, _step(run, log_of(run / "log.csv"))
    state = "done" if step >= steps else "training" if _is_locked(run) else "stopped"
    return {"name": name, "step": step, "steps": steps, "state": state}


def details(name: str, run: Path) -> dict[str, Any]:
    """All that the page shows of a run, for JSON."""
    recipe, log = saved_recipe(run), log_of(run / "log.csv")
    place = f"/api/runs/{quote(name, safe='')}/samples"
    return {
        **summary(name, run),
        "recipe": published(recipe),
        "log": thinned(log, ROWS),
        "held_out": thinned(log_of(run / "held_out.csv"), ROWS),
        "samples": [{"step": step, "image": f"{place}/{step}.png"} for step in sorted(sample_files(run))],
        "images_per_second": _last(log, "images_per_second"),
        "seconds": _last(log, "seconds"),
    }


def sample_files(run: Path) -> dict[int, Path]:
    """The pictures of samples by step."""
    files = (run / "samples").glob("*.png")
    return {int(file.stem): file for file in files if file.stem.isascii() and file.stem.isdigit()}


def log_of(path: Path) -> dict[str, Any]:
    """Columns and rows of a log that may be written at this moment: a line without its end is left out.

    What was not measured, or is no number, is None.
    """
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        text = ""
    header, *lines = list(csv.reader(text[: text.rfind("\n") + 1].splitlines())) or [[]]
    rows = [
        [_number(word) for word in line] for line in lines if line and len(line) == len(header) and line[0].isdigit()
    ]
    return {"columns": header, "rows": [[int(row[0] or 0), *row[1:]] for row in rows]}


def _number(word: str) -> float | None:
    try:
        value = float(word)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _last(log: dict[str, Any], column: str) -> float | None:
    """The newest number in a column."""
    if column not in log["columns"]:
        return None
    k = log["columns"].index(column)
    return next((row[k] for row in reversed(log["rows"]) if row[k] is not None), None)


def _step(run: Path, log: dict[str, Any]) -> int:
    """The last step that a log or a checkpoint tells of."""
    saved = [int(file.stem.partition("-")[2]) for file in model_files(run)[-1:] if file.stem[6:].isdigit()]
    return max([0, *saved, *(row[0] for row in log["rows"][-1:])])


def _is_locked(run: Path) -> bool:
    """Whether a process is training there: it holds a lock on the folder for as long as it lives."""
    try:
        import fcntl
    except ImportError:  # not on Windows
        return False
    folder = os.open(run, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return False
    finally:
        os.close(folder)
    return False
