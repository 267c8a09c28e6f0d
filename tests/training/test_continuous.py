"""Training of a network for all noise levels: draws of σ, learned weights, labels, learning rates, averages, plans."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from forked import Program, ended
from torch import Tensor, nn

import scorefield.training.run as run_module
from scorefield import distributed
from scorefield.models.build import build_network, with_sigma_data
from scorefield.models.export import export
from scorefield.models.model import load
from scorefield.models.recipes import RECIPES, Recipe
from scorefield.networks import UNet
from scorefield.noise import SampleNoise, log_normal
from scorefield.objectives import uncertain, unit_weight
from scorefield.training import saved_recipe, train
from scorefield.training.levels import loss_levels
from scorefield.training.trainer import (
    Batch,
    from_log_normal,
    held_out_losses,
    learning_rates,
    mean_losses,
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


def test_two_processes_compute_what_one_does(recipe: Recipe, tmp_path: Path) -> None:
    """Each place of the joined batch has its own noise, label and dropout; gradients are joined in several buckets."""
    recipe = replace(recipe, steps=2, previews=0, precision="float32")
    train(recipe, tmp_path / "one", ALONE)
    (tmp_path / "recipe.json").write_text(json.dumps(asdict(recipe)))
    ended(Program(TWO, variables={"RANK": str(rank), "FOLDER": str(tmp_path)}) for rank in range(2))
    losses = [[float(row["loss"]) for row in rows(tmp_path / name / "log.csv")] for name in ("one", "two")]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    one, two = (final(tmp_path / name, step=2) for name in ("one", "two"))
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, rtol=1e-2, atol=2e-4)


TWO = """
import os, torch, torch.distributed as dist
from pathlib import Path
from scorefield import distributed
from scorefield.models.model import recipe_from_json
from scorefield.training import train

torch.set_num_threads(1)
distributed.BUCKET = 500
rank, folder = int(os.environ["RANK"]), Path(os.environ["FOLDER"])
dist.init_process_group("gloo", init_method=f"file://{folder / 'meet'}", rank=rank, world_size=2)
group = distributed.Group(rank, 2, torch.device("cpu"))
train(recipe_from_json((folder / "recipe.json").read_text()), folder / "two", group)
dist.destroy_process_group()
"""


def test_a_small_network_is_trained_by_one_thread(recipe: Recipe, tmp_path: Path) -> None:
    """And PyTorch's setting is as before in the end."""
    seen, before = list[int](), torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        log = lambda step, numbers: seen.append(torch.get_num_threads())  # noqa: E731
        train(replace(recipe, steps=1, previews=0, held_out=0), tmp_path / "run", ALONE, extra_logs=[lambda until: log])
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert seen == [1]


def test_buckets() -> None:
    sizes = [3, 4, 9, 20, 1, 1]
    tensors = [torch.zeros(n) for n in sizes]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distributed, "BUCKET", 10)
        found = distributed._buckets(tensors)
    assert [[len(tensor) for tensor in bucket] for bucket in found] == [[3, 4], [9], [20], [1, 1]]
    assert [tensor for bucket in found for tensor in bucket] == tensors


def stop_at(step: int) -> Any:  # noqa: ANN401
    def log(n: int, numbers: object) -> None:
        if n == step:
            raise RuntimeError("stop here")

    return log


def test_a_plan_leaves_the_updates_so_far_as_they_are(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may ask for too few iterations, or for more than the recipe's: then nothing is changed or recorded."""
    recipe = replace(recipe, cooldown=0.5, warmup=0, previews=0, held_out=0)
    for name, asked, planned in (("few", 3, 4), ("many", 99, 6)):
        monkeypatch.setattr(run_module.Plan, "steps", lambda self, step, planned, n=asked: n if step == 2 else planned)
        train(recipe, tmp_path / name, ALONE, minutes=1, plan=True)
        assert load(tmp_path / name).step == planned
        assert ("changes" in load(tmp_path / name).metadata) == (name == "few")
    rates = [float(row["learning_rate"]) for row in rows(tmp_path / "few" / "log.csv")]
    assert rates == pytest.approx([7e-3, 7e-3, 7e-3, 3.5e-3], rel=1e-4)


def test_dropout_of_a_unet_that_is_given_depends_on_the_seed_alone(recipe: Recipe, tmp_path: Path) -> None:
    recipe = replace(recipe, steps=3, previews=0, held_out=0)
    for k in range(2):
        torch.manual_seed(0)
        network = UNet(channels=1, width=4, stages=(1,), blocks=(1,), attention=(), labels=2, dropout=0.5)
        torch.manual_seed(k)
        train(recipe, tmp_path / str(k), ALONE, network=network)
    assert_same(final(tmp_path / "0", 3), final(tmp_path / "1", 3))


@pytest.mark.nightly
@pytest.mark.skipif(not shutil.which("g++"), reason="compiling needs a C++ compiler")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of PyTorch's own modules
def test_a_compiled_run_is_the_plain_one(recipe: Recipe, tmp_path: Path) -> None:
    """Up to rounding, which Adam makes larger."""
    recipe = replace(recipe, steps=2, previews=0, held_out=0, precision="float32")
    for name, compiled in (("plain", False), ("compiled", True)):
        train(replace(recipe, compile=compiled), tmp_path / name, ALONE)
    plain, compiled_ = final(tmp_path / "plain", 2), final(tmp_path / "compiled", 2)
    assert all(torch.allclose(plain[name], compiled_[name], atol=1e-3) for name in plain)
    assert any(not torch.equal(plain[name], compiled_[name]) for name in plain)  # it was compiled


def test_compiling_without_a_compiler_is_an_error(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(OSError, match="install g\\+\\+, or leave compile out"):
        train(replace(recipe, compile=True), tmp_path / "run", ALONE)
    assert not (tmp_path / "run").exists()


def test_the_trainer_of_a_recipe(recipe: Recipe) -> None:
    """Its draw of σ, weight, optimizer and averages, and weights of unit size after an update."""
    recipe = replace(recipe, dropout=0.0, weight="unit", beta2=0.9, sigma_data=0.48)
    network = build_network(recipe, channels=1)
    trainer, pixels = run_module._trainer(recipe, ALONE, network), torch.full((4, 5, 6, 1), 9, dtype=torch.uint8)
    losses = trainer.step(Batch(pixels), 0)
    noise = SampleNoise.at_step(recipe.seed, 0, range(4))
    x = (9 + noise.rand_like(torch.empty(4, 1, 5, 6))) / 256
    sigma = 0.48 * (-0.5 + 1.2 * noise.randn_like(torch.empty(4))).exp()
    torch.testing.assert_close(losses.sigmas, sigma)
    std, z = sigma[:, None, None, None], noise.randn_like(x)
    error = (0.5 - x - std * z) / (std**2 + 0.48**2) + z / std  # the network's output begins at 0
    expected = sigma**2 * (1 + sigma**2 / 0.48**2) * error.square().flatten(1).sum(1) / 2
    torch.testing.assert_close(losses.values, expected)
    assert trainer.optimizer.defaults["betas"] == (0.9, 0.9)
    assert list(trainer.averages) == ["ema", "ema-0.1"]
    torch.testing.assert_close(network.get_parameter("begin.weight").square().mean((1, 2, 3)), torch.ones(4))


def test_which_cpu_trains_in_bfloat16(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """One with instructions for it, a U-Net, by denoising score matching; any that is told to."""

    def autocast(network: nn.Module, **settings: Any) -> bool:  # noqa: ANN401
        dtype = run_module.arithmetic(replace(recipe, **settings), network, ALONE.device)
        with run_module.autocast(dtype, ALONE.device)():
            assert torch.is_autocast_enabled("cpu") == (dtype is torch.bfloat16)
            return torch.get_autocast_dtype("cpu") is dtype

    unet = build_network(recipe, channels=1)
    assert not autocast(unet)
    assert autocast(unet, precision="bfloat16")
    for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"):
        with monkeypatch.context() as patch:
            patch.setattr(torch.cpu, name, lambda: True, raising=False)
            assert autocast(unet)
            assert not autocast(unet, precision="float32")
            assert not autocast(unet, objective="sliced", stages=(1, 2), attention=())
            assert not autocast(nn.Identity())


def test_a_training_in_bfloat16_is_that_in_float32_up_to_rounding(recipe: Recipe) -> None:
    """The losses and the gradient of the first updates."""
    pixels = torch.randint(0, 256, (16, 5, 6, 1), dtype=torch.uint8)
    losses, gradients = list[Tensor](), list[Tensor]()
    for precision in ("float32", "bfloat16"):
        recipe = replace(recipe, precision=precision, sigma_data=0.3, warmup=0)
        network = build_network(recipe, channels=1)
        trainer = run_module._trainer(recipe, ALONE, network)
        losses.append(torch.cat([trainer.step(Batch(pixels), n).values for n in range(5)]))
        gradients.append(torch.cat([p.grad.flatten() for p in network.parameters() if p.grad is not None]))
    for exact, rounded in (losses, gradients):
        assert 0 < ((rounded - exact).norm() / exact.norm()).item() < 0.05


def test_other_labels(recipe: Recipe, tmp_path: Path) -> None:
    """A run is not resumed with other labels for its images, nor started from a model with other classes."""
    recipe = replace(recipe, steps=1, previews=0, held_out=0)
    train(recipe, tmp_path / "run", ALONE)
    images = np.load(tmp_path / "dots.npz")["images"]
    for name, labels in {"swapped": 1 - np.arange(20) % 2, "three": np.arange(20) % 3}.items():
        file = tmp_path / f"{name}.npz"
        np.savez(file, images=images, labels=labels, classes=np.array(["dark", "light", "grey"][: labels.max() + 1]))
        with pytest.raises(ValueError, match="the labels of the images changed since"):
            train(replace(recipe, data=str(file), steps=2), tmp_path / "run", ALONE, resume=True)
    start = replace(recipe, start=str(tmp_path / "run"), data=str(tmp_path / "three.npz"))
    with pytest.raises(ValueError, match="has 2 classes, and this network 3"):
        train(start, tmp_path / "other", ALONE)
    with pytest.raises(ValueError, match="has 2 classes, and this network none"):
        train(replace(start, labels=False), tmp_path / "other", ALONE)
    train(replace(start, data=recipe.data, learning_rate=1e-30), tmp_path / "same", ALONE)
    begun, model = (final(tmp_path / name, 1) for name in ("same", "run"))
    torch.testing.assert_close(begun["raw/classes.weight"], model["ema/classes.weight"])
    with pytest.raises(ValueError, match="mnist-small is a RefineNet, and this network a UNet"):
        train(replace(start, start="mnist-small"), tmp_path / "other", ALONE)
    assert not (tmp_path / "other").exists()


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
        ValueError, match=r"holds raw and ema and ema-0.1 and ema-0.2.*got weights=ema-0.3 \(choose raw or ema or"
    ):
        load(file, weights="ema-0.3")
    assert torch.equal(load(file, weights="ema-0.05").network.get_parameter("begin.weight"), averages[0])
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


def test_levels_count_as_much_as_training_draws_them(recipe: Recipe) -> None:
    """The share of each bin of ln σ by counting draws, with the tails in the outer bins; the mean loss follows it."""
    recipe = replace(recipe, sigma_data=0.5, sigma_min=0.1, sigma_max=2.0)
    sigmas, shares = loss_levels(recipe, build_network(recipe, channels=1))
    assert shares is not None
    assert len(sigmas) == len(shares) == 10
    draws = math.log(0.5) - 0.5 + 1.2 * torch.randn(40_000, generator=torch.Generator().manual_seed(0))
    nearest = (draws[:, None] - sigmas.log()).abs().argmin(1)
    counted = torch.bincount(nearest, minlength=10) / 40_000
    torch.testing.assert_close(shares, counted, rtol=0, atol=0.01)
    losses = torch.arange(30.0).reshape(10, 3)
    found = mean_losses(losses, shares)
    means = [sum(share * row[k] for share, row in zip(shares.tolist(), losses.tolist(), strict=True)) for k in range(3)]
    assert found.mean == pytest.approx(sum(means) / 3, rel=1e-5)
    assert loss_levels(Recipe(levels=3), build_network(Recipe(width=2, levels=3), channels=1))[1] is None


def test_sigma_data_is_measured_if_left_open(recipe: Recipe, tmp_path: Path) -> None:
    pixels = np.zeros((4, 2, 2, 1), dtype=np.uint8)
    pixels[:2] = 255
    assert with_sigma_data(replace(recipe, sigma_data=0.0), pixels).sigma_data == 0.5
    assert with_sigma_data(replace(recipe, sigma_data=0.3), pixels).sigma_data == 0.3
    train(replace(recipe, sigma_data=0.0, steps=1, previews=0), tmp_path / "run", ALONE)
    assert saved_recipe(tmp_path / "run").sigma_data == pytest.approx(0.288, abs=0.02)  # of uniform bytes: 1/√12
    train(replace(recipe, sigma_data=0.0, steps=2, previews=0), tmp_path / "run", ALONE, resume=True)


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


def planned_run(
    pace: Callable[[int], float], *, whole: float = 1000.0, most: int = 10_000
) -> tuple[dict[int, int], float]:
    """The plans of a run in which iteration n takes pace(n) seconds, by their step, and the seconds that are left."""
    stop: Any = SimpleNamespace(seconds_left=whole)
    plan, steps, plans = run_module.Plan(stop, most=most, cooldown=0.2), most, dict[int, int]()
    step = 0
    while step < steps and stop.seconds_left > 0:
        stop.seconds_left -= pace(step)
        step += 1
        if not plan.final and (not plan.made or step % plan.every == 0):  # as in the loop of training
            cooling = step > 0.8 * steps
            before, steps = steps, min(most, plan.steps(step, steps))
            if steps != before:
                plans[step] = steps
                assert not cooling  # the learning rates so far are those of the new plan
                assert step <= 0.8 * steps
    return plans, stop.seconds_left


def test_a_plan_ends_in_time() -> None:
    """20 iterations of a second, then 5 % of 1,000 s to measure; 95 % of the 930 s that are left. When the cool-down of
    these 953 should begin, after 80 %, there is time for a few more: for 95 % of what is left then."""
    first = 70 + int(0.95 * 930)
    second = 760 + int(0.95 * 240)
    plans, left = planned_run(lambda n: 1.0)
    assert plans == {70: first, 760: second}
    assert left == 1000 - second


def test_a_plan_keeps_to_the_pace() -> None:
    """From iteration 300 on each one takes twice as long, or half: the cool-down begins earlier or later."""
    plans, left = planned_run(lambda n: 1.0 if n < 300 else 2.0)
    assert len(plans) == 2
    assert 0 < left < 30
    plans, left = planned_run(lambda n: 1.0 if n < 300 else 0.5)
    assert max(plans.values()) > 1500
    assert 0 < left < 60
    assert planned_run(lambda n: 1.0, most=80) == ({}, 920.0)  # never more than the recipe's
    plans, left = planned_run(lambda n: 1.0 if n < 850 else 2.0)  # too late for another plan: it has begun
    assert left <= 0


def test_a_planned_run(recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan is made at step 3, is recorded, and the resumed run keeps it; the learning rate ends near 0."""
    monkeypatch.setattr(run_module.Plan, "steps", lambda self, step, planned: 5 if step == 3 else planned)
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
    train(recipe, tmp_path / "run", ALONE, resume=True, plan=True)  # a recipe's own number is not what was planned
    assert (load(tmp_path / "run").step, saved_recipe(tmp_path / "run").steps) == (5, 5)
    unplanned = replace(recipe, cooldown=0.0)
    train(unplanned, tmp_path / "other", ALONE, minutes=1, plan=True)
    assert load(tmp_path / "other").step == 6


REFINENET = {"network": "refinenet", "sigma_draw": "levels", "sampler": "annealed_langevin", "weight": "paper"}


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
        ({**REFINENET, "stages": ()}, r"refinenet has no blocks; got \(1, 1\)"),
        ({**REFINENET, "stages": (), "blocks": (), "attention": ()}, "refinenet has no dropout; got 0.2"),
        ({"sample_calls": 0}, "sample_calls must be at least 1"),
        ({"sampler": "magic"}, "no sampler called magic"),
        ({"blocks": (1,)}, "for each of the 2 stages"),
        ({"objective": "sliced"}, "attention does not have"),
        ({"image_size": 1}, "at least 2 × 2 pixels"),
    ],
)
def test_wrong_settings(settings: dict[str, Any], words: str, recipe: Recipe, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=words):
        train(replace(recipe, **settings), tmp_path / "run", ALONE)
    assert not (tmp_path / "run").exists()
