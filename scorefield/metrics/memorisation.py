"""Whether samples are copies of training images."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from scorefield.metrics.neighbors import Neighbors

COPY = 1 / 3
"""An image whose nearest neighbour is so much nearer than its farthest of those found is called a copy of it; and so is
one so much nearer than any held-out image is, which finds copies of images that the training set holds many times."""
CHANCE = 0.05
"""The alarm is raised where so many of all copies are samples that chance would do it more seldom than this."""
QUANTILES = (0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


def memorisation(samples: Neighbors, held_out: Neighbors) -> dict[str, Any]:
    """How near samples lie to the training images, against held-out images, which nobody can have copied.

    `ratio`: a sample's distance to its nearest training image, over the median of the held-out images' distances. 1 is
    as it should be. `isolation`: that distance over the one to the farthest neighbour found, the 50th say. It is small
    for copies alone, while the distance itself is small for any smooth image too.

    Training sets have near duplicates in their test sets (CIFAR-10 is known for it), so a held-out image may be called
    a copy: the alarm compares numbers, by Fisher's exact test. One sample that is
    nearer than a third of any held-out image's distance is alarming by itself.
    """
    usual, least = held_out.distances[:, 0].median().item(), held_out.distances[:, 0].min().item()
    copied, by_nature = _copies(samples, least), _copies(held_out, least)
    n, others = len(samples.distances), len(held_out.distances)
    chance = _at_least(len(copied), n, len(copied) + len(by_nature), n + others)
    blatant = bool((samples.distances[:, 0] < COPY * least).any())
    return {
        "n": n,
        "ratio": _quantiles(samples.distances[:, 0] / usual),
        "held_out_ratio": _quantiles(held_out.distances[:, 0] / usual),
        "held_out_distance": usual,
        "isolation": _quantiles(isolation(samples)),
        "held_out_isolation": _quantiles(isolation(held_out)),
        "copies": [{"sample": k, "training_image": int(samples.numbers[k, 0])} for k in copied],
        "held_out_copies": len(by_nature),
        "held_out_n": others,
        "chance": chance,
        "alarm": bool(copied) and (blatant or chance < CHANCE),
    }


def isolation(found: Neighbors) -> Tensor:
    """Distance to the nearest over distance to the farthest neighbour found, (Q,); 0 where all of them coincide."""
    return (found.distances[:, 0] / found.distances[:, -1]).nan_to_num(nan=0.0)


def _copies(found: Neighbors, least: float) -> list[int]:
    near = (isolation(found) < COPY) | (found.distances[:, 0] < COPY * least)
    return near.nonzero().flatten().tolist()


def _quantiles(values: Tensor) -> dict[str, float]:
    ordered = values.double().sort().values
    return {f"{q:g}": ordered[round(q * (len(ordered) - 1))].item() for q in QUANTILES}


def _at_least(k: int, n: int, marked: int, total: int) -> float:
    """P(X ≥ k), X of the marked ones among n that are drawn from `total`: the hypergeometric tail."""

    def ways(a: int, b: int) -> float:
        return math.lgamma(a + 1) - math.lgamma(b + 1) - math.lgamma(a - b + 1)

    tail = range(max(k, n + marked - total), min(n, marked) + 1)
    return min(1.0, sum(math.exp(ways(marked, i) + ways(total - marked, n - i) - ways(total, n)) for i in tail))
