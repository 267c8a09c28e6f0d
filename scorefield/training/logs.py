"""Logs of a run's numbers: CSV files always, TensorBoard and Weights & Biases on request."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping
from pathlib import Path

from scorefield.files import new_file, writing

Log = Callable[[int, Mapping[str, float]], None]
"""(step, numbers by name) -> nothing."""


def csv_log(path: Path, columns: list[str], *, until: int) -> Log:
    """A CSV file with these columns after `step`. Rows of steps after `until` are dropped: a resumed run writes them
    again."""
    header = ["step", *columns]
    rows: list[list[str]] = []
    if path.exists():
        with path.open(newline="") as old:
            rows = [row for row in csv.reader(old) if len(row) == len(header)]
        rows = [row for row in rows[1:] if row[0].isdigit() and int(row[0]) <= until]
    with new_file(path) as file:
        file.write(_lines([header, *rows]).encode())

    def log(step: int, numbers: Mapping[str, float]) -> None:
        with writing(path), path.open("a", newline="") as file:
            file.write(_lines([[str(step), *(f"{numbers[c]:.6g}" if c in numbers else "" for c in columns)]]))

    return log


def _lines(rows: list[list[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def tensorboard_log(folder: Path, *, until: int) -> Log:
    """A TensorBoard event file in `folder`; it hides steps after `until` of an earlier one."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ImportError(f"--tensorboard needs a package: {error} (pip install tensorboard)") from error
    writer = SummaryWriter(str(folder), purge_step=until + 1 if until else None)

    def log(step: int, numbers: Mapping[str, float]) -> None:
        for name, number in numbers.items():
            writer.add_scalar(name, number, step)
        writer.flush()

    return log


def wandb_log(folder: Path, settings: Mapping[str, object], *, until: int) -> Log:
    """A run of Weights & Biases, named after `folder`; its own environment variables (WANDB_MODE, ...) apply.

    The run's id is kept in folder/wandb-id: a resumed training continues the same run, after step `until`.
    """
    try:
        import wandb
    except ImportError as error:
        raise ImportError(f"--wandb needs a package: {error} (pip install wandb)") from error
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / "wandb-id"
    name = kept.read_text().strip() if until and kept.exists() else None
    settings = dict(settings)
    run = wandb.init(project="scorefield", name=folder.name, dir=str(folder), config=settings, id=name, resume="allow")
    kept.write_text(f"{run.id}\n")
    return lambda step, numbers: run.log(dict(numbers), step=step)
