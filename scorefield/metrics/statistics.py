"""Running mean and covariance, and the Fréchet distance of two Gaussians."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

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
