"""The U-Net's forward pass with fused kernels, in 16 bit, for GPUs: the same weights and the same function.

It differs from networks/unet.py, the reference, in this: activations are float16 (or bfloat16) and channels-last; one
kernel ends a block and begins the next, joins what was kept from the way down, and doubles the resolution; one does
what lies between a block's two convolutions; and one makes the weights of all convolutions. The first convolution is
float32, because the noise of the lowest levels is smaller than the spacing of 16-bit numbers near 1.

All layers preserve magnitudes, forwards and roughly backwards too, so that 16 bits have room for activations and
weights. Gradients are scaled: see scaled.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import count

import torch
from torch import Tensor
from torch.nn import functional as F

from scorefield.acceleration.kernels.heads import unit_heads
from scorefield.acceleration.kernels.modulate import modulate
from scorefield.acceleration.kernels.pool import halve
from scorefield.acceleration.kernels.residual import Sum, begin_down, begin_up, total
from scorefield.acceleration.kernels.streams import Aside
from scorefield.acceleration.kernels.weights import Weights
from scorefield.acceleration.scaled import Conv, Outside, Scale, convolutions
from scorefield.networks import unet
from scorefield.networks.unet import BRANCH, SILU, TINY, Block, UNet
from scorefield.noise import SampleNoise
from scorefield.score import as_sigma, expand

PATH = (1 - BRANCH) / math.hypot(1 - BRANCH, BRANCH)
"""The weight of the path around a block's convolutions, or around attention."""
OUTPUTS = 8
"""The last convolution gets outputs of 0 up to a multiple of this: cuDNN is slow with three channels."""

RandLike = Callable[[Tensor], Tensor]
Draw = Callable[[], tuple[Tensor, int]]
"""The keys and the number of the next draw of dropout's random numbers."""


class FusedUNet:
    """A score s(x, σ, label) with the weights of `network`, which must be on a GPU, in float32.

    `dtype` is float16, or bfloat16, which has room for numbers of any size but three bits less precision. `bad` is 0,
    and becomes 1 in a backward pass in which a weight's gradient is not finite; whoever reads it resets it.
    """

    def __init__(self, network: UNet, *, dtype: torch.dtype = torch.float16) -> None:
        self.network, self.dtype = network, dtype
        blocks = [block for block in (*network.down, network.middle, *network.up) if isinstance(block, Block)]
        outer = [network.begin, *(block.scale for block in blocks)]
        inner = [conv for conv in network.modules() if isinstance(conv, unet.Conv) and conv.kernel]
        inner.remove(network.begin)
        paths = {block.shortcut for block in blocks if not block.down}  # whose weight in the sum is in their weights
        sizes = [conv.gain * (PATH if conv in paths else 1.0) for conv in inner]
        self._inner = Weights([conv.weight for conv in inner], sizes, dtype=dtype, eps=TINY)
        self._outer = Weights([conv.weight for conv in outer], [1.0] * len(outer), dtype=torch.float32, eps=TINY)
        self._blocks, self._channels = blocks, [len(block.scale.weight) for block in blocks]
        device = network.end.weight.device
        number = torch.arange(len(blocks)).repeat_interleave(torch.tensor(self._channels))
        self._which = F.one_hot(number, len(blocks)).T.float().contiguous().to(device)  # of which block a channel is
        self._aside = Aside() if network.end.weight.is_cuda else None
        self.bad = torch.zeros((), device=device)

    def __call__(
        self, x: Tensor, sigma: Tensor, label: Tensor | None = None, *, rand_like: RandLike = torch.rand_like
    ) -> Tensor:
        """`rand_like`, for dropout: torch.rand_like, or a SampleNoise's, whose numbers drop what they drop in the plain
        network."""
        network = self.network
        network.check(x)
        sigma = as_sigma(sigma, x)
        if not network.training:
            network.check_sigma(sigma, x)
        std = expand(sigma, x)
        whole = std.square() + network.sigma_data**2
        centred = x - 0.5
        output = self.raw(centred * whole.rsqrt(), sigma, label, rand_like)
        return output * (network.sigma_data * whole.rsqrt() / std) - centred / whole

    def raw(self, x: Tensor, sigma: Tensor, label: Tensor | None, rand_like: RandLike = torch.rand_like) -> Tensor:
        """F of images at unit size, in float32."""
        network, scale = self.network, Scale(self.bad)
        of = self._outer.used(scale, self._aside) | self._inner.used(scale, self._aside)
        e = self._outside(F.silu(network.embedding(sigma, label, len(x))) / SILU, scale)
        dropped = network.training and network.dropout > 0
        call = _Call(of, self.dtype, self._aside, self._scales(of, e, len(x), scale), self._draw(rand_like, x, dropped))
        height, width = x.shape[2:]
        h = torch.cat([self._outside(x, scale), torch.ones_like(x[:, :1])], 1)
        h = network._padded(h).contiguous(memory_format=torch.channels_last)
        with convolutions(allow_tf32=False):
            h = F.conv2d(h, of[network.begin.weight], padding=1)
        end = of[network.end.weight]
        end = F.pad(end, (0, 0) * 3 + (0, -len(end) % OUTPUTS))
        y = call.conv_by(end, call.blocks(network, h))[:, : network.channels, :height, :width]
        return network.gain * Outside.apply(y.float(), scale)  # type: ignore[no-untyped-call]

    def normalise_(self) -> None:
        """What `network.normalise_` does, in two launches and for embeddings as it does it."""
        network = self.network
        for weights in (self._inner, self._outer):
            weights.normalise_()
        for conv in (network.embed, network.classes):
            if conv is not None:
                conv.normalise_()

    def _scales(self, of: dict[Tensor, Tensor], e: Tensor, n: int, scale: Scale) -> Iterator[Tensor]:
        """1 + g · W e of each block, (n, channels)."""
        gains = self._outside(torch.stack([block.gain for block in self._blocks]), scale)
        weight = torch.cat([of[block.scale.weight] for block in self._blocks])
        c = torch.addcmul(e.new_ones(()), gains @ self._which, F.linear(e, weight))
        return iter(c.expand(n, -1).split(self._channels, 1))

    def _outside(self, x: Tensor, scale: Scale) -> Tensor:
        """x, whose gradient comes from inside: the scale is removed from it. Where no weight's gradient is asked for,
        nothing else waits for the second stream."""
        if not x.requires_grad:
            return x

        def unscaled(grad: Tensor) -> Tensor:
            if self._aside is not None:
                self._aside.join()
            return grad / scale.value

        x = x.view_as(x)
        x.register_hook(unscaled)
        return x

    def _draw(self, rand_like: RandLike, x: Tensor, dropped: bool) -> Draw | None:
        if not dropped:
            return None
        noise = getattr(rand_like, "__self__", None)
        if isinstance(noise, SampleNoise):
            return lambda: noise.reserve(x)
        if rand_like is not torch.rand_like:
            raise ValueError("rand_like must be torch.rand_like or the method of a SampleNoise for the fused network")
        key, numbers = torch.randint(2**32, (2, len(x), 1), device=x.device), count()
        return lambda: (key, next(numbers))


class _Call:
    """One forward pass. `of` maps each learned weight to the one that is used; `scales` are those of the blocks."""

    def __init__(
        self,
        of: dict[Tensor, Tensor],
        dtype: torch.dtype,
        aside: Aside | None,
        scales: Iterator[Tensor],
        draw: Draw | None,
    ) -> None:
        self.of, self.dtype, self.aside, self.scales, self.draw = of, dtype, aside, scales, draw

    def conv(self, module: unet.Conv, x: Tensor) -> Tensor:
        return self.conv_by(self.of[module.weight], x)

    def conv_by(self, weight: Tensor, x: Tensor) -> Tensor:
        padding = (weight.shape[2] // 2, weight.shape[3] // 2)
        return Conv.apply(x, weight, padding, (1, 1), self.aside)  # type: ignore[no-untyped-call]

    def total(self, s: Sum) -> tuple[Tensor, Tensor]:
        return total(s, around=PATH, eps=TINY, dtype=self.dtype)

    def blocks(self, network: UNet, h: Tensor) -> Tensor:
        """All blocks. A block's end is computed together with the next block's beginning, if nothing is between."""
        s, kept, k = Sum(h), list[Tensor](), iter(network.down)
        for stage, number in enumerate(network.blocks):
            for n in range(number):
                before, s = self.down(next(k), s)  # type: ignore[arg-type]
                kept += [before] if n else []
            kept.append(self.total(s)[0])
            s = Sum(kept[-1] if stage == len(network.blocks) - 1 else halve(kept[-1]))
        s, k = self.down(network.middle, s)[1], iter(network.up)
        for block in k:
            s = self.up(block, s, kept.pop())  # type: ignore[arg-type]
        return self.total(s)[0]

    def down(self, block: Block, s: Sum) -> tuple[Tensor, Sum]:
        """The sum s, which ended the block before, and the one that ends this block."""
        if block.shortcut is None:
            before, path, a = begin_down(s, around=PATH, eps=TINY, dtype=self.dtype)
        else:
            before, _ = self.total(s)
            x = Sum(self.conv(block.shortcut, before))
            _, path, a = begin_down(x, around=PATH, eps=TINY, dtype=self.dtype)
        return before, self.attend(block, Sum(self.branch(block, a), path, PATH, unit=True))

    def up(self, block: Block, s: Sum, skip: Tensor) -> Sum:
        assert block.shortcut is not None  # since channels are joined
        z, a = begin_up(s, skip, shares=(block.shares[0], block.shares[1]), eps=TINY)
        y = self.branch(block, a)
        return self.attend(block, Sum(y, self.conv(block.shortcut, z)))

    def branch(self, block: Block, a: Tensor) -> Tensor:
        """Both convolutions and what is between them."""
        h, c = self.conv(block.conv1, a), next(self.scales)
        if self.draw is None or not block.dropout:
            return self.conv(block.conv2, modulate(h, c))
        key, draw = self.draw()
        return self.conv(block.conv2, modulate(h, c, key=key, draw=draw, dropout=block.dropout))

    def attend(self, block: Block, s: Sum) -> Sum:
        """The sum s, or the one that ends the block's attention."""
        if (attention := block.attention) is None:
            return s
        x, path = self.total(s)
        q, k, v = unit_heads(self.conv(attention.qkv, x), attention.heads, eps=TINY)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        y = y.unflatten(1, x.shape[2:]).permute(0, 3, 1, 2)
        return Sum(self.conv(attention.out, y), path, PATH)
