"""Posteriors against their closed forms: Gaussians, mixtures, and how often credible intervals cover the truth."""

from __future__ import annotations

import math
import runpy
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy.stats import ks_2samp
from torch import Tensor

from scorefield import (
    GaussianMixture,
    dpmpp_3m,
    from_energy,
    geometric,
    guided,
    heun,
    karras,
    langevin,
    last,
    posterior,
)
from scorefield.acceleration.threads import in_threads
from scorefield.networks import RefineNet, UNet
from scorefield.operators import Downsample, Mask
from scorefield.posteriors import METHODS, Measurement, residual
from scorefield.score import Score

COVERAGE = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "restoration_coverage.py"))
SIGMA = torch.tensor(0.7, dtype=torch.float64)


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


class Gauss:
    """Data N(μ, diag s²) in five dimensions, three measurements of it, and the exact posterior N(mean, cov)."""

    def __init__(self) -> None:
        self.mu, self.s = randn(5, seed=1), torch.tensor([0.3, 0.6, 1.0, 1.5, 0.1], dtype=torch.float64)
        self.matrix, self.y, self.noise = randn(3, 5, seed=2), randn(3, seed=3), 0.2
        self.prior = GaussianMixture(self.mu[None], self.s[None], [1.0])
        precision = torch.diag(self.s**-2) + self.matrix.T @ self.matrix / self.noise**2
        self.cov = torch.linalg.inv(precision)
        self.mean = self.cov @ (self.mu / self.s**2 + self.matrix.T @ self.y / self.noise**2)

    def measure(self, x: Tensor) -> Tensor:
        return x @ self.matrix.T

    def posterior(self, **settings: Any) -> Score:  # noqa: ANN401
        return posterior(self.prior.score, self.y, self.measure, noise=self.noise, **settings)


@pytest.mark.parametrize("sigma", [0.01, 0.7, 30.0])
def test_mmps_is_exact_for_a_gaussian(sigma: float) -> None:
    """s(x, σ | y) = −(C + σ² I)⁻¹ (x − m)."""
    gauss, x = Gauss(), randn(4, 5, seed=4)
    level = torch.tensor(sigma, dtype=torch.float64)
    whole = gauss.cov + sigma**2 * torch.eye(5, dtype=torch.float64)
    wanted = -torch.linalg.solve(whole, (x - gauss.mean).T).T
    torch.testing.assert_close(gauss.posterior(iterations=3)(x, level), wanted, rtol=1e-6, atol=1e-6)


def test_samples_of_a_gaussian_posterior_have_its_mean_and_covariance() -> None:
    """The flow is affine, x ↦ b + M x: both are read off six points, and no Monte Carlo error is left."""
    gauss, start = Gauss(), 40.0
    points = torch.cat([torch.zeros(1, 5), torch.eye(5)]).double()
    sigmas = [*karras(start, 0.002, 120).tolist(), 0]
    ends = last(dpmpp_3m(gauss.posterior(iterations=3), points, sigmas))
    b, m = ends[0], (ends[1:] - ends[0]).T
    first = gauss.cov + start**2 * torch.eye(5, dtype=torch.float64)
    torch.testing.assert_close(b + m @ gauss.mean, gauss.mean, rtol=0, atol=1e-3)
    torch.testing.assert_close(m @ first @ m.T, gauss.cov, rtol=0, atol=1e-3)


def test_dps_and_diffpir_by_their_formulas() -> None:
    gauss, x = Gauss(), randn(4, 5, seed=4)
    a, variance = gauss.matrix, SIGMA**2
    s = gauss.prior.score(x, SIGMA)
    r = gauss.y - (x + variance * s) @ a.T
    jacobian = torch.diag(gauss.s**2 / (gauss.s**2 + variance))
    wanted = s + 1.5 * math.sqrt(3) / SIGMA * (r / r.norm(dim=1, keepdim=True)) @ a @ jacobian
    torch.testing.assert_close(gauss.posterior(method="dps", strength=1.5)(x, SIGMA), wanted)
    whole = gauss.noise**2 * torch.eye(3, dtype=torch.float64) + 0.8 * variance * a @ a.T
    wanted = s + 0.8 * torch.linalg.solve(whole, r.T).T @ a
    torch.testing.assert_close(gauss.posterior(method="diffpir", strength=0.8)(x, SIGMA), wanted)


def test_samples_of_a_mixtures_posterior() -> None:
    """Two modes, of which y tells one: Kolmogorov and Smirnov's test on both coordinates, 2,000 samples each, at a
    level of 1 % for both together. Its power against a shift of a quarter of the standard deviation is at least 95 %.

    mmps is exact for a mixture only as σ → 0. Langevin dynamics at the end forgets the error of the way there, which
    the test sees."""
    prior = GaussianMixture(torch.tensor([[-1.0, 0.5], [1.0, -0.5]]).double(), 0.4, [0.6, 0.4])
    noise, y, n = 0.25, torch.tensor([0.6], dtype=torch.float64), 2000

    def exact(seed: int) -> Tensor:
        """x₁ given y is a mixture of N(μₖ + g (y − μₖ), s² (1 − g)), g = s²/(s² + noise²); x₂ depends on k alone."""
        draw = torch.Generator().manual_seed(seed)
        g = 0.16 / (0.16 + noise**2)
        log_weight = prior.weights.log() - (y - prior.means[:, 0]) ** 2 / (2 * (0.16 + noise**2))
        k = torch.multinomial(log_weight.softmax(0), n, replacement=True, generator=draw)
        z = torch.randn(n, 2, generator=draw, dtype=torch.float64)
        first = prior.means[k, 0] + g * (y - prior.means[k, 0]) + 0.4 * math.sqrt(1 - g) * z[:, 0]
        return torch.stack([first, prior.means[k, 1] + 0.4 * z[:, 1]], 1)

    def differ(a: Tensor, b: Tensor) -> bool:
        return min(float(ks_2samp(a[:, k], b[:, k], method="asymp").pvalue) for k in range(2)) < 0.005

    score = posterior(prior.score, y, lambda x: x[:, :1], noise=noise)
    made = last(heun(score, 20 * randn(n, 2, seed=5), [*karras(20, 0.05, 20).tolist(), 0]))
    assert differ(made, exact(0))
    noises = iter(randn(150, n, 2, seed=6))
    made = last(langevin(score, made, 0.05, step_size=0.009, steps=150, randn_like=lambda x: next(noises)))
    assert not differ(made, exact(0))
    shift = 0.25 * exact(1).std(0)
    assert sum(differ(exact(2 * k), exact(2 * k + 1) + shift) for k in range(40)) >= 38


def test_credible_intervals_of_mmps_cover_the_truth() -> None:
    """200 random problems: 90 % ± 4 %, of which 1.2 % is the standard error."""
    problems = COVERAGE["Problems"](200, 19)
    found = problems.result("mmps", problems.sample("mmps", 15), 0.0)
    assert abs(found.coverage - 0.9) < 0.04
    assert 0.8 < found.residual < 1.2


@pytest.mark.nightly
def test_the_table_of_coverage() -> None:
    """More samples; exact samples of more problems show that the intervals mean what they say."""
    many = COVERAGE["Problems"](4000, 39)
    assert abs(many.result("exact", many.exact(3), 0.0).coverage - 0.9) < 0.01
    problems = COVERAGE["Problems"](200, 99)
    found = {method: problems.result(method, problems.sample(method, 25), 0.0) for method in METHODS}
    print(*found.values(), sep="\n")  # noqa: T201
    assert abs(found["mmps"].coverage - 0.9) < 0.04
    assert found["mmps"].width < found["diffpir"].width
    assert found["dps"].residual > 2


@pytest.mark.parametrize("method", METHODS)
def test_one_y_for_all_or_one_for_each(method: str) -> None:
    gauss, x = Gauss(), randn(3, 5, seed=4)
    ys = torch.stack([gauss.y, 2 * gauss.y, -gauss.y])
    for y, rows in ((ys, range(3)), (gauss.y, [0, 0, 0]), (gauss.y[None], [0, 0, 0])):
        found = posterior(gauss.prior.score, y, gauss.measure, noise=0.2, method=method)(x, SIGMA.expand(3))
        for k, row in enumerate(rows):
            alone = posterior(gauss.prior.score, ys[row], gauss.measure, noise=0.2, method=method)(x[k : k + 1], SIGMA)
            torch.testing.assert_close(found[k : k + 1], alone)


def test_one_network_evaluation_for_all_products() -> None:
    gauss, calls = Gauss(), list[int]()

    def counted(x: Tensor, sigma: Tensor) -> Tensor:
        calls.append(len(x))
        return gauss.prior.score(x, sigma)

    score = posterior(counted, gauss.y, gauss.measure, noise=0.2, iterations=4)
    with torch.inference_mode():
        score(randn(2, 5), SIGMA)
    assert calls == [2]


def test_energies_labels_and_guidance() -> None:
    """Scores of other kinds have the same posterior."""
    gauss, x = Gauss(), randn(2, 5, seed=4)
    wanted = gauss.posterior()(x, SIGMA)

    def labelled(x: Tensor, sigma: Tensor, *, label: Tensor) -> Tensor:
        return gauss.prior.score(x, sigma) * (1 + 0 * label[:, None])

    label = torch.zeros(2)
    both = guided(partial(labelled, label=label), partial(labelled, label=label - 1), 0.7)
    energy = from_energy(lambda x, sigma: -gauss.prior.log_prob(x, sigma))
    for score in (both, energy):
        found = posterior(score, gauss.y, gauss.measure, noise=gauss.noise)(x, SIGMA)
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("kind", ["refinenet", "unet"])
def test_networks(kind: str) -> None:
    """J of a network, by finite differences: Jᵀ u is what a step of GMRES sees."""
    torch.manual_seed(0)
    network = (
        RefineNet(channels=1, width=4, sigmas=geometric(1.0, 0.1, 3))
        if kind == "refinenet"
        else UNet(channels=1, width=4, stages=(1,), blocks=(1,), attention=())
    )
    for parameter in network.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    network = network.double().eval().requires_grad_(False)
    x, sigma = torch.rand(2, 1, 8, 8).double(), torch.tensor(0.1)
    y, operator = torch.rand(1, 4, 4).double(), Downsample(2)
    s = network(x, sigma)
    r = y - operator(x + 0.01 * s)
    u, step = operator.adjoint(r), 1e-5
    eye = step * torch.eye(64).double().reshape(64, 1, 8, 8)
    pulled = []
    for k in range(2):
        change = (network(x[k : k + 1] + eye, sigma) - network(x[k : k + 1] - eye, sigma)) / (2 * step)
        pulled.append(u[k] + 0.01 * (change.flatten(1) @ u[k].flatten()).reshape(1, 8, 8))
    direction = torch.stack(pulled)
    product = 0.05**2 * r + 0.01 * operator(direction)
    weight = (product * r).flatten(1).sum(1) / product.square().flatten(1).sum(1)  # the least error of one step
    found = posterior(network, y, operator, noise=0.05, iterations=1)(x, sigma)
    torch.testing.assert_close(found, s + weight[:, None, None, None] * direction, rtol=1e-5, atol=1e-6)


def test_residual_counts_what_is_measured() -> None:
    mask = torch.tensor([[1, 0], [1, 0]])
    x, y = torch.zeros(1, 1, 2, 2), torch.tensor([[[[0.3, math.nan], [0.4, 9.0]]]])
    found = residual(x, Measurement(y, Mask(mask), 0.1))
    torch.testing.assert_close(found, torch.tensor([5 / math.sqrt(2)]))


def test_hidden_entries_of_y_do_not_matter() -> None:
    prior, x = GaussianMixture(torch.zeros(1, 1, 2, 2), 1.0, [1.0]), torch.ones(1, 1, 2, 2)
    y, mask = torch.tensor([[[0.3, math.nan], [0.4, 9.0]]]), Mask(torch.tensor([[1, 0], [1, 0]]))
    for method in METHODS:
        given, clean = (
            posterior(prior.score, each, mask, noise=0.1, method=method)(x, torch.tensor(1.0))
            for each in (y, mask(y.nan_to_num()[None]))
        )
        assert torch.equal(given, clean)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"noise": 0.0}, "noise is a standard deviation, positive and finite; got 0.0"),
        ({"noise": -0.1}, "noise is a standard deviation"),
        ({"noise": math.nan}, "noise is a standard deviation"),
        ({"method": "ddrm"}, "method must be one of mmps, dps, diffpir; got 'ddrm'"),
        ({"iterations": 0}, "iterations must be a whole number from 1 on; got 0"),
        ({"strength": 0.0}, "strength must be positive"),
        ({"y": torch.zeros(4, dtype=torch.float64)}, r"shape of A\(x\), \(3,\), or a batch of 2 such; got \(4,\)"),
        ({"y": torch.zeros(3, 3)}, "or a batch of 2 such"),
        ({"y": torch.zeros(3, dtype=torch.int64)}, "y must hold real floating-point numbers"),
        ({"operator": lambda x: x[:, :3] ** 2}, "the operator is not linear"),
        ({"operator": lambda x: x[:, :3] ** 2, "method": "diffpir"}, "the operator is not linear"),
    ],
)
def test_clear_errors(change: dict[str, Any], message: str) -> None:
    gauss = Gauss()
    given: dict[str, Any] = {"score": gauss.prior.score, "y": gauss.y, "operator": gauss.measure, "noise": 0.1} | change
    with pytest.raises(ValueError, match=message):
        posterior(**given)(randn(2, 5), SIGMA)


def test_dps_takes_a_function_that_is_not_linear() -> None:
    gauss, x = Gauss(), randn(2, 5)
    made = posterior(gauss.prior.score, gauss.y, lambda x: x[:, :3] ** 2, noise=0.1, method="dps")(x, SIGMA)
    assert made.isfinite().all()


def test_a_score_without_gradients_is_refused() -> None:
    """Products with its derivative would silently be wrong."""
    gauss = Gauss()
    shared = in_threads(gauss.prior.score, threads=2)
    for method in ("mmps", "dps"):
        with pytest.raises(ValueError, match="no gradients by x, which mmps and dps need"):
            posterior(shared, gauss.y, gauss.measure, noise=0.1, method=method)(randn(2, 5), SIGMA)
    plain, found = (
        posterior(each, gauss.y, gauss.measure, noise=0.1, method="diffpir")(randn(2, 5), SIGMA)
        for each in (gauss.prior.score, shared)
    )
    torch.testing.assert_close(found, plain)


def test_measurements_that_are_not_numbers_are_refused() -> None:
    """NaN in hidden pixels is no measurement."""
    prior, mask = GaussianMixture(torch.zeros(1, 4), 1.0, [1]), torch.tensor([1, 1, 0, 0])
    x, y = torch.zeros(1, 4), torch.tensor([[1.0, 2.0, torch.nan, torch.nan]])
    assert posterior(prior.score, y, Mask(mask), noise=0.1)(x, torch.tensor(1.0)).isfinite().all()
    with pytest.raises(ValueError, match="y has NaN or infinite values"):
        posterior(prior.score, y, lambda x: x, noise=0.1)(x, torch.tensor(1.0))
    with pytest.raises(ValueError, match=r"y must hold real floating-point numbers; got torch\.complex64$"):
        posterior(prior.score, y.to(torch.complex64), lambda x: x, noise=0.1)
