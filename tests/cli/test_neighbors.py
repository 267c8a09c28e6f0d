"""neighbors, with a small random network in Inception's place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from small_evaluation import dots, read_json
from small_evaluation import small as small

from cli.calls import failure
from scorefield.cli import main
from scorefield.evaluation import inception
from scorefield.evaluation.neighbors import CHANCE, COPY, NEIGHBORS
from scorefield.evaluation.sample_cache import SampleCache


@pytest.mark.parametrize("space", ["pixel", "inception"])
def test_planted_copies_raise_the_alarm(space: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    training, samples = dots(300, 6), dots(40, 7)
    samples[5] = training[123]
    samples[9] = training[4, :, ::-1]  # mirrored
    np.save(tmp_path / "training.npy", training)
    np.save(tmp_path / "samples.npy", samples)
    np.save(tmp_path / "others.npy", dots(40, 8))
    call = ["--data", str(tmp_path / "training.npy"), "--space", space, "-n", "40", "--out", str(tmp_path / "n.png")]
    main(["neighbors", str(tmp_path / "samples.npy"), *call, "--json", str(tmp_path / "n.json")])
    report = read_json(tmp_path / "n.json")
    assert report["alarm"]
    found = {each["sample"]: each["training_image"] for each in report["copies"]}
    assert (found[5], found[9]) == (123, 4)
    assert "ALARM" in capsys.readouterr().out
    main(["neighbors", str(tmp_path / "others.npy"), *call, "--json", str(tmp_path / "n.json")])
    assert not read_json(tmp_path / "n.json")["alarm"]
    assert "no sign of memorisation" in capsys.readouterr().out
    main(["neighbors", str(tmp_path / "samples.npy"), *call, "--no-flips", "--json", str(tmp_path / "n.json")])
    assert [each["sample"] for each in read_json(tmp_path / "n.json")["copies"]] == [5]


def test_some_of_many_images_keep_their_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    training = dots(300, 6)
    np.save(tmp_path / "training.npy", training)
    np.save(tmp_path / "samples.npy", training[100:140])
    call = [
        "--data",
        str(tmp_path / "training.npy"),
        "--out",
        str(tmp_path / "n.png"),
        "--json",
        str(tmp_path / "n.json"),
    ]
    main(["neighbors", str(tmp_path / "samples.npy"), *call])
    report = read_json(tmp_path / "n.json")
    assert len(set(report["samples"])) == 8
    assert report["samples"] != list(range(8))
    assert [each["training_image"] - each["sample"] for each in report["copies"]] == [100] * 8
    assert [row[0] - number for row, number in zip(report["neighbors"], report["samples"], strict=True)] == [100] * 8
    assert "8 of 40 images of " in capsys.readouterr().out
    main(["neighbors", str(tmp_path / "samples.npy"), *call, "-n", "40"])
    assert read_json(tmp_path / "n.json")["samples"] == list(range(40))
    assert "drawn at random" not in capsys.readouterr().out


def test_the_picture_of_neighbors(tmp_path: Path) -> None:
    training = dots(30, 6)
    np.save(tmp_path / "training.npy", training)
    np.save(tmp_path / "samples.npy", training[[7, 2]])
    call = ["--data", str(tmp_path / "training.npy"), "--out", str(tmp_path / "n.png")]
    main(["neighbors", str(tmp_path / "samples.npy"), *call])
    with Image.open(tmp_path / "n.png") as opened:
        picture = np.asarray(opened)
    zoom = picture.shape[1] // (12 + 2 + 10 * 10 + 2)
    small = picture[::zoom, ::zoom]
    assert small.shape == (22, 116, 3)
    assert (small[:, 12:14] == (220, 20, 20)).all()
    for row, number in ((2, 7), (12, 2)):
        assert np.array_equal(small[row : row + 8, 2:10, 0], training[number])
        assert np.array_equal(small[row : row + 8, 16:24, 0], training[number])


def test_neighbors_of_another_size_in_inception_space(tmp_path: Path) -> None:
    np.save(tmp_path / "training.npy", dots(60, 6))
    np.save(tmp_path / "samples.npy", dots(5, 7, (9, 11, 3)))
    call = ["--data", str(tmp_path / "training.npy"), "--out", str(tmp_path / "n.png"), "--space", "inception"]
    main(["neighbors", str(tmp_path / "samples.npy"), *call])
    with Image.open(tmp_path / "n.png") as picture:  # a sample, the line, ten neighbours of its size
        zoom = picture.height // (5 * 11 + 2)
        assert picture.size == ((15 + 2 + 10 * 13 + 2) * zoom, (5 * 11 + 2) * zoom)


def test_the_fid_network_is_missing_before_samples_are_drawn(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(**_: object) -> None:
        raise FileNotFoundError("the FID network is not on this machine")

    monkeypatch.setattr(inception, "load_inception", missing)
    monkeypatch.setattr(SampleCache, "draw", None)
    code, said = failure(capsys, "neighbors", run, "-n", "3", "--space", "inception", "--out", tmp_path / "n.png")
    assert (code, said.splitlines()[-1]) == (2, "scorefield: the FID network is not on this machine")


def test_a_copy_is_defined_where_copies_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    training = dots(30, 6)
    np.save(tmp_path / "training.npy", training)
    np.save(tmp_path / "samples.npy", training[[7]])
    call = ["--data", str(tmp_path / "training.npy"), "--out", str(tmp_path / "n.png")]
    main(["neighbors", str(tmp_path / "samples.npy"), *call])
    said = capsys.readouterr().out
    assert "copies: 1 of 1 sample, 0 of 30 training images, each against the others\n" in said
    assert "below a third of its distance to the farthest of the 30 nearest, or of the smallest such distance" in said
    with pytest.raises(SystemExit):
        main(["neighbors", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert "A sample is called a copy if its distance to the nearest training image is below a third of" in said
    assert (COPY, NEIGHBORS, CHANCE) == (1 / 3, 50, 0.05)  # what the help says
