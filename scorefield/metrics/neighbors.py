"""Exact nearest neighbours among more points than fit into memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from scorefield.metrics.distances import squared_distances


class Neighbors(NamedTuple):
    """The points nearest to each query, the nearest first: Euclidean distances and numbers, both (Q, k)."""

    distances: Tensor
    numbers: Tensor


def nearest(queries: Sequence[Tensor], blocks: Iterable[tuple[int, Tensor]], *, k: int) -> Neighbors:
    """The k points nearest to each query, computed in float64, which differences of large squares need.

    `queries`: one or more forms of the same Q queries, (Q, D) each, such as images and their mirror images; the form
    nearest to a point counts. `blocks`: (number of the first point, points (B, D)).
    """
    forms = [form.double() for form in queries]
    best = torch.full((len(forms[0]), 0), torch.inf, dtype=torch.float64, device=forms[0].device)
    numbers = best.long()
    for first, points in blocks:
        points = points.to(forms[0])
        found = torch.stack([squared_distances(form, points) for form in forms]).amin(0)
        best = torch.cat([best, found], dim=1)
        here = torch.arange(first, first + len(points), device=best.device).expand(len(best), -1)
        numbers = torch.cat([numbers, here], dim=1)
        best, order = best.topk(min(k, best.shape[1]), dim=1, largest=False)
        numbers = numbers.gather(1, order)
    return Neighbors(best.sqrt(), numbers)
