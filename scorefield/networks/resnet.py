"""The network of the paper's Fig. 1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

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


class Block(nn.Module):
    """A pre-activation residual block:  resize(x) + conv(ELU(resize(conv(ELU(x))))),  with a 1 × 1 convolution on the
    shortcut where the number of filters changes."""

    def __init__(self, n: int, m: int, resize: Resize = same) -> None:
        super().__init__()
        self.first = nn.Conv2d(n, m, 3, padding=1)
        self.second = nn.Conv2d(m, m, 3, padding=1)
        self.shortcut = nn.Identity() if n == m else nn.Conv2d(n, m, 1)
        self.resize = resize

    def forward(self, x: Tensor) -> Tensor:
        change = self.second(F.elu(self.resize(self.first(F.elu(x)))))
        return self.shortcut(self.resize(x)) + change


class ResNet(nn.Module):
    """An auto-encoder of residual blocks for images of a single noise level; height and width must be multiples of 4.

    Five blocks of these `filters` are the encoder, the second and fourth of which halve the resolution; the decoder is
    their mirror image (appendix B.1). There is no normalisation.
    """

    def __init__(self, *, channels: int = 3, filters: Sequence[int] = (32, 64, 64, 128, 128)) -> None:
        super().__init__()
        if len(filters) != 5:
            raise ValueError(f"filters must be five numbers, one for each block of the encoder; got {tuple(filters)}")
        self.channels = channels
        encoder = [
            Block(n, m, half if place in (2, 4) else same)
            for place, (n, m) in enumerate(pairwise((channels, *filters)), 1)
        ]
        decoder = [
            Block(m, n, double if place in (2, 4) else same)
            for place, (n, m) in reversed(list(enumerate(pairwise((filters[0], *filters)), 1)))
        ]
        self.blocks = nn.Sequential(*encoder, *decoder)
        self.end = nn.Conv2d(filters[0], channels, 3, padding=1)

    def forward(self, x: Tensor, sigma: Tensor | None = None) -> Tensor:
        """s(x), whatever the σ: the network is trained for one level only."""
        if x.ndim != 4 or x.shape[1] != self.channels or x.shape[2] % 4 or x.shape[3] % 4:
            raise ValueError(
                f"x must have shape (B, {self.channels}, H, W), H and W multiples of 4; got {tuple(x.shape)}"
            )
        return self.end(F.elu(self.blocks(2 * x - 1)))
