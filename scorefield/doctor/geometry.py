"""What matters for the noise about a set of images: how far they are apart, and how they vary."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from scorefield.data.images import Pixels
from scorefield.evaluation.features import random_rows
from scorefield.images import to_float

MOST, NUMBERS = 2000, 5e7
"""How many images are compared with each other at most, and how many numbers they may have in all."""
QUANTILES = (0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0)


class Geometry(NamedTuple):
    """Measured on n images that were drawn at random, with pixels in [0, 1], as points in D dimensions."""

    n: int
    shape: tuple[int, ...]
    """(C, H, W)."""
    distances: dict[str, float]
    """Quantiles of the distances between two of them."""
    nearest: dict[str, float]
    """Quantiles of the distance from one of them to the nearest other."""
    variance: float
    """The sum of the variances of all pixels: the mean square distance from the mean image."""
    off_grey: float
    """The mean square distance from the grey image, ½ in each pixel."""

    @property
    def dimension(self) -> int:
        return math.prod(self.shape)

    @property
    def side(self) -> float:
        """The side of a square with as many pixels."""
        return math.sqrt(math.prod(self.shape[1:]))

    @property
    def sigma_data(self) -> float:
        """The root mean square of x − ½."""
        return math.sqrt(self.off_grey / self.dimension)

    @property
    def farthest(self) -> float:
        return self.distances["1"]

    @property
    def usual(self) -> float:
        """The median distance."""
        return self.distances["0.5"]


def some_points(pixels: Pixels) -> Tensor:
    """Some of these images, drawn at random, as many as can be compared with each other: (n, C, H, W) in [0, 1]."""
    n = max(2, min(len(pixels), MOST, int(NUMBERS / math.prod(pixels.shape[1:]))))
    return to_float(np.asarray(pixels[random_rows(n, len(pixels))]))


def measure(points: Tensor) -> tuple[Geometry, Tensor, Tensor]:
    """The geometry of these points (n, ...); and the distances of all pairs, and to the nearest, for a chart."""
    if len(points) < 2:
        raise ValueError(
            f"at least two images are needed, to train on and to measure distances; got {len(points)} (add images)"
        )
    rows = points.flatten(1)
    pairs, nearest = distances(rows)
    off_grey = rows.sub(0.5).square().sum(1).double().mean().item()
    variance = rows.sub(rows.mean(0)).square().sum(1).double().mean().item()
    shape = tuple(points.shape[1:])
    return Geometry(len(rows), shape, _quantiles(pairs), _quantiles(nearest), variance, off_grey), pairs, nearest


def distances(points: Tensor) -> tuple[Tensor, Tensor]:
    """The distances between all pairs of points (N, D), and from each to the nearest other, sorted."""
    each = torch.cdist(points.double(), points.double()).float()  # float32 would miss near-copies
    each.fill_diagonal_(math.inf)
    above = torch.triu_indices(len(points), len(points), 1)
    return each[above[0], above[1]].sort().values, each.min(1).values.sort().values


def _quantiles(ordered: Tensor) -> dict[str, float]:
    return {f"{q:g}": round(ordered[round(q * (len(ordered) - 1))].item(), 6) for q in QUANTILES}
