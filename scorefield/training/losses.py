"""A running account of the losses."""

from __future__ import annotations

import torch

from scorefield.distributed import Group
from scorefield.training.steps import Update


class Losses:
    """Losses by level since the last look, summed on the device, so that adding to them does not wait for it."""

    def __init__(self, levels: int, device: torch.device) -> None:
        self._total = torch.zeros(levels, dtype=torch.float64, device=device)
        self._count = torch.zeros(levels, dtype=torch.float64, device=device)
        self._bad = torch.zeros((), dtype=torch.int64, device=device)

    def add(self, update: Update) -> None:
        self._total.index_add_(0, update.levels, update.losses.double())
        self._count.index_add_(0, update.levels, torch.ones_like(update.losses, dtype=torch.float64))
        first = (self._bad == 0) & ~update.losses.isfinite().all()
        self._bad = torch.where(first, update.step, self._bad)

    def bad_step(self) -> int:
        """The first step whose loss was not finite, or 0."""
        return int(self._bad.item())

    def clear(self) -> None:
        self._total.zero_()
        self._count.zero_()

    def look(self, group: Group) -> dict[str, float]:
        """The mean loss of all processes, in total and by level where there were examples. Starts anew."""
        group.sum_(self._total)
        group.sum_(self._count)
        total, count = self._total.tolist(), self._count.tolist()
        self.clear()
        each = {f"loss_{k}": t / n for k, (t, n) in enumerate(zip(total, count, strict=True), 1) if n}
        return {"loss": sum(total) / sum(count), **each}
