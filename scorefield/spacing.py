"""Noise schedules as plain numbers, and their checks: what needs no PyTorch."""

from __future__ import annotations

import math


def check_geometric(sigma_max: float, sigma_min: float, levels: int) -> None:
    """Raise an error if no geometric schedule has these ends and this number of levels."""
    if levels < 1:
        raise ValueError(f"levels must be at least 1; got {levels}")
    if not (0 < sigma_min < math.inf and 0 < sigma_max < math.inf):
        raise ValueError(f"sigmas must be positive and finite; got {sigma_max} ... {sigma_min}")
    if levels == 1 and sigma_max != sigma_min:
        raise ValueError(
            f"one level has one sigma; got sigma_max={sigma_max} and sigma_min={sigma_min} (make them equal)"
        )
    if levels > 1 and not sigma_max > sigma_min:
        cure = "swap them" if sigma_max < sigma_min else "or ask for one level"
        raise ValueError(f"sigma_max must exceed sigma_min; got {sigma_max} and {sigma_min} ({cure})")


def check_rho(rho: float) -> None:
    """Raise an error for a ρ that no schedule of Karras et al. has."""
    if not 0 < rho < math.inf:
        raise ValueError(f"rho must be positive and finite; got {rho} (Karras et al. use 7; geometric is its limit)")


def spaced(sigma_max: float, sigma_min: float, levels: int, *, rho: float) -> tuple[float, ...]:
    """Sigmas from sigma_max to sigma_min, both exactly, evenly spaced in σ^(1/ρ); for an infinite ρ, in log σ."""
    check_geometric(sigma_max, sigma_min, levels)
    ramp = [k / max(levels - 1, 1) for k in range(levels)]
    if rho == math.inf:
        sigmas = [sigma_max * (sigma_min / sigma_max) ** r for r in ramp]
    else:
        high, low = sigma_max ** (1 / rho), sigma_min ** (1 / rho)
        sigmas = [(high + r * (low - high)) ** rho for r in ramp]
    return (sigma_max, *sigmas[1:-1], sigma_min)[:levels]
