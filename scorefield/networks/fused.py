"""RefineNet's forward pass with fused kernels, in bfloat16, for GPUs. The same weights, the same function.

What differs from refinenet.py, which is the reference: activations are bfloat16 and channels-last; each normalisation
goes with its ELU and with the bias of the convolution before it; residual sums go with the biases they wait for. The
first convolution is float32, since the noise of the last levels is smaller than bfloat16's steps near 1, and the last
one TF32.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from scorefield.kernels.add import add
from scorefield.kernels.norm import norm
from scorefield.kernels.pool import halve, pool
from scorefield.networks.refinenet import (
    ChainedResidualPooling,
    CondInstanceNorm,
    MultiScaleFusion,
    RefineBlock,
    RefineNet,
    ResidualBlock,
    ResidualConvUnits,
)

Weights = dict[nn.Module, Tensor]


class _Aside:
    """A second stream for the gradients of weights, which nothing waits for until the end."""

    def __init__(self) -> None:
        self.stream = torch.cuda.Stream()
        self.kept: tuple[Tensor, ...] = ()
        """What the work on it reads: not to be freed before that is done."""

    def join(self) -> None:
        if self.kept:
            torch.cuda.current_stream().wait_stream(self.stream)
        self.kept = ()


class _Conv(torch.autograd.Function):
    """A convolution whose weight's gradient is computed beside what comes next, at most one of them at a time."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, module: nn.Conv2d, aside: _Aside | None) -> Tensor:  # noqa: ANN401
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
        aside.join()
        aside.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside.stream):
            of_weight = gradient(grad, x, weight, *ctx.how, [False, True, False])[1]
        aside.kept = (x, grad, of_weight)
        return gradient(grad, x, weight, *ctx.how, [True, False, False])[0], of_weight, None, None


class _Cast(torch.autograd.Function):
    """All weights to 16 bit and all their gradients back, in a few launches."""

    @staticmethod
    def forward(ctx: Any, aside: _Aside | None, dtype: torch.dtype, *weights: Tensor) -> tuple[Tensor, ...]:  # noqa: ANN401
        ctx.aside = aside
        cast = [torch.empty_like(w, dtype=dtype) for w in weights]
        torch._foreach_copy_(cast, list(weights))
        return tuple(cast)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        if ctx.aside is not None:
            ctx.aside.join()
        whole = [torch.empty_like(grad, dtype=torch.float32) for grad in grads]
        torch._foreach_copy_(whole, list(grads))
        return None, None, *whole


class Fused:
    """A score s(x, σ) with the weights of `network`, which must be on a GPU, channels-last.

    `dtype`: bfloat16, or float16, which has three more digits but no room for gradients.
    """

    def __init__(self, network: RefineNet, *, dtype: torch.dtype = torch.bfloat16) -> None:
        self.network, self.dtype = network, dtype
        self._convs = [m for m in network.modules() if isinstance(m, nn.Conv2d)]
        self._inner = [m for m in self._convs if m is not network.begin and m is not network.end]
        self._resize: dict[tuple[int, int], Tensor] = {}
        self._aside = _Aside() if network.sigmas.is_cuda else None

    def __call__(self, x: Tensor, sigma: Tensor) -> Tensor:
        network = self.network
        network.check(x)
        level = network.level(sigma, x)
        level = level.contiguous()
        weights: Weights = dict(zip(self._inner, self._cast(), strict=True))
        call = _Call(weights, level, self._resize, self.dtype, self._aside)
        height, width = x.shape[2:]
        h = 2 * x - 1
        if height % 2 or width % 2:
            h = F.pad(h, (0, width % 2, 0, height % 2), mode="replicate")
        h = h.contiguous(memory_format=torch.channels_last)
        with _convolutions(allow_tf32=False):
            h = network.begin(h).to(self.dtype)
        features = []
        for k, block in enumerate(network.blocks):
            assert isinstance(block, ResidualBlock)
            h = call.residual(block, h)
            if k % 2:
                features.append(h)
        h = call.refine(network.refine[0], features[3])  # type: ignore[arg-type]
        for refine, feature in zip(list(network.refine)[1:], features[2::-1], strict=True):
            h = call.refine(refine, feature, h)  # type: ignore[arg-type]
        h, _ = call.norm(network.norm, h, dtype=torch.float32)
        with _convolutions(allow_tf32=True):
            return network.end(h)[..., :height, :width]

    def _cast(self) -> tuple[Tensor, ...]:
        return _Cast.apply(self._aside, self.dtype, *(conv.weight for conv in self._inner))  # type: ignore[no-untyped-call]


def _convolutions(*, allow_tf32: bool) -> AbstractContextManager[None]:
    """Inside, float32 convolutions with or without TF32, and all else as it is."""
    cudnn = torch.backends.cudnn
    kept = {"benchmark": cudnn.benchmark, "deterministic": cudnn.deterministic}
    return cudnn.flags(enabled=True, **kept, allow_tf32=allow_tf32)


class _Call:
    """One forward pass: weights in 16 bit, and each sample's level."""

    def __init__(
        self,
        weights: Weights,
        level: Tensor,
        resize: dict[tuple[int, int], Tensor],
        dtype: torch.dtype,
        aside: _Aside | None,
    ) -> None:
        self.weights, self.level, self.resize, self.dtype, self.aside = weights, level, resize, dtype, aside

    def norm(
        self,
        module: nn.Module,
        x: Tensor,
        bias: Tensor | None = None,
        *,
        elu: bool = True,
        dtype: torch.dtype | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The normalised x, and x for its other uses."""
        assert isinstance(module, CondInstanceNorm)
        tables = module.gamma, module.alpha, module.beta
        return norm(x, bias, *tables, self.level, elu=elu, dtype=dtype or self.dtype)

    def conv(self, module: nn.Module, x: Tensor) -> Tensor:
        """Without its bias, which the caller passes on."""
        assert isinstance(module, nn.Conv2d)
        return _Conv.apply(x, self.weights[module], module, self.aside)  # type: ignore[no-untyped-call]

    def residual(self, block: ResidualBlock, x: Tensor) -> Tensor:
        h, x = self.norm(block.norm1, x)
        h, _ = self.norm(block.norm2, self.conv(block.conv1, h), block.conv1.bias)
        h = self.conv(block.conv2, h)
        bias = block.conv2.bias
        assert bias is not None
        if isinstance(block.shortcut, nn.Conv2d):
            assert block.shortcut.bias is not None
            h = add(h, self.conv(block.shortcut, x), bias + block.shortcut.bias)
        else:
            h = add(h, x, bias)
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
        first, second = (conv.bias for conv in module.convs)
        return add(fine, coarse, first + second, elu=True)  # type: ignore[operator]

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
            h = F.elu(fine)
        else:
            h = self.fuse(block.fuse, fine, self.units(block.adapt[1], coarse))
        return self.units(block.output, self.pool(block.pool, h))
