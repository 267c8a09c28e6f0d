"""report: the parts that are made only where they are asked for, completions and other settings of the sampler."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image
from small_reports import N, read, report
from small_reports import run as run
from small_reports import sampled as sampled
from small_reports import store as store

from scorefield import load
from scorefield.cli import main
from scorefield.evaluation import report as parts
from scorefield.evaluation import robustness
from scorefield.evaluation.completions import MASKS
from scorefield.evaluation.robustness import STEP_SIZES, STEPS


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
        zoom = picture.height // (6 * 14 + 2)
        assert picture.width == zoom * (9 * 14 + 2)


def test_without_held_out_images_there_is_nothing_to_complete(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = Path(load(run).recipe.data)
    with pytest.raises(SystemExit):
        main(["report", str(run), "--out", str(tmp_path / "out"), "--data", str(data), "--parts", "inpainting"])
    assert "no held-out images to complete: leave inpainting out of --parts" in capsys.readouterr().err


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
