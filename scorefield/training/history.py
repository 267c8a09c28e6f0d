"""What a run's logs say about a model's training."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from scorefield.models.build import build_schedule
from scorefield.models.model import Model
from scorefield.models.recipes import Recipe
from scorefield.training.logs import column

ROWS = 200
"""The most rows of a log that a report keeps."""


@dataclass(frozen=True, kw_only=True)
class LogTable:
    """A log of a training run. The first column is the step; a column NAME@SIGMA holds the loss at one noise level.

    What was not measured is None.
    """

    columns: tuple[str, ...] = ()
    rows: tuple[tuple[float | None, ...], ...] = ()

    def by_sigma(self, name: str) -> dict[str, list[tuple[float, float]]]:
        """(step, value) at each noise level that `name` was measured at, by the level as the column names it."""
        places = {column.partition("@")[2]: k for k, column in enumerate(self.columns) if column.startswith(f"{name}@")}
        found = {sigma: [(row[0] or 0, row[k]) for row in self.rows] for sigma, k in places.items()}
        return {sigma: [(step, y) for step, y in points if y is not None] for sigma, points in found.items()}

    def last(self, column: str) -> float | None:
        """The newest number in a column."""
        if column not in self.columns:
            return None
        k = self.columns.index(column)
        return next((row[k] for row in reversed(self.rows) if row[k] is not None), None)

    def until(self, step: int) -> LogTable:
        """The rows up to that step."""
        return replace(self, rows=tuple(row for row in self.rows if (row[0] or 0) <= step))

    def thinned(self, rows: int = ROWS) -> LogTable:
        """At most this many rows, evenly spaced, the first and the last among them."""
        n = len(self.rows)
        kept = np.linspace(0, n - 1, min(n, rows)).round().astype(int).tolist()
        return replace(self, rows=tuple(self.rows[k] for k in kept))


@dataclass(frozen=True, kw_only=True)
class TrainingHistory:
    """The losses over a run, with each log thinned to at most ROWS rows."""

    log: LogTable
    held_out: LogTable
    seconds: float | None = None
    """Time that training up to this model took."""
    images_per_second: float | None = None
    """The mean over that time."""


def read_log(path: Path, recipe: Recipe | None = None) -> LogTable:
    """A log, which may be written at this moment: a line without its end is left out. No file, no rows.

    Runs of the first edition number their levels, loss_1, loss_2, ...; the recipe tells the sigmas of these.
    """
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        text = ""
    header, *lines = list(csv.reader(text[: text.rfind("\n") + 1].splitlines())) or [[]]
    rows = [
        [_number(word) for word in line] for line in lines if line and len(line) == len(header) and line[0].isdigit()
    ]
    if recipe is not None:
        header = _by_sigma(header, build_schedule(recipe).tolist())
    return LogTable(columns=tuple(header), rows=tuple((int(row[0] or 0), *row[1:]) for row in rows))


def _number(word: str) -> float | None:
    try:
        value = float(word)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _by_sigma(header: Sequence[str], sigmas: Sequence[float]) -> list[str]:
    """Column names with numbers of levels, loss_3, as names with sigmas, loss@0.3594."""
    found = [re.fullmatch(r"((?:ema_)?held_out|loss)_(\d+)", name) for name in header]
    return [column(m[1], sigmas[int(m[2]) - 1]) if m else name for m, name in zip(found, header, strict=True)]


def last_step(path: Path) -> int:
    """The step of a log's last line, or 0."""
    rows = read_log(path).rows
    return int(rows[-1][0] or 0) if rows else 0


def run_of(model: Path) -> Path | None:
    """The run folder that the model is in, or is; None for a model file elsewhere."""
    if not model.exists():  # the name of a pretrained model
        return None
    places = [model, model.parent, model.resolve().parent.parent]
    return next((place for place in places if (place / "recipe.json").is_file()), None)


def history(run: Path, model: Model) -> TrainingHistory:
    """The losses over the run of this model."""
    from scorefield.training.folder import FIXED, saved_recipe

    if not (run / "recipe.json").is_file():
        raise FileNotFoundError(f"{run} holds no run: recipe.json is missing (name the folder of the training run)")
    before = saved_recipe(run)
    if changed := [name for name in FIXED if getattr(before, name) != getattr(model.recipe, name)]:
        raise ValueError(f"{run} is the run of another model: it differs in {', '.join(changed)} (name another run)")
    log, held_out = (read_log(run / name, before) for name in ("log.csv", "held_out.csv"))
    seconds = log.until(model.step).last("seconds")
    rate = model.step * model.recipe.batch_size / seconds if seconds else None
    return TrainingHistory(log=log.thinned(), held_out=held_out.thinned(), seconds=seconds, images_per_second=rate)
