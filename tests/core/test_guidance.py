"""Guidance: known in closed form for Gaussians, one call of twice the batch, on threads and recorded too."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from acceleration import direct_calls
from torch import Tensor

from scorefield import GaussianMixture, guided, heun, known_pixels, last
from scorefield.acceleration.graphs import Recorded
from scorefield.acceleration.threads import in_threads
from scorefield.score import ConditionalScore, expand

MEANS = torch.tensor([-1.0, 2.0, 0.5], dtype=torch.float64)
STDS = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
"""Of two classes, and of no class, the last."""


class Classes:
    """The score of N(μ, s²) with noise σ, where μ and s are those of the label; it counts its calls and examples."""

    def __init__(self) -> None:
        self.calls = list[int]()

    def __call__(self, x: Tensor, sigma: Tensor, *, label: Tensor, shift: float = 0.0) -> Tensor:
        assert label.shape == x.shape[:1]
        self.calls.append(len(x))
        mean, std = (values.to(x)[label].reshape(-1, *(1 for _ in x.shape[1:])) for values in (MEANS, STDS))
        return (mean + shift - x) / (std**2 + expand(sigma, x).square())


def batch(n: int, shape: tuple[int, ...] = (3,)) -> tuple[Tensor, Tensor, Tensor]:
    """x, a label and a σ for each of n examples, all different."""
    x = torch.linspace(-3, 4, n * math.prod(shape), dtype=torch.float64).reshape(n, *shape)
    return x, torch.arange(n) % 2, torch.linspace(0.1, 2, n, dtype=torch.float64)


def pair(network: ConditionalScore, label: Tensor) -> tuple[partial[Tensor], partial[Tensor]]:
    return partial(network, label=label), partial(network, label=torch.full_like(label, -1))


@pytest.mark.parametrize("weight", [-1.0, -0.3, 0.0, 1.0, 2.5])
def test_two_gaussians_have_a_gaussian_in_closed_form(weight: float) -> None:
    """q₁^(1+w) / q₀^w of N(m₁, v₁) and N(m₀, v₀) is proportional to N(m, v) with 1/v = (1 + w)/v₁ − w/v₀ and
    m/v = (1 + w) m₁/v₁ − w m₀/v₀, and the guided score is its score, (m − x)/v."""
    (m1, v1), (m0, v0), sigma = (2.0, 0.7**2), (-1.0, 1.5**2), 0.6
    one, other = (GaussianMixture([[m]], math.sqrt(v), [1]).score for m, v in ((m1, v1), (m0, v0)))
    inverse = (1 + weight) / (v1 + sigma**2) - weight / (v0 + sigma**2)
    times_mean = (1 + weight) * m1 / (v1 + sigma**2) - weight * m0 / (v0 + sigma**2)
    x = torch.linspace(-4, 4, 9)[:, None]
    torch.testing.assert_close(guided(one, other, weight)(x, torch.tensor(sigma)), times_mean - inverse * x)


def test_a_component_against_the_mixture_goes_away_from_the_others() -> None:
    """∇ log q₁^(1+w)/q₀^w = ∇ log q₁ + w ∇ log p(1 | x), the score of a classifier, which is differentiated here."""
    mixture = GaussianMixture(torch.tensor([[-1.0, 0.0], [1.0, 0.5]], dtype=torch.float64), 0.8, [0.3, 0.7])
    one = GaussianMixture(mixture.means[:1], 0.8, [1])
    x, sigma = torch.randn(5, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)), torch.tensor(0.5)

    def log_classifier(x: Tensor) -> Tensor:
        return (one.log_prob(x, sigma) - mixture.log_prob(x, sigma)).sum()

    wanted = one.score(x, sigma) + 1.7 * torch.func.grad(log_classifier)(x)
    torch.testing.assert_close(guided(one.score, mixture.score, 1.7)(x, sigma), wanted)


@pytest.mark.parametrize("one_sigma", [True, False])
@pytest.mark.parametrize("shape", [(3,), (1, 2, 2)])
def test_two_partials_of_one_network_are_one_call_of_twice_the_batch(shape: tuple[int, ...], one_sigma: bool) -> None:
    network, (x, label, sigma) = Classes(), batch(5, shape)
    sigma = sigma[2] if one_sigma else sigma
    one, other = pair(network, label)
    both = guided(one, other, 1.5)(x, sigma)
    assert network.calls == [10]
    s1, s0 = one(x, sigma), other(x, sigma)
    torch.testing.assert_close(both, 2.5 * s1 - 1.5 * s0)
    torch.testing.assert_close(guided(lambda *given: one(*given), other, 1.5)(x, sigma), both)
    assert network.calls[3:] == [5, 5]  # what is no partial is called on its own


def test_what_cannot_share_a_call_is_called_twice_with_the_same_result() -> None:
    network, (x, label, sigma) = Classes(), batch(4)
    one, none = pair(network, label)
    s1, s0 = one(x, sigma), none(x, sigma)
    another = partial(Classes(), label=none.keywords["label"])
    torch.testing.assert_close(guided(one, another, 2.0)(x, sigma), 3 * s1 - 2 * s0)
    shifted = partial(none, shift=0.25)  # another setting of the same function
    torch.testing.assert_close(guided(one, shifted, 2.0)(x, sigma), 3 * s1 - 2 * shifted(x, sigma))
    network.calls.clear()
    guided(partial(one, shift=0.25), shifted, 2.0)(x, sigma)
    assert network.calls == [8]


def test_no_guidance_is_the_score_with_the_label_itself() -> None:
    network, (x, label, sigma) = Classes(), batch(4)
    one, none = pair(network, label)
    score = guided(one, none, 0)
    assert torch.equal(score(x, sigma), one(x, sigma))
    assert network.calls == [4, 4]


@pytest.mark.parametrize("weight", [math.nan, math.inf, -math.inf])
def test_a_weight_that_is_not_finite_is_refused(weight: float) -> None:
    with pytest.raises(ValueError, match="weight of guidance must be finite"):
        guided(lambda x, sigma: x, lambda x, sigma: x, weight)


def test_a_score_of_another_shape_is_refused() -> None:
    """Broadcasting would hide it."""
    with pytest.raises(ValueError, match="must return x's shape"):
        guided(lambda x, sigma: -x, lambda x, sigma: -x[:, :1], 1.0)(torch.ones(2, 3), torch.tensor(1.0))


@pytest.mark.parametrize("n", [1, 3, 8])
def test_threads_share_the_batch_of_both(n: int) -> None:
    x, label, sigma = batch(n)
    plain, counted = guided(*pair(Classes(), label), 2.0), Classes()
    shared = guided(*pair(in_threads(counted, threads=2), label), 2.0)
    torch.testing.assert_close(shared(x, sigma), plain(x, sigma))
    assert counted.calls == [n, n]  # two threads with a half of 2n examples each


@pytest.mark.parametrize("size", [10, 16, 4])
def test_a_recording_is_padded_and_cut_as_for_other_batches(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten examples of five samples, in a recording for as many, for more, and in three parts."""
    direct_calls.use(monkeypatch)
    recorded = Recorded(Classes(), (3,), size=size, device=torch.device("cpu"))
    x, label, sigma = batch(5)
    for level in (sigma, sigma[3]):
        wanted = guided(*pair(Classes(), label), 2.0)(x, level)
        torch.testing.assert_close(guided(*pair(recorded, label), 2.0)(x, level), wanted.float(), check_dtype=False)
    assert recorded._graph.replays == 2 * -(-10 // size)  # type: ignore[union-attr]


def test_guided_samples_are_those_of_the_closed_form() -> None:
    """heun on a guided score and on the Gaussian's own score, which is the same function; also with known pixels."""
    x, label, _ = batch(6)
    x, sigmas = 3 * x, torch.tensor([3.0, 1.0, 0.3, 0.0], dtype=torch.float64)

    def exact(x: Tensor, sigma: Tensor) -> Tensor:
        v1, v0 = STDS[label].square() + sigma**2, STDS[-1] ** 2 + sigma**2
        inverse, mean = 1.8 / v1 - 0.8 / v0, 1.8 * MEANS[label] / v1 - 0.8 * MEANS[-1] / v0
        return mean[:, None] - inverse[:, None] * x

    for constraint in ({}, {"constraint": known_pixels(torch.zeros_like(x), torch.tensor([1, 0, 0]))}):
        found = []
        for score in (guided(*pair(Classes(), label), 0.8), exact):
            torch.manual_seed(0)
            found.append(last(heun(score, x, sigmas, **constraint)))  # type: ignore[arg-type]
        torch.testing.assert_close(*found)
