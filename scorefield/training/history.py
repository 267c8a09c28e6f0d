"""What a run's logs say about a model's training."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from scorefield.models.build import build_schedule
from scorefield.models.model import Model, Weights
from scorefield.models.recipes import IDENTITY, Recipe
from scorefield.training.logs import column, error_of, is_count

LOG, HELD_OUT = "log.csv", "held_out.csv"
"""The names of a run's logs."""
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


@dataclass(frozen=True, kw_only=True)
class HeldOutLoss:
    """The loss λ(σ)ℓ(σ) on held-out images that a run measured at a step: its mean, in total and by noise level."""

    step: int
    weights: Weights
    n: int | None
    """The number of images, each of them at every level; None in logs of older versions, in which every image was at
    one level only."""
    loss: float
    standard_error: float | None
    by_sigma: dict[str, tuple[float, float | None]]
    """(loss, standard error) by noise level."""

    def __str__(self) -> str:
        images = "" if self.n is None else f", {self.n} image{'s' * (self.n > 1)} at every noise level"
        return f"{with_error(self.loss, self.standard_error)} at step {self.step} ({self.weights} weights{images})"


def with_error(value: float, standard_error: float | None) -> str:
    """A number for people, with its standard error if that is known."""
    return f"{value:.4g}" + ("" if standard_error is None else f" ± {standard_error:.2g}")


def held_out_loss(run: Path, recipe: Recipe, *, step: int, weights: Weights) -> HeldOutLoss | None:
    """The last measurement of these weights up to that step; None if there is none."""
    table = read_log(run / HELD_OUT, recipe).until(step)
    last = dict(zip(table.columns, table.rows[-1], strict=True)) if table.rows else {}
    name = "held_out" if weights == "raw" else f"{weights}_held_out"
    if (loss := last.get(name)) is None:
        return None
    levels = {sigma: (value, last.get(f"{error_of(name)}@{sigma}")) for sigma, value in _levels(last, name).items()}
    return HeldOutLoss(
        step=int(last["step"] or 0),
        weights=weights,
        n=None if (n := last.get("n")) is None else int(n),
        loss=loss,
        standard_error=last.get(error_of(name)),
        by_sigma=levels,
    )


def _levels(row: Mapping[str, float | None], name: str) -> dict[str, float]:
    """The values of the columns NAME@SIGMA, by SIGMA."""
    found = {column.partition("@")[2]: value for column, value in row.items() if column.startswith(f"{name}@")}
    return {sigma: value for sigma, value in found.items() if value is not None}


def read_log(path: Path, recipe: Recipe | None = None) -> LogTable:
    """A log, which may be written at this moment: a line without its end is left out. No file, no rows.

    Runs of the first edition number their levels, loss_1, loss_2, ...; the recipe tells the sigmas of these.
    """
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        text = ""
    whole = text[: text.rfind("\n") + 1].splitlines()
    header, *lines = [line.split(",") if line else [] for line in whole] or [[]]
    rows = [
        [_number(word) for word in line] for line in lines if line and len(line) == len(header) and is_count(line[0])
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
    found = [re.fullmatch(r"((?:ema_)?held_out|loss)_([1-9]\d{0,8})", name) for name in header]
    known = [m if m and int(m[2]) <= len(sigmas) else None for m in found]
    return [column(m[1], sigmas[int(m[2]) - 1]) if m else name for m, name in zip(known, header, strict=True)]


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
    from scorefield.training.folder import saved_recipe

    if not (run / "recipe.json").is_file():
        raise FileNotFoundError(f"{run} holds no run: recipe.json is missing (name the folder of the training run)")
    before = saved_recipe(run)
    if changed := [name for name in IDENTITY if getattr(before, name) != getattr(model.recipe, name)]:
        raise ValueError(f"{run} is the run of another model: it differs in {', '.join(changed)} (name another run)")
    log, held_out = (read_log(run / name, before) for name in (LOG, HELD_OUT))
    seconds = log.until(model.step).last("seconds")
    rate = model.step * model.recipe.batch_size / seconds if seconds else None
    return TrainingHistory(log=log.thinned(), held_out=held_out.thinned(), seconds=seconds, images_per_second=rate)
