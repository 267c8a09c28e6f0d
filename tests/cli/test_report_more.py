"""report: the parts that are made only where they are asked for, completions and other settings of the sampler."""

from __future__ import annotations

import json
import shutil
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from small_reports import N, dots, read, report
from small_reports import run as run
from small_reports import sampled as sampled
from small_reports import store as store

from scorefield import data, load
from scorefield.models.checkpoint import save_model
from scorefield.cli import main
from scorefield.distributed import Group
from scorefield.evaluation import How, robustness
from scorefield.evaluation import report as parts
from scorefield.evaluation.completions import MASKS
from scorefield.evaluation.robustness import STEP_SIZES, STEPS
from scorefield.models.export import export
from scorefield.progress import silent


@pytest.fixture(autouse=True)
def few_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(robustness, "STEPS", (2, 7))
    monkeypatch.setattr(robustness, "STEP_SIZES", (1e-5, 5e-4))


def test_held_out_images_are_completed(run: Path, tmp_path: Path, sampled: list[int]) -> None:
    found = report(run, tmp_path / "out", "--parts", "inpainting")
    assert found["command"].endswith("--parts inpainting")
    assert not {"samples", "numbers", "sampling"} & set(found)
    assert sampled == []
    told = found["inpainting"]["masks"]
    assert list(told) == list(MASKS)
    for name, numbers in told.items():
        assert (numbers["images"], numbers["completions"]) == (6, 8)
        assert numbers["known_error"] == pytest.approx(1, abs=0.1)
        assert numbers["distance"] > 0.05
        with Image.open(tmp_path / "out" / f"inpainting_{name}.png") as picture:
            zoom = picture.height // (6 * 14 + 2)
            assert picture.size == (zoom * (10 * 14 + 2), zoom * (6 * 14 + 2))  # six rows of ten


def test_images_that_must_not_be_published_are_not_shown(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "KEPT_OUT", "dots")
    report(run, tmp_path / "out", "--parts", "inpainting")
    with Image.open(tmp_path / "out" / "inpainting_left.png") as picture:
        assert picture.width / picture.height == (9 * 14 + 2) / (14 + 2)  # one of six for each of five holes


def test_without_held_out_images_there_is_nothing_to_complete(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = Path(load(run).recipe.data)
    save_model_without_data(run, tmp_path / "alone.safetensors")
    options = ["--out", str(tmp_path / "out"), "--parts", "inpainting", "--data"]
    for source in (str(data), str(tmp_path / "statistics.npz")):
        np.savez(tmp_path / "statistics.npz", mu=np.zeros(4), sigma=np.eye(4))
        with pytest.raises(SystemExit):
            main(["report", str(tmp_path / "alone.safetensors"), *options, source])
        assert "no held-out images to complete (--data mnist, say, has some" in capsys.readouterr().err


def test_other_images_than_the_models_own_are_completed(run: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "other.npy", dots(3, 5))
    options = ["--data", str(tmp_path / "other.npy"), "--parts", "inpainting", "--steps", "2", "--step-size", "5e-4"]
    export(run, tmp_path / "alone.safetensors")  # its own images are not to be found
    main(["report", str(tmp_path / "alone.safetensors"), "--out", str(tmp_path / "out"), *options])
    assert read(tmp_path / "out" / "report.json")["inpainting"]["masks"]["left"]["images"] == 3


def test_images_of_other_channels_than_the_models_are_not_completed(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "colour.npy", dots(20, 5)[..., None].repeat(3, -1))
    call = ["--out", str(tmp_path / "out"), "--parts", "inpainting", "--data", str(tmp_path / "colour.npy")]
    with pytest.raises(SystemExit):
        main(["report", str(run), *call])
    said = capsys.readouterr().err
    assert "has images of (3, 12, 12), and the model's are (1, 12, 12) (other --data" in said


def save_model_without_data(run: Path, path: Path) -> None:
    """A model whose own data are not to be found."""
    model = load(run)
    recipe = replace(model.recipe, data="nowhere")
    save_model(path, model.network.state_dict(), None, recipe=recipe, shape=model.shape, step=model.step, facts={})


def test_data_that_were_moved_are_known_again_and_what_was_held_out_of_them(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    main(["export", str(run), "--out", str(tmp_path / "alone.safetensors"), "--precision", "float32"])
    shutil.copyfile(load(run).recipe.data, tmp_path / "moved.npy")
    before, model = report(run, tmp_path / "before", "--parts", "inpainting", "numbers"), tmp_path / "alone.safetensors"
    after = report(model, tmp_path / "after", "--parts", "inpainting", "numbers", "--data", str(tmp_path / "moved.npy"))
    assert after["inpainting"] == before["inpainting"]
    assert (after["numbers"]["loss"], after["numbers"]["loss_n"]) == (before["numbers"]["loss"], 6)
    assert after["numbers"]["reference"]["n"] == before["numbers"]["reference"]["n"] == 54
    np.save(Path(load(model).recipe.data), dots(60, 9))  # others of that name, in the working folder
    main(["evaluate", str(model), "-n", "0", "--data", str(tmp_path / "moved.npy"), "--json", str(tmp_path / "e.json")])
    assert read(tmp_path / "e.json")["loss"] == before["numbers"]["loss"]


def test_images_that_are_named_are_completed_instead_of_the_models_own(run: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "other.npy", dots(3, 5))
    np.savez(tmp_path / "statistics.npz", mu=np.zeros(4), sigma=np.eye(4))  # in which there are none
    own = report(run, tmp_path / "own", "--parts", "inpainting")["inpainting"]
    named = report(run, tmp_path / "named", "--parts", "inpainting", "--data", str(tmp_path / "other.npy"))
    none = report(run, tmp_path / "none", "--parts", "inpainting", "--data", str(tmp_path / "statistics.npz"))
    assert own["masks"]["left"]["images"] == 6
    assert named["inpainting"]["masks"]["left"]["images"] == 3
    assert none["inpainting"] == own


def test_of_images_that_are_given_as_data_too_none_is_shown_that_must_not_be(run: Path, tmp_path: Path) -> None:
    save_model_without_data(run, tmp_path / "alone.safetensors")
    place = tmp_path / "store" / "CelebA"
    place.mkdir(parents=True)
    np.save(place / "CelebA-faces.npy", np.random.default_rng(0).integers(0, 256, (20, 12, 12), dtype=np.uint8))
    work = parts.Work(
        load(tmp_path / "alone.safetensors"),
        How(1, 1e-5, False, 0),
        N,
        8,
        str(place / "CelebA-faces.npy"),
        tmp_path,
        Group(0, 1, torch.device("cpu")),
        silent,
    )
    images, _ = work.training
    work.unseen = images  # as if they had been held out
    work.inpainting()
    with Image.open(tmp_path / "inpainting_left.png") as picture:
        assert picture.width / picture.height == (9 * 14 + 2) / (4 * 14 + 2)
    shown = np.concatenate(work.to_complete(5))  # what several holes leave of an image would show it all
    assert len(np.unique(shown, axis=0)) == len(shown) == 20
    assert np.array_equal(np.concatenate(work.to_complete(1)), images.pixels[:10])
    work.unseen = replace(images, pixels=images.pixels[:4])
    with pytest.raises(ValueError, match="4 images are too few for 5 holes, each in others"):
        work.prepare(["inpainting"])


def test_other_settings_of_the_sampler(run: Path, tmp_path: Path, sampled: list[int]) -> None:
    """Each cell is what evaluate says of samples by these settings."""
    found = report(run, tmp_path / "out", "--parts", "robustness")["robustness"]
    assert found["n"] == N
    assert [(cell["step_size"], cell["steps"]) for cell in found["cells"]] == [
        (1e-5, 2), (1e-5, 7), (5e-4, 2), (5e-4, 7)]  # fmt: skip
    assert sampled == [N] * 4
    cell = found["cells"][1]
    options = ["-n", str(N), "--step-size", "1e-5", "--steps", "7", "--json", str(tmp_path / "one.json")]
    main(["evaluate", str(run), *options])
    alone = read(tmp_path / "one.json")
    assert sampled == [N] * 4  # the same samples
    for name in ("fid", "kid", "kid_standard_error", "precision", "recall", "n"):
        assert cell[name] == pytest.approx(alone[name], rel=1e-9), name
    assert len({cell["fid"] for cell in found["cells"]}) == 4


@pytest.mark.filterwarnings("ignore:step_size 1e.200 is not below")
def test_settings_that_diverge_are_told(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(robustness, "STEP_SIZES", (1e-5, 1e200))
    cells = report(run, tmp_path / "out", "--parts", "robustness")["robustness"]["cells"]
    assert ["diverged" in cell for cell in cells] == [False, False, True, True]
    assert "fid" in cells[0]


def test_parts_are_added_to_a_report(run: Path, tmp_path: Path) -> None:
    report(run, tmp_path / "out")
    before = read(tmp_path / "out" / "report.json")
    assert "--parts" not in before["command"]
    after = report(run, tmp_path / "out", "--parts", "robustness")
    assert after["command"].endswith("--parts samples stages neighbors numbers robustness")
    assert after["numbers"] == before["numbers"]
    assert after["robustness"]["cells"][3]["fid"] == before["numbers"]["plain"]["fid"]  # of the same samples


def test_the_settings_are_those_that_the_paper_speaks_of() -> None:
    """Section 5: ε between 5e-6 and 5e-5, T = 100 and any other."""
    assert STEP_SIZES == (5e-6, 2e-5, 5e-5)
    assert STEPS == (10, 30, 100)


# ---------------------------------------------------------------- real images


def test_the_data_sets_test_images_are_measured_as_the_samples_are(
    run: Path, store: Path, tmp_path: Path, sampled: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    (store / "mnist").mkdir(parents=True)
    for name, n in (("train-images-idx3-ubyte", 40), ("t10k-images-idx3-ubyte", 12)):
        header = struct.pack(">4I", 0x803, n, 28, 28)
        (store / "mnist" / name).write_bytes(header + dots(n, n, (28, 28)).tobytes())
    found = report(run, tmp_path / "r", "--data", "mnist", "--parts", "numbers", "real")
    for name in ("mnist", "mnist:test"):
        np.save(tmp_path / name.replace(":", "-"), data.load(name, image_size=(12, 12)).pixels)
    files = [str(tmp_path / "mnist-test.npy"), "--data", str(tmp_path / "mnist.npy")]
    main(["evaluate", *files, "--json", str(tmp_path / "e.json")])
    alone = read(tmp_path / "e.json")
    for key in ("fid", "kid", "precision", "recall", "n", "kept_n"):
        assert found["real"][key] == pytest.approx(alone[key], rel=1e-9)
    assert (found["real"]["name"], found["real"]["n"]) == ("mnist:test", 12)

    before = found.pop("real")  # without it, nothing else is made again
    (tmp_path / "r" / "report.json").write_text(json.dumps(found))
    sampled.clear()
    assert report(run, tmp_path / "r", "--data", "mnist", "--parts", "real")["real"] == before
    assert sampled == []
    assert f"fid, mnist:test {before['fid']:20.4f}   n = 12 real images" in capsys.readouterr().out


def test_without_a_test_split_there_are_no_such_images(
    run: Path, tmp_path: Path, sampled: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        report(run, tmp_path / "r", "--parts", "numbers", "real")
    assert stopped.value.code == 2
    assert "dots.npy has no test images (mnist, cifar10, celeba have some" in capsys.readouterr().err
    assert sampled == []
