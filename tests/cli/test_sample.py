"""sample and inpaint from the command line, and wrong calls of all commands."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forked import command_line, ended, ranks
from PIL import Image

from cli.calls import failure
from scorefield import load, web
from scorefield.cli import main
from scorefield.cli.options import Sampling
from scorefield.data.masks import make_mask
from scorefield.data.pictures import Fit
from scorefield.models.model import Model
from scorefield.samplers import PACES, AnnealedLangevin, State
from scorefield.web.models import Models

RELEASED = Path(__file__).parents[1] / "released"


def test_33_by_47_grey_images_from_end_to_end(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["sample", str(run), "-n", "3", "--out", str(tmp_path / "grid.png")])
    assert capsys.readouterr().out.strip() == str(tmp_path / "grid.png")
    with Image.open(tmp_path / "grid.png") as picture:
        assert picture.mode == "L"
        zoom = picture.width // (2 * 49 + 2)
        assert picture.size == (zoom * (2 * 49 + 2), zoom * (2 * 35 + 2))
    main(["info", str(run), "--json"])
    told = json.loads(capsys.readouterr().out)
    assert (told["shape"], told["step"], told["weights"]) == ([1, 33, 47], 2, ["raw", "ema"])
    assert told["sampler"]["name"] == "annealed_langevin"
    assert told["sampler"]["steps"] == 2
    main(["info", str(run)])
    printed = capsys.readouterr().out
    for words in ("1 × 33 × 47", "sigma 1 ... 0.01", "raw, ema", "scorefield sample", "2 steps of 4"):
        assert words in printed


def test_the_same_seed_gives_the_same_images_for_any_batch_size(run: Path, tmp_path: Path) -> None:
    images = {}
    for size in (1, 2, 5):
        main(["sample", str(run), "-n", "5", "--batch-size", str(size), "--out", str(tmp_path / f"{size}.npy")])
        images[size] = np.load(tmp_path / f"{size}.npy").astype(int)
    assert images[5].shape == (5, 33, 47, 1)
    assert np.abs(images[1] - images[5]).max() <= 1
    assert np.abs(images[2] - images[5]).max() <= 1
    assert len({image.tobytes() for image in images[5]}) == 5
    main(["sample", str(run), "-n", "5", "--seed", "1", "--out", str(tmp_path / "other.npy")])
    assert np.abs(np.load(tmp_path / "other.npy") - images[5]).max() > 10


def test_the_same_images_for_two_processes(run: Path, tmp_path: Path) -> None:
    call = ["sample", run, "-n", "3", "--out", tmp_path / "two.npy", "--device", "cpu"]
    ended(command_line(*call, variables=variables) for variables in ranks(2))
    main(["sample", str(run), "-n", "3", "--out", str(tmp_path / "one.npy")])
    one, two = (np.load(tmp_path / f"{name}.npy").astype(int) for name in ("one", "two"))
    assert np.abs(one - two).max() <= 1


def test_a_folder_a_gif_and_the_options(run: Path, tmp_path: Path) -> None:
    main(["sample", str(run), "-n", "2", "--out", str(tmp_path / "each")])
    assert sorted(p.name for p in (tmp_path / "each").iterdir()) == ["00000.png", "00001.png"]
    with Image.open(tmp_path / "each" / "00000.png") as picture:
        assert picture.size == (47, 33)
    main(["sample", str(run), "-n", "2", "--out", str(tmp_path / "short.gif")])
    with Image.open(tmp_path / "short.gif") as picture:
        assert picture.n_frames == 4
    main(["sample", str(run), "-n", "2", "--steps", "50", "--out", str(tmp_path / "a.gif")])
    with Image.open(tmp_path / "a.gif") as picture:
        assert 50 <= picture.n_frames <= 60  # of 100 states
    main(["sample", str(run), "-n", "2", "--out", str(tmp_path / "c.npy")])
    for option in (["--denoise"], ["--weights", "raw"], ["--step-size", "1e-4"], ["--steps", "3"]):
        main(["sample", str(run), "-n", "2", *option, "--out", str(tmp_path / "b.npy")])
        assert not np.array_equal(np.load(tmp_path / "b.npy"), np.load(tmp_path / "c.npy")), option


def test_quick_is_a_quarter_of_the_steps_each_four_times_as_long(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The model's own: 2 steps of 1e-5, of which a quarter is one step, of 2e-5."""
    for name, options in {"quick": ["--quick"], "same": ["--steps", "1", "--step-size", "2e-5"]}.items():
        main(["sample", str(run), "-n", "2", *options, "--out", str(tmp_path / f"{name}.npy")])
    assert np.array_equal(np.load(tmp_path / "quick.npy"), np.load(tmp_path / "same.npy"))
    model = load(run)
    usual = replace(model, sampler=AnnealedLangevin(model.sigmas, step_size=2e-5, steps=100))
    chosen = Sampling(n=1, quick=True).sampler_for(usual)
    assert (chosen.steps, chosen.step_size) == (25, 8e-5)
    for option in ("--steps", "--step-size"):
        code, said = failure(capsys, "sample", run, "--quick", option, "1")
        assert code == 2
        assert f"got {option} as well" in said
    code, said = failure(capsys, "evaluate", tmp_path / "quick.npy", "--data", tmp_path / "quick.npy", "--quick")
    assert (code, "--quick applies only to models" in said) == (2, True)


def test_the_page_and_the_command_line_have_the_same_paces() -> None:
    page = (Path(web.__file__).parent / "page" / "index.html").read_text(encoding="utf-8")
    shown = {name.lower(): int(k) for k, name in re.findall(r'name="pace" value="(\d+)"><span>(\w+)<', page)}
    assert shown == PACES
    described = Models().cards()["mnist-small"].described()
    assert described["paces"] == {
        "1": {"steps": 100, "step_size": 2e-5},
        "4": {"steps": 25, "step_size": 8e-5},
        "10": {"steps": 10, "step_size": 2e-4},
    }


@pytest.mark.parametrize("mask", ["left", "right", "top", "bottom", "center", "random", "file"])
def test_inpainting_keeps_what_is_known(mask: str, run: Path, tmp_path: Path) -> None:
    """Known pixels agree with the image to within the last level's noise, 0.01; the rest does not."""
    original = np.random.default_rng(1).integers(0, 256, (33, 47), dtype=np.uint8)
    Image.fromarray(original).save(tmp_path / "image.png")
    known = np.ones((33, 47), bool)
    if mask == "file":
        known[5:20, 10:30] = False
        Image.fromarray(np.where(known, 255, 0).astype(np.uint8)).save(tmp_path / "mask.png")
        mask = str(tmp_path / "mask.png")
    else:
        known = make_mask(mask, Fit(size=(33, 47))).numpy()
        hidden = {"left": known[:, 23:].all(), "right": known[:, :24].all(), "top": known[16:].all()}
        assert hidden.get(mask, True)
    assert 0.2 < known.mean() < 0.9
    main(["inpaint", str(run), "--image", str(tmp_path / "image.png"), "--mask", mask, "-n", "2",
          "--out", str(tmp_path / "out.npy")])  # fmt: skip
    completions = np.load(tmp_path / "out.npy")[..., 0].astype(int)
    assert completions.shape == (2, 33, 47)
    inside = (original > 15) & (original < 240) & known
    error = (completions - original)[:, inside]
    assert abs(error.std() / 2.55 - 1) < 0.2
    assert np.abs(completions - original)[:, ~known].mean() > 20
    assert not np.array_equal(completions[0][~known], completions[1][~known])


def test_the_picture_of_an_inpainting(run: Path, tmp_path: Path) -> None:
    Image.new("RGB", (300, 200), "red").save(tmp_path / "image.jpg")
    main(["inpaint", str(run), "--image", str(tmp_path / "image.jpg"), "-n", "3", "--out", str(tmp_path / "row.png")])
    with Image.open(tmp_path / "row.png") as picture:
        pixels = np.asarray(picture)
    zoom = pixels.shape[0] // 37
    pixels = pixels[::zoom, ::zoom]
    assert pixels.shape == (37, 5 * 49 + 2)  # occluded, three completions, original
    assert (pixels[2:35, 2 : 2 + 23] == 128).all()
    assert np.array_equal(pixels[2:35, 2 + 23 : 2 + 47], pixels[2:35, 2 + 4 * 49 + 23 : 2 + 4 * 49 + 47])


def test_an_image_is_cropped_as_the_training_images_were(run: Path, tmp_path: Path) -> None:
    """A model of the middle 16 × 16 of larger images sees the middle of the image to complete, and of its mask."""
    rng = np.random.default_rng(0)
    np.save(tmp_path / "large.npy", rng.integers(0, 256, (6, 40, 30), dtype=np.uint8))
    options = "--crop 16 --image-size 16 --width 2 --levels 2 --steps 1 --batch-size 4 --held-out 0 --previews 0"
    train = ["train", "tiny", "--data", str(tmp_path / "large.npy"), "--out", str(tmp_path / "run")]
    os.environ["SCOREFIELD_DATA"] = str(tmp_path / "data")
    try:
        main([*train, *options.split(), "--sample-steps", "1"])
    finally:
        del os.environ["SCOREFIELD_DATA"]
    pixels = rng.integers(0, 256, (40, 30), dtype=np.uint8)
    hidden = np.full((40, 30), 255, np.uint8)
    hidden[12 : 12 + 4] = 0  # the first four rows of the middle
    Image.fromarray(pixels).save(tmp_path / "large.png")
    Image.fromarray(pixels[12:28, 7:23]).save(tmp_path / "middle.png")
    Image.fromarray(hidden).save(tmp_path / "mask.png")
    for name in ("large.png", "middle.png"):
        out = tmp_path / "out.PNG"
        mask = str(tmp_path / "mask.png") if name == "large.png" else "top"
        main(["inpaint", str(tmp_path / "run"), "--image", str(tmp_path / name), "--mask", mask, "-n", "1",
              "--out", str(out)])  # fmt: skip
        with Image.open(out) as opened:
            picture = np.asarray(opened)
        zoom = picture.shape[0] // 20
        small = picture[::zoom, ::zoom]
        assert np.array_equal(small[2:18, 38:54], pixels[12:28, 7:23])
        first = 4 if name == "large.png" else 8
        assert (small[2 : 2 + first, 2:18] == 128).all()
        assert np.array_equal(small[2 + first : 18, 2:18], pixels[12 + first : 28, 7:23])


def test_the_middle_of_an_image_on_demand(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--crop 50 completes the middle 50 × 50, as if that were the image; what is odd about an image is said."""
    pixels = np.random.default_rng(0).integers(0, 256, (70, 60), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "large.png")
    Image.fromarray(pixels[10:60, 5:55]).save(tmp_path / "middle.png")
    made = {}
    for name, options in {"large": ["--crop", "50"], "middle": []}.items():
        out = tmp_path / f"{name}.npy"
        main(["inpaint", str(run), "--image", str(tmp_path / f"{name}.png"), "-n", "1", "--out", str(out), *options])
        made[name] = np.load(out)
    assert np.array_equal(made["large"], made["middle"])
    used = "is cropped to the middle 35 × 50 and shrunk to 33 × 47, from {} pixels (height × width)"
    notes = [line for line in capsys.readouterr().err.splitlines() if line.startswith("note: ")]
    assert [line.partition(".png ")[2] for line in notes] == [used.format("70 × 60"), used.format("50 × 50")]
    Image.new("L", (9, 9)).save(tmp_path / "black.png")
    main(["inpaint", str(run), "--image", str(tmp_path / "large.png"), "--mask", str(tmp_path / "black.png"),
          "--crop", "20", "-n", "1", "--out", str(tmp_path / "out.png")])  # fmt: skip
    said = capsys.readouterr().err
    assert "cropped to the middle 14 × 20 and enlarged to 33 × 47, from 70 × 60 pixels" in said
    assert "hides the whole image" in said


def test_what_was_sampled_into_a_folder_before_an_interrupt_is_there(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    main(["sample", str(run), "-n", "5", "--batch-size", "2", "--steps", "1", "--out", str(tmp_path / "all")])
    whole, began = Model.states, []

    def interrupted(*arguments: Any, **options: Any) -> Iterator[State]:  # noqa: ANN401
        began.append(1)
        if len(began) == 3:
            raise KeyboardInterrupt
        return whole(*arguments, **options)

    monkeypatch.setattr(Model, "states", interrupted)
    with pytest.raises(SystemExit) as stopped:
        main(["sample", str(run), "-n", "5", "--batch-size", "2", "--steps", "1", "--out", str(tmp_path / "some")])
    assert stopped.value.code == 130
    assert sorted(path.name for path in (tmp_path / "all").iterdir()) == [f"{k:05d}.png" for k in range(5)]
    assert sorted(path.name for path in (tmp_path / "some").iterdir()) == [f"{k:05d}.png" for k in range(4)]
    for path in (tmp_path / "some").iterdir():
        assert path.read_bytes() == (tmp_path / "all" / path.name).read_bytes()


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
        (["sample", tmp_path / "white.png"], "damaged or no"),
        (["sample", run, "-n", "0"], "-n must be from 1 to 10,000,000; got 0"),
        (["sample", run, "--batch-size", "0"], "--batch-size must be at least 1; got 0"),
        (["sample", run, "--calls", "1e9"], "1e9 is not a whole number"),
        (["sample", run, "--sampler", "foo"], "there is no foo (choose from annealed_langevin, euler,"),
        (["sample", run, "--seed", "-1"], "whole number"),
        (["sample", run, "--steps", "0"], "steps must be"),
        (["sample", run, "--step-size", "0"], "positive"),
        (["sample", run, "--out", "a.jpg"], "FILE.png"),
        (["sample", run, "--step-size", "nan"], "positive"),
        (["sample", run, "--out", tmp_path / "full"], "exists already"),
        (["import", tmp_path / "full"], "is a folder"),
        (["import", RELEASED / "tiny_gray28.pth", "--image-size", "-5"], "--image-size must be at least 1"),
        (["import", RELEASED / "tiny_gray28.pth", "--image-size", "0"], "--image-size must be at least 1"),
        (["train", "tiny", "--clip", "nan", "--out", tmp_path / "r"], "clip must be 0 or more"),
        (["train", "tiny", "--sigma-max", "1e20", "--out", tmp_path / "r"], "sigmas must lie between"),
        (["sample", run, "--device", "toaster"], "no device is called"),
        (["inpaint", run, "--image", tmp_path / "none.png"], "no image"),
        (["inpaint", run, "--image", tmp_path / "text.png"], "text.png"),
        (["inpaint", run, "--image", tmp_path / "full"], "is a folder"),
        (["inpaint", run, *image, "--crop", "0"], "crop must be positive"),
        (["inpaint", run, *image, "--crop", "1000"], "cannot crop 1000×1000"),
        (["inpaint", run, *image, "--mask", "middle"], "no mask middle"),
        (["inpaint", run, *image, "--mask", tmp_path / "white.png"], "hides nothing"),
        (["import", tmp_path / "white.png", "--out", tmp_path / "m.safetensors"], "not a checkpoint of the released"),
        (["train", "--steps", "5"], "first word must be a recipe; got --steps (choose from mnist,"),
        (["frontier", "toy", "--calls", "x"], "x is not a whole number"),
        (["frontier", "toy", "--samplers", "foo"], "there is no foo (choose from annealed_langevin, euler,"),
        (["train", "unet", "--image-size", "x"], "x is not a whole number"),
        (["train", "unet", "--image-size", "3", "4", "5"], "1 or 2 values are wanted, not 3"),
        (["train", "mnits"], "there is no recipe 'mnits' (did you mean mnist? choose from mnist,"),
        (["train", "unet"], "name them with --data"),
        (["train", "tiny", "--minutes", "0"], "--minutes must be positive; got 0"),
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
    assert "10%" in short
    assert "--step-size 2e-05" in short
    usual = replace(load(run).sampler, steps=100, step_size=2e-5)  # type: ignore[type-var]
    assert isinstance(usual, AnnealedLangevin)
    message = replace(usual, steps=1).shortfall(usual)
    assert message is not None
    assert "more --steps" in message
