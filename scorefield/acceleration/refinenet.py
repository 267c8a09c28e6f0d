"""RefineNet's forward pass with fused kernels, in 16 bit, for GPUs: the same weights and the same function.

It differs from networks/refinenet.py, the reference, in this: activations are float16 (or bfloat16) and channels-last;
one kernel does a normalisation with its ELU and the bias of the convolution before it; another adds residual paths and
their biases. The first convolution is float32, because the noise of the last levels is smaller than the spacing of
16-bit numbers near 1. The last convolution is TF32.

float16 has three more bits of precision than bfloat16, but a smaller range. RefineNet's residual paths are not
normalised, and exceeded 65,504 on MNIST. So all activations are stored multiplied by UNIT: the normalisations apply the
factor, the convolutions keep it, and the biases are multiplied by it too. Where the paths grow most, the factor is
DEEP. Gradients are scaled as well: see scaled.py.
"""

from __future__ import annotations

from functools import reduce

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from scorefield.acceleration.kernels.add import add
from scorefield.acceleration.kernels.norm import norm
from scorefield.acceleration.kernels.pool import halve, pool
from scorefield.acceleration.kernels.streams import Aside, Beside, at_once
from scorefield.acceleration.scaled import Conv, Inside, Outside, Scale, convolutions
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
"""With it, 65,504 stands for 4 million. Normalised values are about 1, far above float16's smallest numbers."""
DEEP = 2.0**-12
"""The factor of the dilated stages, with which 65,504 stands for 268 million. Each of these stages begins with a
convolution of a path that is not normalised. The normalisations after it make the score independent of the path's
size, so that training lets it grow: on CIFAR-10 to 1.0, 3.1 and 3.8 million after 20,000, 40,000 and 46,500 steps (500
and 1,000 before these stages). Early in training, paths are of the order of 1: float16 has its full precision there,
and only values below ¼ have an error of up to 2⁻¹³."""
DILATED = 4
"""The first block of these stages. Their results keep the factor DEEP up to the normalisations before the fusion."""


class FusedRefineNet:
    """A score s(x, σ) with the weights of `network`, which must be on a GPU, channels-last.

    `dtype` is float16, or bfloat16, which has room for activations of any size but three bits less precision. `bad` is
    0, and becomes 1 in a backward pass in which a parameter's gradient is not finite; whoever reads it resets it.
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
        with convolutions(allow_tf32=False):
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
        with convolutions(allow_tf32=True):
            y = call.outer(network.end, h)[..., :height, :width]
            return Outside.apply(y, scale)  # type: ignore[no-untyped-call]

    def _unscaled(self, grad: Tensor, scale: Scale) -> Tensor:
        """The gradient of x. It comes last, and where no parameter's gradient is asked for, nothing else waits for the
        second stream."""
        if self._aside is not None:
            self._aside.join()
        return grad / scale.value


class _Call:
    """One forward pass. `of` maps each parameter to its form inside; `level` is each sample's noise level."""

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
        """The normalised x, and x itself for its other uses. `units`: see kernels/norm.py."""
        assert isinstance(module, CondInstanceNorm)
        gamma, alpha, beta = (self.of[table] for table in (module.gamma, module.alpha, module.beta))
        return norm(
            x, bias, gamma, alpha, beta, self.level,
            elu=elu, dtype=dtype or self.dtype, units=units, beside=self.beside,
        )  # fmt: skip

    def conv(self, module: nn.Module, x: Tensor) -> Tensor:
        """The convolution without its bias, which the caller adds later."""
        assert isinstance(module, nn.Conv2d)
        return Conv.apply(x, self.of[module.weight], module.padding, module.dilation, self.aside)  # type: ignore[no-untyped-call]

    def outer(self, module: nn.Conv2d, x: Tensor) -> Tensor:
        """The convolution in float32, with its bias."""
        return F.conv2d(x, self.of[module.weight], self.bias(module), module.stride, module.padding)

    def residual(self, block: ResidualBlock, x: Tensor, given: float, unit: float) -> Tensor:
        """A residual block. x is given multiplied by `given`; the result is multiplied by `unit`."""
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
        """The fusion of both paths, with the ELU that comes next."""
        units = (unit, UNIT)
        fine = self.conv(module.convs[0], self.norm(module.norms[0], fine, elu=False, units=units)[0])
        coarse = self.conv(module.convs[1], self.norm(module.norms[1], coarse, elu=False, units=units)[0])
        if coarse.shape != fine.shape:
            coarse = self.resized(coarse, fine.shape[2:])
        return add(fine, coarse, self.bias(*module.convs), elu=True, unit=UNIT, beside=self.beside)

    def resized(self, x: Tensor, size: torch.Size) -> Tensor:
        """Bilinear interpolation as a matrix product for each direction: its gradient is fast too, without atomics."""
        b, c, height, width = x.shape
        wide = torch.matmul(self.line(width, size[1], x), x.permute(0, 2, 3, 1))
        high = torch.matmul(self.line(height, size[0], x), wide.reshape(b, height, size[1] * c))
        return high.view(b, *size, c).permute(0, 3, 1, 2)

    def line(self, old: int, new: int, x: Tensor) -> Tensor:
        """The matrix (new, old) that interpolates along one direction, in x's type."""
        if (old, new) not in self.resize:
            made = F.interpolate(torch.eye(old, device=x.device)[:, None], new, mode="linear", align_corners=True)
            self.resize[old, new] = made[:, 0].T.contiguous().to(x.dtype)
        return self.resize[old, new]

    def pool(self, module: ChainedResidualPooling, x: Tensor, unit: float) -> Tensor:
        """The chained pooling of x, to which the ELU was applied already."""
        h, x = self.norm(module.norms[0], x, elu=False, units=(unit, unit))
        h, link = self.norm(module.norms[1], self.conv(module.convs[0], pool(h)), elu=False, units=(unit, unit))
        return x + link + self.conv(module.convs[1], pool(h))

    def refine(self, block: RefineBlock, unit: float, fine: Tensor, coarse: Tensor | None = None) -> Tensor:
        """Inputs are multiplied by `unit`. So is the result of one input; that of two is multiplied by UNIT."""
        fine = self.units(block.adapt[0], fine, unit)
        if coarse is None or block.fuse is None:
            h = torch.ops.aten.elu(fine, unit, 1, 1 / unit)  # unit · ELU(fine/unit)
        else:
            h = self.fuse(block.fuse, unit, fine, self.units(block.adapt[1], coarse, unit))
            unit = UNIT
        return self.units(block.output, self.pool(block.pool, h, unit), unit)
