"""Two sets of features compared: by a kernel, and by the volumes that their nearest neighbours span."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def squared_distances(a: Tensor, b: Tensor) -> Tensor:
    """‖a_i − b_j‖², (N, M)."""
    return (a.square().sum(1, keepdim=True) + b.square().sum(1) - 2 * a @ b.T).clamp(min=0)


def kernel_distance(a: Tensor, b: Tensor, *, block: int = 1000) -> tuple[float, float]:
    """KID: the unbiased MMD² with the kernel (xᵀy/D + 1)³, and its standard error.

    The mean over pairs of disjoint blocks of `block` features of each set, at least ten where there are 20 features;
    the blocks are independent, so their scatter gives the standard error.
    """
    n = min(len(a), len(b))
    if n < 4:
        raise ValueError(f"KID needs at least 4 images of each set; got {len(a)} and {len(b)}")
    block = max(2, min(block, n // 10))
    each = torch.stack(
        [_mmd2(a[k : k + block].double(), b[k : k + block].double()) for k in range(0, n - block + 1, block)]
    )
    return each.mean().item(), (each.std() / math.sqrt(len(each))).item()


def _mmd2(a: Tensor, b: Tensor) -> Tensor:
    def kernel(x: Tensor, y: Tensor) -> Tensor:
        return (x @ y.T / x.shape[1] + 1) ** 3

    def among(x: Tensor) -> Tensor:
        k = kernel(x, x)
        return (k.sum() - k.trace()) / (len(x) * (len(x) - 1))

    return among(a) + among(b) - 2 * kernel(a, b).mean()


def precision_recall(samples: Tensor, real: Tensor, *, k: int = 3, block: int = 2000) -> tuple[float, float]:
    """Precision: the share of samples that lie in a ball around a real one which reaches to its k-th neighbour among
    the real. Recall: the same with the sets exchanged."""
    if min(len(samples), len(real)) <= k:
        raise ValueError(f"precision and recall need more than {k} images of each set")
    centre = real.mean(0)
    samples, real = samples - centre, real - centre  # small numbers, small rounding errors
    return _covered(samples, real, k, block), _covered(real, samples, k, block)


def _covered(points: Tensor, others: Tensor, k: int, block: int) -> float:
    """The share of points within any of the others' balls."""
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
