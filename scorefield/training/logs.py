"""Losses by noise level, and the logs they are written to: CSV files, TensorBoard, Weights & Biases."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from scorefield.distributed import Group, float64_device
from scorefield.files import new_file, writing
from scorefield.training.trainer import Losses

Log = Callable[[int, Mapping[str, float]], None]
"""(step, numbers by name) -> nothing."""


def column(name: str, sigma: float) -> str:
    """The name of the column with a loss at that noise level: loss@0.5995."""
    return f"{name}@{sigma:.4g}"


def columns(name: str, sigmas: Iterable[float]) -> list[str]:
    """The columns of a loss: its mean, and the loss at each noise level."""
    return [name, *(column(name, sigma) for sigma in sigmas)]


def error_of(name: str) -> str:
    """The name of the standard error of a mean loss: held_out_standard_error."""
    return f"{name}_standard_error"


def is_count(word: str) -> bool:
    """Whether a word of a log, which may be damaged, is a whole number such as a step."""
    return word.isascii() and word.isdigit() and len(word) < 16


class LossMeter:
    """Mean losses by noise level since the last look, summed on the device without waiting for it.

    Each loss counts for the level nearest to its σ on a log scale: for a schedule these are its levels, for a range of
    σ the centres of bins.
    """

    def __init__(self, sigmas: Tensor | Sequence[float], device: torch.device) -> None:
        self._sigmas, device = torch.as_tensor(sigmas, dtype=torch.float32).tolist(), float64_device(device)
        self._log = torch.tensor(self._sigmas, device=device).log()
        self._total = torch.zeros(len(self._log), dtype=torch.float64, device=device)
        self._count = torch.zeros(len(self._log), dtype=torch.float64, device=device)
        self._bad = torch.zeros((), dtype=torch.int64, device=device)

    def add(self, losses: Losses, step: int) -> None:
        """Count the losses of update number `step`."""
        losses = Losses(*(each.to(self._log.device) for each in losses))
        level = (losses.sigmas.float().log()[:, None] - self._log).abs().argmin(1)
        self._total.index_add_(0, level, losses.values.double())
        self._count.index_add_(0, level, torch.ones_like(losses.values, dtype=torch.float64))
        first = (self._bad == 0) & ~losses.values.isfinite().all()
        self._bad = torch.where(first, step, self._bad)

    def bad_step(self) -> int:
        """The first step whose loss was not finite, or 0."""
        return int(self._bad.item())

    def mean(self) -> float:
        """This process's mean loss since the last look, of which there must be some. On a GPU it waits."""
        return float(self._total.sum() / self._count.sum())

    def clear(self) -> None:
        self._total.zero_()
        self._count.zero_()

    def look(self, group: Group) -> dict[str, float]:
        """The mean loss of all processes, in total and at each level that had examples, by column. Resets the meter."""
        group.sum_(self._total)
        group.sum_(self._count)
        total, count = self._total.tolist(), self._count.tolist()
        self.clear()
        each = {column("loss", sigma): t / n for sigma, t, n in zip(self._sigmas, total, count, strict=True) if n}
        return {"loss": sum(total) / sum(count), **each}


def csv_log(path: Path, columns: list[str], *, until: int) -> Log:
    """A CSV file with these columns after `step`. Rows of steps after `until` are dropped: a resumed run writes them
    again. So is a line without its end, of a run that was killed while it wrote.

    A file of an older version may have other columns: its rows keep what they have of these.
    """
    rows = []
    if path.exists():
        text = path.read_text(encoding="utf-8", errors="replace")
        header, *old = [line.split(",") for line in text[: text.rfind("\n") + 1].splitlines()] or [[]]
        places = {_present_name(name, columns): k for k, name in enumerate(header)}
        whole = [row for row in old if len(row) == len(header) and is_count(row[0]) and int(row[0]) <= until]
        rows = [[row[0], *(row[places[name]] if name in places else "" for name in columns)] for row in whole]
    with new_file(path) as file:
        file.write("".join(",".join(row) + "\n" for row in [["step", *columns], *rows]).encode())

    def log(step: int, numbers: Mapping[str, float]) -> None:
        row = [str(step), *(f"{numbers[name]:.6g}" if name in numbers else "" for name in columns)]
        with writing(path), path.open("a", newline="") as file:
            file.write(",".join(row) + "\n")

    return log


def _present_name(name: str, columns: Sequence[str]) -> str:
    """The column's name today. Runs of the first edition number their levels: loss_3 is the third of loss@SIGMA."""
    kind, _, number = name.rpartition("_")
    levels = [each for each in columns if each.startswith(f"{kind}@")]
    return levels[int(number) - 1] if is_count(number) and 0 < int(number) <= len(levels) else name


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
    with new_file(kept) as file:
        file.write(f"{run.id}\n".encode())
    return lambda step, numbers: run.log(dict(numbers), step=step)
