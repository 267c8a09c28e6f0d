"""Model.restore: the posterior's score through a model, with labels, guidance, threads and batches."""

from __future__ import annotations

from threading import current_thread
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from scorefield import Ancestral, GaussianMixture, Heun, Model, Recipe, samplers
from scorefield.acceleration import threads
from scorefield.models import model as models
from scorefield.operators import Downsample, Mask
from scorefield.posteriors import METHODS, Measurement, residual

MEANS = torch.rand(3, 1, 4, 4, generator=torch.Generator().manual_seed(0))


class Exact(nn.Module):
    """The score of N(μ, 0.2²), where μ is that of the class; the last one is that of no class."""

    sigma_range = (0.01, 20.0)
    null_label = True

    def forward(self, x: Tensor, sigma: Tensor, label: Tensor) -> Tensor:
        sigma = sigma.expand(len(x))[:, None, None, None]
        return (MEANS[label] - x) / (0.2**2 + sigma**2)


def model() -> Model:
    return Model(Exact(), (1, 4, 4), Heun(calls=39), labels=("a", "b"), recipe=Recipe(label_dropout=0.1))


def exact_posterior(prior: Tensor, y: Tensor, noise: float) -> tuple[Tensor, Tensor]:
    """The mean and the variances for a prior mean and an operator that shows some pixels: y where they are shown."""
    shown = y > 0
    g = torch.where(shown, 0.2**2 / (0.2**2 + noise**2), 0.0)
    return prior + g * (y - prior), 0.2**2 * (1 - g)


@pytest.mark.parametrize(("method", "guidance"), [("mmps", 0.0), ("mmps", 0.4), ("diffpir", 0.0)])
def test_restorations_have_the_posteriors_mean_and_variance(method: str, guidance: float) -> None:
    """Of 400 samples: the mean within five standard errors, 0.05, and the spread within 15 % (four). Guidance w moves
    the prior's mean from μ to μ + w (μ − μ₀). diffpir takes the prior for wider than it is, but keeps to known
    pixels."""
    mask = torch.tensor([[1, 1, 0, 0]] * 4)
    y = torch.full((1, 4, 4), 0.5) * mask
    settings: dict[str, Any] = {"label": "b", "guidance": guidance, "method": method, "batch_size": 150}
    made = model().restore(y, Mask(mask), noise=0.1, n=400, **settings)
    mean, variance = exact_posterior(MEANS[1] + guidance * (MEANS[1] - MEANS[-1]), y, 0.1)
    if method == "mmps":
        inside = (mean > 0.3) & (mean < 0.7)  # where [0, 1] cuts off little
        assert inside.sum() > 5
        assert (made.mean(0) - mean)[inside].abs().max() < 0.05
        assert (made.std(0) / variance.sqrt() - 1)[inside].abs().max() < 0.15
    rows = Measurement(y.expand(400, 1, 4, 4), Mask(mask), 0.1)
    assert 0.5 < residual(made, rows).square().mean().sqrt() < 1.2


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("guidance", [0.0, 0.8])
def test_threads_and_batches_change_nothing(method: str, guidance: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor do they forget the derivative: on threads, the posterior's score is shared as a whole."""
    y, settings = torch.rand(1, 2, 2), {"noise": 0.05, "n": 5, "label": ["a", "b", "b", "a", "a"], "method": method}

    names, forward = set[str](), Exact.forward

    def noted(self: Exact, *given: Tensor, **label: Tensor) -> Tensor:
        names.add(current_thread().name)
        return forward(self, *given, **label)

    monkeypatch.setattr(Exact, "forward", noted)

    def restored(number: int, batch_size: int) -> Tensor:
        monkeypatch.setattr(torch, "get_num_threads", lambda: number)
        return model().restore(y, Downsample(2), guidance=guidance, batch_size=batch_size, **settings)  # type: ignore[arg-type]

    monkeypatch.setattr(threads, "PART", 1e-9)
    monkeypatch.setattr(models, "multiplications", lambda *_: 1.0)
    monkeypatch.setattr("scorefield.acceleration.multiplications", lambda *_: 1.0)
    alone = restored(1, 5)
    assert names == {current_thread().name}
    torch.testing.assert_close(restored(2, 5), alone, rtol=1e-4, atol=1e-5)
    assert len(names) == 3
    torch.testing.assert_close(restored(2, 3), alone, rtol=1e-4, atol=1e-5)


def test_each_sample_its_own_measurement() -> None:
    ys = torch.rand(5, 1, 2, 2, generator=torch.Generator().manual_seed(1))
    together = model().restore(ys, Downsample(2), noise=0.05, n=5, label="a", batch_size=2)
    for k in (0, 3):
        alone = model().restore(ys[k], Downsample(2), noise=0.05, n=5, label="a")
        torch.testing.assert_close(together[k], alone[k], rtol=1e-4, atol=1e-5)


def test_what_the_usual_sampler_is_better_at() -> None:
    """The mean ratio of the standard deviations to the exact ones, of 400 samples: a standard error of 1.3 %."""
    mask = torch.tensor([[1, 1, 0, 0]] * 4)
    y = torch.full((1, 4, 4), 0.5) * mask
    mean, variance = exact_posterior(MEANS[1], y, 0.1)
    inside = (mean > 0.3) & (mean < 0.7)
    found = []
    for sampler in (None, Ancestral(calls=35)):
        made = model().restore(y, Mask(mask), noise=0.1, n=400, label="b", batch_size=400, sampler=sampler)
        found.append((made.std(0) / variance.sqrt())[inside].mean().item())
    usual, ancestral = found
    assert 0.95 < usual < 1.12
    assert ancestral < 0.9


def test_the_sampler_of_restorations_is_the_default() -> None:
    y = torch.rand(1, 2, 2)
    own: Any = model().restoration_sampler
    assert (own.name, own.calls, own.churn) == ("heun", 35, 8.0)
    settings: dict[str, Any] = {"noise": 0.05, "n": 2, "label": "a"}
    made = model().restore(y, Downsample(2), **settings)
    assert torch.equal(made, model().restore(y, Downsample(2), sampler=own, **settings))
    assert not torch.equal(made, model().restore(y, Downsample(2), sampler=Heun(calls=35), **settings))


def test_clear_errors() -> None:
    with pytest.raises(ValueError, match=r"y must have the shape of A\(x\), \(1, 2, 2\), or a batch of 3 such"):
        model().restore(torch.rand(1, 4, 4), Downsample(2), noise=0.1, n=3)
    with pytest.raises(ValueError, match="not linear"):
        model().restore(torch.rand(1, 4, 4), lambda x: x**2, noise=0.1, n=3)
    with pytest.raises(ValueError, match="noise is a standard deviation"):
        model().restore(torch.rand(1, 4, 4), lambda x: x, noise=0.0, n=3)


def test_the_mixture_of_the_classes_is_a_model_too() -> None:
    """Without a label each restoration has a random class, as samples have."""
    made = model().restore(torch.zeros(1, 1, 1), Downsample(4), noise=10.0, n=60, sampler=Heun(calls=19))
    prior = GaussianMixture(MEANS[:2], 0.2, [1, 1])
    near = torch.stack([(made - mean).square().flatten(1).sum(1) for mean in prior.means])
    assert 15 < int((near[0] < near[1]).sum()) < 45


@pytest.mark.parametrize("name", sorted(samplers.SAMPLERS))
def test_all_samplers(name: str) -> None:
    """The root mean square residual of 64 restorations, with 100 calls each."""
    sampler = samplers.changed(model().sampler, {"calls": 100}, name=name, accepted=model().accepted)
    x = 0.5 * torch.ones(1, 4, 4)
    y = Downsample(2)(x[None])[0] + 0.05 * torch.tensor([[1.0, -1.0], [-1.0, 1.0]])
    made = model().restore(y, Downsample(2), noise=0.05, n=64, label="a", sampler=sampler)
    rows = Measurement(y.expand(64, 1, 2, 2), Downsample(2), 0.05)
    wanted = expected_residual(y)
    assert residual(made, rows).square().mean().sqrt().item() == pytest.approx(wanted, rel=0.2)


def expected_residual(y: Tensor) -> float:
    """A x given y is N(a + g (y − a), t² (1 − g)) in each pixel, where t² = 0.2²/4 is A's variance, a = A μ, and
    g = t²/(t² + noise²)."""
    a, t2 = Downsample(2)(MEANS[:1])[0], 0.01
    g = t2 / (t2 + 0.05**2)
    squares = ((1 - g) * (a - y)).square() + t2 * (1 - g)
    return float(squares.mean().sqrt() / 0.05)
