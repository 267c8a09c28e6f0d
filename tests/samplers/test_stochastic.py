"""The stochastic samplers on a Gaussian: mean and variance after every step, propagated without random numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from scorefield import (
    GaussianMixture,
    State,
    ancestral,
    consistent_annealed,
    euler,
    heun,
    known_pixels,
    last,
    predictor_corrector,
)

MEAN, VARIANCE = 0.7, 0.36
Moments = tuple[float, float]


def score(x: Tensor, sigma: Tensor) -> Tensor:
    return (MEAN - x) / (VARIANCE + sigma.square())


def measured(sampler: Callable[..., Iterator[State]], start: Moments, **settings: Any) -> list[Moments]:  # noqa: ANN401
    """Mean and variance after each step of x ~ N(start).

    With a linear score the state is A x₀ + B + Σ Cⱼ zⱼ. One run gives all coefficients: example 0 has x₀ = 0 and no
    noise, example 1 has x₀ = 1, and example 2 + j has the draw zⱼ = 1 alone.
    """
    draws, n = 0, 60

    def randn_like(x: Tensor) -> Tensor:
        nonlocal draws
        draws += 1
        return torch.eye(n, dtype=x.dtype)[:, draws + 1 : draws + 2]

    x = torch.eye(n, dtype=torch.float64)[:, 1:2]
    found = []
    for state in sampler(score, x, randn_like=randn_like, **settings):
        b = state.x[0].item()
        a, *c = (state.x[1:, 0] - b).tolist()
        found.append((a * start[0] + b, a**2 * start[1] + sum(each**2 for each in c)))
    assert draws < n - 2
    return found


def step(moments: Moments, sigma: float, taken: float, fresh: float) -> Moments:
    """x ← x + taken σ² s + fresh z  from N(m, v):  m + k (μ − m) and (1 − k)² v + fresh²,  k = taken σ²/(s² + σ²)."""
    (m, v), k = moments, taken * sigma**2 / (VARIANCE + sigma**2)
    return m + k * (MEAN - m), (1 - k) ** 2 * v + fresh**2


PATHS = [[5.0, 2.0, 1.0, 0.3, 0.0], [20.0, 0.5], [1.0, 0.9, 0.8, 0.7, 0.0]]
START = (0.5, 30.0)


@pytest.mark.parametrize("sigmas", PATHS)
@pytest.mark.parametrize("eta", [1.0, 0.4])
def test_ancestral(sigmas: list[float], eta: float) -> None:
    expected = [START]
    for now, after in pairwise(sigmas):
        up = eta * after * math.sqrt(1 - (after / now) ** 2)
        down = math.sqrt(after**2 - up**2)
        expected.append(step(expected[-1], now, 1 - down / now, up))
    np.testing.assert_allclose(measured(ancestral, START, sigmas=sigmas, eta=eta), expected, rtol=1e-12)


def test_ancestral_with_eta_1_draws_from_the_posterior() -> None:
    """q(x_σ' | x_σ, x₀): mean x₀ + (σ'²/σ²)(x − x₀), variance σ'²(σ² − σ'²)/σ². With x₀ known the chain keeps q_σ."""
    x0 = 0.3

    def point(x: Tensor, sigma: Tensor) -> Tensor:
        return (x0 - x) / sigma.square()

    (_, state) = ancestral(point, torch.tensor([[2.3]]), [2.0, 1.0], randn_like=torch.ones_like)
    assert state.x.item() == pytest.approx(x0 + 2.0 / 4 + math.sqrt(1 * 3 / 4))


def test_ancestral_without_fresh_noise_is_euler() -> None:
    mixture = GaussianMixture([[0.0, 1.0], [2.0, -1.0]], 0.5, [1, 1])
    x = 5 * torch.ones(3, 2)
    sigmas = [5.0, 2.0, 1.0, 0.0]
    torch.testing.assert_close(last(ancestral(mixture.score, x, sigmas, eta=0)), last(euler(mixture.score, x, sigmas)))


@pytest.mark.parametrize("sigmas", PATHS)
def test_reverse_diffusion_predictor(sigmas: list[float]) -> None:
    expected = [START]
    for now, after in pairwise(sigmas):
        variance = now**2 - after**2
        expected.append(step(expected[-1], now, variance / now**2, math.sqrt(variance) if after else 0))
    found = measured(predictor_corrector, START, sigmas=sigmas, corrections=0)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("sigmas", PATHS)
@pytest.mark.parametrize(("corrections", "snr"), [(1, 0.16), (3, 0.1), (2, 0.3)])
def test_predictor_and_corrector(sigmas: list[float], corrections: int, snr: float) -> None:
    """ε = 2 (r σ)², so that x ← x + 2r² σ² s + 2rσ z."""
    expected = [START]
    for now, after in pairwise(sigmas):
        for _ in range(corrections):
            expected.append(step(expected[-1], now, 2 * snr**2, 2 * snr * now))
        variance = now**2 - after**2
        expected.append(step(expected[-1], now, variance / now**2, math.sqrt(variance) if after else 0))
    found = measured(predictor_corrector, START, sigmas=sigmas, corrections=corrections, snr=snr)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_corrector_formula() -> None:
    """One example in numbers: z = (3, 4), s = (0, 2): ε = 2 (0.5 · 5/2)² = 3.125; then the denoising step."""
    x, z, s = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0]]), torch.tensor([[0.0, 2.0]])
    _, corrected, _ = predictor_corrector(
        lambda x, sigma: s, x, [2.0, 0.0], corrections=1, snr=0.5, norms="measured", randn_like=lambda x: z
    )
    assert corrected.x.tolist() == [[pytest.approx(1 + 2.5 * 3), pytest.approx(2 + 3.125 * 2 + 2.5 * 4)]]
    assert corrected.sigma == 2
    assert corrected.step == 1


@pytest.mark.parametrize(("corrections", "snr"), [(1, 0.16), (3, 0.1), (2, 0.3)])
def test_measured_norms_in_many_dimensions(corrections: int, snr: float) -> None:
    """In d dimensions |z|²/d and |s|²/d are their means but for 1/√d, so that ε is known. Five standard errors."""
    d, sigmas = 40_000, [5.0, 2.0, 1.0, 0.0]
    generator = torch.Generator().manual_seed(1)

    def randn_like(x: Tensor) -> Tensor:
        return torch.randn(x.shape, generator=generator, dtype=x.dtype)

    moments = START
    x = START[0] + math.sqrt(START[1]) * randn_like(torch.empty(1, d, dtype=torch.float64))
    expected: list[Moments] = [moments]
    for now, after in pairwise(sigmas):
        for _ in range(corrections):
            m, v = moments
            squared = (v + (m - MEAN) ** 2) / (VARIANCE + now**2) ** 2
            epsilon = 2 * snr**2 / squared
            moments = step(moments, now, epsilon / now**2, math.sqrt(2 * epsilon))
            expected.append(moments)
        variance = now**2 - after**2
        moments = step(moments, now, variance / now**2, math.sqrt(variance) if after else 0)
        expected.append(moments)
    states = list(
        predictor_corrector(score, x, sigmas, corrections=corrections, snr=snr, norms="measured", randn_like=randn_like)
    )
    assert len(states) == len(expected)
    for state, (m, v) in zip(states, expected, strict=True):
        assert state.x.mean().item() == pytest.approx(m, abs=5 * math.sqrt(v / d))
        assert state.x.var().item() == pytest.approx(v, rel=5 * math.sqrt(2 / d) * (1 + corrections))


def test_a_vanishing_score_does_not_make_the_step_infinite() -> None:
    """ε is at most σ²: x + √(2σ²) z."""
    _, corrected, _ = predictor_corrector(
        lambda x, sigma: torch.zeros_like(x),
        torch.zeros(1, 2),
        [3.0, 0.0],
        norms="measured",
        randn_like=torch.ones_like,
    )
    assert corrected.x.tolist() == [[pytest.approx(3 * math.sqrt(2))] * 2]


def test_norms_are_those_of_each_example() -> None:
    """An example comes out the same whatever stands beside it in the batch."""
    mixture = GaussianMixture([[0.0, 1.0], [2.0, -1.0]], 0.5, [1, 1])
    x = torch.tensor([[4.0, 1.0], [-30.0, 7.0]])

    def run(x: Tensor) -> Tensor:
        return last(
            predictor_corrector(mixture.score, x, [5.0, 1.0, 0.0], norms="measured", randn_like=torch.ones_like)
        )

    torch.testing.assert_close(run(x)[:1], run(x[:1]))


@pytest.mark.parametrize("sigmas", PATHS)
@pytest.mark.parametrize(("eta", "steps"), [(0.8, 1), (0.3, 3), (1.0, 2)])
def test_consistent_annealed(sigmas: list[float], eta: float, steps: int) -> None:
    expected = [START]
    for now, after in pairwise(sigmas):
        for next_ in [now] * (steps - 1) + [after]:
            taken = 1.0 if next_ == 0 else max(eta, 1 - next_ / now)
            fresh = math.sqrt(max(next_**2 - ((1 - taken) * now) ** 2, 0))
            expected.append(step(expected[-1], now, taken, fresh))
    found = measured(consistent_annealed, START, sigmas=sigmas, eta=eta, steps=steps)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_consistent_annealed_leaves_just_the_noise_of_its_level() -> None:
    """For a single point as data, x has variance σᵢ² at every level. Annealed Langevin dynamics has more."""

    def point(x: Tensor, sigma: Tensor) -> Tensor:
        return -x / sigma.square()

    sigmas, draws = [2.0, 1.5, 1.0, 0.6], 0

    def randn_like(x: Tensor) -> Tensor:
        nonlocal draws
        draws += 1
        return torch.eye(8, dtype=x.dtype)[:, draws : draws + 1]

    x = 2 * torch.eye(8, dtype=torch.float64)[:, :1]
    states = consistent_annealed(point, x, sigmas, eta=0.45, steps=2, randn_like=randn_like)
    assert [s.x.square().sum().item() for s in states] == pytest.approx([s**2 for s in (2, 2, 1.5, 1.5, 1, 1, 0.6)])


@pytest.mark.parametrize(("churn", "noise"), [(0.4, 1.0), (1.0, 1.01), (9.0, 0.9)])
def test_heun_with_churn(churn: float, noise: float) -> None:
    sigmas = PATHS[0]
    expected = [START]
    gamma = min(churn / 4, math.sqrt(2) - 1)
    for now, after in pairwise(sigmas):
        hat = now * (1 + gamma)
        m, v = expected[-1]
        v += noise**2 * (hat**2 - now**2)
        g, h = hat / (VARIANCE + hat**2), after / (VARIANCE + after**2)  # dx/dσ = g (x − μ), and that at the end
        width = after - hat
        factor = 1 + width * g if after == 0 else 1 + width / 2 * (g + h * (1 + width * g))
        expected.append((MEAN + factor * (m - MEAN), factor**2 * v))
    found = measured(heun, START, sigmas=sigmas, churn=churn, churn_noise=noise)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("sampler", "settings"),
    [(ancestral, {}), (predictor_corrector, {}), (consistent_annealed, {"eta": 0.5, "steps": 2})],
)
def test_known_pixels_and_first_errors(sampler: Callable[..., Iterator[State]], settings: dict[str, Any]) -> None:
    y, mask = torch.full((3, 2), 0.25), torch.tensor([1, 0])
    x = torch.randn(3, 2, generator=torch.Generator().manual_seed(0))
    filled = last(sampler(score, x, [2.0, 1.0, 0.0], constraint=known_pixels(y, mask), **settings))
    assert (filled[:, 0] == 0.25).all()
    assert (filled[:, 1] != 0.25).all()
    with pytest.raises(ValueError, match="sigmas must decrease"):
        sampler(score, x, [1.0, 2.0], **settings)


def test_wrong_settings_are_refused() -> None:
    x = torch.zeros(2, 2)
    with pytest.raises(ValueError, match="eta must be from 0"):
        ancestral(score, x, [1.0, 0.0], eta=1.5)
    with pytest.raises(ValueError, match="corrections must be a whole number from 0"):
        predictor_corrector(score, x, [1.0, 0.0], corrections=-1)
    with pytest.raises(ValueError, match="snr must be positive"):
        predictor_corrector(score, x, [1.0, 0.0], snr=0)
    with pytest.raises(ValueError, match=r"eta must be positive and at most 1 \+ σᵢ₊₁/σᵢ = 1\.25"):
        consistent_annealed(score, x, [2.0, 0.5, 0.0], eta=1.3)
    with pytest.raises(ValueError, match="steps must be a whole number from 1"):
        consistent_annealed(score, x, [1.0, 0.0], eta=0.5, steps=0)
