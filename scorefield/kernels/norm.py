"""CondInstanceNorm++ with the ELU after it and the bias of the convolution before it.

With x + b for the convolution's output and its bias, and i the level of a sample, k a channel, N = H·W:

    μₖ = mean(xₖ) + bₖ,  sₖ² = var(xₖ) + ε,  m and v the mean and variance of μ over the channels,  r = 1/√(v + ε)
    x̂ₖ = (xₖ + bₖ − μₖ)/sₖ,  uₖ = (μₖ − m)·r,  yₖ = γ[i,k] x̂ₖ + β[i,k] + α[i,k] uₖ,  z = ELU(y) or y

Backwards, from dz:  dy = dz · (1 where y > 0, else eʸ),  and with S₁ = Σ dyₖ, S₂ = Σ dyₖ x̂ₖ over space, Dₖ = αₖS₁ₖ

    dγ = S₂,  dβ = S₁,  dα = S₁ uₖ,  through u:  dμₖ = r (Dₖ − mean_j Dⱼ) − r³ (μₖ − m)/(C − 1) Σⱼ Dⱼ(μⱼ − m)
    dx = γ/sₖ (dy − S₁/N − x̂ S₂/N) + dμₖ/N,  db = Σ dμₖ over the samples

Images are channels-last, statistics are float32. One kernel reads x for its statistics, a second applies them;
backwards likewise. No atomics: the same bits every time.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

EPSILON = 1e-5
TILE, WARPS = 2048, 2
MEAN_TILE, SUM_TILE = 8192, 4096
"""Sizes that were fastest on an H200, of those tried."""


@triton.jit
def _statistics(x_ptr, mean_ptr, rstd_ptr, N, C, eps, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Mean and 1/s of one sample's COLUMNS channels, chunk by chunk, by Chan's formula."""
    sample = tl.program_id(0).to(tl.int64)
    channel = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = channel < C
    mean = tl.zeros([COLUMNS], tl.float32)
    scatter = tl.zeros([COLUMNS], tl.float32)
    for first in range(0, N, ROWS):
        row = first + tl.arange(0, ROWS)
        mask = (row < N)[:, None] & inside[None, :]
        x = tl.load(x_ptr + (sample * N + row[:, None]) * C + channel[None, :], mask=mask, other=0.0).to(tl.float32)
        count = tl.minimum(N - first, ROWS).to(tl.float32)
        here = tl.sum(x, 0) / count
        apart = tl.where(mask, x - here[None, :], 0.0)
        delta = here - mean
        whole = first + count
        scatter += tl.sum(apart * apart, 0) + delta * delta * (first * count / whole)
        mean += delta * (count / whole)
    tl.store(mean_ptr + sample * C + channel, mean, mask=inside)
    tl.store(rstd_ptr + sample * C + channel, 1.0 / tl.sqrt(scatter / N + eps), mask=inside)


@triton.jit
def _among(mu, inside, C, eps):
    """μ − m and r: how the channels' means compare."""
    apart = tl.where(inside, mu - tl.sum(tl.where(inside, mu, 0.0), 0) / C, 0.0)
    return apart, 1.0 / tl.sqrt(tl.sum(apart * apart, 0) / (C - 1) + eps)


@triton.jit
def _apply(
    x_ptr, z_ptr, mean_ptr, rstd_ptr, bias_ptr, gamma_ptr, alpha_ptr, beta_ptr, level_ptr,
    N, C, eps, BIAS: tl.constexpr, ELU: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """z of ROWS pixels of one sample, all channels."""
    sample = tl.program_id(0).to(tl.int64)
    channel = tl.arange(0, COLUMNS)
    inside = channel < C
    mean = tl.load(mean_ptr + sample * C + channel, mask=inside, other=0.0)
    rstd = tl.load(rstd_ptr + sample * C + channel, mask=inside, other=0.0)
    mu = mean
    if BIAS:
        mu = mean + tl.load(bias_ptr + channel, mask=inside, other=0.0)
    apart, r = _among(mu, inside, C, eps)
    table = tl.load(level_ptr + sample) * C + channel
    scale = tl.load(gamma_ptr + table, mask=inside, other=0.0) * rstd
    shift = tl.load(beta_ptr + table, mask=inside, other=0.0) - scale * mean
    shift += tl.load(alpha_ptr + table, mask=inside, other=0.0) * apart * r
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    mask = (row < N)[:, None] & inside[None, :]
    place = (sample * N + row[:, None]) * C + channel[None, :]
    y = tl.load(x_ptr + place, mask=mask, other=0.0).to(tl.float32) * scale[None, :] + shift[None, :]
    if ELU:
        y = tl.where(y > 0, y, tl.exp(tl.minimum(y, 0.0)) - 1.0)
    tl.store(z_ptr + place, y.to(z_ptr.dtype.element_ty), mask=mask)


@triton.jit
def _sums(
    x_ptr, dz_ptr, mean_ptr, rstd_ptr, bias_ptr, gamma_ptr, alpha_ptr, beta_ptr, level_ptr, s1_ptr, s2_ptr,
    N, C, eps, BIAS: tl.constexpr, ELU: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, ALL: tl.constexpr,
):  # fmt: skip
    """S₁ and S₂ of one sample's COLUMNS channels."""
    sample = tl.program_id(0).to(tl.int64)
    every = tl.arange(0, ALL)
    known = every < C
    mu = tl.load(mean_ptr + sample * C + every, mask=known, other=0.0)
    if BIAS:
        mu += tl.load(bias_ptr + every, mask=known, other=0.0)
    m = tl.sum(mu, 0) / C
    apart = tl.where(known, mu - m, 0.0)
    r = 1.0 / tl.sqrt(tl.sum(apart * apart, 0) / (C - 1) + eps)
    channel = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = channel < C
    mean = tl.load(mean_ptr + sample * C + channel, mask=inside, other=0.0)
    rstd = tl.load(rstd_ptr + sample * C + channel, mask=inside, other=0.0)
    mine = mean
    if BIAS:
        mine = mean + tl.load(bias_ptr + channel, mask=inside, other=0.0)
    table = tl.load(level_ptr + sample) * C + channel
    gamma = tl.load(gamma_ptr + table, mask=inside, other=0.0)
    shift = tl.load(beta_ptr + table, mask=inside, other=0.0)
    shift += tl.load(alpha_ptr + table, mask=inside, other=0.0) * (mine - m) * r
    s1 = tl.zeros([COLUMNS], tl.float32)
    s2 = tl.zeros([COLUMNS], tl.float32)
    for first in range(0, N, ROWS):
        row = first + tl.arange(0, ROWS)
        mask = (row < N)[:, None] & inside[None, :]
        place = (sample * N + row[:, None]) * C + channel[None, :]
        x = tl.load(x_ptr + place, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dz_ptr + place, mask=mask, other=0.0).to(tl.float32)
        hat = (x - mean[None, :]) * rstd[None, :]
        if ELU:
            y = hat * gamma[None, :] + shift[None, :]
            dy = tl.where(y > 0, dy, dy * tl.exp(tl.minimum(y, 0.0)))
        s1 += tl.sum(dy, 0)
        s2 += tl.sum(dy * hat, 0)
    tl.store(s1_ptr + sample * C + channel, s1, mask=inside)
    tl.store(s2_ptr + sample * C + channel, s2, mask=inside)


@triton.jit
def _backward(
    x_ptr, dz_ptr, dx_ptr, mean_ptr, rstd_ptr, bias_ptr, gamma_ptr, alpha_ptr, beta_ptr, level_ptr,
    s1_ptr, s2_ptr, parts_ptr, more_ptr,
    N, C, eps, BIAS: tl.constexpr, ELU: tl.constexpr, MORE: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """dx of ROWS pixels of one sample, and what MORE comes to x; and once for each sample its parts of dα and db."""
    sample = tl.program_id(0).to(tl.int64)
    channel = tl.arange(0, COLUMNS)
    inside = channel < C
    here = sample * C + channel
    mean = tl.load(mean_ptr + here, mask=inside, other=0.0)
    rstd = tl.load(rstd_ptr + here, mask=inside, other=0.0)
    s1 = tl.load(s1_ptr + here, mask=inside, other=0.0)
    s2 = tl.load(s2_ptr + here, mask=inside, other=0.0)
    mu = mean
    if BIAS:
        mu = mean + tl.load(bias_ptr + channel, mask=inside, other=0.0)
    apart, r = _among(mu, inside, C, eps)
    table = tl.load(level_ptr + sample) * C + channel
    gamma = tl.load(gamma_ptr + table, mask=inside, other=0.0)
    alpha = tl.load(alpha_ptr + table, mask=inside, other=0.0)
    beta = tl.load(beta_ptr + table, mask=inside, other=0.0)
    du = alpha * s1
    dmu = r * (du - tl.sum(du, 0) / C) - r * r * r * apart / (C - 1) * tl.sum(du * apart, 0)
    if tl.program_id(1) == 0:
        tl.store(parts_ptr + here, s1 * apart * r, mask=inside)
        tl.store(parts_ptr + tl.num_programs(0).to(tl.int64) * C + here, dmu, mask=inside)
    shift = beta + alpha * apart * r
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    mask = (row < N)[:, None] & inside[None, :]
    place = (sample * N + row[:, None]) * C + channel[None, :]
    x = tl.load(x_ptr + place, mask=mask, other=0.0).to(tl.float32)
    dy = tl.load(dz_ptr + place, mask=mask, other=0.0).to(tl.float32)
    hat = (x - mean[None, :]) * rstd[None, :]
    if ELU:
        y = hat * gamma[None, :] + shift[None, :]
        dy = tl.where(y > 0, dy, dy * tl.exp(tl.minimum(y, 0.0)))
    dx = (gamma * rstd)[None, :] * (dy - (s1 / N)[None, :] - hat * (s2 / N)[None, :]) + (dmu / N)[None, :]
    if MORE:
        dx += tl.load(more_ptr + place, mask=mask, other=0.0).to(tl.float32)
    tl.store(dx_ptr + place, dx.to(dx_ptr.dtype.element_ty), mask=mask)


@triton.jit
def _tables(parts_ptr, level_ptr, tables_ptr, bias_ptr, B, C, L, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """dγ, dβ, dα of each level from its samples' parts, and after the last of them db from all samples."""
    channel = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    inside = channel < C
    kind, level = tl.program_id(1) // L, tl.program_id(1) % L
    total = tl.zeros([COLUMNS], tl.float32)
    for first in range(0, B, ROWS):
        row = first + tl.arange(0, ROWS)
        own = tl.load(level_ptr + row, mask=row < B, other=-1) == level
        mine = (row < B) & (own | (tl.zeros_like(row) + kind == 3))
        place = (kind * B + row[:, None]) * C + channel[None, :]
        total += tl.sum(tl.load(parts_ptr + place, mask=mine[:, None] & inside[None, :], other=0.0), 0)
    if kind < 3:
        tl.store(tables_ptr + (kind * L + level) * C + channel, total, mask=inside)
    else:
        tl.store(bias_ptr + channel, total, mask=inside)


def _tiles(pixels: int, channels: int) -> dict[str, Any]:
    """Rows × all channels to apply; for sums, long strips of a quarter of the channels."""
    columns = triton.next_power_of_2(channels)
    strip, pixels = max(16, columns // 4), triton.next_power_of_2(pixels)
    return {
        "columns": columns,
        "rows": max(1, min(TILE // columns, pixels)),
        "strip": strip,
        "mean_rows": max(1, min(MEAN_TILE // strip, pixels)),
        "sum_rows": max(1, min(SUM_TILE // strip, pixels)),
    }


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        x: Tensor,
        bias: Tensor | None,
        gamma: Tensor,
        alpha: Tensor,
        beta: Tensor,
        level: Tensor,
        elu: bool,
        dtype: torch.dtype,
    ) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        x = x.contiguous(memory_format=torch.channels_last)
        b, c, height, width = x.shape
        n, t = height * width, _tiles(height * width, c)
        mean, rstd = torch.empty(2, b, c, device=x.device, dtype=torch.float32).unbind()
        _statistics[b, triton.cdiv(c, t["strip"])](
            x, mean, rstd, n, c, EPSILON, ROWS=t["mean_rows"], COLUMNS=t["strip"], num_warps=WARPS
        )
        z = torch.empty_like(x, dtype=dtype, memory_format=torch.channels_last)
        _apply[b, triton.cdiv(n, t["rows"])](
            x, z, mean, rstd, bias, gamma, alpha, beta, level, n, c, EPSILON,
            BIAS=bias is not None, ELU=elu, ROWS=t["rows"], COLUMNS=t["columns"], num_warps=WARPS,
        )  # fmt: skip
        ctx.save_for_backward(x, bias, gamma, alpha, beta, level, mean, rstd)
        ctx.elu = elu
        return z, x.view_as(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dz: Tensor, more: Tensor | None) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        x, bias, gamma, alpha, beta, level, mean, rstd = ctx.saved_tensors
        if more is not None:
            more = more.contiguous(memory_format=torch.channels_last)
        dz = dz.contiguous(memory_format=torch.channels_last)
        b, c, height, width = x.shape
        n, t = height * width, _tiles(height * width, c)
        parts = torch.empty(4, b, c, device=x.device, dtype=torch.float32)  # dγ, dβ, dα, db of each sample
        known = x, dz, mean, rstd, bias, gamma, alpha, beta, level
        _sums[b, triton.cdiv(c, t["strip"])](
            *known, parts[1], parts[0], n, c, EPSILON,
            BIAS=bias is not None, ELU=ctx.elu, ROWS=t["sum_rows"], COLUMNS=t["strip"], ALL=t["columns"],
            num_warps=WARPS,
        )  # fmt: skip
        dx = torch.empty_like(x, memory_format=torch.channels_last)
        _backward[b, triton.cdiv(n, t["rows"])](
            x, dz, dx, *known[2:], parts[1], parts[0], parts[2:], more, n, c, EPSILON,
            BIAS=bias is not None, ELU=ctx.elu, MORE=more is not None, ROWS=t["rows"], COLUMNS=t["columns"],
            num_warps=WARPS,
        )  # fmt: skip
        tables = torch.empty(3, *gamma.shape, device=x.device, dtype=torch.float32)
        d_bias = torch.empty(c, device=x.device, dtype=torch.float32)
        grid = triton.cdiv(c, 32), 3 * len(gamma) + (bias is not None)
        _tables[grid](parts, level, tables, d_bias, b, c, len(gamma), ROWS=128, COLUMNS=32)
        d_gamma, d_beta, d_alpha = tables.unbind()
        return dx, d_bias if bias is not None else None, d_gamma, d_alpha, d_beta, None, None, None


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
) -> tuple[Tensor, Tensor]:
    """z, (B, C, H, W) of that type, channels-last; and x itself, for what else becomes of it: gradients that come to it
    from there are added to those through z in the same pass."""
    return _Norm.apply(x, bias, gamma, alpha, beta, level, elu, dtype)
