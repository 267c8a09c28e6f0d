"""The check-up of a model, with networks and images whose errors are known."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from torch import Tensor, nn

from scorefield import AnnealedLangevin, ConsistentAnnealed, GaussianMixture
from scorefield.data import Images
from scorefield.doctor import checkup
from scorefield.doctor.checkup import Errors, exact_errors, judge_copies, judge_errors, judge_samples, measure_errors
from scorefield.images import to_float
from scorefield.models.model import Model
from scorefield.models.recipes import Recipe
from scorefield.score import expand

SIGMAS = (2.0, 0.5, 0.1)


class Normal(nn.Module):
    """The score of N(mean, variance) with noise: the best for images of that mean and variance that is affine."""

    def __init__(self, mean: float, variance: float, shrunk: float = 1.0) -> None:
        super().__init__()
        self.mean, self.variance = nn.Parameter(torch.tensor(mean)), variance
        self.shrunk = shrunk
        self.accepted_sigmas = torch.tensor(SIGMAS)

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        return self.shrunk * (self.mean - x) / (self.variance + expand(sigma, x).square())


def images_of(pixels: np.ndarray) -> Images:
    return Images(pixels, "made up", "0" * 64)


def random_images(n: int, seed: int = 0) -> Images:
    return images_of(np.random.default_rng(seed).integers(0, 256, (n, 8, 8, 1), dtype=np.uint8))


PLAIN = Recipe(dequantise=False)


def model_of(network: nn.Module) -> Model:
    sampler = AnnealedLangevin(SIGMAS, step_size=1e-3, steps=2)
    return Model(network, (1, 8, 8), sampler, recipe=PLAIN)


def test_errors_of_an_affine_score_by_hand() -> None:
    """σ s + z = (v z − σ (x − m))/(σ² + v), whose mean square is v/(σ² + v) where v is the variance of the pixels."""
    images = random_images(400)
    x = images.pixels / 255
    mean, variance = x.mean(), x.var()
    errors = measure_errors(model_of(Normal(mean, variance)), images, None, 400)
    expected = [variance / (sigma**2 + variance) for sigma in SIGMAS]
    assert errors.training == pytest.approx(expected, rel=0.03)  # 25,600 pixels: a standard error of about 1 %
    assert errors.mean == pytest.approx([variance / sigma**2 for sigma in SIGMAS], rel=0.01)
    assert errors.sigmas == pytest.approx(SIGMAS)
    assert errors.held_out is None


def test_the_least_possible_error_of_two_images_by_integration() -> None:
    """Between two images at distance d the denoiser is wrong by p d, with p the probability of the other image:
    p = 1/(1 + exp((d²/2 + d σ u)/σ²)) for the noise u along the line between them."""
    pixels = np.full((2, 2, 2, 1), 100, np.uint8)
    pixels[1] = 150
    d, sigma = math.sqrt(4) * 50 / 255, 0.3

    def square(u: float) -> float:
        p = 1 / (1 + math.exp((d**2 / 2 + d * sigma * u) / sigma**2))
        return (p * d) ** 2 * math.exp(-(u**2) / 2) / math.sqrt(2 * math.pi)

    expected = quad(square, -8, 8)[0] / 4 / sigma**2
    many = images_of(np.repeat(pixels[:1], 20_000, axis=0))
    small = Model(Normal(0.5, 0.1), (1, 2, 2), AnnealedLangevin(SIGMAS, step_size=1e-3, steps=2), recipe=PLAIN)
    found, finest = exact_errors(small, images_of(pixels), many, torch.tensor([sigma, 0.001]))
    assert found is not None
    assert found.mean() == pytest.approx(expected, rel=0.02)
    assert finest is None


def test_the_least_possible_error_does_not_depend_on_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    images, sigmas = random_images(50), torch.tensor([3.0, 1.0])
    model = replace(model_of(Normal(0.5, 0.1)), recipe=replace(PLAIN, flip=True))
    whole, _ = exact_errors(model, images, images, sigmas)
    monkeypatch.setattr(checkup, "BLOCK", 7 * 64)
    parts, _ = exact_errors(model, images, images, sigmas)
    assert whole is not None
    assert parts is not None
    torch.testing.assert_close(parts, whole, rtol=1e-4, atol=0)
    assert 0 < whole.mean() < 1


class Exact(Normal):
    """The exact score of images, each a point."""

    def __init__(self, images: Images) -> None:
        super().__init__(0.5, 0.1)
        self.points = GaussianMixture(to_float(images.pixels), 0.0, torch.ones(len(images)))

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        return self.points.score(x, sigma)


@pytest.mark.parametrize("dequantise", [False, True])
def test_the_least_possible_error_is_that_of_the_exact_score(dequantise: bool) -> None:
    """With the same noise, image by image."""
    images = random_images(40)
    model = replace(model_of(Exact(images)), recipe=replace(PLAIN, dequantise=dequantise))
    sigmas = torch.tensor([3.0, 1.0, 0.3])
    mine, least = checkup._errors(model, images, sigmas), exact_errors(model, images, images, sigmas)
    for errors, found in zip(mine, least, strict=True):
        assert found is not None
        torch.testing.assert_close(errors, found, rtol=1e-3, atol=1e-7)


def test_a_network_that_knows_classes_is_compared_with_its_class_alone() -> None:
    """Two images, each alone in its class: with the class there is no doubt, and without it there is."""
    pixels = np.full((2, 8, 8, 1), 100, np.uint8)
    pixels[1] = 120
    labelled = Images(pixels, "made up", "0" * 64, np.array([0, 1]), ("a", "b"))
    plain = model_of(Normal(0.5, 0.1))
    sigma = torch.tensor([0.5])
    (doubt,) = exact_errors(plain, labelled, labelled, sigma)
    (none,) = exact_errors(replace(plain, labels=("a", "b")), labelled, labelled, sigma)
    assert doubt is not None
    assert none is not None
    assert doubt.min() > 1e-4
    assert none.max() < 1e-9


def test_errors_below_the_least_possible_are_found_beyond_chance() -> None:
    """Of images whose exact optimum is the network's own, none; of others, the levels at which it is too good."""
    images = random_images(64)
    errors = measure_errors(model_of(Normal(float(images.pixels.mean() / 255), 0.08)), images, None, 64)
    assert errors.impossible == ()
    one = images_of(np.repeat(np.full((1, 8, 8, 1), 128, np.uint8), 40, axis=0))
    others = images_of(np.concatenate([one.pixels, np.full((40, 8, 8, 1), 118, np.uint8)]))
    model = model_of(Normal(128 / 255, 1e-9))  # it knows just the grey image
    too_good = exact_errors(model, others, one, torch.tensor(SIGMAS))
    mine = checkup._errors(model, one, torch.tensor(SIGMAS))
    assert too_good[0] is not None
    assert checkup._below(mine[0], too_good[0])
    assert not checkup._below(too_good[0], too_good[0])


GOOD = Errors(
    sigmas=(1.0, 0.1),
    n=40,
    training=(0.02, 0.3),
    held_out=(0.021, 0.31),
    mean=(0.06, 6.0),
    exact=(0.01, 0.0),
    others={"raw": (0.022, 0.33)},
)


def kinds(errors: Errors) -> str:
    return "; ".join(f"{each.kind}: {each.what}" for each in judge_errors(errors))


def test_a_good_model_has_nothing_but_good_findings() -> None:
    assert {each.kind for each in judge_errors(GOOD)} == {"good"}


def test_levels_at_which_nothing_can_be_learned_are_left_out() -> None:
    """Where the best possible is the mean image, and below the grey levels of the images."""
    wide = replace(GOOD, sigmas=(20.0, 1.0, 0.001), training=(1e-4, 0.02, 1.0), held_out=None, others={})
    assert {each.kind for each in judge_errors(replace(wide, mean=(1e-4, 0.06, 9.0), exact=(1e-4, 0.01, None)))} == {
        "good"
    }
    few = replace(GOOD, n=5, held_out=(0.04, 0.6))
    assert "by heart" not in kinds(few)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (
            replace(GOOD, training=(0.06, 1.0), held_out=(0.06, 1.0)),
            "problem: at σ = 1, 0.1 the network has learned nothing",
        ),
        (replace(GOOD, held_out=(0.021, 0.99)), "0.1 the network has learned nothing"),
        (replace(GOOD, sigmas=(0.009, 0.001)), "note: no noise level could be judged"),
        (replace(GOOD, impossible=(1.0,)), "problem: at σ = 1 the error is below the least"),
        (replace(GOOD, training=(0.02, float("nan"))), "problem: errors are not finite"),
        (replace(GOOD, held_out=(0.04, 0.6)), "problem: errors on held-out images are 100% larger"),
        (replace(GOOD, others={"raw": (0.015, 0.25)}), "problem: the moving average is 3"),
    ],
)
def test_what_is_wrong_is_found(changed: Errors, words: str) -> None:
    assert words in kinds(changed)


def test_a_largest_noise_level_that_is_too_small_is_told() -> None:
    """Two uniform values differ by √(1/6) in the mean square, so these images by about √(64/6) = 3.3."""
    images = random_images(50)
    assert checkup.judge_range(model_of(Normal(0.5, 0.1)), images) == []  # its σ₁ is 2
    narrow = Normal(0.5, 0.1)
    narrow.accepted_sigmas = torch.tensor([0.5, 0.1])
    model = Model(narrow, (1, 8, 8), AnnealedLangevin((0.5, 0.1), step_size=1e-3, steps=2), recipe=Recipe())
    (finding,) = checkup.judge_range(model, images)
    assert "the largest noise level, 0.5, is small beside the distance between images, 3.3" in finding.what
    assert "--sigma-max 4" in finding.cure


def smooth(n: int) -> np.ndarray:
    """Smooth colour images: random ramps."""
    rng = np.random.default_rng(0)
    ramp = np.linspace(0, 1, 16)
    slopes = rng.uniform(0.3, 0.9, (n, 1, 1, 3))
    across = np.where(rng.random((n, 1, 1, 1)) < 0.5, ramp[None, :, None, None], ramp[None, None, :, None])
    return (255 * np.clip(0.05 + slopes * across, 0, 1)).astype(np.uint8)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda x: 128 + (x - 128.0) * 0.3, "samples are grey"),
        (lambda x: np.where(x < 128.0, 0, 255), "samples are saturated"),
        (lambda x: x + np.random.default_rng(1).normal(0, 25, x.shape), "samples are noisy"),
        (lambda x: x + np.array([60.0, 0, 0]), "the mean colour"),
    ],
)
def test_what_is_wrong_with_samples_is_found(spoil: object, words: str) -> None:
    data = smooth(64)
    assert callable(spoil)
    samples = np.clip(spoil(data[:16]), 0, 255).astype(np.uint8)
    assert words in " ".join(each.what for each in judge_samples(samples, data))
    assert [each.kind for each in judge_samples(data[:32], data)] == ["good"]


def test_noisy_samples_are_denoised_only_by_samplers_that_can() -> None:
    data = smooth(64)
    noisy = np.clip(data[:16] + np.random.default_rng(1).normal(0, 25, data[:16].shape), 0, 255).astype(np.uint8)
    (plain,), (denoisable,) = judge_samples(noisy, data), judge_samples(noisy, data, can_denoise=True)
    assert "--denoise" not in plain.cure
    assert "--denoise" in denoisable.cure


def test_copies_are_found() -> None:
    training, others = random_images(100), random_images(20, seed=1)
    assert judge_copies(training.pixels[:8], training, others).kind == "problem"
    assert judge_copies(random_images(8, seed=2).pixels, training, others).kind == "good"


def test_a_slow_sampler_is_replaced() -> None:
    quick = checkup.quick_sampler(model_of(Normal(0.5, 0.1)))
    assert quick.calls == 6
    slow = Model(Normal(0.5, 0.1), (1, 8, 8), AnnealedLangevin(SIGMAS, step_size=1e-3, steps=100), recipe=Recipe())
    quick = checkup.quick_sampler(slow)
    assert isinstance(quick, ConsistentAnnealed)
    assert quick.calls == 30
