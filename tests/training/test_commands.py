"""scorefield train and scorefield info, from the command line."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from scorefield.cli import main
from scorefield.models.recipes import Recipe
from scorefield.training import saved_recipe
from training.small_runs import files_of, quick, rows
from training.small_runs import recipe as recipe

SETTINGS = [
    *("--image-size", "None", "--width", "2", "--levels", "2", "--held-out", "4", "--steps", "2", "--batch-size", "4"),
    *("--checkpoint-every", "2", "--previews", "0", "--sample-steps", "1", "--step-size", "1e-6", "--device", "cpu"),
]


def next_command(told: pytest.CaptureFixture[str]) -> list[str]:
    """The words of the last line that was printed to stderr, after next:."""
    last = told.readouterr().err.splitlines()[-1]
    assert last.startswith("next: scorefield ")
    return shlex.split(last)[2:]


def test_training_ends_with_the_next_command_to_run(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """To go on with a run that was stopped, with all of its own settings; and to sample one that is done."""
    monkeypatch.chdir(tmp_path)
    main(["train", "tiny", "--data", recipe.data, "--out", "my run", *SETTINGS, "--minutes", "1e-6"])
    words = next_command(capsys)
    assert words == ["train", "tiny", "--resume", "--out", "my run"]
    before = saved_recipe(Path("my run"))
    main(words)
    assert saved_recipe(Path("my run")) == before
    assert (before.width, before.image_size) == (2, None)
    assert not Path("my run/changes.json").exists()
    words = next_command(capsys)
    assert words == ["sample", "my run", "-n", "16", "--out", "samples.png"]
    main(words)
    assert Path("samples.png").is_file()


def test_what_was_changed_is_told(recipe: Recipe, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A permitted change by info, with the losses on held-out images; another one is an error, and changes nothing."""
    run = tmp_path / "run"
    call = ["train", "tiny", "--out", str(run)]
    main([*call, "--data", recipe.data, *SETTINGS])
    main([*call, "--resume", "--learning-rate", "1e-4", "--steps", "3"])
    before = files_of(run)
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        main([*call, "--resume", "--objective", "sliced", "--flip", "--no-dequantise"])
    said = capsys.readouterr().err
    assert end.value.code == 2
    for part in ("flip False", "dequantise True", "objective denoising", "got flip True", "leave --flip, --dequantise"):
        assert part in said
    assert files_of(run) == before
    main(["info", str(run)])
    told = capsys.readouterr().out
    assert "changed    steps from 2 to 3 at step 2\n" in told
    assert "changed    learning_rate from 0.004 to 0.0001 at step 2\n" in told
    last = rows(run / "held_out.csv")[-1]
    loss, error = (float(last[f"ema_held_out{kind}"]) for kind in ("", "_standard_error"))
    assert f"held out   loss {loss:.4g} ± {error:.2g} at step 3 (ema weights, 4 images at every noise level)" in told
    level = f"{float(last['ema_held_out@0.05']):.4g} ± {float(last['ema_held_out_standard_error@0.05']):.2g}"
    assert f"{level} at sigma 0.05" in told
    main(["info", str(run), "--json"])
    told = json.loads(capsys.readouterr().out)
    assert [each["setting"] for each in told["changes"]] == ["steps", "learning_rate"]
    assert (told["held_out"]["n"], told["held_out"]["loss"], told["held_out"]["standard_error"]) == (4, loss, error)
    assert list(told["held_out"]["by_sigma"]) == ["1", "0.05"]


def test_info_tells_what_is_known_of_a_network_of_your_own(
    recipe: Recipe, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its class is not at hand, and it is said how to load it."""
    run = tmp_path / "run"
    quick(replace(recipe, previews=0), run)
    main(["info", str(run)])
    told = capsys.readouterr().out
    for part in (
        "Small, a network of your own, 0.00 M numbers in its weights",
        "images     1 × 5 × 6",
        "noise      3 levels, sigma 1 ... 0.01",
        "trained    6 steps of 4 by denoising",
        "weights    raw, ema",
        f"to load    in Python, with its class: sf.load('{run}', network=Small(...))",
    ):
        assert part in told
    assert "to sample" not in told
    main(["info", str(run), "--json"])
    values = json.loads(capsys.readouterr().out)
    assert (values["parameters"], values["step"], values["recipe"]["network"]) == (10, 6, "Small")


def test_the_options_of_training_read_plainly(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["train", "cifar10", "--help"])
    assert end.value.code == 0
    told = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for unclear in ("{None}", "default: None", "default: True", "default: False", "default: inf"):
        assert unclear not in told
    assert "--image-size INT" in told
    assert "--flip, --no-flip" in told
