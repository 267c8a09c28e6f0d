"""Group norm and ELU of a sum, for values together with their derivatives along a direction.

A tensor holds B values x, followed by their B derivatives ẋ. With another such tensor m, ṁ (or none), a bias b that is
added to the values alone, and means over a group of channels and all pixels of a sample:

    y = x + m + b,  ẏ = ẋ + ṁ,  μ = mean y,  r = 1/√(var y + ε),  τ = mean ẏ,  ŷ = r (y − μ),  κ = mean ŷẏ
    w = r (ẏ − τ − κŷ),  which is the derivative of ŷ,  u = γŷ + β,  z = ELU(u),  ż = ELU'(u) γw

Backwards, from dy, dẏ that reach the sum by other ways, and dz, dż. ELU' = 1 and ELU" = 0 where u > 0, otherwise both
are eᵘ:

    du = ELU'(u) dz + ELU"(u) γw dż,  d(γw) = ELU'(u) dż,  dγ = Σ du ŷ + d(γw) w,  dβ = Σ du,  a = γ du,  q = γ d(γw)
    Q = mean qŷ,  A = a − rκq − rQẏ,  mean A = mean a − rκ mean q − rQτ,  mean Aŷ = mean aŷ − 2rκQ
    dy + r (A − mean A − ŷ (mean Aŷ + mean qw)),  dẏ + r (q − mean q − Qŷ)

Images are channels-last float32. A program computes a whole sample, which it reads again while it is still cached.
There are no atomics, so the result has the same bits every time.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from scorefield.acceleration.kernels.passes import flag, rows_of, tile

TILE, WARPS = 4096, 16
"""Elements that a program processes at once, and its warps. For up to some 256 channels, a sum over groups, which looks
at all pairs of channels, fits into registers."""


@triton.jit
def _in_group(v, channel, C, size):
    """For each channel the sum over the `size` channels of its group."""
    group = tl.where(channel < C, channel // size, -1)
    return tl.sum(tl.where(group[:, None] == group[None, :], v[:, None], 0.0), 0)


@triton.jit
def _summed(x_ptr, more_ptr, bias, place, along, mask, both):
    """y and ẏ. `both`: the mask of where m is added."""
    y = tl.load(x_ptr + place, mask=mask, other=0.0) + tl.load(more_ptr + place, mask=both, other=0.0) + bias[None, :]
    t = tl.load(x_ptr + along, mask=mask, other=0.0) + tl.load(more_ptr + along, mask=both, other=0.0)
    return y, t


@triton.jit
def _statistics(
    x_ptr, more_ptr, bias, yes, channel, apart, N, C, size, eps, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    """μ, r, τ and κ of one sample, by channel."""
    count = (size * N).to(tl.float32)
    sum_y, sum_t = tl.zeros([COLUMNS], tl.float32), tl.zeros([COLUMNS], tl.float32)
    for first in range(0, N, ROWS):
        place, mask = tile(first, channel, N, C, ROWS)
        y, t = _summed(x_ptr, more_ptr, bias, place, place + apart, mask, mask & yes)
        sum_y += tl.sum(tl.where(mask, y, 0.0), 0)
        sum_t += tl.sum(t, 0)
    mean, tau = _in_group(sum_y, channel, C, size) / count, _in_group(sum_t, channel, C, size) / count
    second, mixed = tl.zeros([COLUMNS], tl.float32), tl.zeros([COLUMNS], tl.float32)
    for first in range(0, N, ROWS):
        place, mask = tile(first, channel, N, C, ROWS)
        y, t = _summed(x_ptr, more_ptr, bias, place, place + apart, mask, mask & yes)
        y = tl.where(mask, y - mean[None, :], 0.0)
        second += tl.sum(y * y, 0)
        mixed += tl.sum(y * (t - tau[None, :]), 0)
    r = 1.0 / tl.sqrt(_in_group(second, channel, C, size) / count + eps)
    return mean, r, tau, r * _in_group(mixed, channel, C, size) / count


@triton.jit(do_not_specialize=["N", "has_more"])
def _forward(
    x_ptr, more_ptr, bias_ptr, gamma_ptr, beta_ptr, sum_ptr, z_ptr, statistics_ptr, N, C, size, eps, has_more,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The sum, its norm and ELU of one sample, and its statistics."""
    sample, samples = tl.program_id(0).to(tl.int64), tl.num_programs(0).to(tl.int64)
    begin, apart = sample * N * C, samples * N * C
    x_ptr, more_ptr, sum_ptr, z_ptr = x_ptr + begin, more_ptr + begin, sum_ptr + begin, z_ptr + begin
    channel = tl.arange(0, COLUMNS)
    inside, yes = channel < C, flag(has_more, channel)[None, :]
    bias = tl.load(bias_ptr + channel, mask=inside, other=0.0)
    mean, r, tau, kappa = _statistics(
        x_ptr, more_ptr, bias, yes, channel, apart, N, C, size, eps, ROWS, COLUMNS
    )  # fmt: skip
    here = statistics_ptr + sample * C + channel
    tl.store(here, mean, mask=inside)
    tl.store(here + samples * C, r, mask=inside)
    tl.store(here + 2 * samples * C, tau, mask=inside)
    tl.store(here + 3 * samples * C, kappa, mask=inside)
    gamma = tl.load(gamma_ptr + channel, mask=inside, other=0.0)
    beta = tl.load(beta_ptr + channel, mask=inside, other=0.0)
    for first in range(0, N, ROWS):
        place, mask = tile(first, channel, N, C, ROWS)
        y, t = _summed(x_ptr, more_ptr, bias, place, place + apart, mask, mask & yes)
        tl.store(sum_ptr + place, y, mask=mask)
        tl.store(sum_ptr + place + apart, t, mask=mask)
        hat = (y - mean[None, :]) * r[None, :]
        u = gamma[None, :] * hat + beta[None, :]
        along = (gamma * r)[None, :] * (t - tau[None, :] - kappa[None, :] * hat)
        power = tl.exp(tl.minimum(u, 0.0))
        tl.store(z_ptr + place, tl.where(u <= 0, power - 1.0, u), mask=mask)  # NaN stays NaN
        tl.store(z_ptr + place + apart, tl.where(u <= 0, power * along, along), mask=mask)


@triton.jit
def _gradients(sum_ptr, dz_ptr, place, along, mask, mean, r, tau, kappa, gamma, beta):
    """ŷ, ẏ and w of a tile, du and dw, which stands for d(γw); zeros where there is none."""
    y = tl.load(sum_ptr + place, mask=mask, other=0.0)
    t = tl.load(sum_ptr + along, mask=mask, other=0.0)
    hat = tl.where(mask, (y - mean[None, :]) * r[None, :], 0.0)
    w = tl.where(mask, r[None, :] * (t - tau[None, :] - kappa[None, :] * hat), 0.0)
    u = gamma[None, :] * hat + beta[None, :]
    dz = tl.load(dz_ptr + place, mask=mask, other=0.0)
    dz_along = tl.load(dz_ptr + along, mask=mask, other=0.0)
    power = tl.exp(tl.minimum(u, 0.0))
    du = tl.where(u <= 0, power * (dz + gamma[None, :] * w * dz_along), dz)
    return hat, t, w, du, tl.where(u <= 0, power * dz_along, dz_along)


@triton.jit
def _sums(
    sum_ptr, dz_ptr, channel, apart, mean, r, tau, kappa, gamma, beta, N, C, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    """By channel, over one sample's pixels: Σ du, Σ du ŷ, Σ dw, Σ dw ŷ, Σ dw w."""
    s1, s2, s3 = tl.zeros([COLUMNS], tl.float32), tl.zeros([COLUMNS], tl.float32), tl.zeros([COLUMNS], tl.float32)
    s4, s5 = tl.zeros([COLUMNS], tl.float32), tl.zeros([COLUMNS], tl.float32)
    for first in range(0, N, ROWS):
        place, mask = tile(first, channel, N, C, ROWS)
        hat, _, w, du, dw = _gradients(sum_ptr, dz_ptr, place, place + apart, mask, mean, r, tau, kappa, gamma, beta)
        s1 += tl.sum(du, 0)
        s2 += tl.sum(du * hat, 0)
        s3 += tl.sum(dw, 0)
        s4 += tl.sum(dw * hat, 0)
        s5 += tl.sum(dw * w, 0)
    return s1, s2, s3, s4, s5


@triton.jit(do_not_specialize=["N", "has_more"])
def _backward(
    sum_ptr, dz_ptr, more_ptr, dx_ptr, statistics_ptr, gamma_ptr, beta_ptr, parts_ptr, N, C, size, has_more,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The gradient of the sum for one sample, and the sample's parts of dγ, dβ and the gradient of the bias."""
    sample, samples = tl.program_id(0).to(tl.int64), tl.num_programs(0).to(tl.int64)
    begin, apart = sample * N * C, samples * N * C
    sum_ptr, dz_ptr, more_ptr, dx_ptr = sum_ptr + begin, dz_ptr + begin, more_ptr + begin, dx_ptr + begin
    channel = tl.arange(0, COLUMNS)
    inside, count, yes = channel < C, (size * N).to(tl.float32), flag(has_more, channel)[None, :]
    here = statistics_ptr + sample * C + channel
    mean, r = tl.load(here, mask=inside, other=0.0), tl.load(here + samples * C, mask=inside, other=0.0)
    tau = tl.load(here + 2 * samples * C, mask=inside, other=0.0)
    kappa = tl.load(here + 3 * samples * C, mask=inside, other=0.0)
    gamma = tl.load(gamma_ptr + channel, mask=inside, other=0.0)
    beta = tl.load(beta_ptr + channel, mask=inside, other=0.0)
    s1, s2, s3, s4, s5 = _sums(
        sum_ptr, dz_ptr, channel, apart, mean, r, tau, kappa, gamma, beta, N, C, ROWS, COLUMNS
    )  # fmt: skip
    mean_q = _in_group(gamma * s3, channel, C, size) / count
    big_q = _in_group(gamma * s4, channel, C, size) / count
    mean_a = _in_group(gamma * s1, channel, C, size) / count - r * (kappa * mean_q + tau * big_q)
    slope = _in_group(gamma * (s2 + s5), channel, C, size) / count - 2.0 * r * kappa * big_q
    total = tl.zeros([COLUMNS], tl.float32)
    for first in range(0, N, ROWS):
        place, mask = tile(first, channel, N, C, ROWS)
        hat, t, _, du, dw = _gradients(sum_ptr, dz_ptr, place, place + apart, mask, mean, r, tau, kappa, gamma, beta)
        a, q = gamma[None, :] * du, gamma[None, :] * dw
        a -= r[None, :] * (kappa[None, :] * q + big_q[None, :] * t)
        dy = r[None, :] * (a - mean_a[None, :] - slope[None, :] * hat)
        dt = r[None, :] * (q - mean_q[None, :] - big_q[None, :] * hat)
        dy += tl.load(more_ptr + place, mask=mask & yes, other=0.0)
        dt += tl.load(more_ptr + place + apart, mask=mask & yes, other=0.0)
        tl.store(dx_ptr + place, dy, mask=mask)
        tl.store(dx_ptr + place + apart, dt, mask=mask)
        total += tl.sum(tl.where(mask, dy, 0.0), 0)
    mine = parts_ptr + sample * C + channel
    tl.store(mine, s2 + s5, mask=inside)
    tl.store(mine + samples * C, s1, mask=inside)
    tl.store(mine + 2 * samples * C, total, mask=inside)


class _Dual(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        x: Tensor,
        more: Tensor | None,
        bias: Tensor,
        gamma: Tensor,
        beta: Tensor,
        groups: int,
        eps: float,
    ) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        x = x.contiguous(memory_format=torch.channels_last)
        given = x if more is None else more.contiguous(memory_format=torch.channels_last)
        whole, z = torch.empty_like(x), torch.empty_like(x)
        samples, pixels, c, tiles = _sizes(x)
        statistics = torch.empty(4, samples, c, device=x.device, dtype=torch.float32)
        _forward[(samples,)](
            x, given, bias, gamma, beta, whole, z, statistics, pixels, c, c // groups, eps, int(more is not None),
            **tiles,
        )  # fmt: skip
        ctx.save_for_backward(whole, statistics, gamma, beta)
        ctx.has_more, ctx.groups = more is not None, groups
        return whole, z

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_sum: Tensor | None, dz: Tensor | None) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        whole, statistics, gamma, beta = ctx.saved_tensors
        dz = torch.zeros_like(whole) if dz is None else dz.contiguous(memory_format=torch.channels_last)
        more = dz if d_sum is None else d_sum.contiguous(memory_format=torch.channels_last)
        samples, pixels, c, tiles = _sizes(whole)
        dx, parts = torch.empty_like(whole), torch.empty(3, samples, c, device=dz.device, dtype=torch.float32)
        _backward[(samples,)](
            whole, dz, more, dx, statistics, gamma, beta, parts, pixels, c, c // ctx.groups, int(d_sum is not None),
            **tiles,
        )  # fmt: skip
        d_gamma, d_beta, d_bias = parts.sum(1)
        return dx, dx if ctx.has_more else None, d_bias, d_gamma, d_beta, None, None


def _sizes(x: Tensor) -> tuple[int, int, int, dict[str, int]]:
    """The number of samples, of pixels and of channels, and the sizes of a program's tiles."""
    pixels, columns = x.shape[2] * x.shape[3], triton.next_power_of_2(x.shape[1])
    tiles = {"ROWS": rows_of(TILE, pixels, columns), "COLUMNS": columns, "num_warps": WARPS}
    return len(x) // 2, pixels, x.shape[1], tiles


def norm_elu(x: Tensor, bias: Tensor, norm: nn.GroupNorm, more: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """(x + more + bias, the ELU of its norm), both (2B, C, H, W): values followed by derivatives, in float32 and
    channels-last. The bias (C,) is added to the values alone."""
    made: tuple[Tensor, Tensor] = _Dual.apply(x, more, bias, norm.weight, norm.bias, norm.num_groups, norm.eps)
    return made
