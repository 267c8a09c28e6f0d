"""RefineNet's forward pass with fused kernels, in 16 bit, for GPUs. The same weights, the same function.

What differs from refinenet.py, which is the reference: activations are float16 (or bfloat16) and channels-last; each
normalisation goes with its ELU and with the bias of the convolution before it; residual sums go with the biases they
wait for. The first convolution is float32, since the noise of the last levels is smaller than 16 bit's steps near 1,
and the last one TF32.

float16 has three more binary digits than bfloat16 but less room. RefineNet's residual paths, which nothing normalises,
were seen to pass 65,504 on MNIST, so all activations are held multiplied by UNIT: normalisations make them so, the
convolutions keep them so, and the biases are multiplied alike. Where paths grow most they are multiplied by DEEP.
Gradients are scaled as well: see scaled.py.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import reduce

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from scorefield.acceleration.kernels.add import add
from scorefield.acceleration.kernels.norm import norm
from scorefield.acceleration.kernels.pool import halve, pool
from scorefield.acceleration.kernels.streams import Aside, Beside, at_once
from scorefield.acceleration.scaled import Conv, Inside, Outside, Scale
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
DEEP = 2.0**-12
"""Of the dilated stages, where 65,504 stands for 268 million. Each begins with a convolution of a path that nothing has
normalised, and the normalisations after it make the score blind to how long the path is, so that it only grows: on
CIFAR-10 to 1.0, 3.1 and 3.8 million after 20,000, 40,000 and 46,500 steps (before these stages to 500 and 1,000). At
the beginning paths are of the order of 1: float16 is as exact there as ever, and only what is below ¼ has an error of
up to 2⁻¹³."""
DILATED = 4
"""The first block of these stages. What comes of them stays so multiplied up to the normalisations before their sum."""


class FusedRefineNet:
    """A score s(x, σ) with the weights of `network`, which must be on a GPU, channels-last.

    `dtype`: float16, or bfloat16, which has room for activations of any size but three digits less. `bad` is 0
    and becomes 1 in a backward pass in which a parameter's gradient is not finite: who reads it sets it back.
    """

    def __init__(self, network: RefineNet, *, dtype: torch.dtype = torch.float16) -> None:
        self.network, self.dtype = network, dtype
        rest = dict(network.named_parameters())
        inner = [name for name, p in rest.items() if p.ndim == 4 and not name.startswith(("begin.", "end."))]
        biases = [name for name in rest if name.endswith(".bias") and not name.startswith("end.")]
        dilated = tuple(f"blocks.{k}." for k in range(DILATED, len(network.blocks)))
        self._cast, self._units = len(inner), [DEEP if name.startswith(dilated) else UNIT for name in biases]
        self._parameters = [*(rest.pop(name) for name in inner + biases), *rest.values()]
        self._resize: dict[tuple[int, int], Tensor] = {}
        self._aside = Aside() if network.end.weight.is_cuda else None
        self.bad = torch.zeros((), device=network.end.weight.device)

    def __call__(self, x: Tensor, sigma: Tensor) -> Tensor:
        network = self.network
        network.check(x)
        level = network.level(sigma, x).contiguous()
        scale = Scale(self.bad)
        inside = Inside.apply(scale, self._aside, self.dtype, self._cast, self._units, *self._parameters)  # type: ignore[no-untyped-call]
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
            h = call.residual(block, h, DEEP if k > DILATED else UNIT, DEEP if k >= DILATED else UNIT)
            if k % 2:
                features.append(h)
        first, *others = network.refine
        h = call.refine(first, DEEP, features[3])  # type: ignore[arg-type]
        for refine, unit, feature in zip(others, (DEEP, UNIT, UNIT), features[2::-1], strict=True):
            h = call.refine(refine, unit, feature, h)  # type: ignore[arg-type]
        h, _ = call.norm(network.norm, h, dtype=torch.float32, units=(UNIT, 1.0))
        with _convolutions(allow_tf32=True):
            y = call.outer(network.end, h)[..., :height, :width]
            return Outside.apply(y, scale)  # type: ignore[no-untyped-call]

    def _unscaled(self, grad: Tensor, scale: Scale) -> Tensor:
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
        units: tuple[float, float] = (UNIT, UNIT),
    ) -> tuple[Tensor, Tensor]:
        """The normalised x, and x for its other uses. `units`: see kernels.norm."""
        assert isinstance(module, CondInstanceNorm)
        gamma, alpha, beta = (self.of[table] for table in (module.gamma, module.alpha, module.beta))
        return norm(
            x, bias, gamma, alpha, beta, self.level,
            elu=elu, dtype=dtype or self.dtype, units=units, beside=self.beside,
        )  # fmt: skip

    def conv(self, module: nn.Module, x: Tensor) -> Tensor:
        """Without its bias, which the caller passes on."""
        assert isinstance(module, nn.Conv2d)
        return Conv.apply(x, self.of[module.weight], module, self.aside)  # type: ignore[no-untyped-call]

    def outer(self, module: nn.Conv2d, x: Tensor) -> Tensor:
        """In float32, with its bias."""
        return F.conv2d(x, self.of[module.weight], self.bias(module), module.stride, module.padding)

    def residual(self, block: ResidualBlock, x: Tensor, given: float, unit: float) -> Tensor:
        """x comes multiplied by `given`, the result is multiplied by `unit`."""
        h, x = self.norm(block.norm1, x, units=(given, unit))
        h, _ = self.norm(block.norm2, self.conv(block.conv1, h), self.bias(block.conv1), units=(unit, unit))
        h = self.conv(block.conv2, h)
        if isinstance(block.shortcut, nn.Conv2d):
            x = x if given == unit else x * (unit / given)
            h = add(h, self.conv(block.shortcut, x), self.bias(block.conv2, block.shortcut), beside=self.beside)
        else:
            h = add(h, x, self.bias(block.conv2), beside=self.beside)
        return halve(h) if block.subsample else h

    def units(self, module: nn.Module, x: Tensor, unit: float) -> Tensor:
        assert isinstance(module, ResidualConvUnits)
        for k in range(0, len(module.convs), 2):
            h, x = self.norm(module.norms[k], x, units=(unit, unit))
            h, _ = self.norm(module.norms[k + 1], self.conv(module.convs[k], h), units=(unit, unit))
            x = x + self.conv(module.convs[k + 1], h)
        return x

    def fuse(self, module: MultiScaleFusion, unit: float, fine: Tensor, coarse: Tensor) -> Tensor:
        """The ELU that comes next is taken here."""
        units = (unit, UNIT)
        fine = self.conv(module.convs[0], self.norm(module.norms[0], fine, elu=False, units=units)[0])
        coarse = self.conv(module.convs[1], self.norm(module.norms[1], coarse, elu=False, units=units)[0])
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

    def pool(self, module: ChainedResidualPooling, x: Tensor, unit: float) -> Tensor:
        """Of x after its ELU."""
        h, x = self.norm(module.norms[0], x, elu=False, units=(unit, unit))
        h, link = self.norm(module.norms[1], self.conv(module.convs[0], pool(h)), elu=False, units=(unit, unit))
        return x + link + self.conv(module.convs[1], pool(h))

    def refine(self, block: RefineBlock, unit: float, fine: Tensor, coarse: Tensor | None = None) -> Tensor:
        """They come multiplied by `unit`, as is the result where `fine` comes alone; that of two is so by UNIT."""
        fine = self.units(block.adapt[0], fine, unit)
        if coarse is None or block.fuse is None:
            h = torch.ops.aten.elu(fine, unit, 1, 1 / unit)  # unit · ELU(fine/unit)
        else:
            h = self.fuse(block.fuse, unit, fine, self.units(block.adapt[1], coarse, unit))
            unit = UNIT
        return self.units(block.output, self.pool(block.pool, h, unit), unit)
