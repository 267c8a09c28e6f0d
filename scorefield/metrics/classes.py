"""The Inception score."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class ClassScore:
    """The sums from which the Inception score, exp of the mean of KL(p(y|x) ‖ p(y)), is computed, in float64.

    The score is computed in each of 10 splits of the images.
    """

    n: int
    """The number of images in the end. The image at place k belongs to split ⌊10 k/n⌋; places are random."""
    count: Tensor
    total: Tensor
    """Σ p(y|x) in each split."""
    entropy: Tensor
    """Σ Σ_y p(y|x) log p(y|x) in each split."""

    @classmethod
    def empty(cls, n: int, classes: int, *, device: torch.device | str = "cpu", splits: int = 10) -> ClassScore:
        splits = min(splits, n)
        zeros = torch.zeros(splits, classes + 2, dtype=torch.float64, device=device)
        return cls(n, zeros[:, 0], zeros[:, 2:], zeros[:, 1])

    def add(self, logits: Tensor, places: Tensor) -> None:
        """Add images by their logits (B, classes) and places (B,)."""
        log_p = logits.double().log_softmax(1)
        split = places.to(logits.device) * len(self.count) // self.n
        self.count.index_add_(0, split, torch.ones_like(split, dtype=torch.float64))
        self.total.index_add_(0, split, log_p.exp())
        self.entropy.index_add_(0, split, (log_p.exp() * log_p).sum(1))

    def merge(self, other: ClassScore) -> None:
        """Add the images that another process has seen."""
        self.count += other.count.to(self.count)
        self.total += other.total.to(self.total)
        self.entropy += other.entropy.to(self.entropy)

    def result(self) -> tuple[float, float]:
        """The mean and the standard deviation of the score over the splits."""
        p = self.total / self.count[:, None]
        each = (self.entropy / self.count - torch.xlogy(p, p).sum(1)).exp()
        return each.mean().item(), each.std(correction=0).item()
