"""scripts/make_shapes.py and scripts/judge_shapes.py: shapes to train on, and whether an image is one."""

from __future__ import annotations

import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import scorefield as sf
from scorefield.distributed import Group
from scorefield.doctor.plan import plan_training
from scorefield.images import to_bytes
from scorefield.models.recipes import RECIPES
from scorefield.training import train

SCRIPTS = Path(__file__).parents[1] / "scripts"
MAKE = runpy.run_path(str(SCRIPTS / "make_shapes.py"))
JUDGE: dict[str, Any] = runpy.run_path(str(SCRIPTS / "judge_shapes.py"))


def test_images_depend_on_the_seed_and_their_number_alone() -> None:
    pixels, kind = MAKE["draw"](3, 12)
    assert (pixels.shape, pixels.dtype, kind) == ((40, 56, 3), np.uint8, 2)
    assert np.array_equal(MAKE["draw"](3, 12)[0], pixels)
    assert not np.array_equal(MAKE["draw"](3, 17)[0], pixels)
    assert not np.array_equal(MAKE["draw"](4, 12)[0], pixels)


@pytest.mark.parametrize(("kind", "area"), [("square", 2.0), ("triangle", 3 * 3**0.5 / 4), ("cross", 2.0)])
def test_the_area_of_a_drawn_shape(kind: str, area: float) -> None:
    """By hand: a square of diagonal 2; an equilateral triangle of circumradius 1; five squares of side 2/√10."""
    covered = MAKE["coverage"](kind, 28.3, 19.6, 10.0, 0.4)
    assert covered.sum() == pytest.approx(100 * area, rel=0.01)
    assert JUDGE["area"](kind) == pytest.approx(area)
    rows, columns = np.indices((40, 56)) + 0.5
    assert (covered * columns).sum() / covered.sum() == pytest.approx(28.3, abs=0.05)
    assert (covered * rows).sum() / covered.sum() == pytest.approx(19.6, abs=0.05)


@pytest.mark.parametrize("size", [(40, 56), (20, 28)])
def test_the_judge_knows_shapes_and_nothing_else(size: tuple[int, int]) -> None:
    """On 50 new shapes and 50 images that are none (docs/measurements/shapes_judge.json has 1,000 of each)."""
    found = JUDGE["check"](50, 77, size)
    assert found["right"] >= 0.98
    assert found["wrong"] <= 0.05


def test_a_folder_of_shapes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["make_shapes.py", str(tmp_path / "shapes"), "-n", "10"])
    MAKE["main"]()
    assert "10 images of 40 × 56 pixels in 5 classes" in capsys.readouterr().out
    files = sorted(str(path.relative_to(tmp_path / "shapes")) for path in (tmp_path / "shapes").rglob("*.png"))
    assert files == sorted(f"{MAKE['CLASSES'][k % 5]}/{k:05d}.png" for k in range(10))


# ---------------------------------------------------------------- what a short training makes of them


def verdicts_after(steps: int, tmp_path: Path, *, n: int, images: int, **settings: Any) -> list[Any]:  # noqa: ANN401
    """What the judge says of n samples of the model that `train unet --data FOLDER` makes in so many steps on a CPU."""
    shapes, kinds = zip(*(MAKE["draw"](0, k) for k in range(images)), strict=True)
    np.savez(tmp_path / "shapes.npz", images=np.stack(shapes), labels=kinds, classes=np.array(MAKE["CLASSES"]))
    given = {"steps": steps, **settings}
    recipe = replace(RECIPES["unet"], data=str(tmp_path / "shapes.npz"), held_out=0, previews=0, **given)
    group = Group(0, 1, torch.device("cpu"))
    train(plan_training(recipe, group, given=set(given)).recipe, tmp_path / "run", group)
    model = sf.load(tmp_path / "run")
    samples = model.sample(n, label=[model.labels[k % 5] for k in range(n)])
    return [JUDGE["judge"](pixels) for pixels in to_bytes(samples)]


def test_a_short_training_makes_spots_of_one_colour_on_another(tmp_path: Path) -> None:
    """Images of noise have an overlap of 0.14 with the nearest shape, and are 0.25 off two colours in the root mean
    square; after 250 steps of 32 images the samples have 0.27 and 0.08."""
    verdicts = verdicts_after(250, tmp_path, n=60, images=300)
    assert np.mean([each.overlap for each in verdicts]) > 0.2
    assert np.median([each.other for each in verdicts]) < 0.12


@pytest.mark.nightly
def test_a_longer_training_makes_shapes(tmp_path: Path) -> None:
    """After 2,000 steps the overlap was 0.68, and 7.5 % of 200 samples were recognisable (a standard error of 2 %)."""
    verdicts = verdicts_after(2000, tmp_path, n=200, images=1600)
    assert np.mean([each.overlap for each in verdicts]) > 0.6
    assert np.mean([bool(each.kind) for each in verdicts]) > 0.02
