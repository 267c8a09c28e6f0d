"""Distributions whose score is known exactly at every noise level: the oracles of the tests and the toy figures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from scorefield.score import expand


class GaussianMixture:
    """Σₖ wₖ N(μₖ, diag sₖ²), and the same after adding noise of standard deviation σ:  Σₖ wₖ N(μₖ, diag sₖ² + σ²).

    means: (K, ...), for vectors or images. stds: a number, one for each component (K,), or one for each entry (K, ...);
    0 makes points, which have a density once σ > 0. weights: K positive numbers, of which the ratios matter.
    """

    def __init__(
        self,
        means: Tensor | Sequence[Any],
        stds: Tensor | Sequence[Any] | float,
        weights: Tensor | Sequence[float],
    ) -> None:
        self.means = torch.as_tensor(means)
        if not self.means.is_floating_point():
            self.means = self.means.to(torch.get_default_dtype())
        if self.means.ndim < 2:
            raise ValueError(f"means must have shape (K, ...); got {tuple(self.means.shape)} (one number: [[5.0]])")
        k = len(self.means)
        stds = torch.as_tensor(stds, dtype=self.means.dtype, device=self.means.device)
        weights = torch.as_tensor(weights, dtype=self.means.dtype, device=self.means.device)
        if not self.means.isfinite().all():
            raise ValueError("means must be finite")
        if stds.shape not in ((), (k,), self.means.shape):
            raise ValueError(f"stds must be one number, ({k},) or {tuple(self.means.shape)}; got {tuple(stds.shape)}")
        if weights.shape != (k,):
            raise ValueError(f"weights must be one for each of {k} means; got shape {tuple(weights.shape)}")
        if not (stds.isfinite().all() and (stds >= 0).all()):
            raise ValueError("stds must be finite and not negative")
        if not (weights.isfinite().all() and (weights > 0).all()):
            raise ValueError("weights must be finite and positive (leave a component of weight 0 out)")
        each = stds.reshape(k, *(1 for _ in self.means.shape[1:])) if stds.shape == (k,) else stds
        self.variances = each.square().expand_as(self.means)
        self.weights = weights / weights.sum()
        self._has_points = bool((stds == 0).any())

    def sample(self, n: int, sigma: float = 0.0, *, generator: torch.Generator | None = None) -> Tensor:
        """n exact samples of the mixture, with noise σ added."""
        if n < 1 or not 0 <= sigma < math.inf:
            raise ValueError(f"n must be at least 1 and sigma finite and not negative; got {n} and {sigma}")
        k = torch.multinomial(self.weights, n, replacement=True, generator=generator)
        z = torch.randn(n, *self.means.shape[1:], generator=generator, dtype=self.means.dtype, device=self.means.device)
        return self.means[k] + (self.variances[k] + sigma**2).sqrt() * z

    def log_prob(self, x: Tensor, sigma: Tensor | float = 0.0) -> Tensor:
        """log q_σ(x), (B,)."""
        offset, variance = self._offsets(x, sigma)
        return self._log_joint(offset, variance).logsumexp(1)

    def score(self, x: Tensor, sigma: Tensor | float) -> Tensor:
        """∇ₓ log q_σ(x) = Σₖ p(k | x) (μₖ − x)/(sₖ² + σ²)."""
        offset, variance = self._offsets(x, sigma)
        p = self._log_joint(offset, variance).softmax(1)
        return (p.reshape(*p.shape, *(1 for _ in x.shape[1:])) * offset / variance).sum(1)

    def _offsets(self, x: Tensor, sigma: Tensor | float) -> tuple[Tensor, Tensor]:
        """μₖ − x and sₖ² + σ², both (B or 1, K, ...)."""
        if not x.is_floating_point():
            raise ValueError(f"x must be floating point; got {x.dtype} (x.float())")
        if x.shape[1:] != self.means.shape[1:]:
            raise ValueError(
                f"x must have shape (B, {', '.join(map(str, self.means.shape[1:]))}); got {tuple(x.shape)}"
            )
        noise = expand(sigma, x).square()
        if self._has_points and not noise.all():
            raise ValueError("a component of standard deviation 0 has no density without noise (pass sigma > 0)")
        variance = self.variances.to(x) + (noise.unsqueeze(1) if noise.ndim else noise)
        return self.means.to(x) - x.unsqueeze(1), variance.reshape(-1, *self.means.shape)

    def _log_joint(self, offset: Tensor, variance: Tensor) -> Tensor:
        """log wₖ N(x; μₖ, sₖ² + σ²), (B, K)."""
        log_normal = -(offset.square() / variance + (2 * math.pi * variance).log()) / 2
        return self.weights.to(offset).log() + log_normal.flatten(2).sum(2)
