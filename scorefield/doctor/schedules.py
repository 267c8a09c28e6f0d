"""Settings of annealed Langevin dynamics that follow from the data: the techniques of Song & Ermon (2020).

Steps are measured by η = α/σ², the same at every level: Algorithm 1 has αᵢ = ε σᵢ²/σ_L², so ε = η σ_L².
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from scorefield.spacing import check_geometric

OVERLAP = 0.5
"""The probability mass that neighbouring noise levels share (technique 2)."""
WIDEST = 1.5
"""The largest ratio of neighbouring levels. In few dimensions technique 2 allows any, but chains have to cross between
modes at just those levels whose σ is near their distance, so that there must be some."""
EXCESS = 1.06
"""The most by which the variance of samples may exceed σ² at the end of a level (technique 4): 3 % in σ. The paper's
own settings have 1.053."""
RELAXATIONS = 20.0
"""How often a chain relaxes while σ falls by a factor e. On mixtures the shares of modes are off by about 5 % with 5
relaxations, 3 % with 10, 2 % with 20 and 1 % with 40 (docs/measurements/doctor_weights.json)."""


class AnnealingSettings(NamedTuple):
    """Settings of annealed Langevin dynamics."""

    sigma_max: float
    sigma_min: float
    levels: int
    steps: int
    """T, the number of steps at each level."""
    step_size: float
    """ε, in the paper's form x + ε/2 s + √ε z at the last level."""

    @property
    def calls(self) -> int:
        """Network calls for each sample."""
        return self.levels * self.steps

    @property
    def ratio(self) -> float:
        """γ = σᵢ/σᵢ₊₁."""
        return (self.sigma_max / self.sigma_min) ** (1 / max(1, self.levels - 1))


def overlap(ratio: float, dimension: int) -> float:
    """The mass of level i + 1 among typical samples of level i (technique 2), for γ = σᵢ/σᵢ₊₁ in D dimensions:

    Φ(√(2D)(γ − 1) + 3γ) − Φ(√(2D)(γ − 1) − 3γ)
    """
    middle = math.sqrt(2 * dimension) * (ratio - 1)
    return _normal_cdf(middle + 3 * ratio) - _normal_cdf(middle - 3 * ratio)


def widest_ratio(dimension: int) -> float:
    """The largest ratio γ, at most WIDEST, at which neighbouring levels share OVERLAP of their mass."""
    if overlap(WIDEST, dimension) >= OVERLAP:
        return WIDEST
    return _bisect(lambda ratio: overlap(ratio, dimension) - OVERLAP, 1.0, WIDEST)


def variance_ratio(steps: int, eta: float, ratio: float) -> float:
    """s²/σ² of a chain after T steps at a level, if it came from the level before, where σ was γ times as large, and
    the data are a point (technique 4). A step is x ← (1 − η/2) x + √η σ z, so with v = 1/(1 − η/4)

        s²/σ² = (1 − η/2)^(2T) (γ² − v) + v
    """
    stationary = 1 / (1 - eta / 4)
    return (1 - eta / 2) ** (2 * steps) * (ratio**2 - stationary) + stationary


def relaxations(steps: int, eta: float, ratio: float) -> float:
    """How often a chain relaxes, x ← (1 − η/2) x, while σ falls by a factor e:  T η/(2 ln γ)."""
    return steps * eta / (2 * math.log(ratio))


def advised_schedule(sigma_max: float, sigma_min: float, dimension: int) -> AnnealingSettings:
    """The schedule between these noise levels for data in D dimensions.

    The ratio of its levels is that of technique 2. T is the smallest number of steps, and ε the largest step size, with
    which the variance is right within EXCESS (technique 4) and chains relax RELAXATIONS times in each factor e.
    """
    check_geometric(sigma_max, sigma_min, 2)
    span = math.log(sigma_max / sigma_min)
    levels = 1 + max(1, math.ceil(span / math.log(widest_ratio(dimension))))
    ratio = math.exp(span / (levels - 1))
    steps = 1
    while relaxations(steps, _largest_step(steps, ratio), ratio) < RELAXATIONS:
        steps += 1
    return AnnealingSettings(sigma_max, sigma_min, levels, steps, rounded(_largest_step(steps, ratio) * sigma_min**2))


def _largest_step(steps: int, ratio: float) -> float:
    """The largest η with which the variance is right within EXCESS; 0 if there is none for so few steps."""
    most = 4 * (1 - 1 / EXCESS)  # beyond it even the stationary variance is too large
    return next((eta for k in range(200) if variance_ratio(steps, eta := most * (1 - k / 200), ratio) <= EXCESS), 0.0)


def rounded(value: float, digits: int = 3) -> float:
    """The value with so many significant digits."""
    return float(f"{value:.{digits}g}")


def _normal_cdf(z: float) -> float:
    return math.erfc(-z / math.sqrt(2)) / 2


def _bisect(function: Callable[[float], float], above: float, below: float) -> float:
    """A zero between two points, at the first of which the function is positive, and at the second negative."""
    for _ in range(60):
        middle = (above + below) / 2
        above, below = (middle, below) if function(middle) > 0 else (above, middle)
    return (above + below) / 2
