"""The paper's figures of image models and its table, for a small run."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cli.calls import failure
from PIL import Image
from small_evaluation import read_json
from small_reports import run as run
from small_reports import small as small
from small_reports import store as store

from scorefield import distributed
from scorefield.cli import main
from scorefield.evaluation import records
from scorefield.evaluation.completions import MASKS
from scorefield.images import save_png
from scorefield.models import pretrained
from scorefield.models.build import build_network
from scorefield.models.export import export
from scorefield.models.model import save_model
from scorefield.models.recipes import Recipe
from scorefield.paper import image_figures
from scorefield.paper.exhibits import HIDDEN
from scorefield.paper.image_figures import ABOVE, GAP, KINDS, side_by_side, table_1, title


@pytest.fixture(autouse=True)
def drawing(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "matplotlib")


def read_png(path: Path) -> np.ndarray:
    with Image.open(path) as picture:
        return np.asarray(picture.convert("RGB"))


def figure(name: str, out: Path, *options: str | Path) -> dict[str, Any]:
    main(["figure", name, "--out", str(out), *map(str, options)])
    assert len(np.unique(read_png(out / f"{name}.png"))) > 20
    found: dict[str, Any] = read_json(out / f"{name}.json")
    return found


def test_the_figures_numbers_are_those_of_a_report(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are parts of a report with as many samples; fig6 has only the mask `left`."""
    monkeypatch.setitem(KINDS, "table1", KINDS["table1"]._replace(quick_n=8))
    for name, kind in KINDS.items():
        folder = tmp_path / name
        main(["report", str(run), "--out", str(folder), "-n", str(kind.quick_n), "--parts", kind.part])
        told = read_json(folder / "report.json")
        (ours,) = figure(name, tmp_path, "--quick", "--models", run)["models"]
        theirs = {key: value for key, value in told[kind.part].items() if key != "files"}
        if name == "fig6":
            theirs["masks"] = {"left": theirs["masks"]["left"]}
        assert ours[kind.part] == theirs
        for key in ("sampler", "precision", "calls", "model"):
            assert ours[key] == told[key]
        assert (ours["name"], ours.get("n")) == ("run", kind.quick_n if name in ("fig5", "table1") else None)


def test_pictures_stand_side_by_side_as_they_are(tmp_path: Path) -> None:
    grey, colour = np.full((30, 40, 1), 100, np.uint8), np.full((20, 10, 3), (10, 200, 30), np.uint8)
    save_png(tmp_path / "a.png", grey)
    save_png(tmp_path / "b.png", colour)
    side_by_side(["one", "two"], [tmp_path / "a.png", tmp_path / "b.png"]).savefig(tmp_path / "c.png")
    made = read_png(tmp_path / "c.png")
    assert made.shape == (30 + GAP + ABOVE, 40 + 10 + 3 * GAP, 3)
    assert (made[ABOVE : ABOVE + 30, GAP : GAP + 40] == 100).all()
    assert (made[ABOVE : ABOVE + 20, 2 * GAP + 40 : 2 * GAP + 50] == (10, 200, 30)).all()
    white = made[ABOVE:].copy()
    white[:30, GAP : GAP + 40] = white[:20, 2 * GAP + 40 : 2 * GAP + 50] = 255
    assert (white == 255).all()


def test_a_quick_sheet_is_no_wider_than_its_samples(run: Path, tmp_path: Path) -> None:
    figure("fig5", tmp_path, "--quick", "--models", run, run)
    height, width, _ = read_png(tmp_path / "fig5.png").shape
    assert 4 < width / height < 8  # two rows of four side by side


def test_titles() -> None:
    names = {"mnist": "mnist", "mnist-small": "mnist", "cifar10": "cifar10", "run": "mine"}
    titles = [title(name, data) for name, data in names.items()]
    assert titles == ["MNIST", "MNIST (mnist-small)", "CIFAR-10", "run"]


def test_the_table_has_the_papers_rows_and_ours() -> None:
    plain = records.Metrics(n=50_000, fid=27.123, inception_score=None)
    denoised = records.Metrics(n=50_000, fid=24.4, inception_score=8.5, inception_score_deviation=0.1)
    reference = records.ReferenceRecord(name="cifar10", digest="", n=50_000)
    numbers = records.Numbers(plain=plain, denoised=denoised, reference=reference, inception="")
    other = replace(numbers, reference=replace(reference, name="mnist"))
    drawn = table_1([("cifar10", numbers), ("x", other)])
    cells = {place: cell.get_text().get_text() for place, cell in drawn.axes[0].tables[0].get_celld().items()}
    rows = [tuple(cells[row, column] for column in range(3)) for row in range(len(cells) // 3)]
    assert ("NCSN", "8.87 ± .12", "25.32") in rows
    assert ("ProgressiveGAN", "8.80 ± .05", "–") in rows
    assert rows[-5:] == [
        ("ours", "", ""),
        ("cifar10, n = 50,000", "not measured", "27.12"),
        ("cifar10, denoised, n = 50,000", "8.50 ± 0.10", "24.40"),
        ("x, against mnist, n = 50,000", "not measured", "27.12"),
        ("x, denoised, against mnist, n = 50,000", "8.50 ± 0.10", "24.40"),
    ]


def test_a_quick_figure_goes_as_far_with_fewer_steps(tmp_path: Path) -> None:
    (told,) = figure("fig4", tmp_path, "--quick")["models"]
    assert (told["sampler"]["steps"], told["sampler"]["step_size"]) == (10, 2e-4)  # 100 steps of 2e-5
    assert told["calls"] == 100
    assert told["stages"]["rows"] == KINDS["fig4"].quick_n
    assert told["name"] == "mnist-small"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["fig2", "--models", "mnist-small"], "fig2 shows no models"),
        (["fig2", "--data", "mnist"], "fig2 shows no models"),
        (["fig4", "--models", "nowhere"], "no file nowhere"),
        (["all", "--models", "nowhere"], "no file nowhere"),
    ],
)
def test_wrong_calls(words: list[str], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = failure(capsys, "figure", *words, "--out", tmp_path / "new")
    assert code == 2
    assert not (tmp_path / "new").exists()
    assert why in said


def test_without_a_gpu_large_models_are_shown_only_where_they_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pretrained, "FOLDERS", [tmp_path / "pretrained"])
    monkeypatch.setattr(distributed, "pick_device", lambda _: torch.device("cpu"))
    for name, sets in (("fig6", "celeba and cifar10"), ("table1", "cifar10")):
        _, said = failure(capsys, "figure", name, "--out", tmp_path / "new")
        assert f"pretrained models of {sets}, which are missing" in said
    (tmp_path / "pretrained").mkdir()
    for name, source in (("cifar10", "cifar10"), ("celeba", "faces.npy")):  # which only its maker has
        recipe = Recipe(width=2, levels=2, data=source)
        weights = build_network(recipe, channels=3).state_dict()
        path = tmp_path / "pretrained" / f"{name}.safetensors"
        save_model(path, weights, None, recipe=recipe, shape=(3, 8, 8), step=1)
    for name in ("fig6", "table1"):
        _, said = failure(capsys, "figure", name, "--out", tmp_path / "new")
        assert "without a GPU" in said
        assert "--models cifar10, " in said  # and not celeba, whose images cannot be loaded by name


@pytest.mark.filterwarnings("always:fig6 is made without")
def test_a_pretrained_model_without_its_images_is_left_out(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Unless it was asked for, or no other is left."""
    export(run, tmp_path / "pretrained" / "celeba.safetensors")  # its file knows the name of its images alone
    (tmp_path / "pretrained" / "other").symlink_to(run)
    monkeypatch.setattr(pretrained, "FOLDERS", [tmp_path / "pretrained"])
    monkeypatch.setattr(image_figures, "models_for", lambda *_: ["celeba", str(tmp_path / "pretrained" / "other")])
    assert [each["name"] for each in figure("fig6", tmp_path, "--quick")["models"]] == ["other"]
    assert "fig6 is made without celeba: cannot find what the model was trained on" in capsys.readouterr().err
    assert [each["name"] for each in figure("fig4", tmp_path, "--quick")["models"]] == ["celeba", "other"]
    capsys.readouterr()
    for shown, words in ((["celeba"], []), ([], ["--models", str(run), "celeba"])):
        monkeypatch.setattr(image_figures, "models_for", lambda *_, shown=shown: shown)
        _, said = failure(capsys, "figure", "fig6", "--out", tmp_path, "--quick", *words)
        assert "cannot find what the model was trained on" in said
        assert "is made without" not in said
        assert "completing" not in said  # nothing is drawn first that would be lost


def test_the_results_page_knows_the_masks_of_a_report() -> None:
    assert tuple(HIDDEN) == MASKS
