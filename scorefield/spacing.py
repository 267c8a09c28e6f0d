"""Checks of noise schedules that need no PyTorch."""

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
