"""Checks of the samplers' settings, for their functions and for their settings classes. They need no PyTorch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

MOST_CALLS = 100_000
"""The largest number of network calls per image."""


def check_count(name: str, value: int, *, least: int = 1, most: float = math.inf) -> None:
    """Raise an error unless the value is a whole number from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        bounds = f"from {least} on" if most == math.inf else f"from {least} to {most:,}"
        raise ValueError(f"{name} must be a whole number {bounds}; got {value!r}")


def check_calls(calls: int) -> None:
    """Raise an error for a number of network calls that no sampler makes."""
    check_count("calls", calls, most=MOST_CALLS)


def check_churn(churn: float, churn_min: float, churn_max: float, churn_noise: float) -> None:
    """Raise an error for settings that Algorithm 2 of Karras et al. (2022) cannot have."""
    if not 0 <= churn < math.inf or not 0 <= churn_noise < math.inf:
        raise ValueError(
            f"churn and churn_noise must be finite and not negative; got {churn} and {churn_noise} (0: no fresh noise)"
        )
    if not churn_min <= churn_max:
        raise ValueError(f"churn_min must not exceed churn_max; got {churn_min} and {churn_max} (swap them)")


def check_order(order: int) -> None:
    """Raise an error for an order that `adams_bashforth` does not have."""
    if isinstance(order, bool) or order not in (1, 2, 3, 4):
        raise ValueError(f"order must be 1, 2, 3 or 4; got {order}")


def check_fresh(eta: float) -> None:
    """Raise an error for a share of fresh noise that `ancestral` cannot have."""
    if not 0 <= eta <= 1:
        raise ValueError(f"eta must be from 0 (no fresh noise) to 1 (all of it); got {eta}")


def check_taken(eta: float, sigmas: Sequence[float]) -> None:
    """Raise an error for an η of `consistent_annealed` that leaves more noise than one of these levels has."""
    most = 1 + min((b / a for a, b in pairwise(sigmas) if b), default=1.0)
    if not 0 < eta <= most:
        raise ValueError(f"eta must be positive and at most 1 + σᵢ₊₁/σᵢ = {most:g}; got {eta} (1 is always possible)")


def check_corrector(snr: float, norms: str) -> None:
    """Raise an error for settings that the corrector of `predictor_corrector` cannot have."""
    if not 0 < snr < math.inf:
        raise ValueError(f"snr must be positive and finite; got {snr} (Song et al. use 0.16 for CIFAR-10)")
    if norms not in ("expected", "measured"):
        raise ValueError(f"norms must be expected or measured; got {norms!r}")


def check_leapfrog_size(name: str, size: float) -> None:
    """Raise an error for leapfrog steps that diverge."""
    if not 0 < size < 2:
        raise ValueError(f"{name} must be positive and below 2, where leapfrog steps diverge; got {size}")
