"""scorefield restore, and inpaint --method."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from small_evaluation import dots
from small_evaluation import small as small

from cli.calls import failure
from scorefield import Heun, geometric, load
from scorefield.cli import main
from scorefield.data.images import Pixels
from scorefield.data.pictures import Fit
from scorefield.evaluation.restorations import measure, parse_task, sheet
from scorefield.images import to_float
from scorefield.models.model import save_model
from scorefield.models.recipes import Recipe
from scorefield.networks import RefineNet
from scorefield.operators import Mask

FIT = Fit(size=(8, 8))
FEW = ["--sampler", "heun", "--calls", "3", "--device", "cpu"]


def call(*words: object) -> None:
    main([str(word) for word in words])


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Models of grey and of colour images of 8 × 8 without training, by their channels."""
    folder, made = tmp_path_factory.mktemp("models"), dict[int, Path]()
    recipe = Recipe(width=2, levels=3, sigma_max=1.0, sigma_min=0.1, step_size=1e-3, sample_steps=4)
    for channels in (1, 3):
        made[channels] = folder / f"{channels}.safetensors"
        torch.manual_seed(0)
        network = RefineNet(channels=channels, width=2, sigmas=geometric(1.0, 0.1, 3))
        save_model(made[channels], network.state_dict(), None, recipe=recipe, shape=(channels, 8, 8), step=0)
    return made


@pytest.fixture
def image(tmp_path: Path) -> Path:
    Image.fromarray(dots(1, 1, (8, 8, 3))[0]).save(tmp_path / "image.png")
    return tmp_path / "image.png"


@pytest.mark.parametrize("task", ["superres:2", "blur:0.5", "gray", "inpaint:left", "inpaint:mask.png"])
def test_restore_an_image(
    task: str, models: dict[int, Path], image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The numbers are those of the images that the library draws."""
    monkeypatch.chdir(tmp_path)
    Image.fromarray(np.uint8(255 * (np.arange(64).reshape(8, 8) > 30))).save("mask.png")
    call("restore", models[3], "--image", image, "--task", task, "-n", 3, *FEW, "--noise", 0.05, "--json", "a.json")
    (row,) = json.loads(Path("a.json").read_text())["rows"]
    x = to_float(pixels(image)[None])
    operator = parse_task(task, (3, 8, 8), FIT)
    y = measure(x, operator, 0.05, 0)
    model = load(models[3])
    made = model.restore(y[0], operator, noise=0.05, n=3, sampler=Heun(calls=3))
    m = int(operator.measured(y).sum())
    wanted = ((operator(made) - y) * operator.measured(y)).square().sum((1, 2, 3)).mean().sqrt() / 0.05 / m**0.5
    assert row["residual"] == pytest.approx(wanted.item(), rel=1e-3)
    psnr = -10 * (made.mean(0) - x[0]).square().mean().log10().item()
    assert row["psnr"] == pytest.approx(psnr, abs=0.01)
    assert (row["calls"], row["backward_passes"], row["method"], row["n"]) == (3, 3 * 5, "mmps", 3)
    assert pixels(Path("restored.png")).shape[1] % (10 * 7 + 2) == 0  # y, three, their mean and deviation, x


def pixels(path: Path) -> Pixels:
    with Image.open(path) as opened:
        return np.asarray(opened)


def test_what_the_picture_shows() -> None:
    made = torch.tensor([0.2, 0.4]).reshape(1, 2, 1, 1, 1).expand(1, 2, 1, 2, 2)
    y = torch.tensor([[[[0.1, 0.0], [0.3, 0.0]]]])
    row = sheet(y, Mask(torch.tensor([[1, 0], [1, 0]])), made, torch.ones(1, 1, 2, 2))[2:4, :, 0]
    columns = [row[:, 2 + 4 * k : 4 + 4 * k].tolist() for k in range(6)]
    flat = [[[51, 51]] * 2, [[102, 102]] * 2, [[76, 76]] * 2, [[255, 255]] * 2, [[255, 255]] * 2]
    assert columns == [[[26, 128], [76, 128]], *flat]


def test_a_measurement_given_as_it_is(models: dict[int, Path], image: Path, tmp_path: Path) -> None:
    small_one = tmp_path / "small.png"
    Image.fromarray(pixels(image)).resize((4, 4)).save(small_one)
    words = (models[3], "--task", "superres:2", "-n", 2, *FEW, "--measured", "--out", tmp_path / "out.png")
    call("restore", *words, "--image", small_one, "--json", tmp_path / "a.json")
    (row,) = json.loads((tmp_path / "a.json").read_text())["rows"]
    assert row["psnr"] is None
    assert row["residual"] > 0


def test_many_images(models: dict[int, Path], tmp_path: Path) -> None:
    """Rows of other methods stay in the file, and the same one is replaced. Each restoration is of its own image."""
    pixels = dots(30, 2, (8, 8, 1))
    np.save(tmp_path / "images.npy", pixels)
    words: tuple[object, ...] = (
        "restore",
        models[1],
        "--data",
        tmp_path / "images.npy",
        "--images",
        12,
        "--task",
        "inpaint:left",
        "-n",
        3,
    )
    words += (*FEW, "--batch-size", 20, "--fid", "--out", tmp_path / "out.png", "--json", tmp_path / "a.json")
    for method in ("mmps", "dps", "diffpir", "replace", "mmps"):
        call(*words, "--method", method)
    found = json.loads((tmp_path / "a.json").read_text())
    assert [row["method"] for row in found["rows"]] == ["dps", "diffpir", "replace", "mmps"]
    assert [row["backward_passes"] for row in found["rows"]] == [3, 0, 0, 3 * 5]
    assert all(row["images"] == 12 and row["fid"] > 0 for row in found["rows"])
    operator, x = parse_task("inpaint:left", (1, 8, 8), FIT), to_float(pixels[:12])
    y = measure(x, operator, 0.01, 0).repeat_interleave(3, 0)
    made = load(models[1]).restore(y, operator, noise=0.01, n=36, sampler=Heun(calls=3))
    errors = (made.unflatten(0, (12, 3)).mean(1) - x).square().mean((1, 2, 3))
    assert found["rows"][3]["psnr"] == pytest.approx(-10 * errors.log10().mean().item(), abs=0.01)
    assert found["rows"][3]["residual"] == pytest.approx(
        ((made - y) * operator.measured(y)).square().sum((1, 2, 3)).mean().sqrt().item() / 0.01 / 32**0.5, rel=1e-3
    )


def test_measurements_have_their_noise() -> None:
    """A standard deviation of 0.2 with a standard error of 1 %, and none where pixels are hidden."""
    x, operator = torch.rand(200, 1, 8, 8), parse_task("inpaint:left", (1, 8, 8), FIT)
    y = measure(x, operator, 0.2, 0)
    assert (y - x)[..., 4:].std().item() == pytest.approx(0.2, rel=0.04)
    assert not y[..., :4].any()


@pytest.mark.parametrize("method", ["replace", "mmps", "dps", "diffpir"])
def test_inpaint_by_each_method(method: str, models: dict[int, Path], image: Path, tmp_path: Path) -> None:
    out = tmp_path / "filled.npy"
    call("inpaint", models[3], "--image", image, "--mask", "left", "-n", 2, *FEW, "--method", method, "--out", out)
    found, x = np.load(out) / 255, to_float(pixels(image)[None])
    mask = parse_task("inpaint:left", (3, 8, 8), FIT).mask  # type: ignore[attr-defined]
    model = load(models[3])
    if method == "replace":
        made = model.inpaint(x[0], mask, n=2, sampler=Heun(calls=3))
    else:
        made = model.restore(x[0], Mask(mask), noise=0.01, n=2, method=method, sampler=Heun(calls=3))
    assert np.abs(found - made.permute(0, 2, 3, 1).numpy()).max() < 0.01


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--task superres:3 --image IMAGE", "3 must divide height and width; got 8 × 8"),
        ("--task superres:0 --image IMAGE", "k must be a whole number from 1 on"),
        ("--task superres --image IMAGE", "there is no task 'superres' (use superres:K"),
        ("--task sharpen --image IMAGE", "there is no task 'sharpen'"),
        ("--task blur:x --image IMAGE", "there is no task 'blur:x'"),
        ("--task blur:9 --image IMAGE", "the kernel has 55 pixels"),
        ("--task blur:0 --image IMAGE", "sigma must be positive"),
        ("--task gray --image IMAGE", "this one's are grey already"),
        ("--task inpaint:nowhere --image IMAGE", "there is no mask nowhere"),
        ("--task superres:2 --image missing.png", "there is no image missing.png"),
        ("--task superres:2 --image IMAGE --noise 0", "noise is a standard deviation"),
        ("--task superres:2 --image IMAGE --noise -1", "noise is a standard deviation"),
        ("--task superres:2 --image IMAGE --iterations 0", "iterations must be a whole number"),
        ("--task superres:2 --image IMAGE --measured", "is 4 × 4, grey; IMAGE is 8 × 8, in colour"),
        ("--task superres:2 --image IMAGE --method replace", "replace fills in hidden pixels"),
        ("--task superres:2 --image IMAGE --fid", "--fid applies to --data"),
        ("--task superres:2", "name an image with --image, or images with --data"),
        ("--task superres:2 --image IMAGE --out a.gif", "--out must be a file, FILE.png"),
    ],
)
def test_wrong_calls_write_nothing(
    words: str,
    message: str,
    models: dict[int, Path],
    image: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    status, said = failure(capsys, "restore", models[1], *words.replace("IMAGE", str(image)).split())
    assert status == 2
    assert message.replace("IMAGE", str(image)) in " ".join(said.split())
    assert not Path("restored.png").exists()
