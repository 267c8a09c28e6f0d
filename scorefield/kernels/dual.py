"""The ELU of values with their derivatives along a direction, after a sum and a bias, in one pass.

A tensor holds B values x and after them their B derivatives ẋ. With m, ṁ another such tensor, or none, and a bias b of
the values alone:

    y = x + m + b,  ẏ = ẋ + ṁ,  z = ELU(y),  ż = ELU'(y) ẏ,  ELU' = 1 where y > 0, else eʸ

Backwards, from dy, dẏ that come to the sum by other ways, and dz, dż, with ELU" = 0 where y > 0, else eʸ:

    dy + ELU'(y) dz + ELU"(y) ẏ dż,  dẏ + ELU'(y) dż
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from scorefield.kernels.passes import flag, tile

PROGRAMS = 528
"""That sum the bias's gradient, at most; their sums are then added up in one order."""


@triton.jit(do_not_specialize=["pixels", "has_more"])
def _forward(
    x_ptr, more_ptr, bias_ptr, sum_ptr, z_ptr, pixels, C, has_more, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    channel = tl.arange(0, COLUMNS)
    place, mask = tile(tl.program_id(0).to(tl.int64) * ROWS, channel, pixels, C, ROWS)
    more = mask & flag(has_more, channel)[None, :]
    along = place + pixels.to(tl.int64) * C
    y = tl.load(x_ptr + place, mask=mask, other=0.0) + tl.load(more_ptr + place, mask=more, other=0.0)
    y += tl.load(bias_ptr + channel, mask=channel < C, other=0.0)[None, :]
    t = tl.load(x_ptr + along, mask=mask, other=0.0) + tl.load(more_ptr + along, mask=more, other=0.0)
    power = tl.exp(tl.minimum(y, 0.0))
    tl.store(sum_ptr + place, y, mask=mask)
    tl.store(sum_ptr + along, t, mask=mask)
    tl.store(z_ptr + place, tl.where(y <= 0, power - 1.0, y), mask=mask)  # NaN stays NaN
    tl.store(z_ptr + along, tl.where(y <= 0, power * t, t), mask=mask)


@triton.jit(do_not_specialize=["pixels", "has_more"])
def _backward(
    sum_ptr, dz_ptr, more_ptr, dx_ptr, sums_ptr, pixels, C, has_more, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    """The gradient of the sum, and this program's part of the bias's."""
    program, programs = tl.program_id(0), tl.num_programs(0)
    channel = tl.arange(0, COLUMNS)
    total = tl.zeros([COLUMNS], tl.float32)
    for first in range(program * ROWS, pixels, programs * ROWS):
        place, mask = tile(tl.cast(first, tl.int64), channel, pixels, C, ROWS)
        more = mask & flag(has_more, channel)[None, :]
        along = place + pixels.to(tl.int64) * C
        y = tl.load(sum_ptr + place, mask=mask, other=1.0)
        t = tl.load(sum_ptr + along, mask=mask, other=0.0)
        dz = tl.load(dz_ptr + place, mask=mask, other=0.0)
        dt = tl.load(dz_ptr + along, mask=mask, other=0.0)
        power = tl.exp(tl.minimum(y, 0.0))
        dy = tl.where(y <= 0, power * (dz + t * dt), dz) + tl.load(more_ptr + place, mask=more, other=0.0)
        dt = tl.where(y <= 0, power * dt, dt) + tl.load(more_ptr + along, mask=more, other=0.0)
        tl.store(dx_ptr + place, dy, mask=mask)
        tl.store(dx_ptr + along, dt, mask=mask)
        total += tl.sum(dy, 0)
    tl.store(sums_ptr + program * C + channel, total, mask=channel < C)


class _Dual(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, more: Tensor | None, bias: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ANN401
        ctx.set_materialize_grads(False)
        x = x.contiguous(memory_format=torch.channels_last)
        given = x if more is None else more.contiguous(memory_format=torch.channels_last)
        whole, z = torch.empty_like(x), torch.empty_like(x)
        pixels, c, columns = _sizes(x)
        rows = max(1, 1024 // columns)
        has = int(more is not None)
        _forward[(triton.cdiv(pixels, rows),)](x, given, bias, whole, z, pixels, c, has, ROWS=rows, COLUMNS=columns)
        ctx.save_for_backward(whole)
        ctx.has_more = more is not None
        return whole, z

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_sum: Tensor | None, dz: Tensor | None) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        (whole,) = ctx.saved_tensors
        dz = torch.zeros_like(whole) if dz is None else dz.contiguous(memory_format=torch.channels_last)
        more = dz if d_sum is None else d_sum.contiguous(memory_format=torch.channels_last)
        pixels, c, columns = _sizes(whole)
        rows = max(1, 1024 // columns)
        programs = min(PROGRAMS, triton.cdiv(pixels, rows))
        dx, sums = torch.empty_like(whole), torch.empty(programs, c, device=dz.device, dtype=torch.float32)
        has = int(d_sum is not None)
        _backward[(programs,)](whole, dz, more, dx, sums, pixels, c, has, ROWS=rows, COLUMNS=columns)
        return dx, dx if ctx.has_more else None, sums.sum(0)


def _sizes(x: Tensor) -> tuple[int, int, int]:
    """How many pixels all values have, how many channels, and a power of two that holds them."""
    return x.numel() // x.shape[1] // 2, x.shape[1], triton.next_power_of_2(x.shape[1])


def elu(x: Tensor, bias: Tensor, more: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """(x + more + bias, the ELU of it), each values (B, C, H, W) and after them derivatives, (2B, C, H, W) in float32
    and channels-last; the bias (C,) is one of the values."""
    made: tuple[Tensor, Tensor] = _Dual.apply(x, more, bias)
    return made
