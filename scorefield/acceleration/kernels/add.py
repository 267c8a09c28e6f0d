"""a + b + bias, and on request its ELU, in one pass; the backward pass is one pass too, with the bias's gradient.

If all values are multiplied by a unit u, the ELU of y is u · ELU(y/u).
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from scorefield.acceleration.kernels.passes import flag, tile
from scorefield.acceleration.kernels.streams import Beside, at_once

PROGRAMS = 264
"""The most programs that sum the bias's gradient; their sums are then added in a fixed order."""


@triton.jit(do_not_specialize=["pixels", "elu"])
def _add(a_ptr, b_ptr, bias_ptr, out_ptr, pixels, C, unit, elu, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    channel = tl.arange(0, COLUMNS)
    place, mask = tile(tl.program_id(0).to(tl.int64) * ROWS, channel, pixels, C, ROWS)
    y = tl.load(a_ptr + place, mask=mask, other=0.0).to(tl.float32)
    y += tl.load(b_ptr + place, mask=mask, other=0.0).to(tl.float32)
    y += tl.load(bias_ptr + channel, mask=channel < C, other=0.0)[None, :]
    below = unit * (tl.exp(tl.minimum(y, 0.0) / unit) - 1.0)
    y = tl.where((y <= 0) & flag(elu, channel)[None, :], below, y)  # NaN stays NaN
    tl.store(out_ptr + place, y.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["pixels", "elu"])
def _backward(grad_ptr, z_ptr, out_ptr, sums_ptr, pixels, C, unit, elu, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The gradient before the ELU, whose derivative is 1 or z/u + 1, and this program's part of its sum over pixels."""
    program, programs = tl.program_id(0), tl.num_programs(0)
    channel = tl.arange(0, COLUMNS)
    total = tl.zeros([COLUMNS], tl.float32)
    for first in range(program * ROWS, pixels, programs * ROWS):
        place, mask = tile(tl.cast(first, tl.int64), channel, pixels, C, ROWS)
        grad = tl.load(grad_ptr + place, mask=mask, other=0.0).to(tl.float32)
        changed = mask & flag(elu, channel)[None, :]
        z = tl.load(z_ptr + place, mask=changed, other=1.0).to(tl.float32)
        grad = tl.where(z > 0, grad, grad * (z / unit + 1.0))
        tl.store(out_ptr + place, grad.to(out_ptr.dtype.element_ty), mask=changed)
        total += tl.sum(grad, 0)
    tl.store(sums_ptr + program * C + channel, total, mask=channel < C)


class _Add(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, bias: Tensor, elu: bool, unit: float, beside: Beside) -> Tensor:  # noqa: ANN401
        a = a.contiguous(memory_format=torch.channels_last)
        b = b.contiguous(memory_format=torch.channels_last)
        out = torch.empty_like(a, memory_format=torch.channels_last)
        c = a.shape[1]
        pixels, columns = a.numel() // c, triton.next_power_of_2(c)
        rows = max(1, 2048 // columns)
        _add[(triton.cdiv(pixels, rows),)](a, b, bias, out, pixels, c, unit, int(elu), ROWS=rows, COLUMNS=columns)
        ctx.save_for_backward(*([out] if elu else []))
        ctx.b_dtype, ctx.unit, ctx.beside = b.dtype, unit, beside
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        grad = grad.contiguous(memory_format=torch.channels_last)
        elu = bool(ctx.saved_tensors)
        z, out = (ctx.saved_tensors[0], torch.empty_like(grad)) if elu else (grad, grad)
        c = grad.shape[1]
        pixels, columns = grad.numel() // c, triton.next_power_of_2(c)
        rows = max(1, 4096 // columns)
        programs = min(PROGRAMS, triton.cdiv(pixels, rows))
        sums = torch.empty(programs, c, device=grad.device, dtype=torch.float32)
        _backward[(programs,)](grad, z, out, sums, pixels, c, ctx.unit, int(elu), ROWS=rows, COLUMNS=columns)
        if not ctx.needs_input_grad[2]:
            return out, out.to(ctx.b_dtype), None, None, None, None
        with ctx.beside(sums):
            d_bias = sums.sum(0)
        return out, out.to(ctx.b_dtype), d_bias, None, None, None


def add(
    a: Tensor, b: Tensor, bias: Tensor, *, elu: bool = False, unit: float = 1.0, beside: Beside = at_once
) -> Tensor:
    """a + b + bias in a's type, and with `elu` its ELU; a and b (B, C, H, W), channels-last, bias (C,) in float32.

    All of them, and the result, are multiplied by `unit`. `beside`: see norm.py.
    """
    return _Add.apply(a, b, bias, elu, unit, beside)
