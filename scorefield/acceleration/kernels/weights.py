"""Weights of unit size: all convolutions of a network together, one program for each output of each.

With w the n weights of one output, and f its factor:

    r = 1/√(mean w² + ε),  used: f r w;   backwards, from g:  dw = f r (g − r² w mean(w g))

The learned weights are float32 and stay where they are, so that a table holds their addresses. Those that are used lie
in one tensor, channels-last. A row of learned weights has the order (inputs, places) if it is not channels-last itself;
a row that is used has the order (places, inputs).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from scorefield.acceleration.kernels.streams import Aside
from scorefield.acceleration.scaled import Scale

BLOCK = 1024
"""The number of weights that a program processes at once."""


@triton.jit
def _row(table_ptr, factor_ptr):
    """The pointer to this program's row of learned weights; its place among those that are used, its length, the number
    of places of its filter if that is its last index, otherwise 1; and its factor."""
    row = tl.program_id(0)
    entry = table_ptr + 4 * row
    w_ptr = tl.load(entry).to(tl.pointer_type(tl.float32))
    return w_ptr, tl.load(entry + 1), tl.load(entry + 2).to(tl.int32), tl.load(entry + 3).to(tl.int32), factor_ptr + row


@triton.jit
def _inverse(w_ptr, n, eps, BLOCK: tl.constexpr):
    """r."""
    total = tl.zeros([BLOCK], tl.float32)
    for first in range(0, n, BLOCK):
        k = first + tl.arange(0, BLOCK)
        w = tl.load(w_ptr + k, mask=k < n, other=0.0)
        total += w * w
    return 1.0 / tl.sqrt(tl.sum(total, 0) / n + eps)


@triton.jit
def _use(table_ptr, factor_ptr, out_ptr, eps, BLOCK: tl.constexpr):
    """The weights that are used. They are written in their order, and read in another."""
    w_ptr, begin, n, places, factor = _row(table_ptr, factor_ptr)
    scale = _inverse(w_ptr, n, eps, BLOCK) * tl.load(factor)
    inputs = n // places
    for first in range(0, n, BLOCK):
        k = first + tl.arange(0, BLOCK)
        w = tl.load(w_ptr + (k % inputs) * places + k // inputs, mask=k < n, other=0.0)
        tl.store(out_ptr + begin + k, (w * scale).to(out_ptr.dtype.element_ty), mask=k < n)


@triton.jit
def _backward(table_ptr, factor_ptr, grad_ptr, out_ptr, eps, BLOCK: tl.constexpr):
    """The gradient of the learned weights, in their own order."""
    w_ptr, begin, n, places, factor = _row(table_ptr, factor_ptr)
    inputs = n // places
    r = _inverse(w_ptr, n, eps, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for first in range(0, n, BLOCK):
        k = first + tl.arange(0, BLOCK)
        w = tl.load(w_ptr + k, mask=k < n, other=0.0)
        g = tl.load(grad_ptr + begin + (k % places) * inputs + k // places, mask=k < n, other=0.0).to(tl.float32)
        total += w * g
    along = r * r * tl.sum(total, 0) / n
    scale = r * tl.load(factor)
    for first in range(0, n, BLOCK):
        k = first + tl.arange(0, BLOCK)
        w = tl.load(w_ptr + k, mask=k < n, other=0.0)
        g = tl.load(grad_ptr + begin + (k % places) * inputs + k // places, mask=k < n, other=0.0).to(tl.float32)
        tl.store(out_ptr + begin + k, scale * (g - along * w), mask=k < n)


@triton.jit
def _normalise(table_ptr, factor_ptr, eps, BLOCK: tl.constexpr):
    """The learned weights themselves, times r."""
    w_ptr, _, n, _, _ = _row(table_ptr, factor_ptr)
    r = _inverse(w_ptr, n, eps, BLOCK)
    for first in range(0, n, BLOCK):
        k = first + tl.arange(0, BLOCK)
        tl.store(w_ptr + k, r * tl.load(w_ptr + k, mask=k < n, other=0.0), mask=k < n)


class Weights:
    """The weights of several convolutions (outputs, inputs, k, k) or linear maps (outputs, inputs), in float32.

    `sizes`: the length that the weights of an output are given where they are used, one number for each map. `dtype`:
    the type in which they are used.
    """

    def __init__(self, weights: Sequence[Tensor], sizes: Sequence[float], *, dtype: torch.dtype, eps: float) -> None:
        self.weights, self.sizes, self.dtype, self.eps = list(weights), list(sizes), dtype, eps
        if not all(w.dtype == torch.float32 and (w.is_contiguous() or _channels_last(w)) for w in weights):
            raise ValueError("the weights of the fused network must be float32 and without gaps (network.float())")
        self.begins = [0]
        for weight in self.weights:
            self.begins.append(self.begins[-1] + weight.numel())
        inverse = [size / math.sqrt(weight[0].numel()) for weight, size in zip(weights, sizes, strict=True)]
        factors = [f for weight, f in zip(weights, inverse, strict=True) for _ in range(len(weight))]
        self._factors = torch.tensor(factors, device=self.weights[0].device)
        self._addresses: list[int] = []
        self._table = torch.empty(0)

    def table(self) -> Tensor:
        """For each output: the address of its weights, where they are used, their number, and the filter's places."""
        addresses = [weight.data_ptr() for weight in self.weights]
        if addresses != self._addresses:  # never inside of a recording: calls before it have made the table
            rows, device = list[tuple[int, int, int, int]](), self._factors.device
            for weight, address, begin in zip(self.weights, addresses, self.begins, strict=False):
                n, places = weight[0].numel(), 1 if _channels_last(weight) else weight[0, 0].numel()
                rows += [(address + 4 * k * n, begin + k * n, n, places) for k in range(len(weight))]
            self._addresses, self._table = addresses, torch.tensor(rows, device=device)
            one = torch.ones(1, device=device)
            some = torch.tensor([(one.data_ptr(), 0, 1, 1)], device=device)
            _normalise[1,](some, self._factors, self.eps, BLOCK=BLOCK)  # to compile it, which a recording cannot do
        return self._table

    def used(self, scale: Scale, aside: Aside | None) -> dict[Tensor, Tensor]:
        """For each learned weight the one that is used. `scale`: that of gradients, which is removed."""
        used = _Used.apply(self, scale, aside, *self.weights)
        return dict(zip(self.weights, used, strict=True))

    def normalise_(self) -> None:
        """Bring the learned weights to mean square 1 for each output."""
        _normalise[len(self._factors),](self.table(), self._factors, self.eps, BLOCK=BLOCK)
        torch.autograd.graph.increment_version(self.weights)

    def make(self) -> list[Tensor]:
        out = torch.empty(self.begins[-1], dtype=self.dtype, device=self._factors.device)
        _use[len(self._factors),](self.table(), self._factors, out, self.eps, BLOCK=BLOCK)
        parts = (out[begin : begin + w.numel()] for begin, w in zip(self.begins, self.weights, strict=False))
        return [_from_rows(part, weight.shape) for part, weight in zip(parts, self.weights, strict=True)]

    def gradients(self, grads: Sequence[Tensor], scale: Scale) -> list[Tensor]:
        given = torch.cat([_in_rows(grad) for grad in grads])
        out = torch.empty(self.begins[-1], dtype=torch.float32, device=given.device)
        _backward[len(self._factors),](self.table(), self._factors, given, out, self.eps, BLOCK=BLOCK)
        torch._amp_foreach_non_finite_check_and_unscale_([out], scale.bad, 1 / scale.value)
        both = zip(self.begins, self.weights, strict=False)
        return [out.as_strided(weight.shape, weight.stride(), begin) for begin, weight in both]


class _Used(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, of: Weights, scale: Scale, aside: Aside | None, *weights: Tensor) -> tuple[Tensor, ...]:  # noqa: ANN401
        ctx.of, ctx.scale, ctx.aside = of, scale, aside
        ctx.save_for_backward(*weights)  # so that PyTorch notices a change
        return tuple(of.make())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        if ctx.aside is not None:
            ctx.aside.join()
        _ = ctx.saved_tensors
        return None, None, None, *ctx.of.gradients(grads, ctx.scale)


def _channels_last(weight: Tensor) -> bool:
    """Whether the inputs of a place lie side by side."""
    return weight.is_contiguous() if weight.ndim == 2 else weight.is_contiguous(memory_format=torch.channels_last)


def _from_rows(rows: Tensor, shape: torch.Size) -> Tensor:
    """Weights of that shape, which lie in memory as (outputs, places, inputs)."""
    if len(shape) == 2:
        return rows.view(shape)
    return rows.view(shape[0], *shape[2:], shape[1]).permute(0, 3, 1, 2)


def _in_rows(weight: Tensor) -> Tensor:
    """The other way round; without a copy if they lie so."""
    return (weight if weight.ndim == 2 else weight.permute(0, 2, 3, 1)).reshape(-1)
