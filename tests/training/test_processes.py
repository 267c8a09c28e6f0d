"""Training runs as processes: killed, told to stop, and two together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from forked import Program, command_line, ended, ranks

from scorefield.cli import main
from scorefield.models import checkpoint
from scorefield.models.model import load
from scorefield.models.recipes import Recipe
from training.small_runs import assert_same, final, rows
from training.small_runs import recipe as recipe

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def command(recipe: Recipe, out: Path, *more: str) -> list[str]:
    options = {
        "data": recipe.data,
        "image-size": "None",
        "width": recipe.width,
        "levels": recipe.levels,
        "held-out": recipe.held_out,
        "steps": recipe.steps,
        "batch-size": recipe.batch_size,
        "ema": recipe.ema,
        "micro-batch": 0,
        "checkpoint-every": recipe.checkpoint_every,
        "log-every": 1,
        "previews": 0,
        "out": out,
    }
    flags = [str(part) for name, value in options.items() for part in (f"--{name}", value)]
    return ["train", "tiny", *flags, *more]


def wait_for_step(log: Path, step: int, process: Program) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if log.exists() and len(log.read_text().splitlines()) > step:
            return
        time.sleep(0.02)
    raise AssertionError(process.communicate()[1])


# ---------------------------------------------------------------- alone


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_save_first(number: signal.Signals, recipe: Recipe, tmp_path: Path) -> None:
    recipe = replace(recipe, steps=10**6, checkpoint_every=10**6)
    process = command_line(*command(recipe, tmp_path / "run"))
    wait_for_step(tmp_path / "run" / "log.csv", 5, process)
    process.send_signal(number)
    stdout, stderr = process.communicate()
    assert process.returncode == 128 + number, stderr  # as shells have it: a script can tell it from a finished run
    step = load(tmp_path / "run").step
    assert step >= 5
    assert f"stopped at step {step} of 1000000: got {number.name} (go on with --resume)" in stderr
    assert stdout.strip().endswith(f"model-{step:08d}.safetensors")


def test_a_run_out_of_its_minutes_has_not_failed(
    recipe: Recipe, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(command(recipe, tmp_path / "run", "--minutes", "1e-6"))
    told = capsys.readouterr()
    assert told.out.strip().endswith("model-00000001.safetensors")
    assert "stopped at step 1 of 6: time is up after 1e-06 min (go on with --resume)" in told.err


# ---------------------------------------------------------------- two together


def pair(recipe: Recipe, out: Path, *more: str, before: str = "") -> list[Program]:
    """Two processes that train together, as two machines of one process each; `before`: code to run first."""
    arguments = command(recipe, out, *more)
    return [command_line(*arguments, before=before, variables=variables) for variables in ranks(2)]


def spoiling(loss: str, when: str) -> str:
    """Python that makes this of the second process's losses then."""
    return (
        "import os, scorefield.training.run as run, scorefield.objectives as objectives\n"
        "calls = []\n"
        "def spoil(*args, **kwargs):\n"
        "    calls.append(1)\n"
        "    loss = objectives.denoising(*args, **kwargs)\n"
        f"    return {loss} if os.environ['RANK'] == '1' and {when} else loss\n"
        "run.OBJECTIVES['denoising'] = spoil\n"
    )


@pytest.mark.parametrize("objective", ["denoising", "sliced"])
def test_two_processes_compute_what_one_does(objective: str, recipe: Recipe, tmp_path: Path) -> None:
    """Joined batches: the losses agree, and so do Adam's means of the gradients, but for rounding. The first two are
    started by torchrun."""
    recipe = replace(recipe, steps=2, ema=0.0)
    more = ["--objective", objective, "--clip", "0"]
    main(command(recipe, tmp_path / "one", *more))
    together = command(recipe, tmp_path / "two", *more)
    if objective == "denoising":
        launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m"]
        words = [*launch, "scorefield", *together]
        done = subprocess.run(words, env=ENVIRONMENT, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        printed = done.stdout
    else:
        printed = "".join(ended(command_line(*together, variables=variables) for variables in ranks(2)))
    assert printed.count("model-00000002.safetensors") == 1
    one, two = rows(tmp_path / "one" / "log.csv"), rows(tmp_path / "two" / "log.csv")
    for a, b in zip(one, two, strict=True):
        for name in ("loss", "loss@1", "loss@0.2236", "loss@0.05"):
            assert a[name] == b[name] or float(a[name]) == pytest.approx(float(b[name]), rel=1e-3)
    alone, joined = (
        checkpoint.read(tmp_path / name / "checkpoints" / "optimizer-00000002.safetensors")[0]
        for name in ("one", "two")
    )
    means = [torch.cat([v.flatten() for k, v in each.items() if k.endswith("exp_avg")]) for each in (alone, joined)]
    assert (means[0] - means[1]).norm() < 1e-2 * means[0].norm()


def test_two_processes_begin_with_the_same_model(recipe: Recipe, tmp_path: Path) -> None:
    """Then their losses are those of one process that begins so, and not those of random weights."""
    recipe = replace(recipe, steps=2)
    main(command(recipe, tmp_path / "first"))
    start = ["--start", str(tmp_path / "first")]
    main(command(recipe, tmp_path / "one", *start))
    ended(pair(recipe, tmp_path / "two", *start))
    logs = [rows(tmp_path / name / "log.csv") for name in ("first", "one", "two")]
    first, one, two = ([float(row["loss"]) for row in log] for log in logs)
    assert two == pytest.approx(one, rel=1e-3)
    assert one[0] != pytest.approx(first[0], rel=1e-3)


def test_two_processes_stop_together_and_go_on_exactly(recipe: Recipe, tmp_path: Path) -> None:
    """Only the second is told to stop; both do, at one step and with one status, and the first writes the checkpoint
    and says so."""
    recipe = replace(recipe, steps=12, checkpoint_every=100)
    stopping = spoiling("(os.kill(os.getpid(), 15), loss)[1]", "len(calls) == 6")
    processes = pair(recipe, tmp_path / "run", before=stopping)
    said = [process.communicate()[1] for process in processes]
    assert [process.returncode for process in processes] == [143, 143], said
    step = load(tmp_path / "run").step
    assert 5 <= step < 12
    assert f"stopped at step {step} of 12: another process was told to stop (go on with --resume)" in said[0]
    assert "stopped" not in said[1]
    for out, more in (("run", ["--resume"]), ("whole", [])):
        ended(pair(recipe, tmp_path / out, *more))
    assert_same(final(tmp_path / "whole", 12), final(tmp_path / "run", 12))


def test_a_gradient_that_is_not_finite_in_one_process_is_skipped_by_all(recipe: Recipe, tmp_path: Path) -> None:
    spoilt = spoiling("loss + (loss - loss.detach()).abs().sqrt()", "len(calls) == 4")
    recipe = replace(recipe, checkpoint_every=1)
    processes = pair(recipe, tmp_path / "run", before=spoilt)
    said = [process.communicate()[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    before, at, after = (final(tmp_path / "run", step)["raw/end.weight"] for step in (3, 4, 5))
    assert torch.equal(before, at)
    assert after.isfinite().all()
    assert not torch.equal(at, after)


def test_a_loss_that_is_not_finite_in_one_process_stops_all(recipe: Recipe, tmp_path: Path) -> None:
    spoilt = spoiling("loss * float('nan')", "len(calls) > 3")
    processes = pair(recipe, tmp_path / "run", before=spoilt)
    said = [process.communicate()[1] for process in processes]
    assert [process.returncode for process in processes] == [1, 1], said
    for rank in range(2):
        assert f"scorefield, process {rank}: the loss or its gradient is not finite at step 4" in said[rank]
    assert load(tmp_path / "run").step == 2


def test_a_process_that_fails_in_a_group_ends_with_its_own_status(tmp_path: Path) -> None:
    """Not by what the group's threads do when Python takes them down: here, for certain, an abort."""
    failing = (
        "import atexit, os, torch.distributed as dist\n"
        "from scorefield import cli\n"
        "def fail(*args, **kwargs):\n"
        f"    dist.init_process_group('gloo', init_method='file://{tmp_path}/store', rank=0, world_size=1)\n"
        "    raise ValueError('odd input')\n"
        "cli.run_command = fail\n"
        "atexit.register(os.abort)\n"
        "cli.main(['info'])\n"
    )
    ended = subprocess.run([sys.executable, "-c", failing], env=ENVIRONMENT, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr.splitlines()[-1]) == (2, "scorefield: odd input")
