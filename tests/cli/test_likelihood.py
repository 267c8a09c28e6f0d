"""scorefield likelihood and scorefield interpolate."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from guidable import SHAPE, guidable_file, guidable_network
from PIL import Image

from cli.calls import failure
from scorefield import Heun, SampleNoise, bits_per_dim, geometric, load
from scorefield.cli import main
from scorefield.images import to_bytes, to_float
from scorefield.models.model import save_model
from scorefield.models.recipes import Recipe
from scorefield.networks import RefineNet
from scorefield.noise import sample_seeds


def call(*words: object) -> None:
    main([str(word) for word in words])


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A network with three classes for images of 4 × 4, for all σ from 0.1 to 2."""
    return guidable_file(tmp_path / "model.safetensors")


@pytest.fixture
def listed(tmp_path: Path) -> Path:
    """A network of the paper's kind."""
    path = tmp_path / "listed.safetensors"
    recipe = Recipe(width=2, levels=3, sigma_max=1.0, sigma_min=0.1)
    network = RefineNet(channels=1, width=2, sigmas=geometric(1.0, 0.1, 3))
    save_model(path, network.state_dict(), None, recipe=recipe, shape=(1, 8, 8), step=0)
    return path


@pytest.fixture
def pixels(tmp_path: Path) -> np.ndarray:
    """Six grey images with classes in a file, and five in colour in another."""
    rng = np.random.default_rng(0)
    grey = rng.integers(0, 256, (6, 4, 4, 1), dtype=np.uint8)
    labels = np.array([0, 1, 2, 0, 1, 2])
    np.savez(tmp_path / "grey.npz", images=grey, labels=labels, classes=np.array(["cat", "dog", "7"]))
    np.save(tmp_path / "colour.npy", rng.integers(0, 256, (5, 4, 4, 3), dtype=np.uint8))
    return grey


@pytest.mark.parametrize(("label", "given"), [((), -1), (("--label", "dog"), 1)])
def test_likelihood_is_that_of_the_library(
    model: Path, pixels: np.ndarray, tmp_path: Path, label: tuple[str, ...], given: int
) -> None:
    """Of all images, in batches, each with the noise of its own number, and with no class by default."""
    out = tmp_path / "found.json"
    words = (
        "--batch-size",
        4,
        "--draws",
        2,
        "--probes",
        1,
        "--tolerance",
        0.001,
        "--seed",
        3,
        "--json",
        out,
        "--device",
        "cpu",
    )
    call("likelihood", model, "--data", tmp_path / "grey.npz", *words, *label)
    found = json.loads(out.read_text())
    each = torch.cat(
        [
            bits_per_dim(
                partial(load(model).network, label=torch.full((len(rows),), given)),
                to_float(pixels[rows]),
                sigma_min=0.1,
                sigma_max=2.0,
                draws=2,
                probes=1,
                tolerance=0.001,
                noise=SampleNoise(sample_seeds(3, rows)),
            ).each
            for rows in ([0, 1, 2, 3], [4, 5])
        ]
    ).numpy()
    assert np.abs(np.array(found["each"]) - each).max() < 1e-4
    assert found["bits_per_dim"] == pytest.approx(each.mean(), abs=1e-4)
    assert found["error"] == pytest.approx(each.std(ddof=1) / np.sqrt(6), abs=1e-4)
    assert found["n"] == 6
    assert found["products"] == found["calls"] > 0


def test_likelihoods_of_several_sources_are_compared(
    model: Path, pixels: np.ndarray, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sources = [str(tmp_path / name) for name in ("grey.npz", "colour.npy")]
    picture, out = tmp_path / "compared.png", tmp_path / "found.json"
    words = ("--tolerance", 0.01, "--probes", 1, "--out", picture, "--json", out)
    call("likelihood", model, "--data", *sources, "-n", 4, *words)
    printed = capsys.readouterr()
    assert "are in colour, and the model's are grey" in printed.err
    assert "less likely than" in printed.out
    assert picture.read_bytes().startswith(b"\x89PNG")
    found = json.loads(out.read_text())
    (other,) = found["compared"]
    assert [found["n"], other["n"]] == [4, 4]
    pairs = [a < b for a in found["each"] for b in other["each"]]
    assert other["less_likely"] == pytest.approx(sum(pairs) / 16)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--tolerance", "0"), "--tolerance must be above 0 and below 1; got 0.0"),
        (("-n", "0"), "-n, --draws and --batch-size must be at least 1"),
        (("--draws", "0"), "-n, --draws and --batch-size must be at least 1"),
        (("--probes", "-1"), "--probes at least 0"),
        (("--data", "mnist", "mnist"), "--data names a source twice"),
        (("--data", "nowhere"), "nowhere"),
        (("--label", "horse"), "no class is called 'horse'"),
        ((), "has no test images (name images with --data"),
        (("--out", "x.jpg"), "--out must be a file, FILE.png; got x.jpg"),
    ],
)
def test_wrong_calls_of_likelihood(
    model: Path,
    pixels: np.ndarray,
    tmp_path: Path,
    words: tuple[str, ...],
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = () if "--data" in words or not words else ("--data", str(tmp_path / "grey.npz"))
    status, said = failure(capsys, "likelihood", model, *data, *words)
    assert status == 2
    assert message in said


def test_the_images_own_classes(
    model: Path, pixels: np.ndarray, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """--label data: the classes of the images, if they are the model's."""
    words = ("-n", 2, "--tolerance", 0.1, "--label", "data", "--data")
    call("likelihood", model, *words, tmp_path / "grey.npz")
    status, said = failure(capsys, "likelihood", model, *map(str, words), tmp_path / "colour.npy")
    assert status == 2
    assert "do not have the model's classes" in said


@pytest.mark.parametrize("words", [("likelihood", "--data", "mnist"), ("interpolate", "--seeds", "1", "2")])
def test_models_with_a_list_of_levels(listed: Path, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    status, said = failure(capsys, words[0], listed, *words[1:])
    assert status == 2
    assert "knows 3 noise levels, up to σ = 1, and has no likelihood or latents" in said


@pytest.mark.parametrize("label", [(), ("--label", "cat")])
def test_the_ends_between_seeds_are_samples(model: Path, tmp_path: Path, label: tuple[str, ...]) -> None:
    """Three images in a row, with two pixels around each; the first and the last are those of scorefield sample."""
    out = tmp_path / "row.png"
    call("interpolate", model, "--seeds", 5, 8, "--frames", 3, *label, "--out", out, "--device", "cpu")
    with Image.open(out) as picture:
        zoom = picture.height // 8
        row = np.asarray(picture)[zoom // 2 :: zoom, zoom // 2 :: zoom]
    assert row.shape == (8, 20)
    loaded = load(model)
    for seed, left in ((5, 2), (8, 14)):
        wanted = to_bytes(loaded.sample(1, seed=seed, label="cat" if label else None))[0, ..., 0]
        assert np.abs(row[2:6, left : left + 4].astype(int) - wanted).max() <= 1


def test_other_numbers_of_calls(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = list[np.ndarray]()
    monkeypatch.setattr("scorefield.images.save_png", lambda path, pixels, zoom: saved.append(pixels))
    call(
        "interpolate", model, "--seeds", 1, 1, "--frames", 2, "--calls", 9, "--label", 0, "--out", tmp_path / "row.png"
    )
    wanted = to_bytes(load(model).sample(1, seed=1, label=0, sampler=Heun(calls=9)))[0]
    assert np.abs(saved[0][2:6, 2:6].astype(int) - wanted).max() <= 1


@pytest.mark.parametrize("label", [(), ("--label", "dog")])
def test_the_ends_between_images_are_these_images(
    model: Path, pixels: np.ndarray, tmp_path: Path, label: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    files = [tmp_path / "a.png", tmp_path / "b.png"]
    for file, image in zip(files, pixels, strict=False):
        Image.fromarray(image[..., 0]).save(file)
    out = tmp_path / "film.gif"
    call("interpolate", model, "--images", *files, "--frames", 4, *label, "--out", out)
    (error,) = re.findall(r"the ends differ from the images by (\S+) grey levels", capsys.readouterr().err)
    assert float(error) < 0.5
    with Image.open(out) as film:
        assert film.n_frames == 4
        zoom = film.width // 4
        first = np.asarray(film.convert("L"))[::zoom, ::zoom].astype(int)
    assert np.abs(first - pixels[0, ..., 0]).max() <= 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "name two ends: --seeds 1 2, or --images A.png B.png"),
        (("--seeds", "1", "2", "--images", "a.png", "b.png"), "name two ends"),
        (("--seeds", "1", "-2"), "--seed must be a whole number"),
        (("--seeds", "1", "2", "--frames", "1"), "--frames must be from 2 to 256; got 1"),
        (("--seeds", "1", "2", "--out", "x.npy"), "--out must be a file, FILE.png or FILE.gif"),
        (("--images", "a.png", "b.png"), "there is no image a.png"),
        (("--images", "a.png", "b.png", "--calls", "3"), "--calls applies to seeds"),
        (("--images", "a.png", "b.png", "--out", "a.png"), "is one of the images"),
        (("--images", "a.png", "b.png", "--tolerance", "0"), "--tolerance must be above 0"),
    ],
)
def test_wrong_calls_of_interpolate(
    model: Path,
    words: tuple[str, ...],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    status, said = failure(capsys, "interpolate", model, *words)
    assert status == 2
    assert message in said
    assert not Path("interpolation.png").exists()


def test_the_shape_of_the_small_model() -> None:
    assert SHAPE == (1, 4, 4)  # what the images above have
    assert guidable_network().sigma_range == (0.1, 2.0)
