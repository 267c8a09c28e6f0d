"""Resumed runs: as if nothing had happened, and never at the cost of what is there."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scorefield.models import checkpoint
from scorefield.models.recipes import FIXED, Recipe
from scorefield.training import saved_recipe, train
from training.small_runs import ALONE, Small, assert_same, files_of, final, quick, rows
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
    quick(recipe, tmp_path / "whole")
    quick(replace(recipe, steps=4), tmp_path / "hurt")
    path = tmp_path / "hurt" / "checkpoints" / f"{name}-00000004.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    said: list[str] = []
    quick(recipe, tmp_path / "hurt", resume=True, say=said.append)
    assert any("damaged" in line and "using the checkpoint before it" in line for line in said)
    assert any("at step 2" in line for line in said)
    assert_same(final(tmp_path / "whole"), final(tmp_path / "hurt"))
    assert [row["step"] for row in rows(tmp_path / "hurt" / "log.csv")] == list("123456")


OTHER: dict[str, Any] = {
    "image_size": 7,
    "crop": 5,
    "flip": True,
    "dequantise": False,
    "held_out": 2,
    "network": "refinenet",
    "width": 4,
    "sigma_max": 2.0,
    "sigma_min": 0.05,
    "levels": 2,
    "start": "mnist-small",
    "objective": "sliced",
    "batch_size": 8,
    "warmup": 100,
    "ema": 0.5,
    "seed": 1,
    "stages": (1, 2),
    "blocks": (1, 1),
    "attention": (1,),
    "dropout": 0.1,
    "labels": True,
    "label_dropout": 0.2,
    "sigma_data": 0.5,
    "sigma_draw": "log_normal",
    "log_sigma_mean": -1.0,
    "log_sigma_std": 1.0,
    "weight": "unit",
    "decay": 10,
    "cooldown": 0.5,
    "beta2": 0.99,
    "averages": (0.1,),
}
"""Another value for each setting that defines a run."""


def test_what_defines_a_run_cannot_change(recipe: Recipe, tmp_path: Path) -> None:
    """The error names the setting, both values and what to do, and nothing is written."""
    assert set(OTHER) == set(FIXED)
    run = tmp_path / "run"
    quick(replace(recipe, steps=2, previews=0, ema=0.0), run)
    before, kept = files_of(run), saved_recipe(run)
    for name, value in OTHER.items():
        was, given = (re.escape(f"{name} {each}") for each in (getattr(kept, name), value))
        with pytest.raises(ValueError, match=f"{was}, which .* cannot change; got {given}") as e:
            train(
                replace(kept, **{name: value}), run, ALONE, network=None if name == "network" else Small(), resume=True
            )
        assert f"(leave --{name.replace('_', '-')} out, or start another run in a folder of its own: --out)" in str(
            e.value
        )
    both = r"flip False and seed 0, which .* got flip True and seed 1 \(leave --flip and --seed out"
    with pytest.raises(ValueError, match=both):
        quick(replace(kept, flip=True, seed=1, steps=6), run, resume=True)
    assert files_of(run) == before


def changes_of(model: Path) -> list[dict[str, Any]]:
    return json.loads(checkpoint.read(model)[1].get("changes", "[]"))


def test_what_a_resumed_run_changes_is_recorded_with_its_step(recipe: Recipe, tmp_path: Path) -> None:
    """In the folder and in the model files that follow. recipe.json holds what is in force."""
    run, lines = tmp_path / "run", list[str]()
    recipe = replace(recipe, previews=0, clip=0.0)
    first = quick(replace(recipe, steps=2), run)
    assert not (run / "changes.json").exists()
    free: dict[str, Any] = {
        "checkpoint_every": 4,
        "evaluate_every": 4,
        "log_every": 2,
        "step_size": 1e-6,
        "sample_steps": 3,
    }
    second = replace(recipe, steps=4, learning_rate=1e-4, clip=1.0, **free)
    quick(second, run, resume=True, say=lines.append)
    assert saved_recipe(run) == replace(second, network="Small")
    quick(replace(second, steps=6, micro_batch=2), run, resume=True)
    expected = [
        (2, "steps", 2, 4),
        (2, "learning_rate", 1e-3, 1e-4),
        (2, "clip", 0.0, 1.0),
        (4, "steps", 4, 6),
        (4, "micro_batch", 0, 2),
    ]
    told = [dict(zip(("step", "setting", "before", "after"), each, strict=True)) for each in expected]
    assert json.loads((run / "changes.json").read_text()) == {"changes": told}
    names = [first, *(run / "checkpoints" / f"model-0000000{k}.safetensors" for k in (4, 6))]
    assert [changes_of(name) for name in names] == [[], told[:3], told]
    assert "changed: learning_rate from 0.001 to 0.0001 at step 2" in lines
    rates = [row["learning_rate"] for row in rows(run / "log.csv")]
    assert rates == ["0.001", "0.001", "0.0001", "0.0001"]  # steps 1, 2, 4 and 6


def test_a_change_that_no_checkpoint_saw_was_none(recipe: Recipe, tmp_path: Path) -> None:
    """Resumed with another learning rate, and killed before the next checkpoint; then resumed with a third one."""
    run = tmp_path / "run"
    recipe = replace(recipe, previews=0, checkpoint_every=4)
    quick(replace(recipe, steps=2), run)

    def killed(step: int, numbers: Mapping[str, float]) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        quick(replace(recipe, learning_rate=1e-5), run, resume=True, extra_logs=[lambda until: killed])
    assert saved_recipe(run).learning_rate == 1e-5
    last = quick(replace(recipe, learning_rate=1e-4), run, resume=True)
    assert [(each["step"], each["setting"], each["before"], each["after"]) for each in changes_of(last)] == [
        (2, "steps", 2, 6),
        (2, "learning_rate", 1e-3, 1e-4),
    ]


def test_a_network_of_another_size_does_not_fit(recipe: Recipe, tmp_path: Path) -> None:
    quick(replace(recipe, steps=2, previews=0), tmp_path / "run")
    before = files_of(tmp_path / "run")
    with pytest.raises(
        ValueError, match=r"do not fit this Small: conv.weight differs \(pass the network with the settings"
    ):
        train(replace(recipe, previews=0), tmp_path / "run", ALONE, network=Small(5), resume=True)
    assert files_of(tmp_path / "run") == before


def test_changed_data_is_noticed(recipe: Recipe, tmp_path: Path) -> None:
    quick(replace(recipe, steps=2, previews=0), tmp_path / "run")
    before = files_of(tmp_path / "run")
    np.save(recipe.data, np.zeros((20, 5, 6), np.uint8))
    with pytest.raises(
        ValueError, match=r"the images changed since .* was started .*\(give the images .* by --data, or"
    ):
        quick(recipe, tmp_path / "run", resume=True)
    assert files_of(tmp_path / "run") == before


def test_checkpoints_that_cannot_be_resumed_are_not_overwritten(recipe: Recipe, tmp_path: Path) -> None:
    quick(recipe, tmp_path / "run")
    for path in (tmp_path / "run" / "checkpoints").glob("optimizer-*"):
        path.unlink()
    log = (tmp_path / "run" / "log.csv").read_text()
    with pytest.raises(ValueError, match="can be resumed"):
        quick(recipe, tmp_path / "run", resume=True)
    assert (tmp_path / "run" / "log.csv").read_text() == log


def test_a_run_goes_on_from_anywhere(recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The data may be named by another path, as long as they are the same."""
    quick(replace(recipe, steps=4), tmp_path / "run")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    quick(replace(recipe, data="../dots.npy"), Path("../run"), resume=True)
    quick(recipe, tmp_path / "whole")
    assert_same(final(tmp_path / "whole"), final(tmp_path / "run"))


def test_what_a_killed_run_owed_to_its_last_checkpoint(recipe: Recipe, tmp_path: Path) -> None:
    """Killed between a checkpoint and the held-out loss and samples that belong to it, which a resumed run makes."""
    recipe = replace(recipe, evaluate_every=2)
    quick(recipe, tmp_path / "whole")
    quick(replace(recipe, steps=4), tmp_path / "run")
    held_out = tmp_path / "run" / "held_out.csv"
    held_out.write_text("".join(held_out.read_text().splitlines(keepends=True)[:-1]))
    (tmp_path / "run" / "samples" / "00000004.png").unlink()
    quick(recipe, tmp_path / "run", resume=True)
    for name in ("held_out.csv", "samples/00000004.png", "samples/00000006.png"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


def test_logs_and_files_of_a_resumed_run_are_those_of_an_uninterrupted_one(recipe: Recipe, tmp_path: Path) -> None:
    recipe = replace(recipe, log_every=3, checkpoint_every=4, steps=9)
    quick(recipe, tmp_path / "whole")
    quick(recipe, tmp_path / "run")
    for late in (tmp_path / "run" / "checkpoints").glob("*-00000009.*"):
        late.unlink()
    quick(recipe, tmp_path / "run", resume=True)
    whole, resumed = (rows(tmp_path / name / "log.csv") for name in ("whole", "run"))
    assert [row["loss"] for row in whole] == [row["loss"] for row in resumed]
    seconds = [float(row["seconds"]) for row in resumed]
    assert seconds == sorted(seconds)
    last = "checkpoints/model-00000009.safetensors"
    assert (tmp_path / "run" / last).read_bytes() == (tmp_path / "whole" / last).read_bytes()


def test_a_finished_run_is_not_cut_short(recipe: Recipe, tmp_path: Path) -> None:
    quick(recipe, tmp_path / "run")
    with pytest.raises(ValueError, match="is at step 6 already"):
        quick(replace(recipe, steps=3), tmp_path / "run", resume=True)
    assert quick(recipe, tmp_path / "run", resume=True).name == "model-00000006.safetensors"


def test_a_recipe_that_cannot_be_read_is_named(recipe: Recipe, tmp_path: Path) -> None:
    quick(replace(recipe, steps=1), tmp_path / "run")
    for text in ("{", '{"steps": "many"}', '{"surprise": 1}'):
        (tmp_path / "run" / "recipe.json").write_text(text)
        with pytest.raises(ValueError, match=r"recipe\.json cannot be read"):
            quick(recipe, tmp_path / "run", resume=True)
