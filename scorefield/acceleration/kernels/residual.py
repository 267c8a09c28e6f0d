"""What lies between two blocks of the U-Net: the residual sum that ends one, and the activation that begins the next.

A block ends with y + w r, r the path around its convolutions, or with y + w r̂, r̂ = r/√(mean r² + ε) being r at unit
size: means are over the channels of a pixel. The next block begins in one of two ways, with x for that sum:

    down:  a = SiLU(x̂)        up:  a = SiLU(z),  z = (p x, q s) joined along the channels, s kept from the way down

So x̂ is not stored: where it is needed, it is made from x. Backwards, from da, the gradient dx̂ of x̂ by its other use,
the path around the block, and the gradient dx of x by its own, as something kept:

    d = da SiLU'(x̂) + w dx̂,  dx + (d − x̂ mean(d x̂))/√(mean x² + ε)

Images are channels-last; a program has some pixels, all channels. There are no atomics. What differs between the uses
is an argument at run time, so that few kernels are compiled.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from scorefield.acceleration.kernels.passes import flag, rows_of, tile
from scorefield.acceleration.kernels.pool import _resized

TILE = 2048
"""Elements that a program processes."""


@triton.jit
def silu(x):
    return x * tl.sigmoid(x)


@triton.jit
def silu_slope(x):
    s = tl.sigmoid(x)
    return s * (1.0 + x * (1.0 - s))


@triton.jit
def _inverse(x, C, eps):
    """1/√(mean x² + ε) of each pixel."""
    return (1.0 / tl.sqrt(tl.sum(x * x, 1) / C + eps))[:, None]


@triton.jit
def _sum(y_ptr, r_ptr, place, mask, channel, C, weight, eps, has_r, unit):
    """y + w r, or y + w r̂, or y."""
    y = tl.load(y_ptr + place, mask=mask, other=0.0).to(tl.float32)
    r = tl.load(r_ptr + place, mask=mask & flag(has_r, channel)[None, :], other=0.0).to(tl.float32)
    return y + weight * tl.where(flag(unit, channel)[None, :], r * _inverse(r, C, eps), r)


@triton.jit(do_not_specialize=["pixels", "has_r", "unit", "store", "active"])
def _down(
    y_ptr, r_ptr, x_ptr, a_ptr, pixels, C, weight, eps, has_r, unit, store, active,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The sum, where it is stored, and the activation, where it is wanted."""
    channel = tl.arange(0, COLUMNS)
    place, mask = tile(tl.program_id(0).to(tl.int64) * ROWS, channel, pixels, C, ROWS)
    x = _sum(y_ptr, r_ptr, place, mask, channel, C, weight, eps, has_r, unit).to(x_ptr.dtype.element_ty)
    tl.store(x_ptr + place, x, mask=mask & flag(store, channel)[None, :])
    x = x.to(tl.float32)
    a = silu(x * _inverse(x, C, eps))
    tl.store(a_ptr + place, a.to(a_ptr.dtype.element_ty), mask=mask & flag(active, channel)[None, :])


@triton.jit(do_not_specialize=["pixels", "has_around", "has_kept"])
def _down_backward(
    x_ptr, da_ptr, around_ptr, kept_ptr, out_ptr, pixels, C, weight, eps, has_around, has_kept,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    channel = tl.arange(0, COLUMNS)
    place, mask = tile(tl.program_id(0).to(tl.int64) * ROWS, channel, pixels, C, ROWS)
    x = tl.load(x_ptr + place, mask=mask, other=0.0).to(tl.float32)
    r = _inverse(x, C, eps)
    hat = x * r
    d = tl.load(da_ptr + place, mask=mask, other=0.0).to(tl.float32) * silu_slope(hat)
    around = mask & flag(has_around, channel)[None, :]
    d += weight * tl.load(around_ptr + place, mask=around, other=0.0).to(tl.float32)
    dx = r * (d - hat * (tl.sum(d * hat, 1) / C)[:, None])
    dx += tl.load(kept_ptr + place, mask=mask & flag(has_kept, channel)[None, :], other=0.0).to(tl.float32)
    tl.store(out_ptr + place, dx.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def _store_joined(z, first, row, channel, inside, C, whole, z_ptr, a_ptr):
    """z and its SiLU, in the channels from the first on."""
    place = row.to(tl.int64)[:, None] * whole + first + channel[None, :]
    z = z.to(z_ptr.dtype.element_ty)
    tl.store(z_ptr + place, z, mask=inside & (channel < C)[None, :])
    tl.store(a_ptr + place, silu(z.to(tl.float32)).to(a_ptr.dtype.element_ty), mask=inside & (channel < C)[None, :])


@triton.jit(do_not_specialize=["pixels", "H", "W", "has_r", "unit", "larger"])
def _up(
    y_ptr, r_ptr, s_ptr, z_ptr, a_ptr, pixels, H, W, C, S, weight, p, q, eps, has_r, unit, larger,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The sum of C channels, each pixel four times if `larger`, joined with S channels."""
    channel = tl.arange(0, COLUMNS)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = (row < pixels)[:, None]
    line = row // W
    coarse = ((line // H) * (H // 2) + (line % H) // 2) * (W // 2) + (row % W) // 2
    source = tl.where(flag(larger, row), coarse, row).to(tl.int64)
    place, mask = source[:, None] * C + channel[None, :], inside & (channel < C)[None, :]
    x = _sum(y_ptr, r_ptr, place, mask, channel, C, weight, eps, has_r, unit)
    _store_joined(p * x, 0, row, channel, inside, C, C + S, z_ptr, a_ptr)
    place, mask = row.to(tl.int64)[:, None] * S + channel[None, :], inside & (channel < S)[None, :]
    s = tl.load(s_ptr + place, mask=mask, other=0.0).to(tl.float32)
    _store_joined(q * s, C, row, channel, inside, S, C + S, z_ptr, a_ptr)


@triton.jit
def _part(z_ptr, da_ptr, dz_ptr, out_ptr, first, row, channel, inside, C, whole, share):
    """The gradient of one of the joined parts."""
    mask = inside & (channel < C)[None, :]
    place = row.to(tl.int64)[:, None] * whole + first + channel[None, :]
    z = tl.load(z_ptr + place, mask=mask, other=0.0).to(tl.float32)
    d = tl.load(da_ptr + place, mask=mask, other=0.0).to(tl.float32) * silu_slope(z)
    d += tl.load(dz_ptr + place, mask=mask, other=0.0).to(tl.float32)
    here = row.to(tl.int64)[:, None] * C + channel[None, :]
    tl.store(out_ptr + here, (share * d).to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["pixels"])
def _up_backward(
    z_ptr, da_ptr, dz_ptr, dx_ptr, ds_ptr, pixels, C, S, p, q, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    channel = tl.arange(0, COLUMNS)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = (row < pixels)[:, None]
    _part(z_ptr, da_ptr, dz_ptr, dx_ptr, 0, row, channel, inside, C, C + S, p)
    _part(z_ptr, da_ptr, dz_ptr, ds_ptr, C, row, channel, inside, S, C + S, q)


class Sum(NamedTuple):
    """The end of a block, not yet computed: y + weight · r, with r at unit size if `unit`, or y alone.

    r is a `path` of `total` or `begin_down`, which knows its weight, or its weight is 1.
    """

    y: Tensor
    r: Tensor | None = None
    weight: float = 1.0
    unit: bool = False


class _Down(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        y: Tensor,
        r: Tensor | None,
        weight: float,
        unit: bool,
        around: float,
        eps: float,
        dtype: torch.dtype,
        active: bool,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        ctx.set_materialize_grads(False)
        y = _channels_last(y)
        store = r is not None or y.dtype != dtype
        x = torch.empty_like(y, dtype=dtype) if store else y.view_as(y)
        a = torch.empty_like(y, dtype=dtype) if active else None
        if store or active:
            given = y if r is None else _channels_last(r)
            grid, pixels, tiles = _sizes(y, y.shape[1])
            _down[grid](
                y, given, x, x if a is None else a, pixels, y.shape[1], weight, eps,
                int(r is not None), int(unit), int(store), int(active), **tiles,
            )  # fmt: skip
        if active:
            ctx.save_for_backward(x)
        ctx.around, ctx.eps, ctx.dtype, ctx.has_r = around, eps, y.dtype, r is not None
        return x, x.view_as(x), a

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any,  # noqa: ANN401
        kept: Tensor | None,
        path: Tensor | None,
        da: Tensor | None,
    ) -> tuple[Tensor | None, ...]:
        if da is None:
            out = _added(kept, path, ctx.around)
        else:
            (x,) = ctx.saved_tensors
            da = _channels_last(da)
            out = torch.empty_like(x, dtype=ctx.dtype)
            grid, pixels, tiles = _sizes(x, x.shape[1])
            _down_backward[grid](
                x, da, da if path is None else _channels_last(path), da if kept is None else _channels_last(kept), out,
                pixels, x.shape[1], ctx.around, ctx.eps, int(path is not None), int(kept is not None), **tiles,
            )  # fmt: skip
        return out, out if ctx.has_r else None, *[None] * 6


class _Up(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        y: Tensor,
        r: Tensor | None,
        skip: Tensor,
        weight: float,
        unit: bool,
        shares: tuple[float, float],
        eps: float,
    ) -> tuple[Tensor, Tensor]:
        y, skip = _channels_last(y), _channels_last(skip)
        given = y if r is None else _channels_last(r)
        (b, s, height, width), c = skip.shape, y.shape[1]
        larger = y.shape[2:] != skip.shape[2:]
        z = torch.empty(b, c + s, height, width, dtype=y.dtype, device=y.device, memory_format=torch.channels_last)
        a = torch.empty_like(z)
        grid, pixels, tiles = _sizes(skip, max(c, s))
        _up[grid](
            y, given, skip, z, a, pixels, height, width, c, s, weight, *shares, eps,
            int(r is not None), int(unit), int(larger), **tiles,
        )  # fmt: skip
        ctx.save_for_backward(z)
        ctx.c, ctx.shares, ctx.larger, ctx.has_r = c, shares, larger, r is not None
        return z, a

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dz: Tensor, da: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        (z,) = ctx.saved_tensors
        b, whole, height, width = z.shape
        parts = [
            torch.empty(b, n, height, width, dtype=z.dtype, device=z.device, memory_format=torch.channels_last)
            for n in (ctx.c, whole - ctx.c)
        ]
        grid, pixels, tiles = _sizes(z, max(ctx.c, whole - ctx.c))
        _up_backward[grid](
            z, _channels_last(da), _channels_last(dz), *parts, pixels, ctx.c, whole - ctx.c, *ctx.shares, **tiles,
        )  # fmt: skip
        dx = _resized(parts[0], 1.0, False) if ctx.larger else parts[0]
        return dx, dx if ctx.has_r else None, parts[1], *[None] * 4


def _channels_last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)


def _sizes(x: Tensor, channels: int) -> tuple[tuple[int], int, dict[str, int]]:
    """The grid, the number of pixels, and the sizes of a program's tile."""
    pixels, columns = x.numel() // x.shape[1], triton.next_power_of_2(channels)
    rows = rows_of(TILE, pixels, columns)
    return (triton.cdiv(pixels, rows),), pixels, {"ROWS": rows, "COLUMNS": columns}


def _added(kept: Tensor | None, path: Tensor | None, weight: float) -> Tensor | None:
    """kept + weight · path."""
    if kept is None or path is None:
        return kept if path is None else weight * path
    return torch.add(kept, path, alpha=weight)


def total(s: Sum, *, around: float, eps: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """x = the sum in that type; and x again, as the r of a later Sum with the weight `around` and without `unit`.

    The gradient that a path gets is to be without its weight: the kernel here applies it.
    """
    x, path, _ = _Down.apply(*s, around, eps, dtype, False)
    return x, path


def begin_down(s: Sum, *, around: float, eps: float, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """x = the sum in that type; x again, as the r of a later Sum with the weight `around` and `unit`; and a."""
    return _Down.apply(*s, around, eps, dtype, True)


def begin_up(s: Sum, skip: Tensor, *, shares: tuple[float, float], eps: float) -> tuple[Tensor, Tensor]:
    """z and a. If `skip` has twice the height and width, the sum's pixels are taken four times."""
    return _Up.apply(s.y, s.r, skip, s.weight, s.unit, shares, eps)
