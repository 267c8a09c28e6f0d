"""Training runs that are killed at any moment, also inside writes, and go on: nothing is lost."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from scorefield.models import checkpoint
from scorefield.models.recipes import Recipe
from training.failing_disk import HOWS, FailingDisk, Killed
from training.small_runs import assert_same, quick, rows


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    """Five steps: checkpoints, measurements and samples at steps 2, 4 and 5."""
    np.save(tmp_path / "dots.npy", np.random.default_rng(0).integers(0, 256, (10, 3, 4), dtype=np.uint8))
    return Recipe(
        data=str(tmp_path / "dots.npy"),
        sigma_min=1.0,
        levels=1,
        held_out=2,
        steps=5,
        batch_size=2,
        ema=0.9,
        checkpoint_every=2,
        evaluate_every=2,
        log_every=1,
        previews=1,
        preview_steps=1,
    )


def attempt(recipe: Recipe, out: Path, disk: FailingDisk) -> bool:
    """Start the run, or resume it if it is there; whether it reached its end."""
    with pytest.MonkeyPatch.context() as patch:
        disk.install(patch)
        try:
            quick(recipe, out, resume=(out / "recipe.json").exists())
        except Killed:
            return False
    return True


def assert_same_run(whole: Path, run: Path) -> None:
    """The same files with the same content, but for the times in them."""
    files = [sorted(str(p.relative_to(out)) for p in out.rglob("*") if p.is_file()) for out in (whole, run)]
    assert files[0] == files[1]
    for name in files[0]:
        if name == "log.csv":
            logs = [
                [{k: v for k, v in row.items() if "second" not in k} for row in rows(out / name)]
                for out in (whole, run)
            ]
            assert logs[0] == logs[1]
        elif "optimizer-" in name:
            assert_same(checkpoint.read(whole / name)[0], checkpoint.read(run / name)[0])
        else:
            assert (whole / name).read_bytes() == (run / name).read_bytes(), name


@pytest.mark.parametrize("kills", [100, pytest.param(1000, marks=pytest.mark.nightly)])
def test_a_run_killed_at_any_moment_goes_on_as_if_nothing_had_happened(
    kills: int, recipe: Recipe, tmp_path: Path
) -> None:
    """Again and again in the same folder, until the run reaches its end."""
    whole = FailingDisk(tmp_path / "whole")
    assert attempt(recipe, whole.folder, whole)
    moments, folders = random.Random(kills), 0
    while kills > 0:
        out, folders = tmp_path / f"killed{folders}", folders + 1
        while not attempt(
            recipe, out, FailingDisk(out, moment=moments.randint(1, whole.operations), how=moments.choice(HOWS))
        ):
            kills -= 1
        assert_same_run(whole.folder, out)


PROGRAM = """
import json, os, random, signal, sys, time
import filelock, torch._dynamo  # here, because each child would import them again
from pathlib import Path
sys.path.insert(0, {tests!r})
from scorefield import Recipe
from training.small_runs import quick

def started(out):
    if (child := os.fork()) == 0:
        quick(Recipe(**json.loads({recipe!r})), out, resume=(out / "recipe.json").exists())
        os._exit(0)
    return child

def finished(child, seconds=120.0):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            assert status == 0, status
            return True
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False

began = time.monotonic()
assert finished(started(Path({place!r}) / "whole"))
took, moments, kills = time.monotonic() - began, random.Random(0), 0
while kills < 5:
    out = Path({place!r}) / f"killed{{kills}}"
    while kills < 5 and not finished(started(out), moments.uniform(0, took)):
        kills += 1
    assert finished(started(out))
"""
"""Trains in child processes, and kills them five times. It has no threads of its own, so that it can fork."""


def test_kill_9_at_five_moments(recipe: Recipe, tmp_path: Path) -> None:
    """The end of each run is that of one that nothing happened to, whatever the machine was doing when it died."""
    settings = json.dumps(asdict(replace(recipe, steps=20, checkpoint_every=3, evaluate_every=5)))
    program = PROGRAM.format(tests=str(Path(__file__).parents[1]), recipe=settings, place=str(tmp_path))
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    killed = list(tmp_path.glob("killed*"))
    assert killed
    for out in killed:
        assert_same_run(tmp_path / "whole", out)
