"""Training of a network for all noise levels: draws of σ, learned weights, labels, learning rates, averages, plans."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import scorefield.training.run as run_module
from scorefield.models.export import export
from scorefield.models.model import load
from scorefield.models.recipes import RECIPES, Recipe
from scorefield.noise import SampleNoise, log_normal
from scorefield.objectives import uncertain, unit_weight
from scorefield.training import saved_recipe, train
from scorefield.training.trainer import (
    Batch,
    from_log_normal,
    held_out_losses,
    learning_rates,
    power_function,
    score_matching,
)
from training.small_runs import ALONE, assert_same, final, rows


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    """Six steps of a tiny U-Net on 20 images of 2 classes, with dropout and two averages."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (20, 5, 6), dtype=np.uint8)
    np.savez(tmp_path / "dots.npz", images=images, labels=np.arange(20) % 2, classes=np.array(["dark", "light"]))
    return replace(
        RECIPES["unet-tiny"],
        data=str(tmp_path / "dots.npz"),
        image_size=None,
        width=4,
        stages=(1, 2),
        dropout=0.2,
        held_out=4,
        steps=6,
        batch_size=4,
        averages=(0.05, 0.1),
        checkpoint_every=2,
        evaluate_every=3,
        log_every=1,
        previews=2,
    )


def test_a_resumed_run_is_the_uninterrupted_one_bit_for_bit(recipe: Recipe, tmp_path: Path) -> None:
    """Dropout, labels that are left out, weights of unit size, both averages, and the learning rate's cool-down."""
    train(recipe, tmp_path / "whole", ALONE)
    with pytest.raises(RuntimeError, match="stop here"):
        train(recipe, tmp_path / "parts", ALONE, extra_logs=[lambda until: stop_at(3)])
    torch.manual_seed(7)
    train(recipe, tmp_path / "parts", ALONE, resume=True)
    assert_same(final(tmp_path / "whole"), final(tmp_path / "parts"))
    whole, parts = (rows(tmp_path / name / "log.csv") for name in ("whole", "parts"))
    timing = ("seconds", "images_per_second")
    for a, b in zip(whole, parts, strict=True):
        assert {k: v for k, v in a.items() if k not in timing} == {k: v for k, v in b.items() if k not in timing}
    assert rows(tmp_path / "whole" / "held_out.csv") == rows(tmp_path / "parts" / "held_out.csv")
    names = rows(tmp_path / "whole" / "held_out.csv")[0].keys()
    assert {"held_out", "ema_held_out", "ema-0.1_held_out", "ema-0.1_held_out_standard_error"} <= names
    rates = [float(row["learning_rate"]) for row in whole]
    assert rates == pytest.approx([7e-3 * n / 50 for n in (1, 2, 3, 4, 5)] + [7e-3 * 6 / 50 / 1.2], rel=1e-4)


def stop_at(step: int) -> Any:  # noqa: ANN401
    def log(n: int, numbers: object) -> None:
        if n == step:
            raise RuntimeError("stop here")

    return log


def test_all_averages_are_in_the_file(recipe: Recipe, tmp_path: Path) -> None:
    file = train(replace(recipe, averages=(0.05, 0.1, 0.2)), tmp_path / "run", ALONE)
    model = load(file)
    assert model.held == ("raw", "ema", "ema-0.1", "ema-0.2")
    assert model.weights == "ema"
    assert model.labels == ("dark", "light")
    raw, *averages = (load(file, weights=kind).network.get_parameter("begin.weight") for kind in model.held)
    apart = [(average - raw).norm().item() for average in averages]
    assert 0 < apart[0] < apart[1] < apart[2]  # the wider, the further behind
    with pytest.raises(
        ValueError, match=r"holds raw and ema and ema-0.1 and ema-0.2.*got weights=ema-0.3 \(choose ema"
    ):
        load(file, weights="ema-0.3")
    exported = export(file, tmp_path / "small.safetensors", weights="ema-0.2")
    assert exported.held == ("ema-0.2",)
    assert load(tmp_path / "small.safetensors").weights == "ema-0.2"
    assert torch.equal(model.sample(2, label="light"), load(file).sample(2, label=[1, 1]))
    assert model.sampler.calls == 10


@pytest.mark.parametrize("width", [0.05, 0.1, 0.2])
def test_the_power_function_average_by_hand(width: float) -> None:
    """The average of 1, 2, ..., N with weights t^γ has the mean (γ+1)/(γ+2) N, and t that standard deviation."""
    decay, n = power_function(width), 4000
    mean = square = 0.0
    for t in range(1, n + 1):
        beta = decay(t - 1)
        mean, square = beta * mean + (1 - beta) * t, beta * square + (1 - beta) * t**2
    assert math.sqrt(square - mean**2) / n == pytest.approx(width, rel=1e-3)
    assert decay(0) == 0  # the first update replaces the start


def test_learning_rates_by_hand() -> None:
    rate = learning_rates(8.0, warmup=4, decay=16, cooldown=0.25, steps=100)
    assert [rate(n) for n in range(4)] == pytest.approx([2, 4, 6, 8])
    assert rate(15) == 8.0
    assert rate(63) == pytest.approx(8 * math.sqrt(16 / 64))
    assert rate(75) == pytest.approx(8 * math.sqrt(16 / 76))
    assert rate(99) == pytest.approx(8 * math.sqrt(16 / 100) / 25)
    assert rate(100) == 0
    assert learning_rates(3.0)(10**6) == 3.0


def test_draws_of_sigma() -> None:
    """ln σ has the mean and the standard deviation that are asked for (5 standard errors), and stays in the range."""
    noise, x = SampleNoise.at_step(0, 0, range(4000)), torch.zeros(4000, 1, 1, 1)
    generator = torch.Generator().manual_seed(0)
    for sigma in (
        from_log_normal(-1.5, 0.5, (1e-3, 1e3))(noise, x),
        log_normal(-1.5, 0.5, sigma_range=(1e-3, 1e3), generator=generator)(x),
    ):
        assert sigma.shape == (4000,)
        assert sigma.log().mean().item() == pytest.approx(-1.5, abs=5 * 0.5 / 4000**0.5)
        assert sigma.log().std().item() == pytest.approx(0.5, abs=5 * 0.5 / 8000**0.5)
    cut = log_normal(0.0, 3.0, sigma_range=(0.5, 2.0), generator=generator)(x)
    assert cut.min() == 0.5
    assert cut.max() == 2.0


def test_the_unit_weight() -> None:
    """Before training the score is −x/(σ² + σ_d²): λℓ has the mean D/2 at all σ for data N(0, σ_d²)."""
    generator = torch.Generator().manual_seed(0)
    x, z = 0.3 * torch.randn(20000, generator=generator), torch.randn(20000, generator=generator)
    for sigma in torch.tensor([0.01, 0.3, 20.0]):
        score = -(x + sigma * z) / (sigma**2 + 0.3**2)
        losses = unit_weight(0.3)(sigma) * (score + z / sigma).square() / 2
        assert losses.mean().item() == pytest.approx(0.5, abs=0.025)


def test_learned_weights_by_hand() -> None:
    """λℓ/eᵘ + D u/2, which is least at eᵘ = 2λℓ/D."""
    losses, u = torch.tensor([3.0, 8.0]), torch.tensor([0.0, math.log(2)])
    torch.testing.assert_close(uncertain(losses, u, 6), torch.tensor([3.0, 4.0 + 3 * math.log(2)]))
    best = torch.tensor([math.log(2 * 3.0 / 6)], requires_grad=True)
    uncertain(torch.tensor([3.0]), best, 6).sum().backward()
    assert best.grad is not None
    torch.testing.assert_close(best.grad, torch.zeros(1))


def test_the_loss_of_learned_weights_and_left_out_labels() -> None:
    """What is minimised, what is logged, and which labels the score is given: by hand, from the same noise."""
    given = list[Tensor]()

    def score(x: Tensor, sigma: Tensor, *, label: Tensor) -> Tensor:
        given.append(label)
        return -x

    pixels, labels = torch.full((2000, 1, 1, 1), 51, dtype=torch.uint8), torch.arange(2000) % 3
    loss = score_matching(
        score,
        torch.tensor([0.5]),
        weight=lambda sigma: 10 * sigma,
        log_variance=torch.log,
        label_dropout=0.25,
        dequantise=False,
    )
    minimised, losses = loss(Batch(pixels, labels), SampleNoise.at_step(3, 0, range(2000)))
    noise = SampleNoise.at_step(3, 0, range(2000))
    noise.rand_like(torch.empty(2000))
    dropped = noise.rand_like(torch.empty(2000)) < 0.25
    z = noise.randn_like(torch.empty(2000, 1, 1, 1)).flatten()
    expected = 5.0 * (-(0.2 + 0.5 * z) + z / 0.5).square() / 2
    torch.testing.assert_close(losses.values, expected)
    torch.testing.assert_close(minimised, expected / 0.5 + 0.5 * math.log(0.5))
    assert torch.equal(given[0], torch.where(dropped, -1, labels))
    assert dropped.float().mean().item() == pytest.approx(0.25, abs=0.05)


def test_held_out_losses_have_the_weight_of_training() -> None:
    pixels, sigmas = torch.zeros(3, 2, 2, 1, dtype=torch.uint8), torch.tensor([0.5])
    score = lambda x, sigma: torch.zeros_like(x)  # noqa: E731
    plain, other = (
        held_out_losses(score, Batch(pixels), sigmas, dequantise=False, batch_size=2, weight=weight)
        for weight in (torch.square, unit_weight(0.25))
    )
    torch.testing.assert_close(other, plain * 5)  # 1 + 0.5²/0.25²


def test_a_recipe_sizes_its_network_by_the_images_and_resumes(recipe: Recipe, tmp_path: Path) -> None:
    open_sizes = replace(recipe, width=0, stages=(), blocks=(), attention=(), labels=False, steps=2, previews=0)
    small = replace(open_sizes, width=4)
    train(small, tmp_path / "run", ALONE)
    made = saved_recipe(tmp_path / "run")
    assert (made.stages, made.blocks, made.attention) == ((1, 2), (3, 3), (0,))
    train(replace(small, steps=3), tmp_path / "run", ALONE, resume=True)
    assert load(tmp_path / "run").step == 3
    assert load(tmp_path / "run").labels == ()


class Clock:
    """Every look at it takes `seconds`."""

    def __init__(self, seconds: float) -> None:
        self.now, self.seconds = 0.0, seconds

    def __call__(self) -> float:
        self.now += self.seconds
        return self.now


def test_a_plan_ends_in_time() -> None:
    """20 iterations of a second, then 5 % of 1,000 s to measure; 95 % of the 930 s that are left."""
    stop: Any = SimpleNamespace(seconds_left=1000.0)
    plan, step, steps = run_module.Plan(stop), 0, 0
    while not steps:
        step, stop.seconds_left = step + 1, stop.seconds_left - 1
        steps = plan.steps(step)
    assert step == 70
    assert steps == 70 + int(0.95 * 930)


def test_a_planned_run(recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan is made at step 3, is recorded, and the resumed run keeps it; the learning rate ends near 0."""
    monkeypatch.setattr(run_module.Plan, "steps", lambda self, step: 5 if step == 3 else 0)
    recipe = replace(recipe, cooldown=0.4, warmup=0, previews=0)
    said = list[str]()
    train(recipe, tmp_path / "run", ALONE, minutes=1, plan=True, say=said.append)
    assert "planned: 5 iterations in the time there is" in said
    assert saved_recipe(tmp_path / "run").steps == 5
    model = load(tmp_path / "run")
    assert model.step == 5
    assert '"setting": "steps", "before": 6, "after": 5' in model.metadata["changes"]
    rates = [float(row["learning_rate"]) for row in rows(tmp_path / "run" / "log.csv")]
    assert rates == pytest.approx([7e-3, 7e-3, 7e-3, 7e-3, 3.5e-3], rel=1e-4)
    unplanned = replace(recipe, cooldown=0.0)
    train(unplanned, tmp_path / "other", ALONE, minutes=1, plan=True)
    assert load(tmp_path / "other").step == 6


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"averages": (0.05, 0.05)}, "different widths"),
        ({"averages": (0.5,)}, "up to 0.25"),
        ({"ema": 0.9}, "exclude each other"),
        ({"cooldown": 1.0}, "cooldown must be from 0"),
        ({"label_dropout": -0.1}, "label_dropout must be"),
        ({"stages": (1,) * 11}, "up to 10 numbers"),
        ({"blocks": (0, 1)}, "blocks must be"),
        ({"network": "refinenet"}, "sigma_draw must be levels"),
        ({"network": "refinenet", "sigma_draw": "levels"}, "sampler must be annealed_langevin"),
        ({"network": "refinenet", "sigma_draw": "levels", "sampler": "annealed_langevin"}, "cannot learn the weight"),
        ({"sample_calls": 0}, "sample_calls must be at least 1"),
        ({"sampler": "magic"}, "no sampler called magic"),
        ({"blocks": (1,)}, "for each of the 2 stages"),
    ],
)
def test_wrong_settings(settings: dict[str, Any], words: str, recipe: Recipe, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=words):
        train(replace(recipe, **settings), tmp_path / "run", ALONE)
    assert not (tmp_path / "run").exists()
