"""The advised schedules: their formulas, and that annealed Langevin dynamics finds the shares of modes with them."""

from __future__ import annotations

import math

import pytest
import torch
from scipy.integrate import quad
from torch import Tensor

from scorefield import GaussianMixture, annealed_langevin, geometric, last
from scorefield.doctor import geometry
from scorefield.doctor.advice import PAPER, langevin_schedule
from scorefield.doctor.schedules import (
    EXCESS,
    RELAXATIONS,
    WIDEST,
    AnnealingSettings,
    advised_schedule,
    overlap,
    relaxations,
    variance_ratio,
    widest_ratio,
)


def test_overlap_by_integration() -> None:
    """In D dimensions ‖x‖ at level i is about N(√D σᵢ, σᵢ²/2); what lies within 3 of these deviations of level i − 1
    (Song & Ermon 2020, technique 2)."""
    dimension, ratio = 784, 1.08
    low, high = (math.sqrt(dimension) + sign * 3 / math.sqrt(2) for sign in (-1, 1))  # for σᵢ = 1
    before, spread = math.sqrt(dimension) * ratio, 1 / math.sqrt(2)
    # the formula measures distances in units of the narrower level, and the window in those of the wider
    low, high = (before - 3 * ratio * spread, before + 3 * ratio * spread)
    density = lambda r: math.exp(-((r - math.sqrt(dimension)) ** 2)) / math.sqrt(math.pi)  # noqa: E731
    assert overlap(ratio, dimension) == pytest.approx(quad(density, low, high)[0], abs=1e-6)


@pytest.mark.parametrize(("dimension", "published"), [(3072, 1.0376), (64 * 64 * 3, 1.0189)])
def test_ratio_is_the_published_one(dimension: int, published: float) -> None:
    """NCSNv2 has 232 levels from 50 to 0.01 for CIFAR-10, and 500 from 90 for CelebA at 64 × 64."""
    assert widest_ratio(dimension) == pytest.approx(published, abs=3e-3)


def test_ratio_halves_the_overlap_and_is_bounded() -> None:
    assert overlap(widest_ratio(784), 784) == pytest.approx(0.5, abs=1e-9)
    assert widest_ratio(2) == WIDEST


def test_variance_ratio_step_by_step() -> None:
    """The variance of x ← (1 − η/2) x + √η σ z, from γ² at σ = 1."""
    steps, eta, ratio = 7, 0.3, 1.2
    variance = ratio**2
    for _ in range(steps):
        variance = (1 - eta / 2) ** 2 * variance + eta
    assert variance_ratio(steps, eta, ratio) == pytest.approx(variance, rel=1e-12)


def test_published_settings_are_within_the_bound() -> None:
    """The paper's ε = 2e-5 at σ = 0.01 is η = 0.2. NCSNv2's 6.2e-6 is twice that in the paper's form, with T = 5."""
    assert variance_ratio(100, 0.2, PAPER.ratio) == pytest.approx(1.0526, abs=1e-4)
    assert variance_ratio(5, 2 * 6.2e-6 / 1e-4, 1.0376) < EXCESS


@pytest.mark.parametrize(("sigma_max", "dimension"), [(8.0, 2), (15.8, 784), (50.5, 3072)])
def test_advised_schedule_keeps_its_bounds_with_the_fewest_steps(sigma_max: float, dimension: int) -> None:
    advised = advised_schedule(sigma_max, 0.01, dimension)
    eta = advised.step_size / 0.01**2
    assert advised.ratio <= widest_ratio(dimension) * (1 + 1e-9)
    assert variance_ratio(advised.steps, eta, advised.ratio) <= EXCESS * 1.001  # ε is rounded to three digits
    assert relaxations(advised.steps, eta, advised.ratio) >= RELAXATIONS * 0.995
    fewer = advised.steps - 1
    allowed = [k / 1000 for k in range(1, 1000) if variance_ratio(fewer, k / 1000, advised.ratio) <= EXCESS]
    assert relaxations(fewer, max(allowed, default=0.0), advised.ratio) < RELAXATIONS
    assert advised.calls == advised.levels * advised.steps


def mixture(dimension: int, apart: float, weights: list[float]) -> GaussianMixture:
    """Points around ½, the first two of them that far apart."""
    points = torch.randn(len(weights), dimension)
    points = (points - points.mean(0)) * (apart / (points[0] - points[1]).norm())
    return GaussianMixture(means=0.5 + points, stds=0.05, weights=weights)


def shares(data: GaussianMixture, schedule: AnnealingSettings, n: int) -> Tensor:
    """The share of n samples near each mode, from the paper's uniform start."""
    sigmas = geometric(schedule.sigma_max, schedule.sigma_min, schedule.levels)
    start = torch.rand(n, data.means.shape[1])
    x = last(annealed_langevin(data.score, start, sigmas, step_size=schedule.step_size, steps=schedule.steps))
    return torch.cdist(x, data.means).argmin(1).bincount(minlength=len(data.means)) / n


@pytest.mark.parametrize(
    ("dimension", "apart", "weights"), [(2, 8.0, [0.2, 0.8]), (16, 14.0, [0.1, 0.3, 0.6]), (64, 12.0, [0.2, 0.8])]
)
def test_shares_of_modes_are_right_within_3_percent(dimension: int, apart: float, weights: list[float]) -> None:
    """A standard error is at most 0.009 for 3,000 samples. With the paper's settings a mode's share is far off."""
    data = mixture(dimension, apart, weights)
    measured, _, _ = geometry.measure(data.sample(1000))
    advised = langevin_schedule(measured)
    true = torch.tensor(weights)
    assert (shares(data, advised, 3000) - true).abs().max() < 0.03
    assert (shares(data, PAPER, 1000) - true).abs().max() > 0.06
