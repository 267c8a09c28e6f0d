"""The paper's figures of image models and its table, of a small run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from small_reports import read, run, store

from scorefield.cli import main
from scorefield.evaluation.image_figures import KINDS, QUICK_N

__all__ = ["run", "store"]


@pytest.fixture(autouse=True)
def drawing(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "matplotlib")


def read_png(path: Path) -> np.ndarray:
    with Image.open(path) as picture:
        return np.asarray(picture.convert("RGB"))


def figure(name: str, out: Path, *options: str | Path) -> dict[str, Any]:
    main(["figure", name, "--out", str(out), *map(str, options)])
    assert len(np.unique(read_png(out / f"{name}.png"))) > 20
    found: dict[str, Any] = read(out / f"{name}.json")
    return found


def test_the_figures_numbers_are_those_of_a_report(run: Path, tmp_path: Path) -> None:
    parts = [kind.part for kind in KINDS.values()]
    how = ["--steps", "7", "--step-size", "5e-4", "-n", str(QUICK_N)]
    main(["report", str(run), "--out", str(tmp_path / "report"), *how, "--parts", *parts])
    told = read(tmp_path / "report" / "report.json")
    for name, kind in KINDS.items():
        (ours,) = figure(name, tmp_path, "--quick", "--models", run)["models"]
        assert ours["name"] == "run"
        assert ours["n"] == QUICK_N
        theirs = {key: value for key, value in told[kind.part].items() if key != "files"}
        if name == "fig6":
            theirs["masks"] = {"left": theirs["masks"]["left"]}
        assert ours[kind.part] == theirs
        assert ours["sampler"] == told["sampler"]


def test_models_stand_side_by_side(run: Path, tmp_path: Path) -> None:
    one, two = (figure("fig5", tmp_path / str(n), "--quick", "--models", *[run] * n) for n in (1, 2))
    assert [len(each["models"]) for each in (one, two)] == [1, 2]
    (low, narrow, _), (high, wide, _) = (read_png(tmp_path / str(n) / "fig5.png").shape for n in (1, 2))
    assert low == high
    assert wide == pytest.approx(2 * narrow, rel=0.01)


def test_a_quick_figure_goes_as_far_with_fewer_steps(tmp_path: Path) -> None:
    (told,) = figure("fig4", tmp_path, "--quick")["models"]
    assert told["sampler"]["steps"] * told["sampler"]["step_size"] == pytest.approx(100 * 2e-5)
    assert told["stages"]["rows"] == QUICK_N
    assert told["name"] == "mnist-small"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["fig6"], "fig6 has no model to show without a GPU"),
        (["table1"], "train one, of cifar10 say, and name its run with --models"),
        (["fig2", "--models", "mnist-small"], "fig2 shows no models"),
        (["fig4", "--models", "nowhere"], "no shipped model of that name"),
    ],
)
def test_what_cannot_be_made_is_said(
    words: list[str], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["figure", *words, "--out", str(tmp_path)])
    assert stop.value.code == 2
    assert why in capsys.readouterr().err
