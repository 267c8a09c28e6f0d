"""Resumed runs: as if nothing had happened, and never at the cost of what is there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from scorefield.models.model import load
from scorefield.models.recipes import Recipe
from scorefield.training import train
from training.small_runs import ALONE, assert_same, final, rows
from training.small_runs import recipe as recipe


def test_a_resumed_run_is_the_uninterrupted_one_bit_for_bit(recipe: Recipe, tmp_path: Path) -> None:
    """With an odd step between checkpoints to resume from, and its logs as well."""
    train(recipe, tmp_path / "whole", ALONE)
    train(replace(recipe, steps=3), tmp_path / "parts", ALONE)
    train(recipe, tmp_path / "parts", ALONE, resume=True)
    assert_same(final(tmp_path / "whole"), final(tmp_path / "parts"))
    whole, parts = (rows(tmp_path / name / "log.csv") for name in ("whole", "parts"))
    assert [(row["step"], row["loss"]) for row in whole] == [(row["step"], row["loss"]) for row in parts]
    assert rows(tmp_path / "whole" / "held_out.csv") == rows(tmp_path / "parts" / "held_out.csv")


@pytest.mark.parametrize("name", ["model", "optimizer"])
def test_a_damaged_checkpoint_is_skipped(name: str, recipe: Recipe, tmp_path: Path) -> None:
    train(recipe, tmp_path / "whole", ALONE)
    train(replace(recipe, steps=4), tmp_path / "hurt", ALONE)
    path = tmp_path / "hurt" / "checkpoints" / f"{name}-00000004.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    said: list[str] = []
    train(recipe, tmp_path / "hurt", ALONE, resume=True, say=said.append)
    assert any("damaged" in line and "using the checkpoint before it" in line for line in said)
    assert any("at step 2" in line for line in said)
    assert_same(final(tmp_path / "whole"), final(tmp_path / "hurt"))
    assert [row["step"] for row in rows(tmp_path / "hurt" / "log.csv")] == list("123456")


def test_what_cannot_change_in_a_resumed_run(recipe: Recipe, tmp_path: Path) -> None:
    train(replace(recipe, steps=2), tmp_path / "run", ALONE)
    with pytest.raises(ValueError, match="started with width 2, which a resumed run cannot change"):
        train(replace(recipe, width=4), tmp_path / "run", ALONE, resume=True)
    train(replace(recipe, steps=4, learning_rate=1e-4, clip=1.0), tmp_path / "run", ALONE, resume=True)
    assert load(tmp_path / "run").recipe.learning_rate == 1e-4


def test_changed_data_is_noticed(recipe: Recipe, tmp_path: Path) -> None:
    train(replace(recipe, steps=2), tmp_path / "run", ALONE)
    np.save(recipe.data, np.zeros((20, 5, 6), np.uint8))
    with pytest.raises(ValueError, match="changed since it was started"):
        train(recipe, tmp_path / "run", ALONE, resume=True)


def test_checkpoints_that_cannot_be_resumed_are_not_overwritten(recipe: Recipe, tmp_path: Path) -> None:
    train(recipe, tmp_path / "run", ALONE)
    for path in (tmp_path / "run" / "checkpoints").glob("optimizer-*"):
        path.unlink()
    log = (tmp_path / "run" / "log.csv").read_text()
    with pytest.raises(ValueError, match="can be resumed"):
        train(recipe, tmp_path / "run", ALONE, resume=True)
    assert (tmp_path / "run" / "log.csv").read_text() == log


def test_a_run_goes_on_from_anywhere(recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The data may be named by another path, as long as they are the same."""
    train(replace(recipe, steps=4), tmp_path / "run", ALONE)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    train(replace(recipe, data="../dots.npy"), Path("../run"), ALONE, resume=True)
    train(recipe, tmp_path / "whole", ALONE)
    assert_same(final(tmp_path / "whole"), final(tmp_path / "run"))


def test_what_a_killed_run_owed_to_its_last_checkpoint(recipe: Recipe, tmp_path: Path) -> None:
    """Killed between a checkpoint and the held-out loss and samples that belong to it, which a resumed run makes."""
    recipe = replace(recipe, evaluate_every=2)
    train(recipe, tmp_path / "whole", ALONE)
    train(replace(recipe, steps=4), tmp_path / "run", ALONE)
    held_out = tmp_path / "run" / "held_out.csv"
    held_out.write_text("".join(held_out.read_text().splitlines(keepends=True)[:-1]))
    (tmp_path / "run" / "samples" / "00000004.png").unlink()
    train(recipe, tmp_path / "run", ALONE, resume=True)
    for name in ("held_out.csv", "samples/00000004.png", "samples/00000006.png"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


def test_logs_and_files_of_a_resumed_run_are_those_of_an_uninterrupted_one(recipe: Recipe, tmp_path: Path) -> None:
    recipe = replace(recipe, log_every=3, checkpoint_every=4, steps=9)
    train(recipe, tmp_path / "whole", ALONE)
    train(recipe, tmp_path / "run", ALONE)
    for late in (tmp_path / "run" / "checkpoints").glob("*-00000009.*"):
        late.unlink()
    train(recipe, tmp_path / "run", ALONE, resume=True)
    whole, resumed = (rows(tmp_path / name / "log.csv") for name in ("whole", "run"))
    assert [row["loss"] for row in whole] == [row["loss"] for row in resumed]
    seconds = [float(row["seconds"]) for row in resumed]
    assert seconds == sorted(seconds)
    last = "checkpoints/model-00000009.safetensors"
    assert (tmp_path / "run" / last).read_bytes() == (tmp_path / "whole" / last).read_bytes()


def test_a_finished_run_is_not_cut_short(recipe: Recipe, tmp_path: Path) -> None:
    train(recipe, tmp_path / "run", ALONE)
    with pytest.raises(ValueError, match="is at step 6 already"):
        train(replace(recipe, steps=3), tmp_path / "run", ALONE, resume=True)
    assert train(recipe, tmp_path / "run", ALONE, resume=True).name == "model-00000006.safetensors"


def test_a_recipe_that_cannot_be_read_is_named(recipe: Recipe, tmp_path: Path) -> None:
    train(replace(recipe, steps=1), tmp_path / "run", ALONE)
    for text in ("{", '{"steps": "many"}', '{"surprise": 1}'):
        (tmp_path / "run" / "recipe.json").write_text(text)
        with pytest.raises(ValueError, match=r"recipe\.json cannot be read"):
            train(recipe, tmp_path / "run", ALONE, resume=True)
