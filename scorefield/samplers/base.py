"""What all samplers share: the states that they yield, constraints, and checks with clear errors."""

from __future__ import annotations

import math
import warnings
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from torch import Tensor

from scorefield.score import checked

Constraint = Callable[[Tensor], Callable[[Tensor], Tensor]]
"""sigma -> (x -> x): called once per noise level; what it returns is applied after every step of that level."""


class State(NamedTuple):
    """x after `step` updates, the last of them at noise level `sigma` (0 after a final denoising step).

    Step 0 is the start: x as the sampler was given it, and the first noise level.
    """

    x: Tensor
    sigma: Tensor
    step: int


def unconstrained(sigma: Tensor) -> Callable[[Tensor], Tensor]:
    """The constraint that changes nothing."""
    return lambda x: x


def last(states: Iterable[State]) -> Tensor:
    """x of the last state."""
    final = deque(states, maxlen=1)
    if not final:
        raise ValueError("no states: the sampler was used up already (call it again for a new run)")
    return final[0].x


def check_start(x: Tensor, sigma: Tensor | float, step_size: float, steps: int) -> Tensor:
    """Check what can be checked before the first step. Returns σ."""
    if not 0 < step_size < math.inf:
        raise ValueError(f"step_size must be positive and finite; got {step_size} (the paper's images use 2e-5)")
    if not isinstance(steps, int) or steps < 1:
        raise ValueError(f"steps must be a whole number from 1 on; got {steps} (the paper's images use 100 per level)")
    sigma = checked(x, sigma)
    if not x.isfinite().all():
        raise ValueError("x has NaN or infinite entries before the first step (start from finite noise)")
    return sigma


def instability(sigma: float, step_size: float) -> str | None:
    """A warning for a step size ε that is too large for the last noise level, or None.

    A step multiplies deviations by 1 − ε/(2v), where v ≥ σ² is the variance of q_σ there: they grow where ε > 4v.
    """
    if not step_size >= 4 * sigma**2 > 0:
        return None
    return (
        f"step_size {step_size:g} is not below 4σ² = {4 * sigma**2:g}: Langevin dynamics diverges wherever the data "
        "is not wider than the noise"
    )


def warn_if_unstable(sigma: Tensor, step_size: float) -> None:
    if message := instability(sigma.min().item(), step_size):
        warnings.warn(message, stacklevel=3)
