"""What all samplers share: the states that they yield, constraints, and checks with clear errors."""

from __future__ import annotations

import math
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from scorefield.noise import RandnLike, as_schedule
from scorefield.score import Score, checked, same_shape

Constraint = Callable[[Tensor], Callable[[Tensor], Tensor]]
"""sigma -> (x -> x): called once per noise level; what it returns is applied after every step of that level."""


class State(NamedTuple):
    """x after `step` updates, and its noise level `sigma` (0 after a final denoising step).

    Step 0 is the start: x as the sampler was given it, and the first noise level.
    """

    x: Tensor
    sigma: Tensor
    step: int
    accepted: Tensor | None = None
    """Which examples the update moved, (B,), after a Metropolis test; None without such a test."""


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
    return check_x(x, sigma)


def check_x(x: Tensor, sigma: Tensor | float) -> Tensor:
    """Check the x and the σ that a sampler starts from. Returns σ."""
    sigma = checked(x, sigma)
    if not x.isfinite().all():
        raise ValueError("x has NaN or infinite entries before the first step (start from finite noise)")
    return sigma


Update = Callable[[Tensor], Tensor]
"""x -> x after one update."""


def score_at(score: Score, x: Tensor, level: Tensor) -> Tensor:
    """s(x, σ) in x's type, after the check of its shape."""
    return same_shape(score(x, level), x).to(x.dtype)


def draw(randn_like: RandnLike, x: Tensor) -> Tensor:
    """z ~ N(0, I), after the check of its shape."""
    return same_shape(randn_like(x), x, "randn_like")


def path_from(x: Tensor, sigmas: Tensor | Sequence[float]) -> tuple[Tensor, list[float]]:
    """The noise levels that a sampler visits, on x's device and as numbers, after the checks of x and of them.

    They decrease, and the last may be 0.
    """
    if not isinstance(sigmas, Tensor):
        sigmas = torch.tensor(sigmas, dtype=torch.float64 if x.dtype == torch.float64 else torch.get_default_dtype())
    if sigmas.ndim != 1 or len(sigmas) < 2:
        raise ValueError(f"sigmas must be a list of at least two noise levels; got shape {tuple(sigmas.shape)}")
    ends_at_zero = bool(sigmas[-1] == 0)
    as_schedule(sigmas[:-1] if ends_at_zero else sigmas)
    check_x(x, sigmas[0])
    return sigmas.to(x.device), sigmas.tolist()


@torch.no_grad()
def walk(x: Tensor, sigmas: Tensor, plan: Iterable[tuple[Update, int]], constraint: Constraint) -> Iterator[State]:
    """The states of a sampler that makes these updates, each with the index of the noise level to which it leads.

    The constraint holds from the first update on: it is made anew at each change of the noise level.
    """
    yield State(x, sigmas[0], 0)
    at, constrain = 0, constraint(sigmas[0])
    x = same_shape(constrain(x), x, "a constraint")
    for step, (update, level) in enumerate(plan, 1):
        before, x = x, update(x)
        if level != at:
            at, constrain = level, constraint(sigmas[level])
        x = same_shape(constrain(x), x, "a constraint")
        if not x.isfinite().all():
            raise lost(before, step, sigmas[level].item())
        yield State(x, sigmas[level], step)


def lost(before: Tensor, step: int, sigma: float) -> FloatingPointError:
    """The error for a state that is not finite."""
    huge = bool(before.abs().max() > 1e6)
    cure = (
        "x had grown without bound: take more steps, or smaller ones"
        if huge
        else "the score itself returned NaN or infinity: check the model, or its precision"
    )
    return FloatingPointError(f"diverged at step {step}, sigma {sigma:g}: x is not finite ({cure})")


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
