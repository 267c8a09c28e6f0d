"""The results page: other data sets and models, and the commands that train them."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from made_up_reports import fake, made, row_of

from scorefield.cli import train_recipe
from scorefield.paper.commands import train_command
from scorefield.paper.paper import TABLE_1
from scorefield.models.recipes import RECIPES

# ---------------------------------------------------------------- other data sets


def test_cifar10_stands_in_the_papers_table(tmp_path: Path) -> None:
    report = fake(tmp_path / "docs" / "results", "cifar10", seed=4, digits=None)
    for kind in ("plain", "denoised"):
        report["numbers"][kind] |= {"inception_score": 8.125, "inception_score_deviation": 0.0625}
    (tmp_path / "docs" / "results" / "cifar10" / "report.json").write_text(json.dumps(report))
    text = made(tmp_path / "docs")
    plain, denoised = report["numbers"]["plain"], report["numbers"]["denoised"]
    fid, real = f"{plain['fid']:.2f} (n = 5,000)", f"{report['real']['fid']:.2f} (n = 5,000)"
    assert row_of(text, "FID") == ["FID", "25.32", fid, real]
    assert row_of(text, "FID, denoised") == ["FID, denoised", "–", f"{denoised['fid']:.2f} (n = 5,000)", "–"]
    assert row_of(text, "Inception score")[1:] == ["8.87 ± .12", "8.12 ± 0.06 (n = 5,000)", "–"]
    assert row_of(text, "real test images") == ["real test images", "–", real, "–"]
    theirs = ["8.87 ± .12", "25.32", "the best of 40 checkpoints of 200,000 iterations"]
    assert row_of(text, "NCSN (CIFAR-10, unconditional, the paper)")[1:] == theirs
    assert row_of(text, "ProgressiveGAN (CIFAR-10, unconditional, the paper)")[1:] == ["8.80 ± .05", "–", "–"]
    ours = [f"{denoised['fid']:.2f} (n = 5,000)", "200,000 iterations, 28 min 24 s"]
    assert row_of(text, "**NCSN, denoised (unconditional, ours)**")[2:] == ours
    assert "Figure 5 (c), Figure 13" in text
    assert "accepted as digits" not in text


def test_the_papers_table() -> None:
    """Its best rows, as the text of the paper names them."""
    assert [len(rows) for rows in TABLE_1.values()] == [8, 3]
    every = [row for rows in TABLE_1.values() for row in rows]
    best = {row.model: (row.inception, row.fid) for row in every}
    assert best["NCSN"] == ("8.87 ± .12", "25.32")
    assert min(TABLE_1["CIFAR-10, unconditional"], key=lambda row: float(row.fid or "inf")).model == "MoLM"
    assert max(every, key=lambda row: float(row.inception.split()[0])) == ("BigGAN", "9.22", "14.73", "–")


def test_a_data_set_that_the_paper_does_not_have(tmp_path: Path) -> None:
    report = fake(tmp_path / "docs" / "results", "faces-large", seed=4, digits=None)
    text = made(tmp_path / "docs")
    assert "## faces\n" in text
    assert 'src="results/faces-large/samples.png"' in text
    assert f"{report['numbers']['plain']['fid']:.2f} (n = 5,000)" in text
    section = text.partition("## faces\n")[2]
    assert "Not measured yet" not in section  # there is no recipe of that name
    assert "train faces" not in section
    fake(tmp_path / "docs" / "results", "dogs", seed=5, digits=None)
    section = made(tmp_path / "docs").partition("## dogs\n")[2].partition("\n## ")[0]
    assert "Figure" not in section
    assert section.count("| **Not in the paper**: ") == 5


# ---------------------------------------------------------------- commands


@pytest.mark.parametrize(
    "recipe",
    [
        *RECIPES.values(),
        replace(RECIPES["mnist"], ema=0.999, steps=1000),
        replace(RECIPES["cifar10"], flip=False, dequantise=False, data="my_images"),
        replace(RECIPES["tiny"], image_size=None),
    ],
)
def test_the_train_command_makes_the_recipe(recipe: Any) -> None:  # noqa: ANN401
    words = train_command(asdict(recipe)).split()
    assert words[:2] == ["scorefield", "train"]
    assert train_recipe._parsed(words[2], RECIPES[words[2]], words[3:]).recipe == recipe


def test_the_train_command_starts_from_the_recipe_of_the_reports_name(tmp_path: Path) -> None:
    folder = tmp_path / "docs" / "results"
    faces = replace(RECIPES["celeba"], data="faces.npy", crop=None, image_size=None, ema=0.999)
    assert train_command(asdict(faces)) == "scorefield train cifar10 --data faces.npy --ema 0.999"
    for seed, name in enumerate(("celeba", "celeba-raw")):
        report = fake(folder, name, seed=seed, digits=None)
        report["model"]["recipe"] = asdict(faces)
        (folder / name / "report.json").write_text(json.dumps(report))
    trained = [line for line in made(tmp_path / "docs").splitlines() if "faces.npy" in line]
    assert [line.partition(" --out ")[2] for line in trained] == ["runs/celeba", "runs/celeba-raw"]
    for line in trained:
        words = line.partition(" --out ")[0].split()
        assert words[:3] == ["scorefield", "train", "celeba"]
        assert train_recipe._parsed("celeba", RECIPES["celeba"], words[3:]).recipe == faces


@pytest.mark.parametrize(
    ("place", "run", "export"),
    [
        ("runs/mine", "runs/mine", ""),
        ("models/m.safetensors", "runs/cifar10", "scorefield export runs/cifar10 --out models/m.safetensors\n"),
        ("runs/mine/checkpoints/model-7.safetensors", "runs/mine", ""),
        ("mine", "runs/cifar10", ""),
    ],
)
def test_the_run_that_a_report_is_of(place: str, run: str, export: str, tmp_path: Path) -> None:
    folder = tmp_path / "docs" / "results"
    report = fake(folder, "cifar10", seed=0, digits=None, training=None)
    report["command"] = f"scorefield report {place} --out docs/results/cifar10 -n 5000"
    (folder / "cifar10" / "report.json").write_text(json.dumps(report))
    train = f"scorefield train cifar10 --out {run}\n# 200,000 iterations of 128 images\n"
    assert f"{train}{export}{report['command']}\n" in made(tmp_path / "docs")


def test_why_there_is_no_inception_score(tmp_path: Path) -> None:
    folder = tmp_path / "docs" / "results"
    report = fake(folder, "cifar10", seed=0, digits=None)
    report["numbers"]["preprocessing"] = ["resized", "no Inception score: the file lacks it"]
    (folder / "cifar10" / "report.json").write_text(json.dumps(report))
    assert " There is no Inception score: the file lacks it.\n" in made(tmp_path / "docs")


def test_the_train_command_trains_as_long_as_the_model_was_and_no_more(tmp_path: Path) -> None:
    folder = tmp_path / "docs" / "results"
    report = fake(folder, "mnist-small", seed=0)
    report["model"]["step"] = 16_501
    report["model"]["recipe"] |= {"checkpoint_every": 25_000, "evaluate_every": 2_500, "log_every": 7, "previews": 64}
    report["model"]["recipe"] |= {"preview_steps": 3}
    (folder / "mnist-small" / "report.json").write_text(json.dumps(report))
    text = made(tmp_path / "docs")
    assert "scorefield train mnist-small --steps 16501 --out runs/mnist-small\n# 16,501 iterations" in text


def test_a_model_that_was_selected_is_of_a_run_to_its_end(tmp_path: Path) -> None:
    folder = tmp_path / "docs" / "results"
    report = fake(folder, "cifar10", seed=0, digits=None)
    report["model"]["step"] = 145_000
    report["command"] = "scorefield report runs/cifar10/best --out docs/results/cifar10 -n 5000"
    (folder / "cifar10" / "report.json").write_text(json.dumps(report))
    text = made(tmp_path / "docs")
    assert "scorefield train cifar10 --out runs/cifar10\n# 145,000 iterations of" in text
    assert "\nscorefield select runs/cifar10\nscorefield report runs/cifar10/best --out" in text


def test_an_imported_model_has_no_train_command(tmp_path: Path) -> None:
    folder = tmp_path / "docs" / "results"
    report = fake(folder, "cifar10", seed=0, digits=None, training=None)
    report["model"] |= {"step": 0, "imported_from": "checkpoint_200000.pth"}
    (folder / "cifar10" / "report.json").write_text(json.dumps(report))
    text = made(tmp_path / "docs")
    assert "```sh\n# imported from checkpoint_200000.pth\nscorefield report runs/cifar10 --out" in text
    assert "scorefield train cifar10 " not in text


def test_raw_weights_of_an_averaged_run_are_exported_from_it(tmp_path: Path) -> None:
    folder = tmp_path / "docs" / "results"
    report = fake(folder, "cifar10-raw", seed=0, digits=None, training=None)
    report["command"] = "scorefield report raw.safetensors --out docs/results/cifar10-raw -n 5000"
    report["model"] |= {"step": 70_000, "recipe": {**asdict(RECIPES["cifar10"]), "ema": 0.999}, "machine": "a GPU"}
    (folder / "cifar10-raw" / "report.json").write_text(json.dumps(report))
    text = made(tmp_path / "docs")
    train = "scorefield train cifar10 --steps 70000 --ema 0.999 --out runs/cifar10\n# 70,000 iterations of 128 images"
    export = "\nscorefield export runs/cifar10 --weights raw --out raw.safetensors\nscorefield report raw.safetensors"
    assert f"{train}, on a GPU{export}" in text
    assert row_of(text, "**NCSN, raw weights (unconditional, ours)**")[3] == "70,000 iterations"


def test_remarks_beside_a_report_stand_above_its_commands(tmp_path: Path) -> None:
    folder = tmp_path / "docs" / "results"
    fake(folder, "cifar10", seed=0, digits=None)
    (folder / "cifar10" / "remarks.md").write_text("The *second* run.\n", encoding="utf-8")
    text = made(tmp_path / "docs")
    assert "ε = 2e-05.\n\nThe *second* run.\n\n```sh\nscorefield train" in text
