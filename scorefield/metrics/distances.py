"""Comparisons of two sets of features: by a kernel (KID), and by nearest neighbours (precision and recall)."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def squared_distances(a: Tensor, b: Tensor) -> Tensor:
    """‖a_i − b_j‖², (N, M)."""
    return (a.square().sum(1, keepdim=True) + b.square().sum(1) - 2 * a @ b.T).clamp(min=0)


def kernel_distance(a: Tensor, b: Tensor, *, groups: int = 10) -> tuple[float, float]:
    """KID: the unbiased MMD² with the kernel (xᵀy/D + 1)³ over all pairs, and its standard error.

    The error is that of the jackknife: how the value changes when one of ten groups of each set is left out. If both
    sets have the same distribution it is too large, by a factor of up to √2.
    """
    n = min(len(a), len(b))
    if n < 4:
        raise ValueError(f"KID needs at least 4 images in each set; got {len(a)} and {len(b)}")
    groups = min(groups, n // 2)
    xs, ys = (x.double().tensor_split(groups) for x in (a, b))
    sums = _pair_sums(xs, xs), _pair_sums(ys, ys), _pair_sums(xs, ys)
    sizes = torch.tensor([[len(x) for x in xs], [len(y) for y in ys]], dtype=torch.float64)
    without = []
    for g in range(groups):
        rest = [k for k in range(groups) if k != g]
        without.append(_mmd2([each[rest][:, rest] for each in sums], sizes[:, rest]))
    scatter = torch.stack(without).var(correction=0)
    return _mmd2(list(sums), sizes).item(), math.sqrt((groups - 1) * scatter.item())


def _pair_sums(xs: tuple[Tensor, ...], ys: tuple[Tensor, ...]) -> Tensor:
    """Sums of the kernel over the pairs of points from two groups, (G, G); no point is paired with itself."""
    sums = torch.zeros(len(xs), len(ys), dtype=torch.float64)
    for g, x in enumerate(xs):
        for h, y in enumerate(ys):
            k = (x @ y.T / x.shape[1] + 1) ** 3
            sums[g, h] = (k.sum() - k.trace() if x is y else k.sum()).cpu()
    return sums


def _mmd2(sums: list[Tensor], sizes: Tensor) -> Tensor:
    n, m = sizes.sum(1)
    return sums[0].sum() / (n * (n - 1)) + sums[1].sum() / (m * (m - 1)) - 2 * sums[2].sum() / (n * m)


def precision_recall(samples: Tensor, real: Tensor, *, k: int = 3, block: int = 2000) -> tuple[float, float]:
    """Precision: the share of samples inside any of the balls around real images, each of which reaches to the k-th
    nearest other real image. Recall: the same with the two sets exchanged."""
    if min(len(samples), len(real)) <= k:
        raise ValueError(f"precision and recall need more than {k} images in each set")
    centre = real.mean(0)
    samples, real = samples - centre, real - centre  # small numbers have small rounding errors
    return _covered(samples, real, k, block), _covered(real, samples, k, block)


def _covered(points: Tensor, others: Tensor, k: int, block: int) -> float:
    """The share of points inside any of the balls around the others."""
    inside = torch.zeros(len(points), dtype=torch.bool, device=points.device)
    for start in range(0, len(others), block):
        centres = others[start : start + block]
        own = squared_distances(centres, others)
        own[torch.arange(len(centres)), torch.arange(start, start + len(centres))] = torch.inf
        radii = own.kthvalue(k, dim=1).values
        for first in range(0, len(points), block):
            part = slice(first, first + block)
            inside[part] |= (squared_distances(points[part], centres) <= radii).any(1)
    return inside.double().mean().item()
