"""Likelihoods of distributions whose density is known, latents that lead back, and bits counted by hand."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

import scorefield as sf
from scorefield import (
    GaussianMixture,
    Heun,
    Model,
    SampleNoise,
    bits_per_dim,
    decode,
    encode,
    geometric,
    heun,
    karras,
    last,
    log_likelihood,
)
from scorefield import likelihood as module
from scorefield.images import to_float
from scorefield.likelihood import Cost, spherical
from scorefield.networks import RefineNet, UNet

SIGMA: dict[str, Any] = {"sigma_min": 0.01, "sigma_max": 100.0}


def mixture(d: int) -> tuple[GaussianMixture, Tensor]:
    """Three components, and points from all of them."""
    generator = torch.Generator().manual_seed(d)
    means = torch.randn(3, d, generator=generator, dtype=torch.float64)
    mix = GaussianMixture(means, [0.3, 0.5, 0.8], [0.2, 0.3, 0.5])
    return mix, mix.sample(24, SIGMA["sigma_min"], generator=generator)


def tiny(labels: int = 0) -> UNet:
    """An untrained network, with gains that make its layers matter, which start at 0."""
    torch.manual_seed(0)
    network = UNet(channels=1, width=8, stages=(1, 2), blocks=(1, 1), attention=(), labels=labels)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if name.endswith("gain"):
                parameter.fill_(0.5)
    return network.eval()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("d", [2, 8])
def test_log_likelihood_of_mixtures(d: int, dtype: torch.dtype) -> None:
    """By the exact trace and a prior by the score itself. A wrong sign anywhere is an error of whole nats."""
    mix, x = mixture(d)
    cost = Cost()
    found = log_likelihood(mix.score, x.to(dtype), **SIGMA, cost=cost)
    assert (found - mix.log_prob(x, SIGMA["sigma_min"])).abs().max() < 1e-3
    assert cost.products == d * cost.calls
    assert cost.calls < 200


def test_the_prior_has_the_variance_of_noise_and_data() -> None:
    """Data N(μ, s²) at σ_max = 1: the prior without s² = 0.25 would be wrong by tenths of nats."""
    mu, s = torch.tensor([[0.3, -1.0, 2.0]], dtype=torch.float64), 0.5
    normal = GaussianMixture(mu, s, [1.0])
    x = normal.sample(8, 0.1, generator=torch.Generator().manual_seed(0))
    wanted = normal.log_prob(x, 0.1)
    for given in ({"mean": mu[0], "variance": s**2}, {"mean": mu, "variance": torch.full_like(mu, s**2)}, {}):
        found = log_likelihood(normal.score, x, sigma_min=0.1, sigma_max=1.0, **given)
        assert (found - wanted).abs().max() < 1e-5
    wrong = log_likelihood(normal.score, x, sigma_min=0.1, sigma_max=1.0, mean=mu, variance=0.01)
    assert (wrong - wanted).abs().max() > 0.1


@pytest.mark.parametrize("probe", ["rademacher", "gaussian"])
@pytest.mark.parametrize("d", [2, 8])
def test_random_probes_are_right_in_the_mean(d: int, probe: Any) -> None:  # noqa: ANN401
    """200 estimates for one point, within three standard errors; four probes have half the error of one."""
    mix, points = mixture(d)
    x = points[:1].expand(200, -1)
    wanted = mix.log_prob(x[:1], SIGMA["sigma_min"]).item()
    scatter = []
    for probes in (1, 4):
        randn_like = SampleNoise(range(200)).randn_like
        found = log_likelihood(
            mix.score, x, **SIGMA, probes=probes, probe=probe, randn_like=randn_like, tolerance=1e-4, variance=1.0
        )
        error = found.std().item() / math.sqrt(200)
        assert abs(found.mean().item() - wanted) < 3 * error + 1e-3
        scatter.append(error)
    assert 1.5 < scatter[0] / scatter[1] < 2.7


def test_an_example_depends_on_its_own_seed_up_to_the_tolerance() -> None:
    mix, x = mixture(8)
    settings: dict[str, Any] = {**SIGMA, "probes": 1, "mean": 0.0, "variance": 1.0}
    together = log_likelihood(mix.score, x[:6], **settings, randn_like=SampleNoise(range(6)).randn_like)
    alone = log_likelihood(mix.score, x[4:5], **settings, randn_like=SampleNoise([4]).randn_like)
    other = log_likelihood(mix.score, x[4:5], **settings, randn_like=SampleNoise([5]).randn_like)
    assert (together[4] - alone[0]).abs() < 1e-4
    assert (other[0] - alone[0]).abs() > 1e-2


def test_bits_per_dim_by_hand() -> None:
    """Pixels N(0.5, 0.02²) with noise 0.01: −log₂ N((k + u)/256) + 8 for the same u, each image and in the mean."""
    generator = torch.Generator().manual_seed(0)
    x = (0.5 + 0.02 * torch.randn(5, 1, 2, 3, generator=generator, dtype=torch.float64)).mul(255).round() / 255
    normal = GaussianMixture(torch.full((1, 1, 2, 3), 0.5, dtype=torch.float64), 0.02, [1.0])
    noise, total = SampleNoise(range(5)), torch.zeros(5, dtype=torch.float64)
    found = bits_per_dim(normal.score, x, sigma_min=0.01, sigma_max=10.0, draws=2, variance=0.02**2, noise=noise.copy())
    variance = 0.02**2 + 0.01**2
    for _ in range(2):
        y = (x * 255 + noise.rand_like(x)) / 256
        nats = -((y - 0.5) ** 2 / variance + math.log(2 * math.pi * variance)) / 2
        total += 8 - nats.flatten(1).sum(1) / (6 * math.log(2))
    assert (found.each - total / 2).abs().max() < 1e-4
    assert found.bits_per_dim == pytest.approx(found.each.mean().item())
    assert found.error == pytest.approx(found.each.numpy().std(ddof=1) / math.sqrt(5))
    assert math.isnan(bits_per_dim(normal.score, x[:1], sigma_min=0.01, sigma_max=10.0, variance=0.02**2).error)


@pytest.mark.parametrize("d", [2, 8])
def test_latents_of_a_mixture_lead_back(d: int) -> None:
    mix, x = mixture(d)
    latent = encode(mix.score, x, **SIGMA)
    assert latent.dtype == x.dtype
    assert (decode(mix.score, latent, **SIGMA) - x).abs().max() < 1e-4
    steps = last(heun(mix.score, latent, karras(100.0, 0.01, 1000).double()))
    assert (steps - x).abs().max() < 1e-3


def test_the_latents_of_a_gaussian_are_known() -> None:
    """x(σ) − μ grows as √(s² + σ²)."""
    normal = GaussianMixture(torch.tensor([[0.3, -1.0]], dtype=torch.float64), 0.5, [1.0])
    x = torch.tensor([[1.0, 1.0], [0.0, -1.0]], dtype=torch.float64)
    grown = (x - normal.means) * math.sqrt((0.25 + 100.0**2) / (0.25 + 0.01**2))
    assert (encode(normal.score, x, **SIGMA) - normal.means - grown).abs().max() < 1e-3


@pytest.mark.parametrize("labels", [0, 3])
def test_images_lead_back_through_a_network_and_through_a_sampler(labels: int) -> None:
    network = tiny(labels)
    score = partial(network, label=torch.tensor([0, 2, -1, 1])) if labels else network
    x = torch.rand(4, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    low, high = network.sigma_range
    cost = Cost()
    latent = encode(score, x, sigma_min=low, sigma_max=high, cost=cost)
    assert cost.products == 0
    assert 0.5 < ((latent - 0.5) / high).std() < 2
    assert (decode(score, latent, sigma_min=low, sigma_max=high) - x).abs().mean() < 2 / 255
    assert (last(heun(score, latent, karras(high, low, 60))) - x).abs().mean() < 2 / 255


def test_digits_lead_back_through_the_pretrained_model() -> None:
    """Test images of MNIST, within 1/255 in the mean (2/255 would be good)."""
    files = sorted((Path(sf.__file__).parent / "web" / "examples").glob("*.png"))
    x = torch.stack([to_float(np.asarray(Image.open(file))[None, ..., None])[0] for file in files])
    model = sf.load("unet-mnist")
    low, high = model.sigma_range
    latent = encode(model.score, x, sigma_min=low, sigma_max=high)
    assert (decode(model.score, latent, sigma_min=low, sigma_max=high) - x).abs().mean() < 1 / 255


@pytest.mark.parametrize("labels", [0, 3])
def test_hutchinson_and_the_exact_trace_of_a_network_agree(labels: int) -> None:
    """4 × 4 images: 30 estimates of one, within three standard errors."""
    network = tiny(labels)
    x = (torch.rand(1, 1, 4, 4, generator=torch.Generator().manual_seed(1)) * 255).round().expand(30, -1, -1, -1) / 255
    settings: dict[str, Any] = {"sigma_min": 0.1, "sigma_max": 5.0, "mean": 0.5, "variance": 0.0625, "tolerance": 1e-4}
    exact = log_likelihood(network, x[:1], **settings).item()
    found = log_likelihood(network, x, **settings, probes=1, randn_like=SampleNoise(range(30)).randn_like)
    assert abs(found.mean().item() - exact) < 3 * found.std().item() / math.sqrt(30)


def test_points_on_an_arc() -> None:
    a, b = torch.tensor([3.0, 0.0]), torch.tensor([0.0, 3.0])
    points = spherical(a, b, [0.0, 1 / 3, 0.5, 1.0])
    wanted = [[3, 0], [3 * math.cos(math.pi / 6), 1.5], [3 / math.sqrt(2)] * 2, [0, 3]]
    assert torch.allclose(points, torch.tensor(wanted))
    assert torch.equal(spherical(a, a, [0.0, 0.5]), torch.stack([a, a]))


def test_networks_with_a_list_of_levels_have_no_likelihood() -> None:
    network = RefineNet(channels=1, width=2, sigmas=geometric(1.0, 0.1, 3))
    model = Model(network, (1, 8, 8), Heun(calls=3))
    x = torch.rand(1, 1, 8, 8)
    for score in (network, model.score, partial(model.score, label=None)):
        with pytest.raises(ValueError, match="knows 3 noise levels, up to σ = 1, and has no likelihood"):
            log_likelihood(score, x, sigma_min=0.1, sigma_max=1.0)
        with pytest.raises(ValueError, match="must end at a σ so large"):
            encode(score, x, sigma_min=0.1, sigma_max=1.0)


X = torch.full((2, 1, 4, 4), 0.2)


@pytest.mark.parametrize("function", [log_likelihood, bits_per_dim, encode, decode])
@pytest.mark.parametrize(
    ("x", "changes", "message"),
    [
        (X.expand(2, 3, 4, 4), {}, r"x must have shape \(B, 1, H, W\)"),
        (X[0, 0, 0], {}, r"x must be a batch, shape \(B, ...\); got \(4,\)"),
        (X[:0], {}, "x is empty"),
        (X.mul(255).byte(), {}, "x must be floating point; got torch.uint8"),
        (X * math.nan, {}, "x has NaN or infinite entries"),
        (X, {"sigma_min": 60.0}, "sigma_min must be positive and below sigma_max; got 60.0 and 50.0"),
        (X, {"sigma_min": 50.0}, "sigma_min must be positive and below sigma_max"),
        (X, {"sigma_min": 0.0}, "sigma_min must be positive and below sigma_max"),
        (X, {"sigma_max": 500.0}, "the network accepts noise levels from 0.001 to 50"),
        (X, {"tolerance": 0.0}, "tolerance must be positive; got 0.0"),
        (X, {"tolerance": -1e-3}, "tolerance must be positive"),
        (X, {"mean": torch.zeros(5)}, r"mean must be finite, a number or a tensor that broadcasts"),
        (X, {"variance": 0.0}, "variance must be finite and positive"),
    ],
)
def test_wrong_input(function: Callable[..., object], x: Tensor, changes: dict[str, Any], message: str) -> None:
    settings = {"sigma_min": 0.01, "sigma_max": 50.0, "mean": 0.5, "variance": 0.0625}
    with pytest.raises(ValueError, match=message):
        function(tiny(), x, **settings | changes)


@pytest.mark.parametrize(
    ("function", "changes", "message"),
    [
        (log_likelihood, {"probes": -1}, "probes must be a whole number from 0"),
        (log_likelihood, {"probe": "uniform"}, "probe must be rademacher or gaussian"),
        (bits_per_dim, {"draws": 0}, "draws must be a whole number from 1 on"),
        (bits_per_dim, {"x": X + 0.001}, "x must be images of 256 grey levels"),
        (bits_per_dim, {"x": X + 1}, "x must be images of 256 grey levels"),
        (log_likelihood, {"score": torch.no_grad()(tiny())}, "the score has no derivative with respect to x"),
    ],
)
def test_wrong_settings(function: Callable[..., object], changes: dict[str, Any], message: str) -> None:
    settings: dict[str, Any] = {"score": tiny(), "x": X, "sigma_min": 0.01, "sigma_max": 50.0, "mean": 0.5}
    with pytest.raises(ValueError, match=message):
        function(**settings | changes)


def test_errors_while_solving(monkeypatch: pytest.MonkeyPatch) -> None:
    mix, x = mixture(2)
    with pytest.raises(FloatingPointError, match="the score is NaN or infinite at sigma"):
        encode(lambda y, sigma: mix.score(y, sigma) * (math.nan if sigma > 1 else 1), x, **SIGMA)
    with pytest.raises(ArithmeticError, match="not that of a wide Gaussian"):
        log_likelihood(lambda y, sigma: mix.score(y, sigma) + 2 * y, x, sigma_min=1.0, sigma_max=2.0)
    monkeypatch.setattr(module, "MOST_STEPS", 5)
    with pytest.raises(ArithmeticError, match="cannot be solved with a tolerance of 1e-08"):
        encode(mix.score, x, **SIGMA, tolerance=1e-8)


def test_without_torchdiffeq(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchdiffeq", None)
    with pytest.raises(ImportError, match="need torchdiffeq \\(pip install torchdiffeq\\)"):
        encode(lambda y, sigma: -y, torch.zeros(1, 2), **SIGMA)
