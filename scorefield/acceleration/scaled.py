"""A network that computes in float16 inside and is float32 outside: its parameters are converted on the way in, and
gradients are multiplied by a power of two, which each backward pass chooses by its largest gradient.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from scorefield.acceleration.kernels.streams import Aside

LARGEST = -2
"""Gradients are scaled so that the largest at the network's output lies between 2⁻³ and 2⁻². Gradients of activations
are divided by their units as well, and still stay far from 65,504: the largest measured were 26 times the output's
where the unit is 2⁻⁶, which makes 420, and 4 times where it is 2⁻¹², which makes 4,000; those of weights, which are
sums over pixels and batch, were 300 times the output's. Along large residual paths gradients are small, 3e-5 of the
output's on MNIST after 20,000 steps: with LARGEST = -4 those of some parameters differed from float32's by 18 %, with
-8 by 75 %, with 0 by 1 %. On CIFAR-10 after 46,500 steps the gradients of all 315 parameters are within 7 % of
float32's, except for three convolutions that add only 10⁻⁴ to their path."""
USUAL = 17
"""Batches of more than 2¹⁷ pixels (128 images of 32 × 32) get a proportionally smaller scale, because sums over them
may be larger."""


class Conv(torch.autograd.Function):
    """A convolution whose weight gradient is computed on a second stream, in parallel with what comes next."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        x: Tensor,
        weight: Tensor,
        padding: tuple[int, int],
        dilation: tuple[int, int],
        aside: Aside | None,
    ) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.how = (None, [1, 1], padding, dilation, False, [0, 0], 1)
        ctx.aside = aside
        return F.conv2d(x, weight, None, 1, padding, dilation)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        x, weight = ctx.saved_tensors
        grad = grad.contiguous(memory_format=torch.channels_last)
        gradient, aside = torch.ops.aten.convolution_backward, ctx.aside
        wanted = [*ctx.needs_input_grad[:2], False]
        if aside is None or not all(wanted[:2]):
            return *gradient(grad, x, weight, *ctx.how, wanted)[:2], None, None, None
        with aside.work(x, grad):
            of_weight = gradient(grad, x, weight, *ctx.how, [False, True, False])[1]
        return gradient(grad, x, weight, *ctx.how, [True, False, False])[0], of_weight, None, None, None


def convolutions(*, allow_tf32: bool) -> AbstractContextManager[None]:
    """Inside, float32 convolutions use TF32 or not; other settings stay as they are."""
    cudnn = torch.backends.cudnn
    kept = {"benchmark": cudnn.benchmark, "deterministic": cudnn.deterministic}
    return cudnn.flags(enabled=True, **kept, allow_tf32=allow_tf32)


class Scale:
    """The factor of the gradients of one call, known when its backward pass begins. `bad`: see FusedRefineNet."""

    value: Tensor

    def __init__(self, bad: Tensor) -> None:
        self.bad = bad


class Outside(torch.autograd.Function):
    """The identity. In the backward pass, it chooses the scale and applies it to the gradient of the output."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, scale: Scale) -> Tensor:  # noqa: ANN401
        ctx.scale = scale
        return y.view_as(y)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
        exponent = torch.frexp(grad.abs().amax())[1]
        pixels = grad.numel() // grad.shape[1]
        largest = LARGEST - max(0, (pixels - 1).bit_length() - USUAL)
        ctx.scale.value = torch.exp2((largest - exponent).clamp(-100, 100).float())
        return grad * ctx.scale.value, None


class Inside(torch.autograd.Function):
    """Parameters in the form that is used inside the network, and their gradients in float32 with the scale removed, in
    a few launches. The first `cast` parameters become 16 bit, the next are multiplied by `units`, the rest stay."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        scale: Scale,
        aside: Aside | None,
        dtype: torch.dtype,
        cast: int,
        units: list[float],
        *parameters: Tensor,
    ) -> tuple[Tensor, ...]:
        ctx.scale, ctx.aside, ctx.cast, ctx.units = scale, aside, cast, units
        weights, biases, rest = _parts(parameters, cast, len(units))
        made = [torch.empty_like(p, dtype=dtype) for p in weights]
        torch._foreach_copy_(made, weights)
        return *made, *torch._foreach_mul(biases, units), *(p.view_as(p) for p in rest)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        if ctx.aside is not None:
            ctx.aside.join()
        inverse = 1 / ctx.scale.value
        weights, biases, rest = _parts(grads, ctx.cast, len(ctx.units))
        whole = [torch.empty_like(grad, dtype=torch.float32) for grad in weights]
        torch._foreach_copy_(whole, weights)
        whole += [*torch._foreach_mul(biases, ctx.units), *torch._foreach_mul(rest, 1)]
        torch._amp_foreach_non_finite_check_and_unscale_(whole, ctx.scale.bad, inverse)
        return *[None] * 5, *whole


def _parts(tensors: tuple[Tensor, ...], first: int, more: int) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """Three parts: the first `first` tensors, the next `more`, and the rest."""
    return list(tensors[:first]), list(tensors[first : first + more]), list(tensors[first + more :])
