"""q, k and v of attention: the channels of each head at unit size, x̂ = r x, r = 1/√(mean x² + ε).

Backwards, from dx̂:  dx = r (dx̂ − x̂ mean(x̂ dx̂)). x̂, which attention keeps, and r are enough for it.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from scorefield.acceleration.kernels.passes import flag, rows_of

TILE = 2048
"""Elements that a program processes."""


@triton.jit
def _places(rows, heads, d, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Of some rows of q, k or v, a row being a head at a place: their numbers, where their entries lie in (place, 3,
    head, d) and in (3, place, head, d), and which of them exist."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    kind, column = tl.program_id(1), tl.arange(0, COLUMNS)
    joined = (row // heads * 3 + kind) * heads + row % heads
    apart = kind * rows + row
    mask = (row < rows)[:, None] & (column < d)[None, :]
    joined, entries = joined.to(tl.int64)[:, None] * d, apart.to(tl.int64)[:, None] * d
    return apart, row < rows, joined + column[None, :], entries + column[None, :], mask


@triton.jit(do_not_specialize=["rows"])
def _forward(x_ptr, hat_ptr, r_ptr, rows, heads, d, eps, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    number, exists, joined, apart, mask = _places(rows, heads, d, ROWS, COLUMNS)
    x = tl.load(x_ptr + joined, mask=mask, other=0.0).to(tl.float32)
    r = 1.0 / tl.sqrt(tl.sum(x * x, 1) / d + eps)
    tl.store(hat_ptr + apart, (x * r[:, None]).to(hat_ptr.dtype.element_ty), mask=mask)
    tl.store(r_ptr + number, r, mask=exists)


@triton.jit(do_not_specialize=["rows"])
def _backward(
    hat_ptr, r_ptr, q_ptr, k_ptr, v_ptr, dx_ptr, rows, heads, d, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    number, exists, joined, apart, mask = _places(rows, heads, d, ROWS, COLUMNS)
    hat = tl.load(hat_ptr + apart, mask=mask, other=0.0).to(tl.float32)
    r = tl.load(r_ptr + number, mask=exists, other=0.0)
    kind = tl.program_id(1)
    here = apart - kind.to(tl.int64) * rows * d
    column = tl.arange(0, COLUMNS)
    g = tl.load(q_ptr + here, mask=mask & flag((kind == 0).to(tl.int32), column)[None, :], other=0.0).to(tl.float32)
    g += tl.load(k_ptr + here, mask=mask & flag((kind == 1).to(tl.int32), column)[None, :], other=0.0).to(tl.float32)
    g += tl.load(v_ptr + here, mask=mask & flag((kind == 2).to(tl.int32), column)[None, :], other=0.0).to(tl.float32)
    dx = r[:, None] * (g - hat * (tl.sum(g * hat, 1) / d)[:, None])
    tl.store(dx_ptr + joined, dx.to(dx_ptr.dtype.element_ty), mask=mask)


class _Heads(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, qkv: Tensor, heads: int, eps: float) -> tuple[Tensor, ...]:  # noqa: ANN401
        qkv = qkv.contiguous(memory_format=torch.channels_last)
        b, channels, height, width = qkv.shape
        hat = torch.empty(3, b, height * width, heads, channels // (3 * heads), dtype=qkv.dtype, device=qkv.device)
        r = torch.empty(hat.shape[:-1], dtype=torch.float32, device=qkv.device)
        grid, sizes, tiles = _sizes(hat)
        _forward[grid](qkv, hat, r, *sizes, eps, **tiles)
        ctx.save_for_backward(hat, r)
        ctx.shape = qkv.shape
        return tuple(each.transpose(1, 2) for each in hat)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        hat, r = ctx.saved_tensors
        dx = torch.empty(ctx.shape, dtype=hat.dtype, device=hat.device, memory_format=torch.channels_last)
        grid, sizes, tiles = _sizes(hat)
        _backward[grid](hat, r, *(grad.transpose(1, 2).contiguous() for grad in grads), dx, *sizes, **tiles)
        return dx, None, None


def _sizes(hat: Tensor) -> tuple[tuple[int, int], tuple[int, int, int], dict[str, int]]:
    """The grid; the number of rows of q, of heads and of a head's channels; and the sizes of a program's tile."""
    _, b, places, heads, d = hat.shape
    columns = triton.next_power_of_2(d)
    rows = rows_of(TILE, b * places * heads, columns)
    return (
        (triton.cdiv(b * places * heads, rows), 3),
        (b * places * heads, heads, d),
        {"ROWS": rows, "COLUMNS": columns},
    )


def unit_heads(qkv: Tensor, heads: int, *, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v, each (B, heads, H·W, d), at unit size, from (B, 3 · heads · d, H, W), channels-last."""
    q, k, v = _Heads.apply(qkv, heads, eps)
    return q, k, v
