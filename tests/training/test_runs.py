"""Training runs: what they leave, how they stop, and what they do when numbers or disks fail."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from filelock import FileLock
from torch import Tensor

import scorefield.training.run as run_module
from scorefield import progress
from scorefield.models.model import load
from scorefield.models.recipes import Recipe
from scorefield.noise import SampleNoise, sample_seeds
from scorefield.objectives import denoising
from scorefield.score import Score
from scorefield.training import train
from scorefield.training.folder import is_locked, locked
from scorefield.training.run import Stop, batches, training_images
from training.small_runs import ALONE, Small, assert_same, final, quick, rows
from training.small_runs import recipe as recipe

AT = ["@1", "@0.1", "@0.01"]
LEVELS = [f"loss{at}" for at in AT]
"""The columns of a log with three noise levels."""


def test_what_a_run_leaves(recipe: Recipe, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert train(recipe, run, ALONE) == run / "checkpoints" / "model-00000006.safetensors"
    names = sorted(str(p.relative_to(run)) for p in run.rglob("*") if p.is_file())
    assert names == [
        ".lock",
        *(f"checkpoints/model-0000000{k}.safetensors" for k in (2, 4, 6)),
        *(f"checkpoints/optimizer-0000000{k}.safetensors" for k in (4, 6)),
        "held_out.csv",
        "log.csv",
        "recipe.json",
        *(f"samples/0000000{k}.png" for k in (2, 4, 6)),
    ]
    log = rows(run / "log.csv")
    assert [row["step"] for row in log] == list("123456")
    assert list(log[0]) == ["step", "loss", *LEVELS, "learning_rate", "images_per_second", "seconds"]
    for row in log:  # the mean over examples lies within the range of the levels' means
        each = [float(row[name]) for name in LEVELS if row[name]]
        assert min(each) - 1e-3 <= float(row["loss"]) <= max(each) + 1e-3
    held_out = rows(run / "held_out.csv")
    assert [row["step"] for row in held_out] == ["3", "6"]
    kinds = ("held_out", "held_out_standard_error", "ema_held_out", "ema_held_out_standard_error")
    assert list(held_out[0]) == ["step", "n", *(f"{kind}{at}" for kind in kinds for at in ("", *AT))]
    assert held_out[0]["n"] == "4"
    each = [float(held_out[0][f"held_out{at}"]) for at in AT]
    assert float(held_out[0]["held_out"]) == pytest.approx(sum(each) / 3, rel=1e-4)
    assert float(held_out[0]["ema_held_out"]) != float(held_out[0]["held_out"])
    model = load(run)
    assert (model.shape, model.step, model.held) == ((1, 5, 6), 6, ("raw", "ema"))
    assert model.metadata["data_images"] == "16"
    assert model.metadata["machine"].startswith("CPU")


@pytest.mark.parametrize("dequantise", [True, False])
def test_held_out_losses_are_those_of_the_scores_and_pixels_of_training(
    dequantise: bool, recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the fused kernels where training has them (here: a score of half the network's), for both kinds of weights."""
    recipe = replace(recipe, dequantise=dequantise, learning_rate=1e-30, steps=2, previews=0, micro_batch=3)
    monkeypatch.setattr(run_module, "_score_of", lambda recipe, network: lambda x, sigma: network(x, sigma) / 2)
    quick(recipe, tmp_path / "run")
    (row,) = rows(tmp_path / "run" / "held_out.csv")
    _, held_out = training_images(recipe)
    assert held_out is not None
    pixels, network = torch.tensor(held_out.pixels), Small()
    for level, at in enumerate(AT):
        noise = SampleNoise(sample_seeds(level, range(4)))
        x = pixels.permute(0, 3, 1, 2).float()
        x = (x + noise.rand_like(x)) / 256 if dequantise else x / 255
        sigma, z = torch.full((4,), 0.1**level), noise.randn_like(x)
        with torch.no_grad():
            error = 0.1**level * network(x + 0.1**level * z, sigma) / 2 + z
        losses = error.square().flatten(1).sum(1) / 2
        for kind in ("held_out", "ema_held_out"):
            assert float(row[f"{kind}{at}"]) == pytest.approx(losses.mean().item(), rel=1e-4)
            expected = losses.std().item() / 2
            assert float(row[f"{kind}_standard_error{at}"]) == pytest.approx(expected, rel=1e-4)


def test_a_run_is_never_overwritten(recipe: Recipe, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    with pytest.raises(FileExistsError, match=r"is not a run \(name another folder: --out"):
        quick(recipe, tmp_path / "mine")
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["thesis.txt"]
    with pytest.raises(FileNotFoundError, match="no run to resume"):
        quick(recipe, tmp_path / "mine", resume=True)
    quick(replace(recipe, steps=1), tmp_path / "run")
    with pytest.raises(FileExistsError, match="--resume"):
        quick(recipe, tmp_path / "run")


def test_a_loss_that_is_not_finite_stops_the_run_and_spares_the_checkpoints(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def breaks(score: Score, x: Tensor, sigma: Tensor, *, randn_like: Callable[[Tensor], Tensor]) -> Tensor:
        calls.append(1)
        return denoising(score, x, sigma, randn_like=randn_like) * (float("nan") if len(calls) == 4 else 1.0)

    monkeypatch.setitem(run_module.OBJECTIVES, "denoising", breaks)
    with pytest.raises(FloatingPointError, match=r"not finite at step 4; .*model-00000002.*--learning-rate"):
        quick(recipe, tmp_path / "run")
    assert load(tmp_path / "run", network=Small()).step == 2
    monkeypatch.undo()
    quick(recipe, tmp_path / "run", resume=True)
    quick(recipe, tmp_path / "whole")
    assert_same(final(tmp_path / "whole"), final(tmp_path / "run"))


def test_weights_that_are_not_finite_are_never_saved(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loss of the next step would tell, but the checkpoint comes first."""
    calls = []

    def breaks(score: Score, x: Tensor, sigma: Tensor, *, randn_like: Callable[[Tensor], Tensor]) -> Tensor:
        calls.append(1)
        loss = denoising(score, x, sigma, randn_like=randn_like)
        if len(calls) == 4:
            score.conv.bias.data.fill_(torch.inf)  # type: ignore[attr-defined]
        return loss

    monkeypatch.setitem(run_module.OBJECTIVES, "denoising", breaks)
    with pytest.raises(FloatingPointError, match=r"not finite after step 4.*model-00000002"):
        quick(recipe, tmp_path / "run")
    assert load(tmp_path / "run", network=Small()).step == 2


def test_minutes_stop_a_run_with_a_checkpoint(recipe: Recipe, tmp_path: Path) -> None:
    said: list[str] = []
    quick(replace(recipe, steps=10**6), tmp_path / "run", minutes=1e-6, say=said.append)
    assert load(tmp_path / "run", network=Small()).step == 1
    assert "stopped at step 1 of 1000000: time is up after 1e-06 min (go on with --resume)" in said
    with pytest.raises(ValueError, match="minutes must be positive"):
        quick(recipe, tmp_path / "other", minutes=0)


@pytest.mark.parametrize(("step", "told"), [(3, [signal.SIGTERM]), (6, [])])
def test_a_signal_stops_a_run_and_the_caller_is_told(
    step: int, told: list[int], recipe: Recipe, tmp_path: Path
) -> None:
    """At once, since a measurement is due then: it is left to the resumed run. No exception, as the checkpoint is
    there; and nothing to tell where the run was at its end."""

    def log(at: int, numbers: Mapping[str, float]) -> None:
        if at == step:
            signal.raise_signal(signal.SIGTERM)

    heard: list[int] = []
    saved = quick(recipe, tmp_path / "run", extra_logs=[lambda until: log], interrupted=heard.append)
    assert saved == tmp_path / "run" / "checkpoints" / f"model-{step:08d}.safetensors"
    assert heard == told


def test_a_batch_must_divide_among_the_processes(recipe: Recipe, tmp_path: Path) -> None:
    images, _ = training_images(recipe)
    with pytest.raises(ValueError, match="a batch of 4 cannot be shared by 3 processes"):
        batches(images, replace(ALONE, world=3), batch_size=recipe.batch_size, seed=0)


def test_one_process_at_a_time_trains_in_a_folder(recipe: Recipe, tmp_path: Path) -> None:
    assert not is_locked(tmp_path / "run")
    with locked(tmp_path / "run"):
        assert is_locked(tmp_path / "run")
        with pytest.raises(FileExistsError, match="another process is training"):
            quick(recipe, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    quick(recipe, tmp_path / "run")
    assert not is_locked(tmp_path / "run")


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_no_reason_not_to_train(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: FileLock, timeout: float) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(FileLock, "acquire", fails)
    with pytest.warns(UserWarning, match="file system has no locks"), locked(tmp_path / "run"):
        assert (tmp_path / "run").is_dir()


@pytest.mark.parametrize("steps", [2, 4])
def test_a_run_told_to_stop_while_it_draws_leaves_that_to_the_next(
    steps: int, recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At its last step, after which it is whole, and before."""
    recipe, said = replace(recipe, steps=steps), list[str]()
    quick(recipe, tmp_path / "whole")
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        for question in ("due", "signalled"):
            patch.setattr(Stop, question, lambda self: any(run.glob("checkpoints/model-*")))
        quick(recipe, run, say=said.append)
    assert "no samples at step 2: the run was told to stop" in said
    assert not list(run.glob("samples/*"))
    quick(recipe, run, resume=True, say=said.append)
    assert "drawing the samples of step 2" in said
    for last in {f"samples/{step:08d}.png" for step in (2, steps)}:
        assert (run / last).read_bytes() == (tmp_path / "whole" / last).read_bytes()


def test_a_run_that_is_done_when_its_time_is_up_is_measured(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, said = tmp_path / "run", list[str]()
    monkeypatch.setattr(Stop, "due", lambda self: any(run.glob("checkpoints/model-*")))
    quick(replace(recipe, steps=2), run, say=said.append)
    assert (run / "samples" / "00000002.png").exists()
    assert said[-1].startswith("held-out loss")


def test_a_thread_can_train(recipe: Recipe, tmp_path: Path) -> None:
    """Only the main thread can listen to signals."""
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(quick, replace(recipe, steps=2, previews=0), tmp_path / "run").result().is_file()


def test_progress_of_drawing_is_shown(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0)
    quick(replace(recipe, steps=2, preview_steps=3), tmp_path / "run")
    lines = capsys.readouterr().err.splitlines()
    drawing = [line for line in lines if "drawing 2 samples: step" in line]
    assert [line.split("step ")[1].split(",")[0] for line in drawing] == [f"{k} of 9" for k in range(10)]
    assert "images/s" in lines[-1]  # and not what was drawn last


@pytest.mark.parametrize("often", [False, True])
def test_an_update_without_a_finite_gradient_is_skipped_but_not_if_that_goes_on(
    often: bool, recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A finite loss whose gradient is not, at step 4, or at all steps: the seventh of these is one too many."""
    calls = []

    def breaks(score: Score, x: Tensor, sigma: Tensor, *, randn_like: Callable[[Tensor], Tensor]) -> Tensor:
        calls.append(1)
        loss = denoising(score, x, sigma, randn_like=randn_like)
        return loss + (loss - loss.detach()).abs().sqrt() if often or len(calls) == 4 else loss  # d√u/du = ∞ at 0

    monkeypatch.setitem(run_module.OBJECTIVES, "denoising", breaks)
    recipe = replace(recipe, checkpoint_every=1, steps=8)
    if often:
        with pytest.raises(FloatingPointError, match=r"not finite at step 7; .*model-00000006.*--learning-rate"):
            quick(recipe, tmp_path / "run")
        return
    quick(recipe, tmp_path / "run")
    weights = [{k: v for k, v in final(tmp_path / "run", n).items() if k.startswith("raw/")} for n in (3, 4, 5, 8)]
    assert_same(weights[0], weights[1])
    assert any(not torch.equal(weights[1][name], weights[2][name]) for name in weights[1])
    assert all(value.isfinite().all() for value in weights[3].values())


def test_a_full_disk_costs_only_the_steps_since_the_last_checkpoint(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    sync = os.fsync

    def fills_up(descriptor: int) -> None:
        written.append(descriptor)
        if len(written) > 7:  # the recipe, two logs, these again before a checkpoint, and the checkpoint's two files
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fills_up)
    with pytest.raises(OSError, match="No space left on device"):
        quick(recipe, tmp_path / "run")
    monkeypatch.undo()
    assert load(tmp_path / "run", network=Small()).step == 2
    quick(recipe, tmp_path / "run", resume=True)
    assert load(tmp_path / "run", network=Small()).step == 6


def test_a_run_notes_fewer_held_out_images_and_unused_classes(recipe: Recipe, tmp_path: Path) -> None:
    lines: list[str] = []
    short = replace(recipe, steps=1, previews=0)
    quick(short, tmp_path / "quiet", say=lines.append)
    assert not any("note:" in line for line in lines)  # 4 of 20 images are held out, as the recipe says
    pixels = np.load(recipe.data)
    np.savez(tmp_path / "two.npz", images=pixels, labels=np.arange(len(pixels)) % 2)
    quick(replace(short, data=str(tmp_path / "two.npz"), held_out=7), tmp_path / "classes", say=lines.append)
    notes = [line for line in lines if "note:" in line]
    assert len(notes) == 2
    assert "4 images held out instead of 7: a fifth of the images" in notes[0]
    assert "2 classes" in notes[1]
