"""Samples that a run draws at its checkpoints: seen to be drawn, and left alone when it is told to stop."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small_runs import recipe

from scorefield import progress
from scorefield.distributed import Group
from scorefield.models.recipes import Recipe
from scorefield.training import train
from scorefield.training.stop import Stop

__all__ = ["recipe"]
ALONE = Group(0, 1, torch.device("cpu"))


def test_drawing_is_told_of(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0)
    train(replace(recipe, steps=2, preview_steps=3), tmp_path / "run", ALONE)
    lines = capsys.readouterr().err.splitlines()
    drawing = [line for line in lines if "drawing 2 samples: step" in line]
    assert [line.split("step ")[1].split(",")[0] for line in drawing] == [f"{k} of 9" for k in range(1, 10)]
    assert "images/s" in lines[-1]  # and not what was drawn last


@pytest.mark.parametrize("steps", [2, 4])
def test_a_run_told_to_stop_while_it_draws_leaves_that_to_the_next(
    steps: int, recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At its last step, after which it is whole, and before."""
    recipe, said = replace(recipe, steps=steps), list[str]()
    train(recipe, tmp_path / "whole", ALONE)
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(Stop, "due", lambda self: any(run.glob("checkpoints/model-*")))
        train(recipe, run, ALONE, say=said.append)
    assert said[1] == "no samples at step 2: told to stop"
    assert not list(run.glob("samples/*"))
    train(recipe, run, ALONE, resume=True, say=said.append)
    assert "drawing the samples of step 2" in said
    for last in {f"samples/{step:08d}.png" for step in (2, steps)}:
        assert (run / last).read_bytes() == (tmp_path / "whole" / last).read_bytes()
