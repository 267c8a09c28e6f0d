"""Distances between sets of images, each described by features (N, D): FID, KID, precision and recall, the Inception
score, and exact nearest neighbours."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor


class Moments(Protocol):
    """What the Fréchet distance needs to know about a set of features."""

    @property
    def mean(self) -> Tensor: ...

    @property
    def covariance(self) -> Tensor: ...


@dataclass
class Statistics:
    """Mean and scatter Σ (x − mean)(x − mean)ᵀ of all features added so far, in float64."""

    n: int
    mean: Tensor
    scatter: Tensor

    @classmethod
    def empty(cls, features: int, *, device: torch.device | str = "cpu") -> Statistics:
        zeros = torch.zeros(features + 1, features, dtype=torch.float64, device=device)
        return cls(0, zeros[0], zeros[1:])

    def add(self, features: Tensor) -> None:
        """Add features (B, D)."""
        x = features.to(self.mean)
        mean = x.mean(0)
        self.merge(Statistics(len(x), mean, (x - mean).T @ (x - mean)))

    def merge(self, other: Statistics) -> None:
        """Add what another one has seen: its scatter, and the scatter of the two means about the common mean."""
        if other.n == 0:
            return
        n, apart = self.n + other.n, other.mean.to(self.mean) - self.mean
        self.scatter = self.scatter + other.scatter.to(self.scatter)
        self.scatter += torch.outer(apart, apart) * (self.n * other.n / n)
        self.mean = self.mean + apart * (other.n / n)
        self.n = n

    @property
    def covariance(self) -> Tensor:
        """(D, D), unbiased."""
        if self.n < 2:
            raise ValueError(f"a covariance needs at least 2 images; got {self.n}")
        return self.scatter / (self.n - 1)


def frechet_distance(a: Moments, b: Moments) -> float:
    """‖μ_a − μ_b‖² + tr(A + B − 2 (A^½ B A^½)^½), where A and B are the covariances.

    It is computed from the eigenvalues of two symmetric matrices, so that there are no imaginary parts, and the
    covariances may be singular.
    """
    mean_a, mean_b = a.mean.double().cpu(), b.mean.double().cpu()
    if mean_a.shape != mean_b.shape:
        raise ValueError(
            f"features of {len(mean_a)} and {len(mean_b)} numbers cannot be compared (use the same network for both)"
        )
    cov_a, cov_b = a.covariance.double().cpu(), b.covariance.double().cpu()
    values, vectors = torch.linalg.eigh(cov_a)
    root = (vectors * values.clamp(min=0).sqrt()) @ vectors.T
    overlap = torch.linalg.eigvalsh(root @ cov_b @ root).clamp(min=0).sqrt().sum()
    distance = (mean_a - mean_b).square().sum() + cov_a.trace() + cov_b.trace() - 2 * overlap
    if not distance.isfinite():
        raise FloatingPointError("the mean or the covariance of the features is not finite (check the images)")
    return max(0.0, distance.item())


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
