"""Whether samples are copies of training images."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from scorefield.metrics.neighbors import Neighbors

COPY = 1 / 3
"""An image whose nearest neighbour is so much nearer than its farthest of those found is called a copy of it."""
CHANCE = 0.05
"""The alarm is raised where so many copies among samples, at the held-out images' rate, are less likely than this."""
QUANTILES = (0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


def memorisation(samples: Neighbors, held_out: Neighbors) -> dict[str, Any]:
    """How near samples lie to the training images, against held-out images, which nobody can have copied.

    `ratio`: a sample's distance to its nearest training image, over the median of the held-out images' distances. 1 is
    as it should be. `isolation`: that distance over the one to the farthest neighbour found, the 50th say. It is small
    for copies alone, while the distance itself is small for any smooth image too.

    Training sets have near duplicates in their test sets (CIFAR-10 is known for it), so a held-out image may be called
    a copy: the alarm compares rates.
    """
    usual = held_out.distances[:, 0].median().item()
    copied, by_nature = _copies(samples), _copies(held_out)
    rate = (len(by_nature) + 0.5) / (len(held_out.distances) + 1)
    chance = _at_least(len(copied), len(samples.distances), rate)
    return {
        "n": len(samples.distances),
        "ratio": _quantiles(samples.distances[:, 0] / usual),
        "held_out_ratio": _quantiles(held_out.distances[:, 0] / usual),
        "held_out_distance": usual,
        "isolation": _quantiles(isolation(samples)),
        "held_out_isolation": _quantiles(isolation(held_out)),
        "copies": [{"sample": k, "training_image": int(samples.numbers[k, 0])} for k in copied],
        "held_out_copies": len(by_nature),
        "held_out_n": len(held_out.distances),
        "chance": chance,
        "alarm": bool(copied) and chance < CHANCE,
    }


def isolation(found: Neighbors) -> Tensor:
    """Distance to the nearest over distance to the farthest neighbour found, (Q,); 0 where all of them coincide."""
    return (found.distances[:, 0] / found.distances[:, -1]).nan_to_num(nan=0.0)


def _copies(found: Neighbors) -> list[int]:
    return (isolation(found) < COPY).nonzero().flatten().tolist()


def _quantiles(values: Tensor) -> dict[str, float]:
    ordered = values.double().sort().values
    return {f"{q:g}": ordered[round(q * (len(ordered) - 1))].item() for q in QUANTILES}


def _at_least(k: int, n: int, p: float) -> float:
    """P(X ≥ k) of X ~ Binomial(n, p)."""
    if k == 0 or p >= 1:
        return 1.0
    ways = (math.lgamma(n + 1) - math.lgamma(i + 1) - math.lgamma(n - i + 1) for i in range(k))
    fewer = sum(math.exp(w + i * math.log(p) + (n - i) * math.log1p(-p)) for i, w in enumerate(ways))
    return max(0.0, 1.0 - fewer)
