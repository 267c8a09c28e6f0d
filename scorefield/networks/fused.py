"""RefineNet's forward pass with fused kernels, in 16 bit, for GPUs. The same weights, the same function.

What differs from refinenet.py, which is the reference: activations are float16 (or bfloat16) and channels-last; each
normalisation goes with its ELU and with the bias of the convolution before it; residual sums go with the biases they
wait for. The first convolution is float32, since the noise of the last levels is smaller than 16 bit's steps near 1,
and the last one TF32.

float16 has three more binary digits than bfloat16 but less room. RefineNet's residual paths, which nothing normalises,
were seen to pass 65,504 on MNIST, so all activations are held multiplied by UNIT: normalisations make them so, the
convolutions keep them so, and the biases are multiplied alike. Gradients inside the network are multiplied by a power
of two, which each backward pass chooses by the largest gradient that comes to it.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from scorefield.kernels.add import add
from scorefield.kernels.norm import norm
from scorefield.kernels.pool import halve, pool
from scorefield.kernels.streams import Aside, Beside, at_once
from scorefield.networks.refinenet import (
    ChainedResidualPooling,
    CondInstanceNorm,
    MultiScaleFusion,
    RefineBlock,
    RefineNet,
    ResidualBlock,
    ResidualConvUnits,
)

UNIT = 2.0**-6
"""65,504 stands for 4 million then. What is normalised is of the order of 1, far from float16's smallest steps."""
LARGEST = -2
"""Gradients are scaled so that the largest of the network's output lies between 2⁻³ and 2⁻². Seen on MNIST, at the
beginning and after 20,000 steps: by activations it is up to 17 times as large, over UNIT, and of the weights, which sum
over pixels and batch, 300 times, far from 65,504. Along large residual paths gradients are small: 3e-5 of the output's.
With a LARGEST of -4 those of some parameters there were 18 % beside float32's, with -8 75 %, with 0 1 %."""
USUAL = 17
"""For batches of more than 2¹⁷ pixels (128 images of 32 × 32) it is less, in proportion, as the sums may be more."""


class _Conv(torch.autograd.Function):
    """A convolution whose weight's gradient is computed beside what comes next."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, module: nn.Conv2d, aside: Aside | None) -> Tensor:  # noqa: ANN401
        ctx.save_for_backward(x, weight)
        ctx.how = (None, module.stride, module.padding, module.dilation, False, [0, 0], 1)
        ctx.aside = aside
        return F.conv2d(x, weight, None, module.stride, module.padding, module.dilation)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        x, weight = ctx.saved_tensors
        grad = grad.contiguous(memory_format=torch.channels_last)
        gradient, aside = torch.ops.aten.convolution_backward, ctx.aside
        wanted = [*ctx.needs_input_grad[:2], False]
        if aside is None or not all(wanted[:2]):
            return *gradient(grad, x, weight, *ctx.how, wanted)[:2], None, None
        with aside.work(x, grad):
            of_weight = gradient(grad, x, weight, *ctx.how, [False, True, False])[1]
        return gradient(grad, x, weight, *ctx.how, [True, False, False])[0], of_weight, None, None


class _Scale:
    """By what the gradients of one call are multiplied: known when its backward pass begins. `bad`: see Fused."""

    value: Tensor

    def __init__(self, bad: Tensor) -> None:
        self.bad = bad


class _Outside(torch.autograd.Function):
    """Nothing forwards. Backwards, gradients that leave the network's output get their scale."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, scale: _Scale) -> Tensor:  # noqa: ANN401
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


class _Inside(torch.autograd.Function):
    """Parameters as they are used inside; their gradients in float32, unscaled. All in a few launches. There are `many`
    of three kinds: the first in 16 bit, then those multiplied by UNIT, then those as they are."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        scale: _Scale,
        aside: Aside | None,
        dtype: torch.dtype,
        many: tuple[int, int],
        *parameters: Tensor,
    ) -> tuple[Tensor, ...]:
        ctx.scale, ctx.aside, ctx.many = scale, aside, many
        weights, biases, rest = _parts(parameters, many)
        cast = [torch.empty_like(p, dtype=dtype) for p in weights]
        torch._foreach_copy_(cast, weights)
        return *cast, *torch._foreach_mul(biases, UNIT), *(p.view_as(p) for p in rest)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        if ctx.aside is not None:
            ctx.aside.join()
        inverse = 1 / ctx.scale.value
        cast, biases, rest = _parts(grads, ctx.many)
        whole = [torch.empty_like(grad, dtype=torch.float32) for grad in cast]
        torch._foreach_copy_(whole, cast)
        whole += [*torch._foreach_mul(biases, UNIT), *torch._foreach_mul(rest, 1)]
        torch._amp_foreach_non_finite_check_and_unscale_(whole, ctx.scale.bad, inverse)
        return None, None, None, None, *whole


def _parts(tensors: tuple[Tensor, ...], many: tuple[int, int]) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """The first so many of them, so many more, and the rest."""
    first, rest = list(tensors[: many[0]]), list(tensors[many[0] :])
    return first, rest[: many[1]], rest[many[1] :]


class Fused:
    """A score s(x, σ) with the weights of `network`, which must be on a GPU, channels-last.

    `dtype`: float16, or bfloat16, which has room for activations beyond 4 million but three digits less. `bad` is 0
    and becomes 1 in a backward pass in which a parameter's gradient is not finite: who reads it sets it back.
    """

    def __init__(self, network: RefineNet, *, dtype: torch.dtype = torch.float16) -> None:
        self.network, self.dtype = network, dtype
        rest = dict(network.named_parameters())
        inner = [name for name, p in rest.items() if p.ndim == 4 and not name.startswith(("begin.", "end."))]
        biases = [name for name in rest if name.endswith(".bias") and not name.startswith("end.")]
        self._many = len(inner), len(biases)
        self._parameters = [*(rest.pop(name) for name in inner + biases), *rest.values()]
        self._resize: dict[tuple[int, int], Tensor] = {}
        self._aside = Aside() if network.sigmas.is_cuda else None
        self.bad = torch.zeros((), device=network.sigmas.device)

    def __call__(self, x: Tensor, sigma: Tensor) -> Tensor:
        network = self.network
        network.check(x)
        level = network.level(sigma, x).contiguous()
        scale = _Scale(self.bad)
        inside = _Inside.apply(scale, self._aside, self.dtype, self._many, *self._parameters)  # type: ignore[no-untyped-call]
        call = _Call(dict(zip(self._parameters, inside, strict=True)), level, self._resize, self.dtype, self._aside)
        height, width = x.shape[2:]
        h = 2 * x - 1
        if h.requires_grad:
            h.register_hook(lambda grad: self._unscaled(grad, scale))
        if height % 2 or width % 2:
            h = F.pad(h, (0, width % 2, 0, height % 2), mode="replicate")
        h = h.contiguous(memory_format=torch.channels_last)
        with _convolutions(allow_tf32=False):
            h = call.outer(network.begin, UNIT * h).to(self.dtype)
        features = []
        for k, block in enumerate(network.blocks):
            assert isinstance(block, ResidualBlock)
            h = call.residual(block, h)
            if k % 2:
                features.append(h)
        h = call.refine(network.refine[0], features[3])  # type: ignore[arg-type]
        for refine, feature in zip(list(network.refine)[1:], features[2::-1], strict=True):
            h = call.refine(refine, feature, h)  # type: ignore[arg-type]
        h, _ = call.norm(network.norm, h, dtype=torch.float32, unit=1.0)
        with _convolutions(allow_tf32=True):
            y = call.outer(network.end, h)[..., :height, :width]
            return _Outside.apply(y, scale)  # type: ignore[no-untyped-call]

    def _unscaled(self, grad: Tensor, scale: _Scale) -> Tensor:
        """The gradient of x, which comes last: where that of no parameter is wanted, nothing else joins the streams."""
        if self._aside is not None:
            self._aside.join()
        return grad / scale.value


def _convolutions(*, allow_tf32: bool) -> AbstractContextManager[None]:
    """Inside, float32 convolutions with or without TF32, and all else as it is."""
    cudnn = torch.backends.cudnn
    kept = {"benchmark": cudnn.benchmark, "deterministic": cudnn.deterministic}
    return cudnn.flags(enabled=True, **kept, allow_tf32=allow_tf32)


class _Call:
    """One forward pass: `of` each parameter what stands for it inside, and each sample's level."""

    def __init__(
        self,
        of: dict[Tensor, Tensor],
        level: Tensor,
        resize: dict[tuple[int, int], Tensor],
        dtype: torch.dtype,
        aside: Aside | None,
    ) -> None:
        self.of, self.level, self.resize, self.dtype, self.aside = of, level, resize, dtype, aside
        self.beside: Beside = at_once if aside is None else aside.work

    def bias(self, *convs: nn.Module) -> Tensor:
        """The sum of their biases."""
        return reduce(torch.add, (self.of[conv.bias] for conv in convs))  # type: ignore[index]

    def norm(
        self,
        module: nn.Module,
        x: Tensor,
        bias: Tensor | None = None,
        *,
        elu: bool = True,
        dtype: torch.dtype | None = None,
        unit: float = UNIT,
    ) -> tuple[Tensor, Tensor]:
        """The normalised x, and x for its other uses."""
        assert isinstance(module, CondInstanceNorm)
        gamma, alpha, beta = (self.of[table] for table in (module.gamma, module.alpha, module.beta))
        return norm(
            x, bias, gamma, alpha, beta, self.level,
            elu=elu, dtype=dtype or self.dtype, units=(UNIT, unit), beside=self.beside,
        )  # fmt: skip

    def conv(self, module: nn.Module, x: Tensor) -> Tensor:
        """Without its bias, which the caller passes on."""
        assert isinstance(module, nn.Conv2d)
        return _Conv.apply(x, self.of[module.weight], module, self.aside)  # type: ignore[no-untyped-call]

    def outer(self, module: nn.Conv2d, x: Tensor) -> Tensor:
        """In float32, with its bias."""
        return F.conv2d(x, self.of[module.weight], self.bias(module), module.stride, module.padding)

    def residual(self, block: ResidualBlock, x: Tensor) -> Tensor:
        h, x = self.norm(block.norm1, x)
        h, _ = self.norm(block.norm2, self.conv(block.conv1, h), self.bias(block.conv1))
        h = self.conv(block.conv2, h)
        if isinstance(block.shortcut, nn.Conv2d):
            h = add(h, self.conv(block.shortcut, x), self.bias(block.conv2, block.shortcut), beside=self.beside)
        else:
            h = add(h, x, self.bias(block.conv2), beside=self.beside)
        return halve(h) if block.subsample else h

    def units(self, module: nn.Module, x: Tensor) -> Tensor:
        assert isinstance(module, ResidualConvUnits)
        for k in range(0, len(module.convs), 2):
            h, x = self.norm(module.norms[k], x)
            h, _ = self.norm(module.norms[k + 1], self.conv(module.convs[k], h))
            x = x + self.conv(module.convs[k + 1], h)
        return x

    def fuse(self, module: MultiScaleFusion, fine: Tensor, coarse: Tensor) -> Tensor:
        """The ELU that comes next is taken here."""
        fine = self.conv(module.convs[0], self.norm(module.norms[0], fine, elu=False)[0])
        coarse = self.conv(module.convs[1], self.norm(module.norms[1], coarse, elu=False)[0])
        if coarse.shape != fine.shape:
            coarse = self.resized(coarse, fine.shape[2:])
        return add(fine, coarse, self.bias(*module.convs), elu=True, unit=UNIT, beside=self.beside)

    def resized(self, x: Tensor, size: torch.Size) -> Tensor:
        """Bilinear, as products with a matrix for each direction: fast backwards too, and without atomics."""
        b, c, height, width = x.shape
        wide = torch.matmul(self.line(width, size[1], x), x.permute(0, 2, 3, 1))
        high = torch.matmul(self.line(height, size[0], x), wide.reshape(b, height, size[1] * c))
        return high.view(b, *size, c).permute(0, 3, 1, 2)

    def line(self, old: int, new: int, x: Tensor) -> Tensor:
        """The matrix (new, old) that interpolates along one direction, of x's type."""
        if (old, new) not in self.resize:
            made = F.interpolate(torch.eye(old, device=x.device)[:, None], new, mode="linear", align_corners=True)
            self.resize[old, new] = made[:, 0].T.contiguous().to(x.dtype)
        return self.resize[old, new]

    def pool(self, module: ChainedResidualPooling, x: Tensor) -> Tensor:
        """Of x after its ELU."""
        h, x = self.norm(module.norms[0], x, elu=False)
        h, link = self.norm(module.norms[1], self.conv(module.convs[0], pool(h)), elu=False)
        return x + link + self.conv(module.convs[1], pool(h))

    def refine(self, block: RefineBlock, fine: Tensor, coarse: Tensor | None = None) -> Tensor:
        fine = self.units(block.adapt[0], fine)
        if coarse is None or block.fuse is None:
            h = torch.ops.aten.elu(fine, UNIT, 1, 1 / UNIT)  # UNIT · ELU(fine/UNIT)
        else:
            h = self.fuse(block.fuse, fine, self.units(block.adapt[1], coarse))
        return self.units(block.output, self.pool(block.pool, h))
