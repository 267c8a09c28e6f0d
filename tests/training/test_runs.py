"""Training runs: what happens to them, and that nothing is lost."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from small_runs import assert_same, final, rows
from small_runs import recipe as recipe
from torch import Tensor

from scorefield.models import checkpoint
from scorefield.models import recipes
from scorefield.distributed import Group
from scorefield.objectives import denoising
from scorefield.models.recipes import Recipe
from scorefield.training import train
from scorefield.training.folder import locked
from scorefield.score import Score

ALONE = Group(0, 1, torch.device("cpu"))


def test_what_a_run_leaves(recipe: Recipe, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert train(recipe, run, ALONE) == run / "checkpoints" / "model-00000006.safetensors"
    names = sorted(str(p.relative_to(run)) for p in run.rglob("*") if p.is_file())
    assert names == [
        *(f"checkpoints/model-0000000{k}.safetensors" for k in (2, 4, 6)),
        *(f"checkpoints/optimizer-0000000{k}.safetensors" for k in (4, 6)),
        "held_out.csv",
        "log.csv",
        "recipe.json",
        *(f"samples/0000000{k}.png" for k in (2, 4, 6)),
    ]
    log = rows(run / "log.csv")
    assert [row["step"] for row in log] == list("123456")
    assert {"loss", "loss_1", "loss_2", "loss_3", "learning_rate", "images_per_second"} <= log[0].keys()
    for row in log:  # the mean over examples lies within the range of the levels' means
        each = [float(row[f"loss_{k}"]) for k in (1, 2, 3) if row[f"loss_{k}"]]
        assert min(each) - 1e-3 <= float(row["loss"]) <= max(each) + 1e-3
    held_out = rows(run / "held_out.csv")
    assert [row["step"] for row in held_out] == ["3", "6"]
    each = [float(held_out[0][f"held_out_{k}"]) for k in (1, 2, 3)]
    assert float(held_out[0]["held_out"]) == pytest.approx(sum(each) / 3, rel=1e-4)
    assert float(held_out[0]["ema_held_out"]) != float(held_out[0]["held_out"])
    model = checkpoint.load(run)
    assert (model.shape, model.step, model.held) == ((1, 5, 6), 6, ("raw", "ema"))
    assert model.facts["data_images"] == "16"
    assert model.facts["machine"].startswith("CPU")


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
def test_a_damaged_checkpoint_is_passed_over(name: str, recipe: Recipe, tmp_path: Path) -> None:
    train(recipe, tmp_path / "whole", ALONE)
    train(replace(recipe, steps=4), tmp_path / "hurt", ALONE)
    path = tmp_path / "hurt" / "checkpoints" / f"{name}-00000004.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    said: list[str] = []
    train(recipe, tmp_path / "hurt", ALONE, resume=True, say=said.append)
    assert any("damaged" in line and "going back" in line for line in said)
    assert any("at step 2" in line for line in said)
    assert_same(final(tmp_path / "whole"), final(tmp_path / "hurt"))
    assert [row["step"] for row in rows(tmp_path / "hurt" / "log.csv")] == list("123456")


def test_a_run_is_never_overwritten(recipe: Recipe, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    with pytest.raises(FileExistsError, match=r"is no run \(name another folder: --out"):
        train(recipe, tmp_path / "mine", ALONE)
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["thesis.txt"]
    with pytest.raises(FileNotFoundError, match="no run to resume"):
        train(recipe, tmp_path / "mine", ALONE, resume=True)
    train(replace(recipe, steps=1), tmp_path / "run", ALONE)
    with pytest.raises(FileExistsError, match="--resume"):
        train(recipe, tmp_path / "run", ALONE)


def test_what_cannot_change_in_a_resumed_run(recipe: Recipe, tmp_path: Path) -> None:
    train(replace(recipe, steps=2), tmp_path / "run", ALONE)
    with pytest.raises(ValueError, match="started with width 2, which a resumed run cannot change"):
        train(replace(recipe, width=4), tmp_path / "run", ALONE, resume=True)
    train(replace(recipe, steps=4, learning_rate=1e-4, clip=1.0), tmp_path / "run", ALONE, resume=True)
    assert checkpoint.load(tmp_path / "run").recipe.learning_rate == 1e-4


def test_a_loss_that_is_not_finite_stops_the_run_and_spares_the_checkpoints(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def breaks(score: Score, x: Tensor, sigma: Tensor, *, randn_like: Callable[[Tensor], Tensor]) -> Tensor:
        calls.append(1)
        return denoising(score, x, sigma, randn_like=randn_like) * (float("nan") if len(calls) == 4 else 1.0)

    monkeypatch.setitem(recipes.OBJECTIVES, "denoising", breaks)  # type: ignore[arg-type]
    with pytest.raises(FloatingPointError, match=r"not finite at step 4; .*model-00000002.*--learning-rate"):
        train(recipe, tmp_path / "run", ALONE)
    assert checkpoint.load(tmp_path / "run").step == 2
    monkeypatch.undo()
    train(recipe, tmp_path / "run", ALONE, resume=True)
    train(recipe, tmp_path / "whole", ALONE)
    assert_same(final(tmp_path / "whole"), final(tmp_path / "run"))


@pytest.mark.parametrize("often", [False, True])
def test_an_update_without_a_finite_gradient_is_left_out_but_not_if_that_goes_on(
    often: bool, recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A finite loss whose gradient is not, at step 4, or at all steps: the seventh of these is one too many."""
    calls = []

    def breaks(score: Score, x: Tensor, sigma: Tensor, *, randn_like: Callable[[Tensor], Tensor]) -> Tensor:
        calls.append(1)
        loss = denoising(score, x, sigma, randn_like=randn_like)
        return loss + (loss - loss.detach()).abs().sqrt() if often or len(calls) == 4 else loss  # d√u/du = ∞ at 0

    monkeypatch.setitem(recipes.OBJECTIVES, "denoising", breaks)  # type: ignore[arg-type]
    recipe = replace(recipe, checkpoint_every=1, steps=8)
    if often:
        with pytest.raises(FloatingPointError, match=r"not finite at step 7; .*model-00000006.*--learning-rate"):
            train(recipe, tmp_path / "run", ALONE)
        return
    train(recipe, tmp_path / "run", ALONE)
    weights = [{k: v for k, v in final(tmp_path / "run", n).items() if k.startswith("raw/")} for n in (3, 4, 5, 8)]
    assert_same(weights[0], weights[1])
    assert any(not torch.equal(weights[1][name], weights[2][name]) for name in weights[1])
    assert all(value.isfinite().all() for value in weights[3].values())


def test_weights_that_are_not_finite_are_never_saved(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loss of the next step would tell, but the checkpoint comes first."""
    calls = []

    def breaks(score: Score, x: Tensor, sigma: Tensor, *, randn_like: Callable[[Tensor], Tensor]) -> Tensor:
        calls.append(1)
        loss = denoising(score, x, sigma, randn_like=randn_like)
        if len(calls) == 4:
            score.end.bias.data.fill_(torch.inf)  # type: ignore[attr-defined]
        return loss

    monkeypatch.setitem(recipes.OBJECTIVES, "denoising", breaks)  # type: ignore[arg-type]
    with pytest.raises(FloatingPointError, match=r"not finite after step 4.*model-00000002"):
        train(recipe, tmp_path / "run", ALONE)
    assert checkpoint.load(tmp_path / "run").step == 2


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


def test_a_full_disk_is_said_and_costs_only_the_steps_since_the_last_checkpoint(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    sync = os.fsync

    def fills_up(descriptor: int) -> None:
        written.append(descriptor)
        if len(written) > 5:  # the recipe, two logs, and one checkpoint's two files
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fills_up)
    with pytest.raises(OSError, match="No space left on device"):
        train(recipe, tmp_path / "run", ALONE)
    monkeypatch.undo()
    assert checkpoint.load(tmp_path / "run").step == 2
    train(recipe, tmp_path / "run", ALONE, resume=True)
    assert checkpoint.load(tmp_path / "run").step == 6


def test_minutes_stop_a_run_with_a_checkpoint(recipe: Recipe, tmp_path: Path) -> None:
    said: list[str] = []
    train(replace(recipe, steps=10**6), tmp_path / "run", ALONE, minutes=1e-6, say=said.append)
    assert checkpoint.load(tmp_path / "run").step == 1
    assert "stopped at step 1 of 1000000: time is up after 1e-06 min (go on with --resume)" in said
    with pytest.raises(ValueError, match="minutes must be positive"):
        train(recipe, tmp_path / "other", ALONE, minutes=0)


@pytest.mark.parametrize(("step", "told"), [(3, [signal.SIGTERM]), (6, [])])
def test_a_signal_stops_a_run_and_the_caller_is_told(
    step: int, told: list[int], recipe: Recipe, tmp_path: Path
) -> None:
    """No exception, as the checkpoint is there; and nothing to tell where the run was at its end."""

    def log(at: int, numbers: Mapping[str, float]) -> None:
        if at == step:
            signal.raise_signal(signal.SIGTERM)

    heard: list[int] = []
    saved = train(recipe, tmp_path / "run", ALONE, extra_logs=[lambda until: log], interrupted=heard.append)
    assert saved == tmp_path / "run" / "checkpoints" / f"model-{min(6, step + 1):08d}.safetensors"
    assert heard == told


def test_a_batch_must_divide_among_the_processes(recipe: Recipe, tmp_path: Path) -> None:
    from scorefield.training.run import batches, data_of

    images, _ = data_of(recipe)
    with pytest.raises(ValueError, match="a batch of 4 cannot be shared by 3 processes"):
        batches(images, replace(ALONE, world=3), batch_size=recipe.batch_size, seed=0)


def test_a_run_goes_on_from_anywhere(recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The data may be named by another path, as long as they are the same."""
    train(replace(recipe, steps=4), tmp_path / "run", ALONE)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    train(replace(recipe, data="../dots.npy"), Path("../run"), ALONE, resume=True)
    train(recipe, tmp_path / "whole", ALONE)
    assert_same(final(tmp_path / "whole"), final(tmp_path / "run"))


def test_one_process_at_a_time_trains_in_a_folder(recipe: Recipe, tmp_path: Path) -> None:
    with locked(tmp_path / "run"), pytest.raises(FileExistsError, match="another process is training"):
        train(recipe, tmp_path / "run", ALONE)
    train(recipe, tmp_path / "run", ALONE)


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
