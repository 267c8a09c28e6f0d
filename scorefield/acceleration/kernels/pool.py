"""Means over 5 × 5 pixels with zeros beyond the border, for CRP; means over 2 × 2, where a stage subsamples; and each
pixel four times, where figure 1's decoder doubles the resolution.

The first is its own transpose, and so its own gradient. The other two are each other's transposes, except for a factor.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

ROWS = 8
"""The number of image rows that one program computes."""


@triton.jit
def _row(x_ptr, y, H, W, C, column, channel):
    """Sums over five neighbours in row y, (columns, channels)."""
    total = tl.zeros([column.shape[0], channel.shape[0]], tl.float32)
    for shift in tl.static_range(5):
        at = column + (shift - 2)
        row = tl.zeros_like(column) + y
        mask = ((at >= 0) & (at < W) & (row >= 0) & (row < H))[:, None] & (channel < C)[None, :]
        place = (y * W + at[:, None]) * C + channel[None, :]
        total += tl.load(x_ptr + place, mask=mask, other=0.0).to(tl.float32)
    return total


@triton.jit(do_not_specialize=["H", "W"])
def _pool(x_ptr, out_ptr, H, W, C, ROWS: tl.constexpr, WIDE: tl.constexpr, CHANNELS: tl.constexpr):
    """ROWS rows of one sample, CHANNELS channels: a window of five row sums moves down the image."""
    begin = tl.program_id(0).to(tl.int64) * H * W * C
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    column = tl.arange(0, WIDE)
    first = tl.program_id(2) * ROWS
    a = tl.zeros([WIDE, CHANNELS], tl.float32)
    b = tl.zeros([WIDE, CHANNELS], tl.float32)  # not b = a: the compiler would treat both names as one variable
    c = tl.zeros([WIDE, CHANNELS], tl.float32)
    d = tl.zeros([WIDE, CHANNELS], tl.float32)
    for y in range(first - 2, first + ROWS + 2):  # not unrolled, which would take ten times as long to compile
        e = _row(x_ptr + begin, y, H, W, C, column, channel)
        made = tl.zeros_like(column) + (y - 2)
        mask = ((column < W) & (made >= first) & (made < H))[:, None] & (channel < C)[None, :]
        place = ((y - 2) * W + column[:, None]) * C + channel[None, :]
        tl.store(out_ptr + begin + place, ((a + b + c + d + e) / 25).to(out_ptr.dtype.element_ty), mask=mask)
        a, b, c, d = b, c, d, e


def _pooled(x: Tensor) -> Tensor:
    x = x.contiguous(memory_format=torch.channels_last)
    b, c, height, width = x.shape
    out = torch.empty_like(x, memory_format=torch.channels_last)
    wide = triton.next_power_of_2(width)
    channels = min(triton.next_power_of_2(c), max(16, 2048 // wide))
    grid = (b, triton.cdiv(c, channels), triton.cdiv(height, ROWS))
    _pool[grid](x, out, height, width, c, ROWS=ROWS, WIDE=wide, CHANNELS=channels)
    return out


class _Pool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # noqa: ANN401
        return _pooled(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # noqa: ANN401
        return _pooled(grad)


@triton.jit(do_not_specialize=["W"])
def _resize(x_ptr, out_ptr, W, C, factor, LARGER: tl.constexpr, BLOCK: tl.constexpr):
    """A row of the half-sized image (B, H/2, W/2, C), times a factor: sums of four, or each entry to all four."""
    row = tl.program_id(0).to(tl.int64)
    entry = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = entry < W * C
    place = row * W * C + entry
    first = 4 * row * W * C + 2 * (entry // C) * C + entry % C
    below = first + 2 * W * C
    if LARGER:
        x = tl.load(x_ptr + place, mask=mask, other=0.0).to(tl.float32) * factor
        x = x.to(out_ptr.dtype.element_ty)
        tl.store(out_ptr + first, x, mask=mask)
        tl.store(out_ptr + first + C, x, mask=mask)
        tl.store(out_ptr + below, x, mask=mask)
        tl.store(out_ptr + below + C, x, mask=mask)
    else:
        total = tl.load(x_ptr + first, mask=mask, other=0.0).to(tl.float32)
        total += tl.load(x_ptr + first + C, mask=mask, other=0.0).to(tl.float32)
        total += tl.load(x_ptr + below, mask=mask, other=0.0).to(tl.float32)
        total += tl.load(x_ptr + below + C, mask=mask, other=0.0).to(tl.float32)
        tl.store(out_ptr + place, (total * factor).to(out_ptr.dtype.element_ty), mask=mask)


class _Resized(torch.autograd.Function):
    """Halving and doubling: each is the other's transpose, with the same factor."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float, larger: bool) -> Tensor:  # noqa: ANN401
        ctx.factor, ctx.larger = factor, larger
        return _resized(x, factor, larger)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:  # noqa: ANN401
        return _resized(grad, ctx.factor, not ctx.larger), None, None


def _resized(x: Tensor, factor: float, larger: bool) -> Tensor:
    x = x.contiguous(memory_format=torch.channels_last)
    b, c, height, width = x.shape
    size = (b, c, 2 * height, 2 * width) if larger else (b, c, height // 2, width // 2)
    rows, columns = (height, width) if larger else size[2:]
    out = torch.empty(size, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
    grid = (b * rows, triton.cdiv(columns * c, 512))
    _resize[grid](x, out, columns, c, factor, LARGER=larger, BLOCK=512)
    return out


def halve(x: Tensor) -> Tensor:
    """F.avg_pool2d(x, 2) of an even height and width, channels-last."""
    return _Resized.apply(x, 0.25, False)


def double(x: Tensor) -> Tensor:
    """F.interpolate(x, scale_factor=2), each pixel four times, channels-last."""
    return _Resized.apply(x, 1.0, True)


def pool(x: Tensor) -> Tensor:
    """F.avg_pool2d(x, 5, stride=1, padding=2), channels-last."""
    return _Pool.apply(x)
