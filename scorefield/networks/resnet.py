"""The network of the paper's Fig. 1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import gcd

from torch import Tensor, nn
from torch.nn import functional as F

Resize = Callable[[Tensor], Tensor]


def same(x: Tensor) -> Tensor:
    """x as it is."""
    return x


def half(x: Tensor) -> Tensor:
    """Height and width halved: the mean of each 2 × 2 pixels."""
    return F.avg_pool2d(x, 2)


def double(x: Tensor) -> Tensor:
    """Height and width doubled: each pixel four times."""
    return F.interpolate(x, scale_factor=2)


class Norm(nn.GroupNorm):
    """Mean 0 and variance 1 over all pixels of a group of channels, then γx + β. There are 8 groups, or 4, 2 or 1 where
    the number of channels is not a multiple. PyTorch's own has no forward-mode derivative for channels-last images."""

    def __init__(self, channels: int) -> None:
        super().__init__(gcd(8, channels), channels)

    def forward(self, x: Tensor) -> Tensor:
        grouped, space = x.unflatten(1, (self.num_groups, -1)), (2, 3, 4)
        apart = grouped - grouped.mean(space, keepdim=True)
        unit = apart * (apart.square().mean(space, keepdim=True) + self.eps).rsqrt()
        return unit.flatten(1, 2) * self.weight.view(-1, 1, 1) + self.bias.view(-1, 1, 1)


class Block(nn.Module):
    """A pre-activation residual block:  resize(x) + conv(ELU(norm(resize(conv(ELU(norm(x))))))),  with a 1 × 1
    convolution on the shortcut where the number of filters changes."""

    def __init__(self, n: int, m: int, resize: Resize = same) -> None:
        super().__init__()
        self.norm1, self.norm2 = Norm(n), Norm(m)
        self.first = nn.Conv2d(n, m, 3, padding=1)
        self.second = nn.Conv2d(m, m, 3, padding=1)
        self.shortcut = nn.Identity() if n == m else nn.Conv2d(n, m, 1)
        self.resize = resize

    def forward(self, x: Tensor) -> Tensor:
        change = self.second(F.elu(self.norm2(self.resize(self.first(F.elu(self.norm1(x)))))))
        return self.shortcut(self.resize(x)) + change


class ResNet(nn.Module):
    """An auto-encoder of residual blocks for images of a single noise level; height and width must be multiples of 4.

    The encoder has five blocks with these `filters`; the second and the fourth halve the resolution. The decoder is its
    mirror image (appendix B.1). There is a convolution before the encoder and one after the decoder.

    The paper does not name the normalisation of its blocks; the released code has eight groups of channels. Without
    normalisation, at the paper's learning rate of 0.001, training diverged after 1,700 iterations: the loss rose from
    minus two million to seven billion, and after gradients that large, Adam's steps were too small to learn anything
    for 30,000 iterations.
    """

    def __init__(self, *, channels: int = 3, filters: Sequence[int] = (32, 64, 64, 128, 128)) -> None:
        super().__init__()
        if len(filters) != 5:
            raise ValueError(f"filters must be five numbers, one for each block of the encoder; got {tuple(filters)}")
        self.channels = channels
        steps = list(enumerate(pairwise((filters[0], *filters)), 1))
        encoder = [Block(n, m, half if place in (2, 4) else same) for place, (n, m) in steps]
        decoder = [Block(m, n, double if place in (2, 4) else same) for place, (n, m) in reversed(steps)]
        self.begin = nn.Conv2d(channels, filters[0], 3, padding=1)
        self.blocks = nn.Sequential(*encoder, *decoder)
        self.norm = Norm(filters[0])
        self.end = nn.Conv2d(filters[0], channels, 3, padding=1)

    def forward(self, x: Tensor, sigma: Tensor | None = None) -> Tensor:
        """s(x), whatever the σ: the network is trained for one level only."""
        if x.ndim != 4 or x.shape[1] != self.channels or x.shape[2] % 4 or x.shape[3] % 4:
            raise ValueError(
                f"x must have shape (B, {self.channels}, H, W), H and W multiples of 4; got {tuple(x.shape)}"
            )
        return self.end(F.elu(self.norm(self.blocks(self.begin(2 * x - 1)))))
