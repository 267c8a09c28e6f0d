"""CondInstanceNorm++ with the ELU after it and the bias of the convolution before it.

With x + b for the convolution's output and its bias, and i the level of a sample, k a channel, N = H·W:

    μₖ = mean(xₖ) + bₖ,  sₖ² = var(xₖ) + ε,  m and v the mean and variance of μ over the channels,  r = 1/√(v + ε)
    x̂ₖ = (xₖ + bₖ − μₖ)/sₖ,  uₖ = (μₖ − m)·r,  yₖ = γ[i,k] x̂ₖ + β[i,k] + α[i,k] uₖ,  z = ELU(y) or y

Backward, from dz:  dy = dz · (1 where y > 0, else eʸ),  and with S₁ = Σ dyₖ, S₂ = Σ dyₖ x̂ₖ over space, Dₖ = αₖS₁ₖ

    dγ = S₂,  dβ = S₁,  dα = S₁ uₖ,  through u:  dμₖ = r (Dₖ − mean_j Dⱼ) − r³ (μₖ − m)/(C − 1) Σⱼ Dⱼ(μⱼ − m)
    dx = γ/sₖ (dy − S₁/N − x̂ S₂/N) + dμₖ/N,  db = Σ dμₖ over the samples

Images are channels-last, statistics are float32. One kernel reads x for its statistics, a second one applies them. In
the backward pass, one program does a whole sample, so that its second read of the sample comes from a cache. There are
no atomics, so results are the same bit for bit every time.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from scorefield.acceleration.kernels.passes import (
    among,
    flag,
    gradient,
    look_up,
    moments,
    rows_of,
    shifted,
    sums,
    through_means,
    tile,
)
from scorefield.acceleration.kernels.streams import Beside, at_once

EPSILON = 1e-5
TILE, MEAN_TILE, WARPS = 2048, 8192, 2
BACK_TILE, BACK_WARPS = 8192, 16
"""The sizes that were fastest on an H200 among those tried."""


@triton.jit(do_not_specialize=["N"])
def _statistics(x_ptr, mean_ptr, rstd_ptr, N, C, eps, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Mean and 1/s of one sample's COLUMNS channels."""
    sample = tl.program_id(0).to(tl.int64)
    channel = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    mean, rstd = moments(x_ptr + sample * N * C, channel, N, C, eps, ROWS, COLUMNS)
    tl.store(mean_ptr + sample * C + channel, mean, mask=channel < C)
    tl.store(rstd_ptr + sample * C + channel, rstd, mask=channel < C)


@triton.jit(do_not_specialize=["N", "has_bias", "elu"])
def _apply(
    x_ptr, z_ptr, mean_ptr, rstd_ptr, bias_ptr, gamma_ptr, alpha_ptr, beta_ptr, level_ptr,
    N, C, eps, made, has_bias, elu, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """z of ROWS pixels of one sample, all channels."""
    sample = tl.program_id(0).to(tl.int64)
    channel = tl.arange(0, COLUMNS)
    here = sample * C + channel
    mean = tl.load(mean_ptr + here, mask=channel < C, other=0.0)
    rstd = tl.load(rstd_ptr + here, mask=channel < C, other=0.0)
    mu = shifted(mean, bias_ptr, channel, C, has_bias)
    m, r = among(mu, channel, C, eps)
    level = tl.load(level_ptr + sample)
    scale = look_up(gamma_ptr, level, channel, C) * rstd
    shift = look_up(beta_ptr, level, channel, C) + look_up(alpha_ptr, level, channel, C) * (mu - m) * r - scale * mean
    place, mask = tile(tl.program_id(1) * ROWS, channel, N, C, ROWS)
    y = tl.load(x_ptr + sample * N * C + place, mask=mask, other=0.0).to(tl.float32) * scale[None, :] + shift[None, :]
    y = made * tl.where((y <= 0) & flag(elu, channel)[None, :], tl.exp(tl.minimum(y, 0.0)) - 1.0, y)  # NaN stays NaN
    tl.store(z_ptr + sample * N * C + place, y.to(z_ptr.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["N", "has_bias", "elu", "has_more"])
def _backward(
    x_ptr, dz_ptr, dx_ptr, mean_ptr, rstd_ptr, bias_ptr, gamma_ptr, alpha_ptr, beta_ptr, level_ptr, parts_ptr, more_ptr,
    N, C, eps, made, has_bias, elu, has_more, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """dx of one sample with the other gradients of x, ROWS pixels at a time; its parts of dγ, dβ, dα and db."""
    sample, samples = tl.program_id(0).to(tl.int64), tl.num_programs(0).to(tl.int64)
    channel = tl.arange(0, COLUMNS)
    inside = channel < C
    here = sample * C + channel
    mean = tl.load(mean_ptr + here, mask=inside, other=0.0)
    rstd = tl.load(rstd_ptr + here, mask=inside, other=0.0)
    mu = shifted(mean, bias_ptr, channel, C, has_bias)
    m, r = among(mu, channel, C, eps)
    apart = tl.where(inside, mu - m, 0.0)
    level = tl.load(level_ptr + sample)
    gamma, alpha = look_up(gamma_ptr, level, channel, C), look_up(alpha_ptr, level, channel, C)
    shift = look_up(beta_ptr, level, channel, C) + alpha * apart * r
    begin = sample * N * C
    x_ptr, dz_ptr, dx_ptr, more_ptr = x_ptr + begin, dz_ptr + begin, dx_ptr + begin, more_ptr + begin
    s1, s2 = sums(x_ptr, dz_ptr, channel, mean, rstd, gamma, shift, elu, made, N, C, ROWS, COLUMNS)
    dmu = through_means(alpha, s1, apart, r, C)
    tl.store(parts_ptr + here, s2, mask=inside)
    tl.store(parts_ptr + samples * C + here, s1, mask=inside)
    tl.store(parts_ptr + 2 * samples * C + here, s1 * apart * r, mask=inside)
    tl.store(parts_ptr + 3 * samples * C + here, dmu, mask=inside)
    for first in range(0, N, ROWS):
        place, mask = tile(first, channel, N, C, ROWS)
        hat, dy = gradient(x_ptr, dz_ptr, place, mask, channel, mean, rstd, gamma, shift, elu, made)
        dx = (gamma * rstd)[None, :] * (dy - (s1 / N)[None, :] - hat * (s2 / N)[None, :]) + (dmu / N)[None, :]
        dx += tl.load(more_ptr + place, mask=mask & flag(has_more, channel)[None, :], other=0.0).to(tl.float32)
        tl.store(dx_ptr + place, dx.to(dx_ptr.dtype.element_ty), mask=mask)


@triton.jit
def _tables(parts_ptr, level_ptr, tables_ptr, bias_ptr, B, C, L, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """dγ, dβ, dα of each level, from the parts of its samples; and after the last level, db from all samples."""
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
        units: tuple[float, float],
        beside: Beside,
    ) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        x = x.contiguous(memory_format=torch.channels_last)
        b, c, height, width = x.shape
        n, columns = height * width, triton.next_power_of_2(c)
        strip, rows = max(16, columns // 4), rows_of(TILE, n, columns)
        eps, made = EPSILON * units[0] ** 2, units[1]
        mean, rstd = torch.empty(2, b, c, device=x.device, dtype=torch.float32).unbind()
        _statistics[b, triton.cdiv(c, strip)](
            x, mean, rstd, n, c, eps, ROWS=rows_of(MEAN_TILE, n, strip), COLUMNS=strip, num_warps=WARPS
        )
        z = torch.empty_like(x, dtype=dtype, memory_format=torch.channels_last)
        _apply[b, triton.cdiv(n, rows)](
            x, z, mean, rstd, mean if bias is None else bias, gamma, alpha, beta, level, n, c, eps, made,
            int(bias is not None), int(elu), ROWS=rows, COLUMNS=columns, num_warps=WARPS,
        )  # fmt: skip
        ctx.save_for_backward(x, bias, gamma, alpha, beta, level, mean, rstd)
        ctx.elu, ctx.eps, ctx.made, ctx.beside = elu, eps, made, beside
        return z, x.view_as(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dz: Tensor, more: Tensor | None) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        x, bias, gamma, alpha, beta, level, mean, rstd = ctx.saved_tensors
        if more is not None:
            more = more.contiguous(memory_format=torch.channels_last)
        dz = dz.contiguous(memory_format=torch.channels_last)
        b, c, height, width = x.shape
        n, columns = height * width, triton.next_power_of_2(c)
        parts = torch.empty(4, b, c, device=x.device, dtype=torch.float32)  # dγ, dβ, dα, db of each sample
        dx = torch.empty_like(x, memory_format=torch.channels_last)
        has_bias = int(bias is not None)
        _backward[b,](
            x, dz, dx, mean, rstd, mean if bias is None else bias, gamma, alpha, beta, level, parts,
            dz if more is None else more, n, c, ctx.eps, ctx.made, has_bias, int(ctx.elu), int(more is not None),
            ROWS=rows_of(BACK_TILE, n, columns), COLUMNS=columns, num_warps=BACK_WARPS,
        )  # fmt: skip
        if not any(ctx.needs_input_grad[1:5]):
            return dx, *[None] * 9
        with ctx.beside(parts, level):
            tables = torch.empty(3, *gamma.shape, device=x.device, dtype=torch.float32)
            d_bias = torch.empty(c, device=x.device, dtype=torch.float32)
            grid = triton.cdiv(c, 32), 3 * len(gamma) + has_bias
            _tables[grid](parts, level, tables, d_bias, b, c, len(gamma), ROWS=128, COLUMNS=32)
        d_gamma, d_beta, d_alpha = tables.unbind()
        return dx, d_bias if bias is not None else None, d_gamma, d_alpha, d_beta, *[None] * 5


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
    units: tuple[float, float] = (1.0, 1.0),
    beside: Beside = at_once,
) -> tuple[Tensor, Tensor]:
    """z, (B, C, H, W) in that type, channels-last; and x itself for its other uses, whose gradients are added to those
    through z in the same pass.

    `units`: x and the bias are given multiplied by the first, and z is returned multiplied by the second. `beside` is
    the context in which the gradients of the parameters are computed.
    """
    return _Norm.apply(x, bias, gamma, alpha, beta, level, elu, dtype, units, beside)
