"""What the fused network's kernels compute, in plain PyTorch: with them it runs on a CPU, and in a moment."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F


def norm(
    x: Tensor,
    bias: Tensor | None,
    gamma: Tensor,
    alpha: Tensor,
    beta: Tensor,
    level: Tensor,
    *,
    elu: bool,
    dtype: torch.dtype,
    units: tuple[float, float],
    beside: object,
) -> tuple[Tensor, Tensor]:
    gamma, alpha, beta = (table[level][..., None, None] for table in (gamma, alpha, beta))
    h = x.float() / units[0] + (0 if bias is None else bias[:, None, None] / units[0])
    variance, mean = torch.var_mean(h, (2, 3), keepdim=True, correction=0)
    v, m = torch.var_mean(mean, 1, keepdim=True)
    y = gamma * (h - mean) / (variance + 1e-5).sqrt() + beta + alpha * (mean - m) / (v + 1e-5).sqrt()
    return (units[1] * (F.elu(y) if elu else y)).to(dtype), x


def add(a: Tensor, b: Tensor, bias: Tensor, *, elu: bool = False, unit: float = 1.0, beside: object) -> Tensor:
    y = a.float() + b.float() + bias[:, None, None]
    return (unit * F.elu(y / unit) if elu else y).to(a.dtype)


def pool(x: Tensor) -> Tensor:
    return F.avg_pool2d(x.float(), 5, stride=1, padding=2).to(x.dtype)


def halve(x: Tensor) -> Tensor:
    return F.avg_pool2d(x.float(), 2).to(x.dtype)


def use(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put these in the kernels' places."""
    for kernel in (norm, add, pool, halve):
        monkeypatch.setattr(f"scorefield.acceleration.refinenet.{kernel.__name__}", kernel)
