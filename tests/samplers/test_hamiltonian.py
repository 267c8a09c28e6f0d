"""Annealed Hamiltonian dynamics, and the Metropolis test of it and of Langevin dynamics."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from scorefield import (
    GaussianMixture,
    SampleNoise,
    State,
    annealed_hmc,
    denoised,
    from_energy,
    known_pixels,
    langevin,
    last,
)

VARIANCE = 0.36
MIXTURE = GaussianMixture([[-0.8, 0.5], [1.0, -0.6]], [[0.5, 0.9], [0.7, 0.4]], [2, 3])
SIGMA, N = 0.5, 4000


def gaussian_score(x: Tensor, sigma: Tensor) -> Tensor:
    return -x / (VARIANCE + sigma.square())


@pytest.mark.parametrize(("size", "leapfrog"), [(0.5, 1), (0.9, 4), (0.2, 7)])
def test_without_the_test_the_variance_is_that_of_leapfrog_steps(size: float, leapfrog: int) -> None:
    """On a Gaussian a trajectory is (x, p) → M (x, p), with M a product of 2 × 2 matrices: v ← M₁₁² v + M₁₂²."""
    sigmas, steps, v = [2.0, 0.5], 3, 9.0
    expected = [v]
    for sigma in sigmas:
        epsilon = size * sigma
        drift = torch.tensor([[1.0, epsilon / 2], [0.0, 1.0]], dtype=torch.float64)
        kick = torch.tensor([[1.0, 0.0], [-epsilon / (VARIANCE + sigma**2), 1.0]], dtype=torch.float64)
        matrix = torch.linalg.matrix_power(drift @ kick @ drift, leapfrog)
        for _ in range(steps):
            v = (matrix[0, 0] ** 2 * v + matrix[0, 1] ** 2).item()
            expected.append(v)
    draws = 0

    def randn_like(x: Tensor) -> Tensor:
        nonlocal draws
        draws += 1
        return torch.eye(9, dtype=x.dtype)[:, draws : draws + 1]

    x = 3 * torch.eye(9, dtype=torch.float64)[:, :1]
    settings = {"step_size": size, "steps": steps, "leapfrog": leapfrog}
    states = list(annealed_hmc(gaussian_score, x, sigmas, randn_like=randn_like, **settings))  # type: ignore[arg-type]
    assert [state.x.square().sum().item() for state in states] == pytest.approx(expected)
    assert [state.sigma.item() for state in states] == [2, 2, 2, 2, 0.5, 0.5, 0.5]
    assert all(state.accepted is None for state in states)


def moments(x: Tensor) -> tuple[float, ...]:
    """Means, second moments and the share of the heavier component's side."""
    return (*x.mean(0).tolist(), *x.square().mean(0).tolist(), (x[:, 0] > 0.1).double().mean().item())


def exact_moments() -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The same of the mixture at SIGMA, and the standard errors of N samples (known well enough from 100,000 draws)."""
    weights, means = MIXTURE.weights.double(), MIXTURE.means.double()
    variances = MIXTURE.variances.double() + SIGMA**2
    share = weights @ torch.special.ndtr((means[:, 0] - 0.1) / variances[:, 0].sqrt())
    exact = (*(weights @ means).tolist(), *(weights @ (means.square() + variances)).tolist(), share.item())
    x = MIXTURE.sample(100_000, SIGMA, generator=torch.Generator().manual_seed(0)).double()
    features = torch.cat([x, x.square(), (x[:, :1] > 0.1).double()], 1)
    return exact, tuple((features.std(0) / math.sqrt(N)).tolist())


def hmc(size: float, metropolis: bool | None) -> Iterator[State]:
    noise = SampleNoise(range(N))
    x = noise.randn((2,))
    return annealed_hmc(
        MIXTURE.score,
        x,
        [1.0, SIGMA],
        step_size=size,
        steps=40,
        leapfrog=3,
        metropolis=metropolis,
        randn_like=noise.randn_like,
    )


def mala(size: float, metropolis: bool | None) -> Iterator[State]:
    noise = SampleNoise(range(N))
    return langevin(
        MIXTURE.score,
        noise.randn((2,)),
        SIGMA,
        step_size=size,
        steps=100,
        metropolis=bool(metropolis),
        randn_like=noise.randn_like,
    )


@pytest.mark.parametrize(("sampler", "size"), [(hmc, 1.6), (mala, 0.6)])
def test_with_the_test_the_samples_are_exact(
    sampler: Callable[[float, bool | None], Iterator[State]], size: float
) -> None:
    """Large steps: all moments within four standard errors, where the steps alone are off by many."""
    exact, errors = exact_moments()
    states = list(sampler(size, True))
    rates = torch.stack([state.accepted.double().mean() for state in states[1:] if state.accepted is not None])
    assert len(rates) == len(states) - 1
    assert 0.5 < rates.mean() < 0.97
    for found, wanted, error in zip(moments(states[-1].x.double()), exact, errors, strict=True):
        assert abs(found - wanted) < 4 * error
    plain = moments(last(sampler(size, False)).double())
    assert max(abs(f - w) / e for f, w, e in zip(plain, exact, errors, strict=True)) > 8


@pytest.mark.parametrize("ratio", [0.0, math.log(0.3), -math.inf, math.nan, 5.0])
def test_accepts_with_the_right_probability(ratio: float) -> None:
    from scorefield.samplers.metropolis import accept

    noise = SampleNoise(range(20_000))
    share = accept(torch.full((20_000,), ratio), noise.randn_like).double().mean().item()
    wanted = 0.0 if math.isnan(ratio) else min(1.0, math.exp(ratio))
    assert share == pytest.approx(wanted, abs=4 * math.sqrt(wanted * (1 - wanted) / 20_000) + 1e-12)


def test_energies_have_the_test_and_plain_functions_do_not() -> None:
    x = torch.randn(5, 2, generator=torch.Generator().manual_seed(0))
    energy = from_energy(lambda x, sigma: x.square().sum(1) / (2 * (1 + sigma**2)))
    *_, state = annealed_hmc(energy, x, [1.0, 0.5], steps=1)
    assert state.accepted is not None
    assert state.accepted.shape == (5,)
    *_, state = annealed_hmc(gaussian_score, x, [1.0, 0.5], steps=1)
    assert state.accepted is None
    with pytest.raises(ValueError, match=r"needs log q_σ\(x\)"):
        annealed_hmc(gaussian_score, x, [1.0, 0.5], metropolis=True)
    with pytest.raises(ValueError, match=r"needs log q_σ\(x\)"):
        langevin(gaussian_score, x, 1.0, step_size=0.1, steps=1, metropolis=True)


def test_a_last_zero_denoises() -> None:
    x = torch.randn(5, 2, generator=torch.Generator().manual_seed(0))
    *_, before, final = annealed_hmc(MIXTURE.score, x, [1.0, 0.5, 0.0], steps=2, leapfrog=2)
    torch.testing.assert_close(final.x, denoised(MIXTURE.score, before.x, 0.5))
    assert final.sigma == 0
    assert final.step == 5


def test_known_pixels() -> None:
    y, mask = torch.full((3, 2), 0.25), torch.tensor([1, 0])
    x = torch.randn(3, 2, generator=torch.Generator().manual_seed(0))
    filled = last(annealed_hmc(MIXTURE.score, x, [2.0, 1.0, 0.0], constraint=known_pixels(y, mask)))
    assert (filled[:, 0] == 0.25).all()
    assert (filled[:, 1] != 0.25).all()
    filled = last(
        langevin(MIXTURE.score, x, 1.0, step_size=0.1, steps=5, constraint=known_pixels(y, mask), metropolis=True)
    )
    assert filled[:, 0].std() > 0
    assert filled.isfinite().all()


def test_wrong_settings_are_refused() -> None:
    x = torch.zeros(2, 2)
    with pytest.raises(ValueError, match="step_size must be positive and below 2"):
        annealed_hmc(gaussian_score, x, [1.0, 0.5], step_size=2.0)
    with pytest.raises(ValueError, match="leapfrog must be a whole number"):
        annealed_hmc(gaussian_score, x, [1.0, 0.5], leapfrog=0)
    with pytest.raises(ValueError, match="steps must be a whole number"):
        annealed_hmc(gaussian_score, x, [1.0, 0.5], steps=0)
