"""Images that are no digits, made of digits and of noise, to teach a classifier and to check it.

Each kind is a function of digits x, as many digits y of other classes, and a generator of randomness. All images are
floats (N, 1, 28, 28), and what leaves [0, 1] is clipped in the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

SIDE = 28
Kind = Callable[[Tensor, Tensor, Generator], Tensor]


def no_digits(x: Tensor, labels: Tensor, generator: Generator, kinds: Mapping[str, Kind] | None = None) -> Tensor:
    """As many images that are no digits as there are digits x, (N, 1, 28, 28): as many of each kind."""
    kinds = SEEN if kinds is None else kinds
    x, y = _pairs(x, labels, generator)
    parts = [kind(x[k :: len(kinds)], y[k :: len(kinds)], generator) for k, kind in enumerate(kinds.values())]
    return torch.cat(parts).clamp(0, 1)


def _pairs(x: Tensor, labels: Tensor, generator: Generator) -> tuple[Tensor, Tensor]:
    """The digits in a random order, and beside each one of another class: of digits sorted by class, one far away."""
    n = len(x)
    x = x[labels.argsort(stable=True)]
    far = torch.randint(n // 4, n - n // 4 + 1, (n,), generator=generator)
    order = torch.randperm(n, generator=generator)
    return x[order], x[(order + far) % n]


def _each(x: Tensor, generator: Generator, low: float = 0.0, high: float = 1.0) -> Tensor:
    """A uniformly random number for each image."""
    return low + (high - low) * torch.rand(len(x), 1, 1, 1, generator=generator)


def _moved(x: Tensor, by: Tensor) -> Tensor:
    """Each pixel taken from so many pixels (right, down) of it, (N, 28, 28, 2)."""
    ticks = torch.linspace(-1, 1, SIDE)
    places = torch.stack(torch.meshgrid(ticks, ticks, indexing="xy"), dim=-1)
    return F.grid_sample(x, places + by * 2 / (SIDE - 1), align_corners=True)


def _shifted(x: Tensor, generator: Generator, most: int) -> Tensor:
    by = torch.randint(-most, most + 1, (len(x), 1, 1, 2), generator=generator)
    return _moved(x, by.expand(-1, SIDE, SIDE, -1))


def _shuffled(x: Tensor, size: int, generator: Generator) -> Tensor:
    """The squares of this size that an image consists of, in a random order."""
    squares = F.unfold(x, size, stride=size)
    order = torch.rand(len(x), 1, squares.shape[2], generator=generator).argsort(2)
    return F.fold(squares.gather(2, order.expand_as(squares)), (SIDE, SIDE), size, stride=size)


def _waves(x: Tensor, points: int, generator: Generator) -> Tensor:
    """A smooth random function on each image, normal at points × points places."""
    return F.interpolate(
        torch.randn(len(x), 1, points, points, generator=generator), (SIDE, SIDE), mode="bicubic", align_corners=True
    )


# ---------------------------------------------------------------- kinds that the classifier learns


def noise(x: Tensor, y: Tensor, generator: Generator) -> Tensor:
    """Uniform noise, sparse or dense, faint or strong, half of it blurred."""
    there = torch.rand(x.shape, generator=generator) < _each(x, generator, 0.05)
    made = torch.rand(x.shape, generator=generator) * there
    made = torch.where(_each(x, generator) < 0.5, made, 1.5 * F.avg_pool2d(made, 3, stride=1, padding=1))
    return made * _each(x, generator, 0.3)


def drowned(x: Tensor, y: Tensor, generator: Generator) -> Tensor:
    """Digits under much noise: what annealing that ends too early leaves."""
    return x + _each(x, generator, 0.2, 0.6) * torch.randn(x.shape, generator=generator)


def permuted(x: Tensor, y: Tensor, generator: Generator) -> Tensor:
    """The pixels of a digit in a random order."""
    return _shuffled(x, 1, generator)


def patches(x: Tensor, y: Tensor, generator: Generator) -> Tensor:
    """Squares of 4 × 4 or 7 × 7 pixels of a digit in a random order."""
    return torch.where(_each(x, generator) < 0.5, _shuffled(x, 4, generator), _shuffled(x, 7, generator))


def rolled(x: Tensor, y: Tensor, generator: Generator) -> Tensor:
    """Halves exchanged: upper and lower, left and right, or both."""
    which = _each(x, generator, 0, 3)
    across = torch.where(which < 2, x.roll(14, 3), x.roll((14, 14), (2, 3)))
    return torch.where(which < 1, x.roll(14, 2), across)


def composed(x: Tensor, y: Tensor, generator: Generator) -> Tensor:
    """Two digits in one place, or half of one and half of the other."""
    first = torch.arange(SIDE) < SIDE // 2
    other = _shifted(y, generator, 3)
    halves = torch.where(_each(x, generator) < 0.5, first, first[:, None])
    return torch.where(_each(x, generator) < 0.6, torch.maximum(x, other), torch.where(halves, x, other))


def smeared(x: Tensor, y: Tensor, generator: Generator) -> Tensor:
    """A digit on rubber that is pulled by 5 to 9 pixels here and there."""
    by = torch.cat([_waves(x, 5, generator), _waves(x, 5, generator)], dim=1)
    return _moved(x, (by * _each(x, generator, 5, 9)).permute(0, 2, 3, 1))


def strokes(x: Tensor, y: Tensor, generator: Generator) -> Tensor:
    """Two to four curved strokes anywhere: b(t) = (1 − t)² a + 2t(1 − t) b + t² c."""
    n, most = len(x), 4
    a, b, c = 2 + 24 * torch.rand(3, n, most, 1, 2, generator=generator)
    t = torch.linspace(0, 1, 20)[:, None]
    points = (1 - t) ** 2 * a + 2 * t * (1 - t) * b + t**2 * c
    absent = torch.arange(most) >= torch.randint(2, most + 1, (n, 1), generator=generator)
    points[absent] = 1000.0
    pixels = torch.cartesian_prod(torch.arange(float(SIDE)), torch.arange(float(SIDE)))
    parts = [torch.cdist(pixels, part).amin(2) for part in points.flatten(1, 2).split(256)]
    return _each(x, generator, 1.3, 2.8) - torch.cat(parts).reshape(x.shape)


def blobs(x: Tensor, y: Tensor, generator: Generator) -> Tensor:
    """Where a smooth random function is high, or near zero: spots, or curves; on all of the image or within a disc."""
    f = torch.where(_each(x, generator) < 0.5, _waves(x, 5, generator), _waves(x, 8, generator))
    spots, curves = 3 * (f - _each(x, generator, 0.2, 0.9)), 1.4 - 4 * f.abs()
    ticks = torch.arange(SIDE) - (SIDE - 1) / 2
    disc = ticks**2 + ticks[:, None] ** 2 < _each(x, generator, 8, 18) ** 2
    return torch.where(_each(x, generator) < 0.5, spots, curves) * disc


def blank(x: Tensor, y: Tensor, generator: Generator) -> Tensor:
    """Black, or grey, or black with a few dots."""
    grey = _each(x, generator) * (_each(x, generator) < 0.4)
    return grey + (torch.rand(x.shape, generator=generator) < _each(x, generator, -0.02, 0.02))


def inverted(x: Tensor, y: Tensor, generator: Generator) -> Tensor:
    """Black or grey on white."""
    return 1 - x * _each(x, generator, 0.3)


# ---------------------------------------------------------------- kinds that it never sees


def scrambled(x: Tensor, y: Tensor, generator: Generator) -> Tensor:
    """A digit's Fourier transform with the phases of noise: its strokes everywhere, and nowhere a digit."""
    phases = torch.fft.rfft2(torch.rand(x.shape, generator=generator)).angle()
    made = torch.fft.irfft2(torch.polar(torch.fft.rfft2(x).abs(), phases), s=(SIDE, SIDE))
    return made / made.amax((2, 3), keepdim=True)


def torn(x: Tensor, y: Tensor, generator: Generator) -> Tensor:
    """Strips of four rows, each shifted to the side by up to 8 pixels."""
    by = torch.randint(-8, 9, (len(x), SIDE // 4), generator=generator).repeat_interleave(4, dim=1)
    right = by[:, :, None].expand(-1, -1, SIDE)
    return _moved(x, torch.stack([right, torch.zeros_like(right)], dim=-1))


def averaged(x: Tensor, y: Tensor, generator: Generator) -> Tensor:
    """The mean of two digits."""
    return (x + y) / 2


def pair(x: Tensor, y: Tensor, generator: Generator) -> Tensor:
    """Two digits, narrow, side by side."""
    return torch.cat([F.avg_pool2d(x, (1, 2)), F.avg_pool2d(y, (1, 2))], dim=3)


def four(x: Tensor, y: Tensor, generator: Generator) -> Tensor:
    """Four small digits."""
    above, below = pair(x, y, generator), pair(y, x, generator)
    return torch.cat([F.avg_pool2d(above, (2, 1)), F.avg_pool2d(below, (2, 1))], dim=2)


SEEN: dict[str, Kind] = {
    kind.__name__: kind
    for kind in (noise, drowned, permuted, patches, rolled, composed, smeared, strokes, blobs, blank, inverted)
}
UNSEEN: dict[str, Kind] = {kind.__name__: kind for kind in (scrambled, torn, averaged, pair, four)}
