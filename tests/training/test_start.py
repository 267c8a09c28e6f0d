"""Runs that start from the weights of a model."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from scorefield.distributed import Group
from scorefield.models import pretrained
from scorefield.models.export import export, published
from scorefield.models.model import load
from scorefield.models.recipes import Recipe
from scorefield.training import train
from training.small_runs import ALONE, assert_same, final
from training.small_runs import recipe as recipe


def still(recipe: Recipe) -> Recipe:
    """So slow that nothing moves: what a run saves is what it began with."""
    return replace(recipe, steps=2, learning_rate=1e-30)


@pytest.fixture
def model(recipe: Recipe, tmp_path: Path) -> Path:
    train(recipe, tmp_path / "first", ALONE)
    return tmp_path / "first"


def kind(tensors: dict[str, Tensor], which: str) -> dict[str, Tensor]:
    return {name.removeprefix(f"{which}/"): value for name, value in tensors.items() if name.startswith(which)}


def test_raw_and_averaged_weights_begin_as_the_models_average(recipe: Recipe, model: Path, tmp_path: Path) -> None:
    lines: list[str] = []
    train(still(replace(recipe, start=str(model))), tmp_path / "second", ALONE, say=lines.append)
    theirs, ours = final(model), final(tmp_path / "second", 2)
    assert_same(kind(ours, "raw"), kind(theirs, "ema"))
    for name, value in kind(ours, "ema").items():
        torch.testing.assert_close(value, kind(theirs, "ema")[name], rtol=1e-6, atol=1e-7)  # as an average rounds
    assert f"starting from the ema weights of {model}, step 6" in lines


def test_a_file_in_16_bit_and_images_of_another_size_will_do(
    recipe: Recipe, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export(model, tmp_path / "weights" / "dots.safetensors")
    monkeypatch.setattr(pretrained, "FOLDERS", [tmp_path / "weights"])
    train(still(replace(recipe, start="dots", image_size=8)), tmp_path / "second", ALONE)
    expected = load("dots").network.state_dict()
    assert_same(kind(final(tmp_path / "second", 2), "raw"), expected)
    assert load(tmp_path / "second").shape == (1, 8, 8)


def test_a_resumed_run_does_not_begin_again(recipe: Recipe, model: Path, tmp_path: Path) -> None:
    """Not even where the model is gone; one without a checkpoint does."""
    whole, part = replace(recipe, start=str(model)), tmp_path / "part"
    train(whole, tmp_path / "whole", ALONE)
    train(replace(whole, steps=4), part, ALONE)
    for file in (part / "checkpoints").glob("*-00000004.*"):
        file.unlink()
    model.rename(tmp_path / "elsewhere")
    train(whole, part, ALONE, resume=True)
    assert_same(final(part), final(tmp_path / "whole"))
    shutil.rmtree(part / "checkpoints")
    with pytest.raises(FileNotFoundError, match="first"):
        train(whole, part, ALONE, resume=True)
    (tmp_path / "elsewhere").rename(model)
    train(whole, part, ALONE, resume=True)
    assert_same(final(part), final(tmp_path / "whole"))


def test_a_resumed_run_keeps_its_start(recipe: Recipe, model: Path, tmp_path: Path) -> None:
    whole, out = replace(recipe, start=str(model)), tmp_path / "second"
    train(replace(whole, steps=4), out, ALONE)
    for other in (None, "mnist-small"):
        with pytest.raises(ValueError, match=f"was started with start {model}, which a resumed run cannot change"):
            train(replace(whole, start=other), out, ALONE, resume=True)
    train(whole, out, ALONE, resume=True)
    assert load(out).step == 6
    assert load(out).metadata["start_digest"] == load(model).digest


def test_raw_weights_do_where_there_is_no_average(recipe: Recipe, tmp_path: Path) -> None:
    plain = replace(recipe, ema=0.0)
    train(plain, tmp_path / "first", ALONE)
    train(still(replace(plain, start=str(tmp_path / "first"))), tmp_path / "second", ALONE)
    assert_same(final(tmp_path / "second", 2), final(tmp_path / "first"))


def test_processes_that_see_different_models(
    recipe: Recipe, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = load(model).digest
    monkeypatch.setattr(Group, "all", lambda _, value: [value, "another"] if value == digest else [value])
    with pytest.raises(OSError, match="the processes see different models"):
        train(replace(recipe, start=str(model)), tmp_path / "second", ALONE)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"width": 3}, "--width 3 --levels 3 --sigma-max 1 --sigma-min 0.01"),
        ({"levels": 4}, "--width 2 --levels 4 --sigma-max 1 --sigma-min 0.01"),
        ({"sigma_max": 2.0}, "--width 2 --levels 3 --sigma-max 2 --sigma-min 0.01"),
    ],
)
def test_weights_that_do_not_fit(
    change: dict[str, float], words: str, recipe: Recipe, model: Path, tmp_path: Path
) -> None:
    cure = r"\(give --width 2 --levels 3 --sigma-max 1 --sigma-min 0.01, or leave --start out\)"
    with pytest.raises(ValueError, match=f"do not fit {words} {cure}"):
        train(replace(recipe, start=str(model), **change), tmp_path / "second", ALONE)  # type: ignore[arg-type]
    assert not (tmp_path / "second").exists()


def test_a_model_of_grey_images_for_coloured_ones(recipe: Recipe, model: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "colour.npy", np.zeros((20, 5, 6, 3), np.uint8))
    colour = replace(recipe, start=str(model), data=str(tmp_path / "colour.npy"))
    with pytest.raises(
        ValueError, match="is a model of grey images, and these are colour images: its weights do not fit"
    ):
        train(colour, tmp_path / "second", ALONE)


def test_a_model_that_is_not_there(recipe: Recipe, tmp_path: Path) -> None:
    said: list[str] = []
    with pytest.raises(FileNotFoundError, match="no file celebs, and no pretrained model of that name"):
        train(replace(recipe, start="celebs"), tmp_path / "run", ALONE, say=said.append)
    assert not said  # before the data are read
    assert not (tmp_path / "run").exists()


def test_what_is_published_names_the_model_and_not_its_place(recipe: Recipe, model: Path, tmp_path: Path) -> None:
    train(still(replace(recipe, start=str(model))), tmp_path / "second", ALONE)
    export(tmp_path / "second", tmp_path / "small.safetensors")
    assert load(tmp_path / "small.safetensors").recipe.start == "first"
    assert str(tmp_path).encode() not in (tmp_path / "small.safetensors").read_bytes()
    assert "start" not in published(recipe)
    names = {"mnist-small": "mnist-small", "runs/mnist-small": "./mnist-small", "runs/mine/": "mine"}
    assert {start: published(replace(recipe, start=start))["start"] for start in names} == names
    assert published(recipe)["data"] == "dots.npy"
