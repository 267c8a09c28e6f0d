"""A training planned by the doctor, with numbers by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from scorefield.distributed import Group
from scorefield.doctor import plan
from scorefield.doctor.advice import Speed, images_to_see, time_advice
from scorefield.models.recipes import RECIPES, Recipe

ALONE = Group(0, 1, torch.device("cpu"))
MEASURED = Speed(images_per_second=100.0, memory_gib=1.0, device="cpu", machine="made up")


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recipe:
    monkeypatch.setattr(plan, "measure_speed", lambda *_: MEASURED)
    pixels = np.random.default_rng(0).integers(100, 256, (100, 40, 40, 3), dtype=np.uint8)  # their mean is not grey
    np.save(tmp_path / "images.npy", pixels)
    return replace(RECIPES["unet"], data=str(tmp_path / "images.npy"), image_size=40, held_out=0)


def test_settings_follow_from_the_images_and_the_machine(recipe: Recipe) -> None:
    said = list[str]()
    found = plan.plan_training(recipe, ALONE, say=said.append)
    x = np.load(recipe.data) / 255
    off_grey = np.square(x - 0.5).sum((1, 2, 3)).mean()
    assert found.recipe.sigma_max == pytest.approx(math.sqrt(off_grey / 0.12), rel=0.05)  # two digits
    assert found.recipe.sigma_data == pytest.approx(np.sqrt(np.square(x - 0.5).mean()), rel=5e-3)
    assert found.recipe.log_sigma_mean == pytest.approx(-0.5 + math.log(40 / 32), abs=0.01)
    assert found.recipe.batch_size == 32
    assert (found.recipe.width, found.recipe.learning_rate) == (16, 0.03)  # on a CPU
    assert found.minutes == 34  # 200,000 images at 100 a second
    assert f"sigma_max {found.recipe.sigma_max:g}" in said[-1]
    assert "minutes 34" in said[-1]


def test_what_was_given_is_kept(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "measure_speed", lambda *_: pytest.fail("there is no need for it"))
    given = replace(recipe, sigma_max=30.0, batch_size=7)
    said = list[str]()
    found = plan.plan_training(given, ALONE, given={"sigma_max", "batch_size", "minutes"}, minutes=5, say=said.append)
    assert (found.recipe.sigma_max, found.recipe.batch_size, found.minutes) == (30.0, 7, 5)
    assert "sigma_max" not in said[-1]
    assert "batch_size" not in said[-1]
    steps = plan.plan_training(replace(recipe, steps=9), ALONE, given={"steps"})
    assert (steps.recipe.steps, steps.minutes) == (9, math.inf)


def test_a_few_images_make_small_batches(recipe: Recipe, tmp_path: Path) -> None:
    np.save(tmp_path / "few.npy", np.load(recipe.data)[:9])
    found = plan.plan_training(replace(recipe, data=str(tmp_path / "few.npy")), ALONE)
    assert found.recipe.batch_size == 8


@pytest.mark.parametrize(
    ("n", "device", "images"),
    [
        (100, "cpu", 200_000),
        (1_000, "cpu", 500_000),
        (20_000, "cpu", 10**6),
        (20_000, "cuda", 10**6),
        (10**5, "cuda", 2_500_000),
        (10**6, "cpu", 10**6),
        (10**6, "cuda", 5 * 10**6),
    ],
)
def test_images_to_see(n: int, device: str, images: int) -> None:
    assert images_to_see(n, device) == images


def test_time_that_is_too_long_is_cut_and_said() -> None:
    advice = time_advice(10_000, replace(MEASURED, images_per_second=1.0))
    assert advice.value == 720
    assert advice.reason.startswith("43,200 images at 1 a second on this machine: 4.3 passes through 10,000 images")
    assert "all 1,000,000 that are advised would take 278 hours" in advice.reason
