"""Places that cannot be written to are found before any work, by every command that writes files."""

from __future__ import annotations

import shutil
import sys
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from small_evaluation import dots
from small_evaluation import small as small

from cli.calls import failure
from scorefield.cli import main
from scorefield.files import check_writable
from scorefield.models.model import Model

RELEASED = Path(__file__).parents[1] / "released"


@pytest.fixture(autouse=True)
def _no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever samples a model fails."""
    monkeypatch.setattr(Model, "states", None)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
@pytest.mark.parametrize("option", ["--out", "--json"])
def test_nothing_begins_if_the_result_could_not_be_written(
    option: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Permissions do not tell: root may write into /proc, by them."""
    Image.fromarray(dots(1, 0, (33, 47))[0]).save(tmp_path / "image.png")
    np.save(tmp_path / "images.npy", dots(20, 0, (28, 28)))
    images: list[str | Path] = [tmp_path / "images.npy"]
    data: list[str | Path] = [*images, "--data", tmp_path / "images.npy"]
    calls: dict[str, list[list[str | Path]]] = {
        "--out": [
            ["sample", run, "--out", "/proc/x.png"],
            ["sample", run, "--out", "/proc/x.npy"],
            ["sample", run, "--out", "/proc/x"],
            ["inpaint", run, "--image", tmp_path / "image.png", "--out", "/proc/x.png"],
            ["digits", *images, "--out", "/proc/x.png"],
            ["neighbors", *data, "--out", "/proc/x.png"],
            ["demo", "--out", "/proc/x"],
            ["figure", "fig3", "--out", "/proc/x"],
            ["report", run, "--out", "/proc/x", "-n", "2"],
            ["results", tmp_path, "--out", "/proc/x.md"],
            ["export", run, "--out", "/proc/x.safetensors"],
            ["import", RELEASED / "tiny_gray28.pth", "--out", "/proc/x.safetensors"],
        ],
        "--json": [
            ["evaluate", *data, "--json", "/proc/x.json"],
            ["digits", *images, "--json", "/proc/x.json"],
            ["neighbors", *data, "--out", tmp_path / "n.png", "--json", "/proc/x.json"],
            ["bench", "--json", "/proc/x.json"],
        ],
    }
    for call in calls[option]:
        code, said = failure(capsys, *call)
        assert code == 1, (call, said)
        assert "/proc" in said
        assert said.endswith(f"(name another place with {option})\n"), (call, said)
        assert said.count("\n") == 1, (call, said)


@pytest.mark.parametrize("name", ["folder", "folder/", "new/", "/dev/null"])
def test_a_completion_is_one_file(name: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "folder").mkdir()
    image = ("--image", tmp_path / "image.png")
    code, said = failure(capsys, "inpaint", run, *image, "--out", f"{tmp_path}/{name}")
    assert code == 2
    assert "--out must be a file, FILE.png or FILE.npy; got " in said
    assert list((tmp_path / "folder").iterdir()) == []


def test_an_image_that_is_not_there(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = failure(capsys, "inpaint", run, "--image", tmp_path / "none.png", "--out", tmp_path / "x.png")
    assert code == 2
    assert said == f"scorefield: there is no image {tmp_path / 'none.png'} (name a file with --image)\n"


def test_a_folder_in_the_place_of_a_file(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.png").mkdir()
    (tmp_path / "link.png").symlink_to("x.png")
    for name in ("x.png", "link.png"):
        code, said = failure(capsys, "sample", run, "--out", tmp_path / name)
        assert code == 1
        assert said == f"scorefield: {tmp_path / 'x.png'} is a folder (name a file with --out)\n"


def test_a_full_disk_is_found_before_samples_are_drawn(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """1,000,000 images of 33 × 47 are 1,551 MB; 7 MB are free."""
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda place: usage(10**10, 10**10 - 7 * 10**6, 7 * 10**6))
    cases: list[tuple[list[Any], str, str]] = [
        (["sample", run, "--out", tmp_path / "x.npy"], str(tmp_path), "name another place with --out"),
        (["evaluate", run], str(tmp_path / "store"), "name another folder for samples with SCOREFIELD_DATA"),
    ]
    for call, place, fix in cases:
        code, said = failure(capsys, *call, "-n", "1000000")
        assert code == 1
        (line,) = [line for line in said.splitlines() if line.startswith("scorefield: ")]
        assert line.startswith(f"scorefield: {place}")
        assert line.endswith(f" has 7 MB of free space, but 1,551 MB are needed ({fix})")


def test_a_file_that_fits_is_allowed_and_leaves_nothing_behind(tmp_path: Path) -> None:
    check_writable(tmp_path / "a" / "b", size=10, fix="")
    assert list((tmp_path / "a" / "b").iterdir()) == []
    main(["export", "mnist-small", "--out", str(tmp_path / "m.safetensors")])
    assert (tmp_path / "m.safetensors").exists()
