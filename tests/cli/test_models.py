"""info, import, and the options of train, from the command line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from cli.calls import failure
from scorefield import load
from scorefield.cli import main
from scorefield.models.released import from_released

RELEASED = Path(__file__).parents[1] / "released"


def test_a_released_checkpoint_becomes_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["import", str(RELEASED / "tiny_gray28.pth"), "--out", str(tmp_path / "gray.safetensors")])
    main(["info", str(tmp_path / "gray.safetensors"), "--json"])
    told = json.loads(capsys.readouterr().out.split("\n", 1)[1])
    assert (told["shape"], len(told["sigmas"]), told["weights"]) == ([1, 28, 28], 10, ["raw"])
    x, sigma = torch.rand(2, 1, 28, 28), torch.tensor(1.0)
    released = from_released(RELEASED / "tiny_gray28.pth", sigma_max=1.0, sigma_min=0.01)
    torch.testing.assert_close(load(tmp_path / "gray.safetensors").score(x, sigma), released(x, sigma))
    code, said = failure(capsys, "import", RELEASED / "tiny_gray28.pth", "--out", tmp_path / "gray.safetensors")
    assert (code, "exists already" in said) == (2, True)


def test_help_shows_a_recipes_own_values(capsys: pytest.CaptureFixture[str]) -> None:
    for recipe, values in {
        "cifar10": ("--width INT", "(default: 128)", "--flip, --no-flip", "(default: 200000)", "(default: 5000)"),
        "mnist-baseline": ("(default: 64)", "progression. (default: 1)", "level. (default: 1000)"),
    }.items():
        with pytest.raises(SystemExit) as exit_:
            main(["train", recipe, "--help"])
        assert exit_.value.code == 0
        told = " ".join(capsys.readouterr().out.replace("│", " ").split())
        for value in values:
            assert value in told


def test_a_model_is_printed_without_its_layers(run: Path) -> None:
    assert "RefineNet" not in repr(load(run))
    assert "step=2" in repr(load(run))


def test_a_run_whose_images_have_moved_asks_where_they_are(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As those of a relative path have for who resumes it from another folder."""
    recipe = tmp_path / "run" / "recipe.json"
    shutil.copytree(run, recipe.parent)
    told = json.loads(recipe.read_text())
    place = told["data"]
    recipe.write_text(json.dumps(told | {"data": "../elsewhere.npy"}))
    call = ["train", "tiny", "--out", str(recipe.parent), "--resume"]
    code, said = failure(capsys, *call)
    assert (code, "../elsewhere.npy" in said and "--data" in said) == (2, True), said
    main([*call, "--data", place, "--steps", str(load(run).step + 1)])
    assert load(recipe.parent).step == load(run).step + 1
