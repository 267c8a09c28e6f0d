"""scorefield doctor."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cli.calls import failure
from scorefield.cli import main
from scorefield.doctor import speed
from scorefield.models.recipes import RECIPES


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Measure the speed by a single update of a small network, and keep prepared images in a folder of the test's."""
    monkeypatch.setattr(speed, "SECONDS", 0.0)
    monkeypatch.setitem(RECIPES, "unet", replace(RECIPES["unet"], width=8, stages=(1,), blocks=(1,)))
    monkeypatch.setenv("SCOREFIELD_DATA", str(tmp_path / "data"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two classes of 8 × 8 pixels, with a copy among them."""
    rng = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (tmp_path / "pets" / name).mkdir(parents=True)
        for k in range(6):
            Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(tmp_path / "pets" / name / f"{k}.png")
    (tmp_path / "pets/dog/9.png").write_bytes((tmp_path / "pets/cat/2.png").read_bytes())
    return tmp_path / "pets"


def pixels_of(path: Path) -> np.ndarray:
    with Image.open(path) as picture:
        return np.asarray(picture)


def width_of(path: Path) -> int:
    return pixels_of(path).shape[1]


def call(*words: object) -> None:
    main([str(word) for word in words])


def test_images_get_recommendations(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call("doctor", folder, "--out", tmp_path / "doctor.png", "--json", tmp_path / "doctor.json", "--device", "cpu")
    out = capsys.readouterr().out
    numbers = json.loads((tmp_path / "doctor.json").read_text())
    assert "13 images of 3 × 8 × 8" in out
    assert "in 2 classes" in out
    assert "cat/2.png and dog/9.png" in out
    assert numbers["images"]["duplicates"] == [[2, 12]]
    points = np.stack([pixels_of(path) for path in sorted(folder.rglob("*.png"))]).reshape(13, -1) / 255
    distances = np.linalg.norm(points[:, None] - points, axis=-1)
    assert numbers["geometry"]["distances"]["1"] == pytest.approx(distances.max(), abs=1e-4)
    schedule = numbers["annealed_langevin"]
    assert schedule["sigma_max"] == pytest.approx(distances.max(), rel=5e-3)  # three digits
    assert schedule["calls"] == schedule["levels"] * schedule["steps"]
    for section in ("annealed_langevin", "all_noise_levels", "training"):
        for row in numbers[section]["advice"]:
            assert row["reason"][:1].upper() + row["reason"][1:40] in out.replace("\n      ", " ")
    assert numbers["training"]["speed"]["images_per_second"] > 0
    assert f"scorefield train unet --data {folder}" in out
    assert width_of(tmp_path / "doctor.png") > 800


def test_copies_are_named_although_a_file_cannot_be_read(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The broken file comes before them, so that the images' numbers are not those of the files."""
    (folder / "cat" / "0.png").write_bytes(b"no image")
    call("doctor", folder, "--out", tmp_path / "doctor.png", "--device", "cpu")
    said = capsys.readouterr()
    assert "skipped 1 of the 13 images" in said.err
    assert "(cat/2.png and dog/9.png)" in " ".join(said.out.split())


def test_the_advised_options_are_those_of_train(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command for the paper's network that the doctor prints is one that can be run."""
    call("doctor", folder, "--out", tmp_path / "doctor.png", "--device", "cpu")
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "→ scorefield train cifar10" in line]
    words = line.split("scorefield ")[1].split()
    small = f"--width 2 --steps 1 --batch-size 2 --held-out 0 --previews 0 --device cpu --out {tmp_path}/run"
    call(*words, *small.split())
    recipe = json.loads((tmp_path / "run/recipe.json").read_text())
    given = dict(zip(words[2::2], words[3::2], strict=True))
    assert recipe["levels"] == int(given["--levels"])
    assert recipe["sigma_max"] == float(given["--sigma-max"])


def test_a_run_is_examined(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    small = (
        "--image-size 8 --width 4 --stages 1 --blocks 1 --attention --steps 2 --batch-size 4 --held-out 2 --warmup 0"
    )
    call(*f"train unet-tiny --data {folder} {small} --previews 0 --device cpu --out {run}".split())
    capsys.readouterr()
    call("doctor", run, "-n", 4, "--images", 8, "--out", tmp_path / "run.png", "--json", tmp_path / "run.json")
    out, numbers = capsys.readouterr().out, json.loads((tmp_path / "run.json").read_text())
    assert "! at σ = " in out  # two iterations teach nothing
    assert "has learned nothing: it is no better than always predicting" in out.replace("\n    ", " ")
    errors = numbers["errors"]
    assert len(errors["sigmas"]) == len(errors["training"]) == len(errors["exact"]) == 10
    assert errors["n"] == 2
    assert out.count("says little") >= sum(sigma < 0.01 for sigma in errors["sigmas"]) > 0
    assert {each["kind"] for each in numbers["findings"]} <= {"good", "note", "problem"}
    assert width_of(tmp_path / "run.png") > 800


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing"], "'nothing' does not exist"),
        (["{folder}", "-n", "-1"], "-n must be 0 or more"),
        (["{folder}", "--data", "mnist"], "--data applies to models"),
        (["{folder}", "--out", "doctor.jpg"], "FILE.png"),
        (["{same}"], "all images of"),
        (["{one}"], "at least two images are needed, to train on and to measure distances; got 1"),
        (["model:mnist-smal"], "mnist-small"),
    ],
)
def test_wrong_calls(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    np.save(tmp_path / "same.npy", np.full((4, 8, 8), 7, np.uint8))
    np.save(tmp_path / "one.npy", np.zeros((1, 8, 8), np.uint8))
    places = {"folder": folder, "same": tmp_path / "same.npy", "one": tmp_path / "one.npy"}
    status, error = failure(capsys, "doctor", *(word.format(**places) for word in words), "--device", "cpu")
    assert status == 2
    assert message in error
    assert "Traceback" not in error
    assert not Path("doctor.png").exists()
