from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import multivariate_normal, norm

from scorefield import GaussianMixture


@pytest.mark.parametrize("sigma", [0.0, 0.8])
def test_log_prob_agrees_with_scipy(sigma: float) -> None:
    means, stds, weights = [[-5.0, -5.0], [5.0, 5.0]], [[1.0, 0.5], [2.0, 0.3]], [1 / 5, 4 / 5]
    mixture = GaussianMixture(torch.tensor(means, dtype=torch.float64), stds, weights)
    x = 6 * torch.randn(50, 2, dtype=torch.float64)
    density = sum(
        w * multivariate_normal(m, np.diag(np.square(s) + sigma**2)).pdf(x.numpy())
        for m, s, w in zip(means, stds, weights, strict=True)
    )
    np.testing.assert_allclose(mixture.log_prob(x, sigma).exp().numpy(), density, rtol=1e-6)


@given(
    components=st.integers(1, 4),
    shape=st.lists(st.integers(1, 3), min_size=1, max_size=3),
    per_example=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_score_is_the_gradient_of_log_prob(components: int, shape: list[int], per_example: bool, seed: int) -> None:
    """For vectors and images, for one σ and for one σ per example."""
    torch.manual_seed(seed)
    means = 2 * torch.randn(components, *shape, dtype=torch.float64)
    mixture = GaussianMixture(means, 0.2 + torch.rand(components), 0.1 + torch.rand(components))
    x = (2 * torch.randn(3, *shape, dtype=torch.float64)).requires_grad_()
    sigma = torch.rand(3 if per_example else (), dtype=torch.float64)
    (expected,) = torch.autograd.grad(mixture.log_prob(x, sigma).sum(), x)
    torch.testing.assert_close(mixture.score(x, sigma), expected)


def test_sigma_per_example_is_each_examples_own() -> None:
    mixture = GaussianMixture([[0.0, 1.0], [2.0, -1.0]], [0.5, 1.0], [1, 3])
    x, sigma = torch.randn(4, 2), torch.tensor([0.0, 0.5, 1.0, 3.0])
    for k in range(4):
        torch.testing.assert_close(mixture.score(x, sigma)[k], mixture.score(x[k : k + 1], sigma[k])[0])


def test_samples_have_the_moments_of_the_mixture() -> None:
    """Mean Σwμ; variance Σw(s² + σ² + μ²) − mean²; both within five standard errors."""
    means, stds, w, sigma, n = [-2.0, 3.0], [0.5, 1.5], [0.25, 0.75], 0.7, 200_000
    mixture = GaussianMixture([[m] for m in means], stds, w)
    x = mixture.sample(n, sigma, generator=torch.Generator().manual_seed(1)).double()
    mean = sum(wk * m for wk, m in zip(w, means, strict=True))
    variance = sum(wk * (s**2 + sigma**2 + m**2) for wk, s, m in zip(w, stds, means, strict=True)) - mean**2
    assert x.shape == (n, 1)
    assert abs(x.mean() - mean) < 5 * (variance / n) ** 0.5
    assert abs(x.var() / variance - 1) < 5 * (2 / n) ** 0.5


def test_score_stays_exact_far_from_all_modes() -> None:
    """Where the density underflows, the nearest mode's pull (μ − x)/s² is left."""
    mixture = GaussianMixture([[-5.0], [5.0]], 1.0, [1, 4])
    torch.testing.assert_close(mixture.score(torch.tensor([[1000.0]]), 0.0), torch.tensor([[-995.0]]))


def test_only_the_ratios_of_the_weights_matter() -> None:
    x = torch.linspace(-3, 3, 7)[:, None]
    one, four = (GaussianMixture([[-1.0], [1.0]], 1.0, w).log_prob(x) for w in ([1, 4], [0.2, 0.8]))
    torch.testing.assert_close(one, four)
    expected = np.log(0.2 * norm.pdf(x, -1) + 0.8 * norm.pdf(x, 1))[:, 0]
    np.testing.assert_allclose(one.numpy(), expected, rtol=1e-5)


def test_points_have_a_density_once_there_is_noise() -> None:
    points = GaussianMixture([[-1.0], [1.0]], 0.0, [1, 4])
    smooth = GaussianMixture([[-1.0], [1.0]], 0.6, [1, 4])
    x = torch.linspace(-3, 3, 7)[:, None]
    torch.testing.assert_close(points.score(x, 0.6), smooth.score(x, 0.0))
    with pytest.raises(ValueError, match="pass sigma > 0"):
        points.score(x, 0.0)


@pytest.mark.parametrize(
    ("means", "stds", "weights", "message"),
    [
        ([0.0, 1.0], 1.0, [1, 1], r"means must have shape \(K, ...\)"),
        ([[0.0], [1.0]], [1.0, 2.0, 3.0], [1, 1], "stds must be one number"),
        ([[0.0], [1.0]], -1.0, [1, 1], "stds must be finite and not negative"),
        ([[0.0], [1.0]], 1.0, [1, 1, 1], "weights must be one for each of 2 means"),
        ([[0.0], [1.0]], 1.0, [1, -1], "weights must be finite and positive"),
    ],
)
def test_wrong_parameters_are_refused(means: list[float], stds: float, weights: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GaussianMixture(means, stds, weights)


def test_impossible_samples_are_refused() -> None:
    mixture = GaussianMixture([[0.0, 0.0]], 1.0, [1])
    for n, sigma in ((0, 0.0), (3, -1.0), (3, float("nan"))):
        with pytest.raises(ValueError, match="n must be at least 1 and sigma finite"):
            mixture.sample(n, sigma)
    with pytest.raises(ValueError, match=r"x.float\(\)"):
        mixture.score(torch.ones(2, 2, dtype=torch.int64), 1.0)


def test_x_of_a_wrong_shape_is_refused() -> None:
    with pytest.raises(ValueError, match=r"x must have shape \(B, 2\); got \(7, 3\)"):
        GaussianMixture([[0.0, 0.0]], 1.0, [1]).score(torch.ones(7, 3), 1.0)
