"""Losses by noise level, for logs: as names of columns, and as a running account."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from scorefield.distributed import Group
from scorefield.training.trainer import Losses


def column(name: str, sigma: float) -> str:
    """The name of the column with a loss at that noise level: loss@0.5995."""
    return f"{name}@{sigma:.4g}"


def columns(name: str, sigmas: Iterable[float]) -> list[str]:
    """The columns of a loss: its mean, and the loss at each noise level."""
    return [name, *(column(name, sigma) for sigma in sigmas)]


def log_bins(sigma_min: float, sigma_max: float, bins: int = 10) -> Tensor:
    """The centres of equal bins of log σ, the largest first: levels for a network that accepts a range."""
    edges = torch.linspace(math.log(sigma_max), math.log(sigma_min), bins + 1)
    return ((edges[1:] + edges[:-1]) / 2).exp()


class LossMeter:
    """Mean losses by noise level since the last look, summed on the device without waiting for it.

    Each loss counts for the level nearest to its σ on a log scale: for a schedule these are its levels, for a range of
    σ the centres of bins.
    """

    def __init__(self, sigmas: Tensor | Sequence[float], device: torch.device) -> None:
        self._sigmas = torch.as_tensor(sigmas, dtype=torch.float32).tolist()
        self._log = torch.tensor(self._sigmas, device=device).log()
        self._total = torch.zeros(len(self._log), dtype=torch.float64, device=device)
        self._count = torch.zeros(len(self._log), dtype=torch.float64, device=device)
        self._bad = torch.zeros((), dtype=torch.int64, device=device)

    def add(self, losses: Losses, step: int) -> None:
        """Count the losses of update number `step`."""
        level = (losses.sigmas.float().log()[:, None] - self._log).abs().argmin(1)
        self._total.index_add_(0, level, losses.values.double())
        self._count.index_add_(0, level, torch.ones_like(losses.values, dtype=torch.float64))
        first = (self._bad == 0) & ~losses.values.isfinite().all()
        self._bad = torch.where(first, step, self._bad)

    def bad_step(self) -> int:
        """The first step whose loss was not finite, or 0."""
        return int(self._bad.item())

    def clear(self) -> None:
        self._total.zero_()
        self._count.zero_()

    def look(self, group: Group) -> dict[str, float]:
        """The mean loss of all processes, in total and at each level that had examples, by column. Starts again."""
        group.sum_(self._total)
        group.sum_(self._count)
        total, count = self._total.tolist(), self._count.tolist()
        self.clear()
        each = {column("loss", sigma): t / n for sigma, t, n in zip(self._sigmas, total, count, strict=True) if n}
        return {"loss": sum(total) / sum(count), **each}
