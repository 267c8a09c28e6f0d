"""The deterministic samplers: orders of convergence, coefficients known by heart, and independent programs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from scorefield import (
    GaussianMixture,
    Score,
    State,
    adams_bashforth,
    denoised,
    dpmpp_2m,
    dpmpp_3m,
    euler,
    heun,
    known_pixels,
    last,
)
from scorefield.samplers.probability_flow import adams_weights

HIGH, LOW = 4.0, 0.1
VARIANCE = 0.25
MIXTURE = GaussianMixture(
    torch.tensor([[-1.0, 0.3], [0.8, -0.5]], dtype=torch.float64),
    torch.tensor([[0.5, 0.7], [0.4, 0.9]], dtype=torch.float64),
    [1.0, 3.0],
)
POINTS = torch.tensor([[3.1, -2.0], [-4.0, 1.7], [0.4, 0.2]], dtype=torch.float64)
METHODS = [
    (euler, {}, 1, 0),
    (heun, {}, 2, 0),
    (dpmpp_2m, {}, 2, 1),
    (dpmpp_3m, {}, 3, 2),
    (adams_bashforth, {"order": 1}, 1, 0),
    (adams_bashforth, {"order": 2}, 2, 1),
    (adams_bashforth, {"order": 3}, 3, 2),
    (adams_bashforth, {"order": 4}, 4, 3),
]
"""Each function with its order, and how many exact values it needs to start with."""
ALL: list[Callable[..., Iterator[State]]] = [euler, heun, dpmpp_2m, dpmpp_3m, adams_bashforth]


def gaussian_score(x: Tensor, sigma: Tensor) -> Tensor:
    return -x / (VARIANCE + sigma.square())


def gaussian_flow(x: Tensor, start: float, end: float) -> Tensor:
    """x(σ) = x(σ₀) √((s² + σ²)/(s² + σ₀²))."""
    return x * math.sqrt((VARIANCE + end**2) / (VARIANCE + start**2))


def mixture_flow(x: Tensor, start: float, end: float) -> Tensor:
    assert x is POINTS
    return _mixture_flow(start, end)


@cache
def _mixture_flow(start: float, end: float) -> Tensor:
    """Runge and Kutta's method of order 4 in log σ, with steps so small that its error is below 1e-11."""
    x, n = POINTS, max(1, round(400 * abs(math.log(start / end))))
    h = math.log(end / start) / n

    def slope(x: Tensor, t: float) -> Tensor:
        sigma = torch.tensor(math.exp(t), dtype=torch.float64)
        return -sigma.square() * MIXTURE.score(x, sigma)

    t = math.log(start)
    for _ in range(n):
        a = slope(x, t)
        b = slope(x + h / 2 * a, t + h / 2)
        c = slope(x + h / 2 * b, t + h / 2)
        x, t = x + h / 6 * (a + 2 * b + 2 * c + slope(x + h * c, t + h)), t + h
    return x


def geometric_path(steps: int, before: int) -> list[float]:
    return [HIGH * (LOW / HIGH) ** (k / steps) for k in range(-before, steps + 1)]


def wavy_path(steps: int, before: int) -> list[float]:
    """Steps in log σ that are twice as long in some places as in others."""
    places = [k / steps for k in range(-before, steps + 1)]
    return [HIGH * (LOW / HIGH) ** (u + 0.05 * math.sin(2 * math.pi * u)) for u in places]


@pytest.mark.parametrize(("method", "settings", "order", "needs"), METHODS)
@pytest.mark.parametrize("path", [geometric_path, wavy_path])
@pytest.mark.parametrize(
    ("score", "flow"), [(gaussian_score, gaussian_flow), (MIXTURE.score, mixture_flow)], ids=["gaussian", "mixture"]
)
def test_order_of_convergence(
    method: Callable[..., Iterator[State]],
    settings: dict[str, Any],
    order: int,
    needs: int,
    path: Callable[[int, int], list[float]],
    score: Score,
    flow: Callable[[Tensor, float, float], Tensor],
) -> None:
    """Twice as many steps divide the error by 2^order, with exact values to start from."""
    exact = flow(POINTS, HIGH, LOW)
    errors = []
    for steps in (160, 320):
        sigmas = path(steps, needs)
        history = [(sigma, flow(POINTS, HIGH, sigma)) for sigma in sigmas[:needs]]
        given = {"history": history} if needs else {}
        x = last(method(score, POINTS, sigmas[needs:], **settings, **given))
        errors.append((x - exact).norm().item())
    assert math.log2(errors[0] / errors[1]) == pytest.approx(order, abs=0.15)


@pytest.mark.parametrize(
    ("order", "weights"),
    [
        (1, [1]),
        (2, [3 / 2, -1 / 2]),
        (3, [23 / 12, -16 / 12, 5 / 12]),
        (4, [55 / 24, -59 / 24, 37 / 24, -9 / 24]),
    ],
)
def test_even_steps_have_the_textbook_weights(order: int, weights: list[float]) -> None:
    assert adams_weights([0.0, -1.0, -2.0, -3.0][:order], 0.0, 1.0) == pytest.approx(weights)


def test_uneven_steps_integrate_polynomials_exactly() -> None:
    nodes, start, end = [2.0, 2.5, 3.7, 6.0], 2.0, 1.2
    for power in range(4):
        integral = (end ** (power + 1) - start ** (power + 1)) / (power + 1)
        weights = adams_weights(nodes, start, end)
        assert sum(w * node**power for w, node in zip(weights, nodes, strict=True)) == pytest.approx(integral)


def test_heun_with_churn_is_algorithm_2_of_karras_et_al() -> None:
    """Written again in numpy with a denoiser, as the paper has it."""
    rng = np.random.default_rng(0)
    sigmas, churn, low, high, noise = [10.0, 4.0, 1.0, 0.2, 0.0], 1.2, 0.5, 5.0, 1.007
    draws = [rng.standard_normal((2, 3)) for _ in range(8)]

    def denoiser(x: np.ndarray, t: float) -> np.ndarray:
        return x * VARIANCE / (VARIANCE + t**2)

    x, used = rng.standard_normal((2, 3)) * 10, iter(draws)
    start = torch.tensor(x)
    for t, after in pairwise(sigmas):
        gamma = min(churn / 4, math.sqrt(2) - 1) if low <= t <= high else 0.0
        hat = t + gamma * t
        if gamma:
            x = x + math.sqrt(hat**2 - t**2) * noise * next(used)
        d = (x - denoiser(x, hat)) / hat
        new = x + (after - hat) * d
        if after:
            new = x + (after - hat) * (d / 2 + (new - denoiser(new, after)) / after / 2)
        x = new
    given = iter(draws)
    states = list(
        heun(
            gaussian_score,
            start,
            sigmas,
            churn=churn,
            churn_min=low,
            churn_max=high,
            churn_noise=noise,
            randn_like=lambda x: torch.tensor(next(given)),
        )
    )
    np.testing.assert_allclose(states[-1].x, x, rtol=1e-12)
    assert [state.sigma.item() for state in states] == sigmas
    assert len(list(given)) == len(list(used)) == 6


def test_dpmpp_2m_by_hand() -> None:
    """Halving σ: h = h₁ = ln 2, e⁻ʰ = 1/2. With D = 1, 3 the second step takes D₁ + (D₁ − D₀)/2 = 4."""
    values = iter([1.0, 3.0, 7.0])

    def score(x: Tensor, sigma: Tensor) -> Tensor:
        return (next(values) - x) / sigma.square()

    states = list(dpmpp_2m(score, torch.tensor([[8.0]]), [4.0, 2.0, 1.0, 0.0]))
    assert [s.x.item() for s in states] == pytest.approx([8.0, 4.5, 4.5 / 2 + 4 / 2, 7.0])


@pytest.mark.parametrize("method", ALL)
def test_the_last_step_to_zero(method: Callable[..., Iterator[State]]) -> None:
    """One step to 0 is the denoised x, by every method."""
    x = POINTS.float()
    states = list(method(MIXTURE.score, x, [0.7, 0.0]))
    assert len(states) == 2
    assert states[0].x is x
    assert states[1].sigma == 0
    torch.testing.assert_close(states[1].x, denoised(MIXTURE.score, x, 0.7))


@pytest.mark.parametrize("method", ALL)
def test_known_pixels_are_kept(method: Callable[..., Iterator[State]]) -> None:
    y, mask = torch.full((3, 2), 0.25), torch.tensor([1, 0])
    x = last(method(MIXTURE.score, POINTS.float(), [2.0, 1.0, 0.5, 0.0], constraint=known_pixels(y, mask)))
    assert (x[:, 0] == 0.25).all()
    assert (x[:, 1] != 0.25).all()


def test_the_constraint_holds_at_the_first_call() -> None:
    seen = []

    def score(x: Tensor, sigma: Tensor) -> Tensor:
        seen.append(x.clone())
        return gaussian_score(x, sigma)

    y, mask = torch.zeros(3, 2), torch.tensor([1, 0])
    last(euler(score, POINTS, [2.0, 0.0], constraint=known_pixels(y.double(), mask, randn_like=torch.zeros_like)))
    assert (seen[0][:, 0] == 0).all()
    assert torch.equal(seen[0][:, 1], POINTS[:, 1])


def test_resampling_jumps_back_and_repeats_each_step() -> None:
    """With s = 0 the steps do nothing, and each jump adds √(σᵢ² − σᵢ₊₁²) z: with z = 1, √(25 − 16) + √(16 − 0)."""
    states = list(
        euler(
            lambda x, sigma: torch.zeros_like(x),
            torch.zeros(1, 1),
            [5.0, 4.0, 0.0],
            resample=2,
            randn_like=torch.ones_like,
        )
    )
    assert [(s.x.item(), s.sigma.item()) for s in states] == [(0, 5), (0, 4), (3, 5), (3, 4), (3, 0), (7, 4), (7, 0)]


@pytest.mark.parametrize("method", [dpmpp_2m, dpmpp_3m, adams_bashforth])
def test_resampling_forgets_the_value_that_it_replaces(method: Callable[..., Iterator[State]]) -> None:
    """Jumps without noise repeat each step from where it ended: the last value at each σ is that of the last try."""
    calls: list[float] = []

    def score(x: Tensor, sigma: Tensor) -> Tensor:
        calls.append(sigma.item())
        return gaussian_score(x, sigma)

    x = last(method(score, POINTS, [4.0, 2.0, 1.0, 0.5], resample=2, randn_like=torch.zeros_like))
    assert calls == [4, 4, 2, 2, 1, 1]
    assert x.isfinite().all()


def test_filling_in_a_correlated_pair_is_better_with_resampling() -> None:
    """Of x₂ = x₁ + noise of 0.05, x₁ = 1.5 is known. Replacement alone leaves x₂ behind; RePaint brings it near."""
    n = 400
    covariance = torch.tensor([[1.0, 1.0], [1.0, 1.0 + 0.05**2]], dtype=torch.float64)

    def score(x: Tensor, sigma: Tensor) -> Tensor:
        return -x @ torch.linalg.inv(covariance + sigma.square() * torch.eye(2, dtype=torch.float64))

    def error(resample: int) -> float:
        generator = torch.Generator().manual_seed(0)

        def randn_like(x: Tensor) -> Tensor:
            return torch.randn(x.shape, generator=generator, dtype=x.dtype)

        sigmas = [10 * (0.02 / 10) ** (k / 29) for k in range(30)] + [0.0]
        x = 10 * torch.randn(n, 2, generator=generator, dtype=torch.float64)
        y, mask = torch.full((n, 2), 1.5, dtype=torch.float64), torch.tensor([1, 0])
        constraint = known_pixels(y, mask, randn_like=randn_like)
        filled = last(euler(score, x, sigmas, constraint=constraint, randn_like=randn_like, resample=resample))
        return (filled[:, 1].mean() - 1.5).abs().item()

    assert error(10) < 0.05 < error(1)


@pytest.mark.parametrize("method", ALL)
def test_errors_come_before_the_first_step(method: Callable[..., Iterator[State]]) -> None:
    x = torch.zeros(2, 2)
    with pytest.raises(ValueError, match="sigmas must decrease"):
        method(gaussian_score, x, [1.0, 2.0])
    with pytest.raises(ValueError, match="at least two"):
        method(gaussian_score, x, [1.0])
    with pytest.raises(ValueError, match="positive and finite"):
        method(gaussian_score, x, [1.0, -1.0, 0.0])
    with pytest.raises(ValueError, match="resample must be a whole number"):
        method(gaussian_score, x, [1.0, 0.0], resample=0)
    with pytest.raises(ValueError, match="NaN or infinite"):
        method(gaussian_score, x * torch.nan, [1.0, 0.0])


def test_wrong_settings_are_refused() -> None:
    x = torch.zeros(2, 2)
    with pytest.raises(ValueError, match="churn and churn_noise must be finite and not negative"):
        heun(gaussian_score, x, [1.0, 0.0], churn=-1)
    with pytest.raises(ValueError, match="churn_min must not exceed"):
        heun(gaussian_score, x, [1.0, 0.0], churn_min=2, churn_max=1)
    with pytest.raises(ValueError, match="order must be 1, 2, 3 or 4"):
        adams_bashforth(gaussian_score, x, [1.0, 0.0], order=5)
    with pytest.raises(ValueError, match="history must come before"):
        dpmpp_2m(gaussian_score, x, [1.0, 0.0], history=[(0.5, x)])


def test_a_score_that_breaks_is_named() -> None:
    def score(x: Tensor, sigma: Tensor) -> Tensor:
        return torch.where(sigma < 1, math.nan, 0.0) * x + torch.eye(2)[0]

    with pytest.raises(FloatingPointError, match=r"diverged at step 2, sigma 0\.2.*the score itself"):
        last(euler(score, torch.zeros(2, 2), [2.0, 0.5, 0.2, 0.0]))
