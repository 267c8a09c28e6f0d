"""What goes wrong when sampling, and what is said then."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from scorefield import GaussianMixture, annealed_langevin, geometric, langevin, last

SIGMAS = [2.0, 1.0, 0.5]


def ones(x: Tensor, sigma: Tensor) -> Tensor:
    return torch.ones_like(x)


def test_divergence_names_the_level_the_step_size_and_the_cure() -> None:
    """The main text's ladder for Fig. 3 and ε = 0.1: α₁ = 1000 is over 4σ₁² = 400, while ε < 4σ_L² = 0.04 is safe."""
    mixture = GaussianMixture([[-5.0, -5.0], [5.0, 5.0]], 0.0, [1, 4])
    x, sigmas = 16 * torch.rand(50, 2) - 8, geometric(10, 0.1, 10)
    with pytest.warns(UserWarning, match="step_size 0.1 is not below 4σ² = 0.04"):
        states = annealed_langevin(mixture.score, x, sigmas, step_size=0.1, steps=200)
    with pytest.raises(FloatingPointError) as error:
        last(states)
    for words in ("level 1 of 10", "sigma 10", "step size 1000", "step_size < 0.04"):
        assert words in str(error.value)
    assert last(annealed_langevin(mixture.score, x, sigmas, step_size=0.039, steps=200)).isfinite().all()


def test_the_error_counts_steps_within_the_level_and_knows_the_bound() -> None:
    """s = −x/σ², of points at 0, is stable below 4σ²: α = 3σ² goes through. A break at level 2, step 3 is named so."""
    calls = []

    def score(x: Tensor, sigma: Tensor) -> Tensor:
        calls.append(1)
        return -x / sigma**2 if len(calls) != 7 else x / 0

    x = torch.ones(2, 2)
    last(annealed_langevin(lambda x, sigma: -x / sigma**2, x, SIGMAS, step_size=0.75, steps=50))
    with pytest.raises(FloatingPointError, match=r"level 2 of 3: sigma 1, step size 0\.4, step 3"):
        last(annealed_langevin(score, x, SIGMAS, step_size=0.1, steps=4))


def test_a_score_that_breaks_at_the_final_denoising_is_caught() -> None:
    calls = []

    def score(x: Tensor, sigma: Tensor) -> Tensor:
        calls.append(1)
        return -x if len(calls) < 3 else x * math.nan

    with pytest.raises(FloatingPointError, match="diverged at the final denoising"):
        last(langevin(score, torch.ones(2, 2), 1.0, step_size=0.1, steps=2, denoise=True))


def test_no_state_that_is_not_finite_is_ever_yielded() -> None:
    finite: list[bool] = []
    states = langevin(lambda x, sigma: -x, torch.ones(2, 2), 0.0, step_size=100.0, steps=100)
    with pytest.raises(FloatingPointError, match=r"level 1 of 1: .*step size 100"):
        finite.extend(bool(state.x.isfinite().all()) for state in states)
    assert len(finite) > 10
    assert all(finite)


def test_a_score_that_overflows_because_x_does_is_not_blamed() -> None:
    with pytest.raises(FloatingPointError, match=r"pass a smaller step_size; 0\.1 is worth a try"):
        last(langevin(lambda x, sigma: -(x**3), 10 * torch.ones(2, 2), 0.0, step_size=1.0, steps=20))


def test_a_score_that_breaks_is_named_as_the_cause() -> None:
    def score(x: Tensor, sigma: Tensor) -> Tensor:
        return -x if sigma > 0.7 else x * math.nan

    with pytest.raises(FloatingPointError, match=r"level 3 of 3.*score itself returned NaN"):
        last(annealed_langevin(score, torch.ones(2, 2), SIGMAS, step_size=0.01, steps=5))


@pytest.mark.parametrize("step_size", [0.0, -1.0, math.nan, math.inf])
def test_an_impossible_step_size_is_refused(step_size: float) -> None:
    with pytest.raises(ValueError, match="step_size must be positive and finite"):
        langevin(ones, torch.zeros(1, 2), 1.0, step_size=step_size, steps=1)
    with pytest.raises(ValueError, match="step_size must be positive and finite"):
        annealed_langevin(ones, torch.zeros(1, 2), SIGMAS, step_size=step_size, steps=1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: annealed_langevin(ones, x, [0.5, 1.0, 2.0], step_size=0.1, steps=1), "flip them"),
        (lambda x: annealed_langevin(ones, x, [1.0, 1.0], step_size=0.1, steps=1), "sigmas must decrease"),
        (lambda x: annealed_langevin(ones, x, torch.tensor([2, 1]), step_size=0.1, steps=1), "floating point"),
        (lambda x: annealed_langevin(ones, x, SIGMAS, step_size=0.1, steps=0), "steps must be a whole number"),
        (lambda x: annealed_langevin(ones, x.byte(), SIGMAS, step_size=0.1, steps=1), r"x.float\(\) / 255"),
        (lambda x: langevin(ones, x.byte(), 1.0, step_size=0.1, steps=1), r"x.float\(\) / 255"),
        (lambda x: langevin(ones, x, torch.ones(4), step_size=0.1, steps=1), r"shape \(3,\)"),
        (lambda x: langevin(ones, x, torch.ones(3, 1), step_size=0.1, steps=1), r"shape \(3,\)"),
        (lambda x: langevin(ones, x, -1.0, step_size=0.1, steps=1), "not negative"),
        (lambda x: langevin(ones, x / 0, 1.0, step_size=0.1, steps=1), "before the first step"),
        (lambda x: langevin(ones, x, 1.0, step_size=0.1, steps=2.0), "steps must be a whole number"),  # type: ignore[arg-type]
        (lambda x: langevin(ones, x[:0], 1.0, step_size=0.1, steps=1), "x is empty"),
        (lambda x: langevin(ones, x, 1.0, step_size=0.1, steps=-1), "steps must be a whole number"),
    ],
)
def test_wrong_calls_are_refused_at_once(call: Callable[[Tensor], object], message: str) -> None:
    """At the call, not at the first state."""
    with pytest.raises(ValueError, match=message):
        call(torch.zeros(3, 2))


def test_a_score_noise_or_constraint_of_a_wrong_shape_is_refused() -> None:
    """Each of these would broadcast: one score, one noise for all samples."""
    x = torch.zeros(3, 2)
    with pytest.raises(ValueError, match=r"a score must return x's shape, \(3, 2\)"):
        next(langevin(lambda x, sigma: x[:, :1], x, 1.0, step_size=0.1, steps=1))
    with pytest.raises(ValueError, match=r"randn_like must return x's shape, \(3, 2\)"):
        next(langevin(ones, x, 1.0, step_size=0.1, steps=1, randn_like=lambda x: torch.randn(2)))
    with pytest.raises(ValueError, match=r"a constraint must return x's shape, \(3, 2\)"):
        next(langevin(ones, x, 1.0, step_size=0.1, steps=1, constraint=lambda sigma: lambda x: x[:1]))
