"""A small network whose score depends on a class label, for the tests of whatever splits batches."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from scorefield.score import expand


class Labelled(nn.Module):
    """The score of N(μ, 1 + σ²) with a mean μ of its own for each class. A class that does not exist is an error."""

    def __init__(self, labels: int = 5) -> None:
        super().__init__()
        self.labels = labels
        self.means = nn.Embedding(labels, 1)
        with torch.no_grad():
            self.means.weight.copy_(torch.arange(labels)[:, None] / labels)

    def forward(self, x: Tensor, sigma: Tensor, *, label: Tensor) -> Tensor:
        if label.shape != x.shape[:1]:
            raise ValueError(f"{len(x)} examples, but labels of shape {tuple(label.shape)}")
        mean = self.means(label).reshape(-1, *(1 for _ in x.shape[1:]))
        return (mean - x) / (1 + expand(sigma, x).square())


def labelled_batch(n: int) -> tuple[partial[Tensor], Tensor, Tensor]:
    """The network with a different label for neighbours, n examples, and a sigma for each."""
    label = torch.arange(n) % 5
    return partial(Labelled().requires_grad_(False), label=label), torch.rand(n, 1, 3, 2), torch.rand(n) + 0.1
