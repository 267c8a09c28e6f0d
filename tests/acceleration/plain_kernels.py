"""What the fused networks' kernels compute, in plain PyTorch: with them they run on a CPU, and in a moment."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from scorefield.networks.unet import unit as at_unit_size
from scorefield.noise import SampleNoise


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


def total(s: Any, *, around: float, eps: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:  # noqa: ANN401
    y, r, weight, unit = s
    if r is not None:
        y = _wide(y) + weight * (at_unit_size(_wide(r), 1) if unit else _wide(r))
    return y.to(dtype), y.to(dtype)


def begin_down(s: Any, *, around: float, eps: float, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:  # noqa: ANN401
    x, _ = total(s, around=around, eps=eps, dtype=dtype)
    return x, x, F.silu(at_unit_size(_wide(x), 1)).to(dtype)


def begin_up(
    s: Any,  # noqa: ANN401
    skip: Tensor,
    *,
    shares: tuple[float, float],
    eps: float,
) -> tuple[Tensor, Tensor]:
    x, _ = total(s, around=1.0, eps=eps, dtype=_wide(s.y).dtype)
    x = F.interpolate(x, scale_factor=2) if x.shape[2:] != skip.shape[2:] else x
    z = torch.cat([shares[0] * x, shares[1] * _wide(skip)], 1).to(s.y.dtype)
    return z, F.silu(_wide(z)).to(s.y.dtype)


def modulate(h: Tensor, c: Tensor, *, key: Tensor | None = None, draw: int = 0, dropout: float = 0.0) -> Tensor:
    z = F.silu(_wide(h) * c[..., None, None])
    if key is not None:
        noise = SampleNoise([0])
        noise._key, noise._draws = key.cpu(), draw
        z = torch.where(noise.rand_like(torch.empty_like(z, device="cpu")).to(z) < dropout, 0, z / (1 - dropout))
    return z.to(h.dtype)


def unit_heads(qkv: Tensor, heads: int, *, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    parts = _wide(qkv).permute(0, 2, 3, 1).flatten(1, 2).unflatten(-1, (3, heads, -1))
    q, k, v = at_unit_size(parts, -1).to(qkv.dtype).permute(2, 0, 3, 1, 4)
    return q, k, v


def used(self: Any, scale: Any, aside: object) -> dict[Tensor, Tensor]:  # noqa: ANN401
    """In the place of Weights.used."""
    return dict(zip(self.weights, used_by(self, scale, self.weights), strict=True))


def used_by(self: Any, scale: Any, weights: list[Tensor]) -> list[Tensor]:  # noqa: ANN401
    made = []
    for weight, size in zip(weights, self.sizes, strict=True):
        weight = weight.view_as(weight)
        if weight.requires_grad:
            weight.register_hook(lambda grad: grad / scale.value)
        unit = at_unit_size(weight, tuple(range(1, weight.ndim)))
        made.append((unit * size / math.sqrt(weight[0].numel())).to(self.dtype))
    return made


def _wide(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()


def use(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put these in the kernels' places."""
    places: dict[str, tuple[Callable[..., object], ...]] = {
        "refinenet": (norm, add, pool, halve),
        "unet": (total, begin_down, begin_up, modulate, unit_heads, halve),
    }
    for module, kernels in places.items():
        for kernel in kernels:
            monkeypatch.setattr(f"scorefield.acceleration.{module}.{kernel.__name__}", kernel)
    monkeypatch.setattr("scorefield.acceleration.kernels.weights.Weights.used", used)
