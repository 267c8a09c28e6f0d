from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from scorefield import GaussianMixture, denoised, from_denoiser, from_energy
from scorefield.score import checked, expand

MIXTURE = GaussianMixture(torch.tensor([[-1.0, 2.0], [3.0, 0.5]], dtype=torch.float64), [0.7, 1.3], [0.3, 0.7])


@given(shape=st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_expand_multiplies_each_example_by_its_own_sigma(shape: list[int]) -> None:
    x = torch.ones(shape)
    sigma = torch.arange(1.0, len(x) + 1)
    scaled = expand(sigma, x) * x
    for k in range(len(x)):
        assert (scaled[k] == k + 1).all()
    assert expand(torch.tensor(3.0), x).shape == ()


def test_expand_takes_the_type_of_x() -> None:
    assert expand(torch.tensor([1.0, 2.0], dtype=torch.float64), torch.ones(2, 3)).dtype == torch.float32
    assert expand(0.5, torch.ones(2, 3, dtype=torch.float64)).dtype == torch.float64


@pytest.mark.parametrize("shape", [(1,), (3,), (2, 1), (2, 1, 1, 1), (1, 2)])
def test_sigma_of_a_wrong_shape_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"one per example, shape \(2,\)"):
        expand(torch.ones(shape), torch.ones(2, 3, 4, 4))


def test_an_index_in_place_of_sigma_is_refused() -> None:
    with pytest.raises(ValueError, match=r"pass sigmas\[index\]"):
        expand(torch.tensor([3, 4]), torch.ones(2, 3))


def test_denoised_is_the_posterior_mean_of_a_gaussian() -> None:
    """Prior N(m, s²), x = x₀ + σz:  E[x₀ | x] = (s² x + σ² m)/(s² + σ²)."""
    m, s, sigma = 2.0, 0.5, 1.5
    gaussian = GaussianMixture([[m]], s, [1.0])
    x = torch.linspace(-4, 4, 9)[:, None]
    expected = (s**2 * x + sigma**2 * m) / (s**2 + sigma**2)
    torch.testing.assert_close(denoised(gaussian.score, x, sigma), expected)
    torch.testing.assert_close(denoised(gaussian.score, x, torch.full((9,), sigma)), expected)


def test_a_denoiser_and_its_score_are_each_others_inverse() -> None:
    x, sigma = torch.randn(5, 2, dtype=torch.float64), torch.rand(5, dtype=torch.float64) + 0.1
    score = from_denoiser(lambda x, sigma: denoised(MIXTURE.score, x, sigma))
    torch.testing.assert_close(score(x, sigma), MIXTURE.score(x, sigma))


@pytest.mark.parametrize("sigma", [torch.tensor(0.4), torch.rand(6) + 0.1])
def test_the_score_of_an_energy_is_minus_its_gradient(sigma: Tensor) -> None:
    score = from_energy(lambda x, sigma: 3.0 - MIXTURE.log_prob(x, sigma))
    x = torch.randn(6, 2, dtype=torch.float64)
    torch.testing.assert_close(score(x, sigma), MIXTURE.score(x, sigma))
    with torch.no_grad():  # as the samplers call it
        torch.testing.assert_close(score(x, sigma), MIXTURE.score(x, sigma))


def test_an_energy_must_be_one_number_per_example() -> None:
    with pytest.raises(ValueError, match=r"one number per example, shape \(4,\); got \(4, 1\)"):
        from_energy(lambda x, sigma: x.sum(1, keepdim=True))(torch.ones(4, 2), torch.tensor(1.0))


@pytest.mark.parametrize(
    "sigma", [-1.0, float("nan"), float("inf"), torch.tensor([1.0, -1.0]), torch.tensor([1.0, float("inf")])]
)
def test_denoised_refuses_an_impossible_sigma(sigma: Tensor | float) -> None:
    with pytest.raises(ValueError, match="sigma must be finite and not negative"):
        denoised(MIXTURE.score, torch.ones(2, 2), sigma)


def test_one_sigma_of_zero_is_refused_where_it_must_be_positive() -> None:
    x, sigma = torch.ones(2, 2), torch.tensor([1.0, 0.0])
    assert checked(x, sigma) is sigma
    with pytest.raises(ValueError, match="sigma must be positive here; got 0"):
        checked(x, sigma, zero=False)


def test_denoised_refuses_integer_images_and_says_what_to_do() -> None:
    with pytest.raises(ValueError, match=r"got torch.uint8 .*x.float\(\) / 255"):
        denoised(MIXTURE.score, torch.ones(2, 2, dtype=torch.uint8), 1.0)
