"""Training on images of a user's own: sizes that are chosen, samples on the way, memory, what a resumed run tells."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import scorefield.training.run as run_module
from scorefield import data, progress
from scorefield.cli import main
from scorefield.models.build import build_network, sized, sized_for_cpu
from scorefield.models.model import Model, load
from scorefield.models.recipes import RECIPES, Recipe
from scorefield.samplers import Heun
from scorefield.training import saved_recipe, train
from scorefield.training.run import Previews, micro_batch, saved_bytes
from scorefield.web.monitor import sample_files
from training.small_runs import ALONE, assert_same, final

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCOREFIELD_DATA", str(tmp_path / "data"))


def photos(folder: Path, *sizes: tuple[int, int], classes: int = 1) -> str:
    """Grey noise of these sizes, in so many classes."""
    rng = np.random.default_rng(0)
    for k, (height, width) in enumerate(sizes):
        place = folder / f"class{k % classes}" if classes > 1 else folder
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (height, width), dtype=np.uint8)).save(place / f"{k}.png")
    return str(folder)


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    """Four steps of a tiny U-Net on twelve images of 8 × 10 in two classes."""
    return replace(
        RECIPES["unet-tiny"],
        data=photos(tmp_path / "photos", *[(8, 10)] * 12, classes=2),
        image_size=None,
        width=4,
        held_out=0,
        steps=4,
        batch_size=2,
        checkpoint_every=4,
        log_every=4,
        previews=0,
    )


def chosen(recipe: Recipe, source: str, device: str = "cpu", **settings: Any) -> Any:  # noqa: ANN401
    recipe = replace(recipe, data=source, **settings)
    return run_module.with_image_size(recipe, torch.device(device), lambda line: None).image_size


def test_when_a_size_is_chosen(recipe: Recipe, tmp_path: Path) -> None:
    small = photos(tmp_path / "small", (40, 56), (40, 56))
    large = photos(tmp_path / "large", (100, 100), (100, 100))
    mixed = photos(tmp_path / "mixed", (50, 60), (70, 50), (66, 66))
    assert (chosen(recipe, small), chosen(recipe, small, "cuda")) == ((20, 28), None)
    assert (chosen(recipe, large), chosen(recipe, large, "cuda")) == ((32, 32), (64, 64))
    assert (chosen(recipe, mixed), chosen(recipe, mixed, "cuda")) == ((32, 32), (32, 32))
    assert chosen(recipe, mixed, image_size=24) == 24
    assert (chosen(recipe, mixed, crop=40), chosen(recipe, mixed, "cuda", crop=40)) == ((32, 32), None)
    assert chosen(recipe, mixed, crop=32) is None
    assert chosen(recipe, mixed, crop=66) == (32, 32)
    paper = Recipe(previews=0)
    assert chosen(paper, large) is None
    assert chosen(paper, mixed) == (32, 32)
    assert chosen(recipe, "cifar10") is chosen(recipe, str(tmp_path / "none")) is None


def test_a_chosen_size_is_told_and_kept(recipe: Recipe, tmp_path: Path) -> None:
    """A resumed run does not look at sizes again, even if they would give another."""
    source = photos(tmp_path / "mixed", *[(20, 30), (40, 30), (20, 20)] * 4)
    recipe, run, said = replace(recipe, data=source, steps=1), tmp_path / "run", list[str]()
    train(recipe, run, ALONE, say=said.append)
    words = "the images have 3 sizes from 20 × 20 to 40 × 30 pixels (height × width); on a CPU they are made 16 × 16 ("
    assert any(line.startswith(f"note: {words}") and "--image-size N" in line for line in said)
    assert any("cropped to the middle and shrunk to 16 × 16" in line for line in said)
    assert saved_recipe(run).image_size == (16, 16)
    assert load(run).shape == (1, 16, 16)
    said.clear()
    train(replace(recipe, steps=2), run, ALONE, resume=True, say=said.append)
    assert not any("they are made" in line for line in said)
    assert load(run).step == 2


def test_few_images_bring_a_warning(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (50, 4, 4, 1), dtype=np.uint8)
    images = data.Images(np.concatenate([pixels, pixels]), "photos", "")
    words = "are few for this network: what it draws may be copies of them (scorefield neighbors RUN shows it)"
    assert run_module._few_images(images) == f"100 images, of which 50 are different, {words}"
    assert run_module._few_images(images.first(50)) == f"50 images {words}"
    monkeypatch.setattr(run_module, "FEW", 50)
    assert run_module._few_images(images) == ""
    assert run_module._few_images(replace(images, name="mnist:test").first(3)) == ""


# ---------------------------------------------------------------- samples while it trains


@pytest.mark.parametrize("settings", [{}, {"averages": (), "dropout": 0.5}], ids=["averaged", "raw"])
def test_samples_on_the_way_change_nothing(
    settings: dict[str, Any], recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After every update, with a row for each class; the page finds them by their names."""
    recipe = replace(recipe, **settings)
    train(recipe, tmp_path / "without", ALONE)
    monkeypatch.setattr(Previews, "due", lambda self, seconds, steps: True)
    train(replace(recipe, previews=6), tmp_path / "with", ALONE)
    assert_same(final(tmp_path / "without", 4), final(tmp_path / "with", 4))
    drawn = sample_files(tmp_path / "with")
    assert sorted(drawn) == [1, 2, 3, 4]
    with Image.open(drawn[1]) as sheet:  # two rows of three images of 8 × 10, with gaps of 2, enlarged
        assert sheet.width * (2 * 10 + 2) == sheet.height * (3 * 12 + 2)
    train(replace(recipe, previews=2, preview_minutes=0.0), tmp_path / "none", ALONE)
    assert sorted(sample_files(tmp_path / "none")) == [4]


def test_each_row_of_samples_is_of_one_class(recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where fewer go through the network at once than a row has."""
    asked, states = list[tuple[list[int], list[int]]](), Model.states

    def watched(self: Model, numbers: Sequence[int], **options: Any) -> Any:  # noqa: ANN401
        asked.append((list(numbers), options["label"]))
        return states(self, numbers, **options)

    monkeypatch.setattr(Model, "states", watched)
    train(replace(recipe, previews=6, micro_batch=2), tmp_path / "run", ALONE)
    assert asked == [([0, 1], [0, 0]), ([2, 3], [0, 1]), ([4, 5], [1, 1])]


def test_a_network_for_a_list_of_levels_has_none_on_the_way(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Previews, "due", lambda self, seconds, steps: True)
    paper = replace(RECIPES["tiny"], data=recipe.data, image_size=None, width=2, held_out=0, batch_size=2)
    train(replace(paper, steps=2, sample_steps=1, checkpoint_every=2), tmp_path / "run", ALONE)
    assert sorted(sample_files(tmp_path / "run")) == [2]


def test_when_samples_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Updates of a second, and samples that take 4 s: after 1, 3, 7, 12, 17, ... minutes, but never for more than 3 %
    of the time; so the first waits until 134 s have passed."""
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    previews, drawn = Previews(300.0, 12.0), list[float]()
    while now < 3600:
        now += 1
        if previews.due(10.0, 10):
            drawn.append(now)
            now += 4
            previews.drawn(4.0)
            assert previews.spent <= 0.03 * now + 0.2
    assert drawn[0] == 134
    assert [round(b - a) for a, b in pairwise(drawn[:5])] == [133, 244, 304, 304]
    assert Previews(30.0, 0.0).next == now + 30


def test_the_loss_is_shown_from_the_first_line_on(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    train(recipe, tmp_path / "run", ALONE, minutes=0.5)
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("training: ")]
    assert lines[0].startswith("training: 1 of 4, loss ")
    assert all("images/s" in line for line in lines)
    assert lines[0].endswith(" s left")


def test_the_time_left_is_never_more_than_the_minutes_allow(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    with progress.Bar("training", 100) as bar:
        for time, ends in ((10.0, float("inf")), (20.0, 30.0), (35.0, 30.0)):
            now, bar.ends = time, ends
            bar.advance(10)
    left = [line.rpartition(", ")[2] for line in capsys.readouterr().err.splitlines()]
    assert left[:3] == ["90 s left", "10 s left", "0 s left"]


# ---------------------------------------------------------------- large images, and small machines


class Wide(nn.Module):
    """Keeps its input and 10 numbers for each pixel until the backward pass, and as many parameters as it likes."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.other = nn.Parameter(torch.ones(10, 1, 1)), nn.Parameter(torch.ones(1000, 1000))

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        each = x * self.scale  # keeps x
        return each.square().mean(1, keepdim=True) + 0 * self.other.square().sum()  # keeps 10 numbers


def test_how_many_images_go_through_the_network_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    each = 11 * 4 * 256 * 256
    assert saved_bytes(Wide(), (1, 256, 256)) == each
    assert micro_batch(Wide(), (1, 32, 32), 256, CPU) == micro_batch(Wide(), (1, 64, 64), 256, CPU) == 32
    monkeypatch.setattr(run_module, "CPU_ROOM", 5.5 * each)
    assert micro_batch(Wide(), (1, 256, 256), 256, CPU) == 5
    assert micro_batch(Wide(), (1, 2560, 2560), 256, CPU) == 1


def test_a_network_for_256_pixels() -> None:
    """It goes down to 8 × 8, and attends at 16 × 16 and 8 × 8 alone."""
    recipe = sized(replace(RECIPES["unet"], width=4, blocks=(1,) * 6), 256, 256)
    assert (recipe.stages, recipe.attention) == ((1, 2, 2, 2, 2, 2), (4,))
    network = build_network(recipe, channels=3)
    x = torch.rand(1, 3, 256, 256)
    loss = network(x, torch.ones(1)).square().mean()
    loss.backward()
    assert loss.isfinite()
    assert sized(RECIPES["unet"], 256, 256).width == 64


def test_a_run_of_a_cpus_sizes_goes_on_with_them(recipe: Recipe, tmp_path: Path) -> None:
    recipe = replace(RECIPES["unet"], data=recipe.data, image_size=None, steps=1, held_out=0, previews=0)
    for steps, resume in ((1, False), (2, True)):
        train(replace(recipe, steps=steps), tmp_path / "run", ALONE, resume=resume)
        found = saved_recipe(tmp_path / "run")
        assert (found.width, found.batch_size, found.warmup, found.decay, found.dropout) == (16, 32, 100, 1500, 0.0)
        assert found.learning_rate == 0.03
    assert load(tmp_path / "run").step == 2


def test_what_a_cpu_trains() -> None:
    """A small network and small batches, unless the recipe says otherwise."""
    recipe = sized_for_cpu(RECIPES["unet"], 40, 56)
    assert (recipe.width, recipe.stages, recipe.blocks, recipe.attention) == (16, (1, 2, 4, 8), (1, 1, 2, 2), (2, 3))
    assert (recipe.batch_size, recipe.warmup, recipe.decay, recipe.dropout) == (32, 100, 1500, 0.0)
    assert recipe.learning_rate == 0.03
    assert sized_for_cpu(replace(RECIPES["unet"], learning_rate=0.01), 40, 56).learning_rate == 0.01
    small = sized_for_cpu(RECIPES["unet"], 32, 32)
    assert (small.width, small.stages, small.blocks, small.attention) == (16, (1, 4, 8), (1, 1, 2), (1, 2))
    assert sized_for_cpu(RECIPES["unet"], 256, 256).stages == (1, 1, 1, 2, 4, 8)
    own = sized_for_cpu(replace(RECIPES["unet"], batch_size=64), 32, 32)
    assert (own.batch_size, own.learning_rate, own.dropout) == (64, 0.03, 0.0)
    for kept in (replace(RECIPES["unet"], width=64), RECIPES["unet-mnist"], RECIPES["cifar10"]):
        assert sized_for_cpu(kept, 28, 28) == kept
    for height, width in ((2, 3), (8, 8), (16, 20), (28, 28), (64, 64), (256, 64)):
        small = sized_for_cpu(RECIPES["unet"], height, width)
        with torch.device("meta"):
            build_network(small, channels=3)


# ---------------------------------------------------------------- settings that surprise


def test_sizes_that_do_not_fit_are_noticed_before_the_images_are_read(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "training_images", None)
    for settings, words in (
        ({"stages": (1, 2, 2)}, "for each of the 3 stages"),
        ({"attention": (5,)}, "attention names stages from 0 to 1"),
        ({"stages": (), "blocks": (1,), "attention": (), "image_size": 32}, "for each of the 3 stages"),
    ):
        with pytest.raises(ValueError, match=words):
            train(replace(recipe, **settings), tmp_path / "run", ALONE)
    assert not (tmp_path / "run").exists()


def test_a_learning_rate_beyond_reason_is_noted(recipe: Recipe, tmp_path: Path) -> None:
    said = list[str]()
    for rate in (0.1, 0.11):
        train(replace(recipe, steps=1, learning_rate=rate), tmp_path / f"{rate}", ALONE, say=said.append)
    assert sum("note: a learning rate of 0.11 is far above the usual" in line for line in said) == 1
    assert not any("learning rate of 0.1 is" in line for line in said)


def test_another_sampler_of_a_resumed_run_is_told(recipe: Recipe, tmp_path: Path) -> None:
    run, said = tmp_path / "run", list[str]()
    train(replace(recipe, steps=2), run, ALONE)
    train(replace(recipe, steps=4, sampler="heun", sample_calls=9), run, ALONE, resume=True, say=said.append)
    assert "changed: sampler from adams_bashforth to heun, for samples of the models from now on" in said
    assert "changed: sample_calls from 10 to 9, for samples of the models from now on" in said
    assert isinstance(load(run).sampler, Heun)


def test_changes_of_a_finished_run_have_no_effect_and_are_not_recorded(recipe: Recipe, tmp_path: Path) -> None:
    run, said = tmp_path / "run", list[str]()
    train(recipe, run, ALONE)
    before = (run / "recipe.json").read_bytes()
    train(replace(recipe, learning_rate=1e-4, clip=1.0, sampler="heun"), run, ALONE, resume=True, say=said.append)
    words = (
        "is done, with all its 4 iterations; another learning_rate or clip or sampler has no effect (--steps N goes on)"
    )
    assert f"{run} {words}" in said
    assert not any(line.startswith("changed") for line in said)
    assert (run / "recipe.json").read_bytes() == before
    assert not (run / "changes.json").exists()
    train(replace(recipe, steps=5, learning_rate=1e-4), run, ALONE, resume=True, say=said.append)
    changes = json.loads((run / "changes.json").read_text())["changes"]
    assert [(change["setting"], change["step"]) for change in changes] == [("steps", 4), ("learning_rate", 4)]


def test_a_resumed_run_says_what_it_is(recipe: Recipe, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    train(replace(recipe, steps=1), run, ALONE)
    for name, looks in (("unet-tiny", False), ("cifar10", True)):
        capsys.readouterr()
        main(["train", name, "--resume", "--out", str(run), "--device", "cpu"])
        told = capsys.readouterr().err
        assert f"{run} is a run of unet of width 4, of 1 iteration on {recipe.data}\n" in told
        assert ("it looks like a run of the recipe unet-tiny, not cifar10, and goes on with its own" in told) == looks
