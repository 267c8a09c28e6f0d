"""sample, inpaint, import and train, called wrongly from the command line."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from odd_images import failure
from odd_images import run as run
from PIL import Image

from scorefield import load
from scorefield.cli import main
from scorefield.cli.models import note_if_short
from scorefield.distributed import Group
from scorefield.evaluation import How


def test_a_place_that_cannot_be_written_to_is_found_before_the_work(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "d.png").mkdir()
    (tmp_path / "file").touch()
    for out, words in (("d.png", "is a folder"), ("file/x.png", "cannot make the folder")):
        code, said = failure(capsys, "sample", run, "--out", tmp_path / out)
        assert (code, words in said, "sampling" in said) == (1, True, False), said


def test_wrong_calls(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text.png").write_text("no image")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    Image.new("L", (47, 33), "white").save(tmp_path / "white.png")
    image: list[str | Path] = ["--image", tmp_path / "white.png"]
    cases: list[tuple[list[str | Path], str]] = [
        (["sample", tmp_path / "none"], "no file"),
        (["sample", tmp_path / "full"], "no whole checkpoint"),
        (["sample", tmp_path / "white.png"], "damaged or no safetensors"),
        (["sample", run, "-n", "0"], "at least 1"),
        (["sample", run, "--seed", "-1"], "whole number"),
        (["sample", run, "--steps", "0"], "at least 1"),
        (["sample", run, "--step-size", "0"], "positive"),
        (["sample", run, "--out", "a.jpg"], "FILE.png"),
        (["sample", run, "--step-size", "nan"], "positive"),
        (["sample", run, "--out", tmp_path / "full"], "exists already"),
        (["import", tmp_path / "full"], "is a folder"),
        (["train", "tiny", "--clip", "nan", "--out", tmp_path / "r"], "clip must be 0 or more"),
        (["train", "tiny", "--sigma-max", "1e20", "--out", tmp_path / "r"], "sigmas must lie between"),
        (["sample", run, "--device", "toaster"], "no device is called"),
        (["inpaint", run, "--image", tmp_path / "none.png"], "no image"),
        (["inpaint", run, "--image", tmp_path / "text.png"], "no image that can be read"),
        (["inpaint", run, "--image", tmp_path / "full"], "is a folder (name one image in it)"),
        (["inpaint", run, *image, "--crop", "0"], "crop must be positive"),
        (["inpaint", run, *image, "--crop", "1000"], "cannot crop 1000×1000"),
        (["inpaint", run, *image, "--mask", "middle"], "no mask middle"),
        (["inpaint", run, *image, "--mask", tmp_path / "white.png"], "hides nothing"),
        (["import", tmp_path / "white.png", "--out", tmp_path / "m.safetensors"], "no checkpoint of the released"),
        (["train", "mnits"], "no recipe mnits"),
        (["train", "tiny", "--data", tmp_path / "nowhere", "--out", tmp_path / "r"], "does not exist"),
        (["train", "tiny", "--steps", "0", "--out", tmp_path / "r"], "at least 1"),
        (["train", "tiny", "--sigma-min", "2", "--out", tmp_path / "r"], "swap them"),
        (["train", "tiny", "--out", tmp_path / "r", "--resume"], "no run to resume"),
    ]
    for arguments, words in cases:
        code, said = failure(capsys, *arguments)
        said = " ".join(said.replace("│", " ").split())  # out of tyro's box
        assert code == 2, (arguments, said)
        assert words in said, (arguments, said)
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("n", ["0", "-3", "10000001", "99999999999999999999999"])
def test_impossible_numbers_of_samples(n: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["sample", str(run)], ["digits", "mnist-small"], ["report", str(run), "--out", "nowhere"]):
        code, said = failure(capsys, *command, "-n", n)
        assert code == 2
        assert re.search(r"-n must be from [12] to 10,000,000", said)
    assert not Path("nowhere").exists()


@pytest.mark.parametrize("which", ["image", "mask"])
def test_an_image_is_not_replaced_by_its_own_completions(
    which: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("image", "mask"):
        Image.new("L", (47, 33)).save(tmp_path / f"{name}.png")
    before = (tmp_path / f"{which}.png").read_bytes()
    call = ["inpaint", str(run), "--image", str(tmp_path / "image.png"), "--mask", str(tmp_path / "mask.png")]
    code, said = failure(capsys, *call, "--out", tmp_path / "." / f"{which}.png")
    assert code == 2
    assert "would be replaced by its own completions" in said
    assert (tmp_path / f"{which}.png").read_bytes() == before


def test_too_short_a_way_is_told_with_the_step_size_that_would_do(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The model's own T ε is 2 · 1e-5; steps of more than 2σ² = 2e-4 would leave noise of their own."""

    def told(*words: str) -> str:
        main(["sample", str(run), "-n", "1", "--device", "cpu", "--out", str(tmp_path / "x.npy"), *words])
        return capsys.readouterr().err

    assert "note:" not in told()
    assert "note:" not in told("--steps", "1")
    short = told("--steps", "1", "--step-size", "2e-6")
    assert "note: T ε = 2e-06 is 10% of the model's own: images may stay noise (--step-size 2e-05)\n" in short
    far = replace(load(run), recipe=replace(load(run).recipe, sample_steps=100, step_size=2e-5))
    note_if_short(How(1, 2e-5, False, 0), far, Group(0, 1, torch.device("cpu")))
    assert (
        "note: T ε = 2e-05 is 1% of the model's own: images may stay noise (more --steps)\n" in capsys.readouterr().err
    )


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
    assert (code, "the run's images, ../elsewhere.npy, are not here (say where" in said) == (2, True), said
    main([*call, "--data", place, "--steps", str(load(run).step + 1)])
    assert load(recipe.parent).step == load(run).step + 1
