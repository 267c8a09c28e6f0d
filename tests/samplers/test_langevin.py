"""Langevin dynamics at one noise level and annealed over many: updates, laws, and errors."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from scorefield import (
    GaussianMixture,
    SampleNoise,
    Score,
    State,
    annealed_langevin,
    denoised,
    from_energy,
    geometric,
    known_pixels,
    langevin,
    last,
)
from scorefield.networks import MLP

SIGMAS = [2.0, 1.0, 0.5]


def ones(x: Tensor, sigma: Tensor) -> Tensor:
    return torch.ones_like(x)


# ---------------------------------------------------------------- the updates themselves


@given(shape=st.lists(st.integers(1, 4), min_size=1, max_size=4), step_size=st.floats(1e-6, 1), seed=st.integers(0, 99))
def test_without_noise_a_step_is_exactly_x_plus_half_alpha_s(shape: list[int], step_size: float, seed: int) -> None:
    torch.manual_seed(seed)
    mixture = GaussianMixture(torch.randn(2, *shape[1:] or [1]), 1.0, [1, 4])
    x = torch.randn(shape[0], *shape[1:] or [1])
    start, state = langevin(mixture.score, x, 0.6, step_size=step_size, steps=1, randn_like=torch.zeros_like)
    assert start.x is x
    assert torch.equal(state.x, x + step_size / 2 * mixture.score(x, torch.tensor(0.6)))


def test_without_score_a_step_is_exactly_the_noise() -> None:
    x = torch.randn(3, 2)
    states = langevin(lambda x, sigma: torch.zeros_like(x), x, 1.0, step_size=0.25, steps=4, randn_like=torch.ones_like)
    assert torch.equal(last(states), x + 4 * 0.5)


def test_annealing_scales_the_step_with_the_square_of_sigma() -> None:
    """With s = 1 and no noise, T steps at each level move x by T/2 Σ αᵢ, αᵢ = ε (σᵢ/σ_L)² = ε (16, 4, 1)."""
    x = torch.zeros(2, 3)
    states = list(annealed_langevin(ones, x, SIGMAS, step_size=0.5, steps=2, randn_like=torch.zeros_like))
    assert [(s.x[0, 0].item(), s.sigma.item(), s.step) for s in states] == [
        (0.0, 2.0, 0),
        (4.0, 2.0, 1),
        (8.0, 2.0, 2),
        (9.0, 1.0, 3),
        (10.0, 1.0, 4),
        (10.25, 0.5, 5),
        (10.5, 0.5, 6),
    ]


@pytest.mark.parametrize("denoise", [False, True])
def test_the_first_state_is_the_start_itself(denoise: bool) -> None:
    """Not constrained, at the first noise level, and before any call of the score."""
    x, sigma = torch.randn(3, 2), torch.tensor([1.0, 2.0, 3.0])

    def never(x: Tensor, sigma: Tensor) -> Tensor:
        raise AssertionError("the score was called")

    zero = known_pixels(torch.zeros(3, 2), torch.tensor([1, 1]))
    plain = next(langevin(never, x, sigma, step_size=0.01, steps=2, constraint=zero, denoise=denoise))
    annealed = next(annealed_langevin(never, x, SIGMAS, step_size=0.01, steps=2, constraint=zero, denoise=denoise))
    assert plain.x is annealed.x is x
    assert plain.step == annealed.step == 0
    assert torch.equal(plain.sigma, sigma)
    assert annealed.sigma.item() == 2.0


@pytest.mark.parametrize("denoise", [False, True])
def test_steps_are_numbered_from_0_without_a_gap(denoise: bool) -> None:
    states = list(annealed_langevin(ones, torch.zeros(1, 2), SIGMAS, step_size=0.01, steps=4, denoise=denoise))
    assert [state.step for state in states] == list(range(13 + denoise))


def test_the_score_is_asked_at_the_sigma_of_each_level() -> None:
    asked = []

    def score(x: Tensor, sigma: Tensor) -> Tensor:
        asked.append(sigma.item())
        return -x

    last(annealed_langevin(score, torch.zeros(1, 2), SIGMAS, step_size=0.01, steps=2))
    assert asked == [2.0, 2.0, 1.0, 1.0, 0.5, 0.5]


@pytest.mark.parametrize("sampler", ["langevin", "annealed"])
def test_a_final_denoising_step_on_request(sampler: str) -> None:
    mixture, x = GaussianMixture([[0.0], [2.0]], 0.1, [1, 4]), torch.randn(5, 1)

    def states(denoise: bool) -> list[State]:
        randn_like = SampleNoise(range(5)).randn_like
        if sampler == "langevin":
            run = langevin(mixture.score, x, 0.5, step_size=0.01, steps=3, randn_like=randn_like, denoise=denoise)
        else:
            run = annealed_langevin(
                mixture.score, x, SIGMAS, step_size=0.01, steps=3, randn_like=randn_like, denoise=denoise
            )
        return list(run)

    plain, finished = states(denoise=False), states(denoise=True)
    assert len(finished) == len(plain) + 1
    assert torch.equal(finished[-2].x, plain[-1].x)
    assert torch.equal(finished[-1].x, denoised(mixture.score, plain[-1].x, 0.5))
    assert (finished[-1].sigma.item(), finished[-1].step) == (0.0, plain[-1].step + 1)


# ---------------------------------------------------------------- the laws they sample


@pytest.mark.parametrize(("v", "alpha"), [(1.0, 0.1), (1.0, 1.0), (0.25, 0.4)])
def test_stationary_variance_of_langevin_dynamics(v: float, alpha: float) -> None:
    """On N(0, v):  x ← (1 − α/2v) x + √α z  settles at variance v/(1 − α/(4v))."""
    n = 40_000
    gaussian = GaussianMixture([[0.0]], math.sqrt(v), [1.0])
    steps = math.ceil(10 / -math.log(abs(1 - alpha / (2 * v)))) if alpha != 2 * v else 1
    x = last(langevin(gaussian.score, 3 * torch.randn(n, 1), 0.0, step_size=alpha, steps=steps)).double()
    expected = v / (1 - alpha / (4 * v))
    assert abs(x.var() / expected - 1) < 4.5 * math.sqrt(2 / n)
    assert abs(x.mean()) < 4.5 * math.sqrt(expected / n)


def test_the_variance_of_annealed_langevin_dynamics_at_every_step() -> None:
    """On N(0, v) the variance follows V ← (1 − αᵢ/2(v + σᵢ²))² V + αᵢ, level after level."""
    n, v, epsilon, variance = 40_000, 0.3, 0.05, 4.0
    gaussian = GaussianMixture([[0.0]], math.sqrt(v), [1.0])
    x = 2 * torch.randn(n, 1)
    start, *states = annealed_langevin(gaussian.score, x, SIGMAS, step_size=epsilon, steps=5)
    assert start.x is x
    for state in states:
        sigma = state.sigma.item()
        alpha = epsilon * (sigma / 0.5) ** 2
        variance = (1 - alpha / 2 / (v + sigma**2)) ** 2 * variance + alpha
        assert abs(state.x.double().var() / variance - 1) < 4.5 * math.sqrt(2 / n)


def test_langevin_dynamics_samples_an_energy() -> None:
    """Uniform start, E = ½(x − 1)²/v: mean 1 and variance v/(1 − α/(4v))."""
    v, alpha, n = 0.5, 0.1, 20_000
    score = from_energy(lambda x, sigma: (x - 1).square().sum(1) / (2 * v))
    x = last(langevin(score, torch.rand(n, 1), 0.0, step_size=alpha, steps=100)).double()
    expected = v / (1 - alpha / (4 * v))
    assert abs(x.mean() - 1) < 4.5 * math.sqrt(expected / n)
    assert abs(x.var() / expected - 1) < 4.5 * math.sqrt(2 / n)


def test_a_sigma_for_each_sample() -> None:
    """Row by row what each σ gives alone, with noise, known entries and the final denoising."""
    mixture = GaussianMixture([[-1.0, 0.0], [1.0, 2.0]], 0.3, [1, 3])
    sigma, x, y = torch.tensor([0.4, 0.8, 1.6]), torch.randn(3, 2), torch.full((3, 2), 0.25)

    def run(rows: slice) -> list[Tensor]:
        noise = SampleNoise(range(3)[rows])
        known = known_pixels(y[rows], torch.tensor([1, 0]), randn_like=noise.randn_like)
        states = langevin(
            mixture.score,
            x[rows],
            sigma[rows],
            step_size=0.1,
            steps=3,
            constraint=known,
            randn_like=noise.randn_like,
            denoise=True,
        )
        return [state.x for state in states]

    together = run(slice(0, 3))
    for k in range(3):
        for whole, alone in zip(together, run(slice(k, k + 1)), strict=True):
            torch.testing.assert_close(whole[k], alone[0])


# ---------------------------------------------------------------- how they behave as generators


def test_nothing_is_computed_before_it_is_asked_for() -> None:
    calls = []

    def score(x: Tensor, sigma: Tensor) -> Tensor:
        calls.append(1)
        return -x

    states = langevin(score, torch.zeros(1, 2), 1.0, step_size=0.1, steps=1000)
    assert len(calls) == 0
    next(states)  # the start
    assert len(calls) == 0
    next(states)
    next(states)
    assert len(calls) == 2


def test_the_callers_gradients_stay_on_while_a_sampler_runs() -> None:
    network, x = MLP(width=4), torch.zeros(1, 2)
    for state in langevin(network, x, 1.0, step_size=0.1, steps=2):
        assert torch.is_grad_enabled()
        assert not state.x.requires_grad


def test_states_do_not_change_after_they_were_yielded() -> None:
    start = torch.zeros(1, 2)
    states = list(langevin(ones, start, 1.0, step_size=2.0, steps=3, randn_like=torch.zeros_like))
    assert [s.x[0, 0].item() for s in states] == [0.0, 1.0, 2.0, 3.0]
    assert torch.equal(start, torch.zeros(1, 2))


def test_x_keeps_its_precision_whatever_the_scores_is() -> None:
    def in_type(kind: torch.dtype) -> Score:
        return lambda x, sigma: -x.to(kind)

    for kind in (torch.bfloat16, torch.float64):
        x = last(langevin(in_type(kind), torch.ones(2, 2), 1.0, step_size=0.1, steps=2))
        assert x.dtype == torch.float32


def test_last_of_nothing_is_an_error() -> None:
    states = langevin(ones, torch.zeros(1, 2), 1.0, step_size=0.1, steps=2)
    last(states)
    with pytest.raises(ValueError, match="used up"):
        last(states)


@given(cuts=st.lists(st.integers(1, 7), max_size=3, unique=True))
def test_a_seed_gives_the_same_sample_in_any_batch(cuts: list[int]) -> None:
    """Annealed, with known pixels, over images: eight samples at once, and in batches of any sizes."""
    means = torch.randn(3, 2, 3, 3, generator=torch.Generator().manual_seed(0))
    mixture = GaussianMixture(means, 0.3, [1, 2, 3])

    def samples(seeds: range) -> Tensor:
        noise = SampleNoise(seeds)
        x = noise.rand_like(torch.empty(len(seeds), 2, 3, 3))
        known = known_pixels(torch.full_like(x, 0.5), torch.eye(3), randn_like=noise.randn_like)
        return last(
            annealed_langevin(
                mixture.score, x, SIGMAS, step_size=0.05, steps=4, constraint=known, randn_like=noise.randn_like
            )
        )

    edges = [0, *sorted(cuts), 8]
    parts = [samples(range(a, b)) for a, b in pairwise(edges)]
    torch.testing.assert_close(torch.cat(parts), samples(range(8)), rtol=1e-5, atol=1e-5)


# ---------------------------------------------------------------- what goes wrong, and what the errors say


def test_divergence_names_the_level_the_step_size_and_the_cure() -> None:
    """The main text's schedule for Fig. 3 and ε = 0.1: α₁ = 1000 is over 4σ₁² = 400, while ε < 4σ_L² = 0.04 is safe."""
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


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("at", [1, 2, 3])
def test_one_entry_that_is_not_finite_is_enough(at: int, value: float) -> None:
    """In the first step, the second, and the final denoising; the score is named as the cause, and precision a cure."""
    calls = []

    def score(x: Tensor, sigma: Tensor) -> Tensor:
        calls.append(1)
        s = -x
        s[1, 0] = value if len(calls) == at else s[1, 0]
        return s

    states = langevin(score, torch.ones(2, 2), 1.0, step_size=0.1, steps=2, denoise=True)
    with pytest.raises(FloatingPointError, match=r"score itself returned NaN or infinity.*--precision float32"):
        last(states)
    assert len(calls) == at


def test_noise_that_is_not_finite_is_not_blamed_on_the_score() -> None:
    def noise(x: Tensor) -> Tensor:
        return torch.tensor([[0.0, math.inf]])

    with pytest.raises(FloatingPointError, match="pass a smaller step_size"):
        last(langevin(ones, torch.ones(1, 2), 1.0, step_size=0.1, steps=1, randn_like=noise))


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

    for size in (1, 1e5):  # a large x is no excuse yet
        with pytest.raises(FloatingPointError, match=r"level 3 of 3.*score itself returned NaN"):
            last(annealed_langevin(score, size * torch.ones(2, 2), SIGMAS, step_size=0.01, steps=5))


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
        (lambda x: langevin(ones, x + torch.tensor([0, math.nan]), 1.0, step_size=0.1, steps=1), "before the first"),
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
        last(langevin(lambda x, sigma: x[:, :1], x, 1.0, step_size=0.1, steps=1))
    with pytest.raises(ValueError, match=r"randn_like must return x's shape, \(3, 2\)"):
        last(langevin(ones, x, 1.0, step_size=0.1, steps=1, randn_like=lambda x: torch.randn(2)))
    with pytest.raises(ValueError, match=r"a constraint must return x's shape, \(3, 2\)"):
        last(langevin(ones, x, 1.0, step_size=0.1, steps=1, constraint=lambda sigma: lambda x: x[:1]))
