"""What the commands tell about images: each notice is one line on stderr, whichever command reads the images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from small_evaluation import small as small

from data.image_files import fill, noise, put
from scorefield.cli import main

TRAIN = (
    "--width 2 --levels 2 --sigma-min 0.1 --steps 1 --batch-size 2 --held-out 4 --previews 0 --device cpu "
    "--sample-steps 1 --step-size 1e-5"
)


def notes(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[str]:
    """The notices that a command prints, without other notes about its results."""
    capsys.readouterr()
    main([str(argument) for argument in arguments])
    told = capsys.readouterr().err.splitlines()
    assert not any("Warning" in line or ".py:" in line for line in told)
    about = ("skipped", "the images of")
    return [line for line in told if line.removeprefix("note: ").startswith(about)]


@pytest.fixture
def photos(folder: Path) -> Path:
    """Eleven images of 4 × 4 in colour, one of them broken, and a file of another kind."""
    fill(folder, 11)
    (folder / "003.png").write_text("no image")
    (folder / "notes.txt").touch()
    return folder


def expected(photos: Path) -> list[str]:
    return [
        f"note: skipped 1 file in {photos}, of kinds that are not read: 1 .txt",
        f"note: the images of {photos} are shrunk to 3 × 3, from 4 × 4 pixels (height × width)",
        f"note: skipped 1 of the 11 images in {photos}, which cannot be read: 003.png",
    ]


def matches(told: list[str], wanted: list[str]) -> bool:
    return len(told) == len(wanted) and all(a.startswith(b) for a, b in zip(told, wanted, strict=True))


def test_training_and_measuring_tell_what_became_of_the_images(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, wanted = tmp_path / "run", expected(photos)
    call = ["train", "tiny", "--data", photos, "--out", run, "--image-size", "3", *TRAIN.split()]
    assert matches(notes(capsys, *call), wanted)
    assert matches(notes(capsys, "evaluate", run, "-n", "5"), wanted)
    assert matches(notes(capsys, "neighbors", run, "-n", "2", "--out", tmp_path / "n.png"), wanted)
    assert matches(notes(capsys, "select", run, "-n", "5"), wanted)
    report = ["report", run, "--out", tmp_path / "report", "-n", "2", "--parts", "neighbors"]
    assert matches(notes(capsys, *report), wanted)


def test_measured_images_are_noted_too(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Images that are measured, and not only those they are compared with; nothing is resized."""
    np.save(tmp_path / "a.npy", noise(20, 4, 4, 3))
    skipped = [line for line in expected(photos) if "shrunk" not in line]
    assert matches(notes(capsys, "evaluate", photos, "--data", tmp_path / "a.npy", "-n", "5"), skipped)
    call = ["neighbors", photos, "--data", tmp_path / "a.npy", "-n", "5", "--out", tmp_path / "n.png"]
    assert matches(notes(capsys, *call), skipped)
    assert notes(capsys, "evaluate", tmp_path / "a.npy", "--data", tmp_path / "a.npy", "-n", "5") == []


def test_digits_in_a_folder_are_noted_too(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(folder / "0.png", noise(28, 28))
    (folder / "labels.csv").touch()
    assert notes(capsys, "digits", folder) == [f"note: skipped 1 file in {folder}, of kinds that are not read: 1 .csv"]


@pytest.fixture
def grey(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A model of grey images of 4 × 4."""
    np.save(tmp_path / "grey.npy", noise(20, 4, 4))
    call = ["train", "tiny", "--data", tmp_path / "grey.npy", "--out", tmp_path / "run", "--image-size", "None"]
    assert notes(capsys, *call, *TRAIN.split()) == []
    return tmp_path / "run"


def test_images_in_other_colours_than_the_models(grey: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(folder, 12)
    assert notes(capsys, "evaluate", grey, "--data", folder, "-n", "5") == [
        f"note: the images of {folder} are in colour, and the model's are grey: they are compared as they are"
    ]


def test_an_image_to_complete(grey: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its colours, and which part of it is used."""
    photo, scan = put(folder / "photo.png", noise(9, 6, 3)), put(folder / "a.png", noise(4, 4))
    call = ["inpaint", grey, "-n", "1", "--out", tmp_path / "out.png", "--image"]
    assert told_of(photo, capsys, *call) == [
        f"note: {photo} has colours and the model's images are grey: only its brightness is used",
        f"note: {photo} is cropped to the middle 6 × 6 and shrunk to 4 × 4, from 9 × 6 pixels (height × width)",
    ]
    assert told_of(scan, capsys, *call) == []


def told_of(image: Path, capsys: pytest.CaptureFixture[str], *call: object) -> list[str]:
    main([str(word) for word in (*call, image)])
    return [line for line in capsys.readouterr().err.splitlines() if str(image) in line]
