"""The results page: every number in its cell, what is missing with its command, nothing that must not be shown."""

from __future__ import annotations

import json
import math
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import tyro
from PIL import Image

from paper.made_up_reports import MACHINE, page_of, report_on, row, write
from scorefield.cli import main
from scorefield.evaluation.frontier import Frontier, Trial
from scorefield.evaluation.likelihoods import Likelihoods, Measured, write_likelihoods
from scorefield.evaluation.records import (
    Completion,
    Inpainting,
    Report,
    Robustness,
    RobustnessCell,
    from_json,
    read_report,
    to_json,
)
from scorefield.files import write_json
from scorefield.models.recipes import RECIPES, Recipe
from scorefield.paper import curves
from scorefield.paper.exhibits import DATA_SETS, HIDDEN, TABLE_1
from scorefield.paper.frontier_chart import draw_frontier, lines
from scorefield.paper.results import load, page, train_command
from scorefield.training.history import LogTable

ROOT = Path(__file__).parents[2]


@pytest.fixture
def mnist() -> dict[str, Report]:
    """Reports on all of MNIST's models."""
    return {
        name: report_on(name.replace("_", "-"), seed=k)
        for k, name in enumerate(("mnist", "mnist_small", "mnist_baseline"))
    }


def numbers_of(report: Report) -> Any:  # noqa: ANN401
    assert report.numbers is not None
    return report.numbers


# ---------------------------------------------------------------- the page in the docs


def test_the_page_in_the_docs_is_made_from_the_reports_in_the_docs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    text = Path("docs/results.md").read_text(encoding="utf-8")
    assert text == page(load(Path("docs/results"), Path("docs/results.md")))
    for link in re.findall(r'src="(.*?)"', text):
        assert (ROOT / "docs" / link).is_file()


def test_the_reports_in_the_docs_are_whole_records_with_their_pictures() -> None:
    for path in (ROOT / "docs" / "results").glob("*/report.json"):
        report = read_report(path)
        assert to_json(report) == json.loads(path.read_text(encoding="utf-8"))
        parts = [report.samples, report.stages, report.neighbors, report.inpainting]
        kept_out = "celeba" in path.parent.name
        for file in [file for part in parts if part is not None for file in part.files]:
            assert (path.parent / file).exists() != (kept_out and bool(re.search("neighbors|text", file)))


def test_images_of_celeba_are_not_in_the_repository() -> None:
    git = partial(subprocess.run, cwd=ROOT, capture_output=True, text=True)
    if shutil.which("git") is None or git(["git", "ls-files", "--error-unmatch", "README.md"]).returncode:
        pytest.skip("not a checkout that git knows")
    for name in ("celeba/neighbors.png", "celeba-raw/neighbors_inception.png", "celeba/inpainting_text.png"):
        assert git(["git", "check-ignore", f"docs/results/{name}"]).returncode == 0
    there = git(["git", "ls-files", "docs/results/celeba*"]).stdout
    assert "samples.png" in there
    assert not re.search("neighbors|text", there)


# ---------------------------------------------------------------- numbers


def test_every_number_is_in_its_cell(tmp_path: Path, mnist: dict[str, Report]) -> None:
    text, reports = page_of(tmp_path, **mnist), list(mnist.values())
    kept = "(n = 4,000 and 3,000)"
    for kind, words in (("plain", ""), ("denoised", ", denoised")):
        found = [getattr(numbers_of(report), kind) for report in reports] + ([reports[0].real] if not words else [])
        dash = ["–"] if words else []
        assert row(text, f"FID{words}")[1:] == ["–", *(f"{each.fid:.2f} (n = 5,000)" for each in found), *dash]
        errors = [f"{each.kid:.5f} ± {each.kid_standard_error:.5f} {kept}" for each in found]
        assert row(text, f"KID{words}")[2:] == [*errors, *dash]
        assert row(text, f"precision{words}")[2:] == [*(f"{each.precision:.3f} {kept}" for each in found), *dash]
        assert row(text, f"recall{words}")[2:] == [*(f"{each.recall:.3f} {kept}" for each in found), *dash]
        digits = [getattr(report.digits, kind) for report in reports]
        shares = row(text, f"accepted as digits{words}")[2:]
        assert [cell.split()[0] for cell in shares[:3]] == [f"{each.accepted:.2%}" for each in digits]
        assert shares[3] == ("–" if words else "98.50% ± 0.12% (n = 10,000)")
        distances = [f"{each.distance_to_uniform:.3f} (by chance {each.distance_by_chance:.3f})" for each in digits]
        real = "–" if words else "0.022"
        assert row(text, f"distance of the digits' histogram to uniform{words}")[2:] == [*distances, real]
    losses = [[f"{each.loss:.2f}" for each in numbers_of(report).loss_by_sigma] for report in reports]
    for k, sigma in enumerate(("1", "0.599", "0.359", "0.215", "0.129", "0.0774", "0.0464", "0.0278", "0.0167")):
        assert row(text, sigma)[1:] == [losses[0][k], losses[1][k], "–"]
    assert row(text, "0.01")[1:] == [each[-1] for each in losses]
    objective = row(text, "objective, Eq. 6, held-out images")[2:5]
    assert [cell.split()[0] for cell in objective] == [f"{numbers_of(report).loss:.2f}" for report in reports]
    assert ["single level" in cell for cell in objective] == [False, False, True]
    assert "| Inception score" not in text  # nobody measured it
    for fact in ("99.66%", "89% of digits composed of two", "98% of torn", "100.0% or more"):
        assert fact in text


def test_losses_have_their_standard_errors_or_a_note_that_they_have_none(tmp_path: Path) -> None:
    """Older reports have none: every image was at one level only."""
    old, note = report_on("mnist"), "every image was measured at one"
    numbers = numbers_of(old)
    levels = tuple(replace(each, standard_error=0.125) for each in numbers.loss_by_sigma)
    new = replace(old, numbers=replace(numbers, loss_by_sigma=levels, loss_standard_error=0.25))
    with_errors = page_of(tmp_path / "new", mnist=new)
    assert row(with_errors, "0.01")[1] == f"{levels[-1].loss:.2f} ± 0.12"
    assert f"{numbers.loss:.2f} ± 0.25 (n = 1,000)" in with_errors
    assert note not in with_errors
    assert note in page_of(tmp_path / "old", mnist=old)


def test_cifar10_stands_in_table_1_and_null_is_a_dash(tmp_path: Path) -> None:
    report = report_on("cifar10", seed=4)
    numbers = numbers_of(report)
    nothing: dict[str, Any] = dict.fromkeys(("kid", "kid_standard_error", "precision", "recall", "kept_n"))
    plain = replace(numbers.plain, fid=math.nan, notes=("1 images are too few",), **nothing)
    denoised = replace(numbers.denoised, inception_score=8.125, kid_standard_error=math.nan, notes=plain.notes)
    losses = (replace(numbers.loss_by_sigma[0], loss=math.nan), *numbers.loss_by_sigma[1:])
    report = replace(report, numbers=replace(numbers, plain=plain, denoised=denoised, loss=None, loss_by_sigma=losses))
    text = page_of(tmp_path, cifar10=report, cifar10_raw=report_on("cifar10-raw", seed=5))
    raw, real = numbers_of(report_on("cifar10-raw", seed=5)), report.real
    assert real is not None
    assert row(text, "FID")[1:] == ["25.32", "–", f"{raw.plain.fid:.2f} (n = 5,000)", f"{real.fid:.2f} (n = 5,000)"]
    assert row(text, "FID, denoised")[2] == f"{denoised.fid:.2f} (n = 5,000, too few)"
    assert row(text, "KID")[2] == row(text, "precision")[2] == row(text, "recall")[2] == row(text, "1")[1] == "–"
    assert row(text, "KID, denoised")[2] == f"{denoised.kid:.5f} ± – (n = 4,000 and 3,000)"
    assert row(text, "Inception score")[1:] == ["8.87 ± .12", "–", "–", "–"]
    ours = ["8.12 ± – (n = 5,000)", f"{denoised.fid:.2f} (n = 5,000, too few)", "200,000 iterations, 28 min 24 s"]
    assert row(text, "**NCSN, denoised (unconditional, ours)**")[1:] == ours
    assert row(text, "**NCSN, raw weights (unconditional, ours)**")[2] == f"{raw.plain.fid:.2f} (n = 5,000)"
    assert row(text, "real test images")[1:] == ["–", f"{real.fid:.2f} (n = 5,000)", "–"]
    theirs = ["8.87 ± .12", "25.32", "the best of 40 checkpoints of 200,000 iterations"]
    assert row(text, "NCSN (CIFAR-10, unconditional, the paper)")[1:] == theirs
    assert row(text, "ProgressiveGAN (CIFAR-10, unconditional, the paper)")[1:] == ["8.80 ± .05", "–", "–"]
    assert "accepted as digits" not in text


def test_the_papers_table() -> None:
    assert [len(rows) for rows in TABLE_1.values()] == [8, 3]
    every = [each for rows in TABLE_1.values() for each in rows]
    assert min(TABLE_1["CIFAR-10, unconditional"], key=lambda each: float(each.fid or "inf")).model == "MoLM"
    assert max(every, key=lambda each: float(each.inception_score.split()[0])) == ("BigGAN", "9.22", "14.73", "–")


def test_other_settings_of_the_sampler(tmp_path: Path) -> None:
    cells = (
        RobustnessCell(step_size=2e-5, steps=100, fid=31.26, kid=0.0123),
        RobustnessCell(step_size=5e-6, steps=100, fid=41.0),
        RobustnessCell(step_size=2e-5, steps=10, diverged="x is not finite"),
    )
    text = page_of(tmp_path, cifar10=report_on("cifar10", robustness=Robustness(n=1000, cells=cells)))
    assert row(text, "ε = 2e-05") == ["ε = 2e-05", "diverges", "31.3 (12.3)"]
    assert row(text, "ε = 5e-06") == ["ε = 5e-06", "–", "41.0"]
    assert "|  | T = 10 | T = 100 |" in text


# ---------------------------------------------------------------- pictures


def test_our_pictures_stand_beside_the_papers_figures(tmp_path: Path, mnist: dict[str, Report]) -> None:
    mnist["mnist"].made_on["stages"] = replace(MACHINE, machine="another one")
    text = page_of(tmp_path, **mnist)
    for where, picture in {
        "Figure 5 (a), Figure 11": "mnist/samples.png",
        "Figure 4": "mnist/stages.png",
        "Figure 9": "mnist/neighbors.png",
        "Figure 10": "mnist/neighbors_inception.png",
        "Figure 7 (a)": "mnist-baseline/samples.png",
        "Figure 8 (a)": "mnist-baseline/stages.png",
    }.items():
        name, _, file = picture.partition("/")
        ours = row(text, where)[1]
        assert f'<img src="results/{picture}"' in ours
        part = file.removesuffix(".png").partition("_")[0]
        assert f"`scorefield report runs/{name} --out docs/results/{name} -n 5000 --parts {part}`: " in ours
        assert f"on {'another one' if picture == 'mnist/stages.png' else 'a machine'}" in ours
    for fact in ("0 of 1,000 samples", "2 of 900 held-out images", "31 s on a machine", "after 3 min 0 s of sampling"):
        assert fact in row(text, "Figure 9")[1]
    main(["results", str(tmp_path / "results")])
    assert (tmp_path / "results.md").read_text(encoding="utf-8") == text
    links = re.findall(r'src="(.*?)"', text)
    assert len(links) == len(set(links)) == 11
    for link in links:
        with Image.open(tmp_path / link) as opened:
            opened.verify()


def completion(**changes: Any) -> Completion:  # noqa: ANN401
    usual = {"images": 10, "completions": 8, "hidden": 0.25, "known_error": 1.01, "distance": 0.21, "seam": 1.25}
    return Completion(**{**usual, "distance_between_images": 0.4, "inside": 1.125, **changes})


def test_completions(tmp_path: Path) -> None:
    masks = {mask: completion() for mask in HIDDEN} | {"left": completion(seam=math.nan, inside=None)}
    report = report_on("cifar10", inpainting=Inpainting(files=("inpainting_left.png",), masks=masks))
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "inpainting.md").write_text("\nInspected: nine of ten.\n", encoding="utf-8")
    text = page_of(tmp_path, cifar10=report)
    first, second = "CIFAR-10, the left half", "CIFAR-10, the middle"
    assert row(text, first)[1:] == ["10", "25%", "1.01", "0.210", "0.400", "–", "–"]
    assert row(text, second)[1:] == ["10", "25%", "1.01", "0.210", "0.400", "1.25", "1.12"]
    assert text.index("## Inpainting") < text.index("\nInspected: nine of ten.\n") < text.index(f"| {first} |")
    ours = row(text, "Figures 6 and 17")[1]
    assert 'src="results/cifar10/inpainting_left.png"' in ours
    assert "8 completions" in ours
    assert "without the last denoising step" in ours
    assert all(f"inpainting_{mask}.png" in text for mask in HIDDEN)
    sampler = {**report.sampler, "denoise": True}
    assert "without" not in row(page_of(tmp_path, cifar10=replace(report, sampler=sampler)), "Figures 6 and 17")[1]


def test_pictures_that_reveal_images_of_celeba_are_not_shown(tmp_path: Path) -> None:
    masks = {mask: completion() for mask in HIDDEN}
    text = page_of(tmp_path, celeba=report_on("celeba", inpainting=Inpainting(files=(), masks=masks)))
    shown = re.findall(r'src="results/celeba/(.*?)"', text)
    assert {"samples.png", "inpainting_left.png", "inpainting_sparse.png"} <= set(shown)
    assert not re.search("neighbors|text", " ".join(shown))
    assert "0 of 1,000 samples" in row(text, "Figure 9")[1]


@pytest.mark.parametrize(
    ("log", "title"), [("held_out", "held-out loss, σ² ℓ(σ), ema weights"), ("log", "training loss, σ² ℓ(σ)")]
)
def test_curves_take_their_levels_from_the_columns(log: str, title: str) -> None:
    """Training losses are always those of the raw weights."""
    changes: dict[str, Any] = {"model.weights": "ema"}
    report = report_on("mnist", **changes)
    name = {"held_out": "ema_held_out", "log": "loss"}[log]
    columns = ("step", name, f"{name}@1", "held_out@1", f"{name}@0.5", "seconds")
    table = LogTable(columns=columns, rows=((1, 9.0, 3.0, 8.0, 4.0, 0.1), (2, 9.0, None, 8.0, 5.0, 0.2)))
    assert report.training is not None
    logs: dict[str, Any] = {"held_out": LogTable(), "log": LogTable(), log: table}
    training = replace(report.training, **logs)
    found = curves.losses_over_training(replace(report, training=training))
    assert found == (title, {"1": [(1, 3.0)], "0.5": [(1, 4.0), (2, 5.0)]})


def test_one_level_at_the_end_is_no_curve_of_its_own(tmp_path: Path, mnist: dict[str, Report]) -> None:
    text, folder = page_of(tmp_path, **mnist), tmp_path / "results"
    widths = []
    for name, width in (("mnist", 880), ("mnist_baseline", 440)):
        place = f"{name.replace('_', '-')}/losses.png"
        assert f'{place}" width="{width}"' in text
        with Image.open(curves.draw_curves(mnist[name], (folder / place).parent)) as picture:
            widths.append(picture.width)
    assert widths[0] == 2 * widths[1]
    assert curves.panels(replace(mnist["mnist_baseline"], training=None)) == ["at the end"]
    assert curves.panels(replace(mnist["mnist"], training=None, numbers=None)) == []


# ---------------------------------------------------------------- figures 1 to 3

SPREAD = {"iterations": 10_000, "mean": -123456.7, "std": 2345.6, "wander": 1234.5, "quantiles": {"50": -1.2e6}}
FIGURES: dict[str, dict[str, Any]] = {
    "fig1": {"spread": {"0": SPREAD, "0.01": {"not_finite_from": 4321}}, "precision": "TF32", "machine": "a machine"},
    "fig2": {"relative_error_near": 0.123, "relative_error_far": 0.567, "near": "near it", "far": "far off"},
    "fig3": {
        "spread": {"annealed": {"mean": 0.7801, "standard_error": 0.0028, "least": 0.7578, "most": 0.8094}},
        "seeds": 24,
        "n": 1280,
        "seconds": 7,
    },
}


def test_figures_1_to_3(tmp_path: Path) -> None:
    (tmp_path / "results" / "figures").mkdir(parents=True)
    for name, numbers in FIGURES.items():
        (tmp_path / "results" / "figures" / f"{name}.json").write_text(json.dumps({**numbers, "quick": False}))
    text = page_of(tmp_path)
    one, two, three = (row(text, f"Figure {k}")[1] for k in (1, 2, 3))
    for fact in ("figures/fig1.png", "-123,457 ± 2,346", "-1.2 million", "± 1,234", "4,321", "TF32", "on a machine"):
        assert fact in one
    assert "0.12 near it, 0.57 far off" in two
    assert "mean ± standard error (range) of 24 seeds with 1,280 samples each" in three
    assert "annealed 0.780 ± 0.003 (0.758 to 0.809)" in three
    assert "scorefield figure fig3 --out" in three
    assert ": 7 s<" in three
    assert text.count("Not measured yet") == len(DATA_SETS)
    (tmp_path / "results" / "figures" / "fig3.json").write_text('{"quick": true}')
    (tmp_path / "results" / "figures" / "fig2.json").unlink()
    text = page_of(tmp_path)
    for k in (2, 3):
        assert row(text, f"Figure {k}")[1].startswith(f"not made yet: `scorefield figure fig{k} --out ")


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"quick": false}'])
def test_a_damaged_figure_is_named(content: str, tmp_path: Path) -> None:
    (tmp_path / "results" / "figures").mkdir(parents=True)
    (tmp_path / "results" / "figures" / "fig3.json").write_text(content)
    with pytest.raises(ValueError, match=r"fig3\.json .*\(make it again with scorefield figure\)"):
        page_of(tmp_path)


# ---------------------------------------------------------------- commands


@pytest.mark.parametrize(
    "recipe",
    [
        *RECIPES.values(),
        replace(RECIPES["mnist"], ema=0.999, steps=1000),
        replace(RECIPES["cifar10"], flip=False, dequantise=False, data="my images"),
        replace(RECIPES["tiny"], image_size=None),
    ],
)
def test_the_train_command_makes_the_recipe(recipe: Recipe) -> None:
    program, command, name, *options = shlex.split(train_command(asdict(recipe)))
    assert (program, command) == ("scorefield", "train")
    assert tyro.cli(Recipe, args=options, default=RECIPES[name]) == recipe


def test_the_train_command_starts_from_the_recipe_that_is_asked_for() -> None:
    faces = replace(RECIPES["celeba"], data="faces.npy", crop=None, image_size=None)
    assert train_command(asdict(faces)) == "scorefield train cifar10 --data faces.npy"
    options = "--data faces.npy --image-size None --crop None"
    assert train_command(asdict(faces), like="celeba") == f"scorefield train celeba {options}"


def test_settings_that_change_nothing_are_not_in_the_train_command() -> None:
    recipe = asdict(replace(RECIPES["mnist-small"], checkpoint_every=7, evaluate_every=7, log_every=7, previews=7))
    assert train_command(recipe) == "scorefield train mnist-small"


EMA = {**asdict(RECIPES["cifar10"]), "ema": 0.999}


@pytest.mark.parametrize(
    ("name", "place", "changes", "lines"),
    [
        ("cifar10", "runs/x", {}, ["train cifar10 --out runs/x", "200,000 iterations"]),
        ("cifar10", "m/x.safetensors", {}, ["runs/cifar10", "", "export runs/cifar10 --out m/x.safetensors"]),
        ("cifar10", "runs/x/checkpoints/model-7.safetensors", {}, ["train cifar10 --out runs/x", ""]),
        ("cifar10", "x", {}, ["train cifar10 --out runs/cifar10", ""]),
        (
            "cifar10",
            "runs/x",
            {"model.step": 7},
            ["train cifar10 --steps 7 --out runs/x", "# 7 iterations of"],
        ),
        (
            "cifar10",
            "runs/x/best",
            {"model.step": 7},
            ["train cifar10 --out runs/x", "# 7 ", "select runs/x"],
        ),
        ("cifar10-raw", "runs/cifar10/best --weights raw", {}, ["--out runs/cifar10", "", "select runs/cifar10"]),
        (
            "cifar10-raw",
            "raw.safetensors",
            {"model.recipe": EMA, "model.machine": "a GPU"},
            [
                "train cifar10 --ema 0.999 --out runs/cifar10",
                ", on a GPU",
                "export runs/cifar10 --weights raw --out raw",
            ],
        ),
        ("cifar10", "x.safetensors", {"model.imported_from": "x.pth"}, ["# imported from x.pth"]),
        ("mnist", "mnist", {}, ["train", "", "export runs/mnist --out scorefield/weights/mnist.safetensors"]),
    ],
)
def test_the_commands_that_made_a_model(
    name: str, place: str, changes: dict[str, Any], lines: list[str], tmp_path: Path
) -> None:
    command = f"scorefield report {place} --out docs/results/{name} -n 5000"
    report = report_on(name, command=command, **changes)
    (tmp_path / "results" / name).mkdir(parents=True)
    (tmp_path / "results" / name / "remarks.md").write_text("The *second* run.\n", encoding="utf-8")
    text = page_of(tmp_path, **{name.replace("-", "_"): report})
    before, _, block = text.partition("\nThe *second* run.\n\n```sh\n")
    assert "ε = 2e-05, T = 100" in before.splitlines()[-1]
    made = block.partition("\n```")[0].splitlines()
    assert len(made) == len(lines) + 2
    assert all(part in line for part, line in zip(lines, made, strict=False))
    assert made[-2] == command
    for fact in ("a machine", "3 min 0 s", "5,000 samples", "1,000 network calls"):
        assert fact in made[-1]
    if "imported" not in lines[0]:
        assert "28 min 20 s: 15,058 images per second" in made[1]


# ---------------------------------------------------------------- what is missing


def test_missing_reports_are_named_with_the_commands_that_make_them(tmp_path: Path) -> None:
    text = page_of(tmp_path, mnist=report_on("mnist"))
    lines = [re.sub(r"--out \S*results/", "--out R/", line) for line in text.splitlines()]
    assert "scorefield report mnist-small -n 10000 --out R/mnist-small" in lines  # a pretrained model
    for name, n in (("mnist-baseline", 10_000), ("cifar10-baseline", 50_000)):
        train = f"scorefield train {name} --out runs/{name}"
        assert f"{train} && scorefield report runs/{name} -n {n} --out R/{name}" in lines
    for name, n in (("cifar10", 50_000), ("celeba", 10_000)):  # selected by FID, appendix B.2
        train = f"scorefield train {name} --out runs/{name} && scorefield select runs/{name}"
        assert f"{train} && scorefield report runs/{name}/best -n {n} --out R/{name}" in lines
    assert "Figure 7" not in text
    assert "Table 1" not in text


def test_missing_parts_are_named_with_their_commands(tmp_path: Path) -> None:
    report = report_on("cifar10", stages=None, numbers=None, training=None)
    text = page_of(tmp_path, cifar10=report, mnist=report_on("mnist"))
    for part in ("stages", "numbers", "inpainting"):
        assert f"not measured yet: `{report.command} --parts {part}`" in text
    assert text.count("--parts inpainting") == 1  # masks that the paper does not have are not asked for
    assert "cifar10/losses.png" not in text
    assert "Table 1" not in text


def test_a_data_set_that_the_paper_does_not_have(tmp_path: Path) -> None:
    report = report_on("dogs", seed=4)
    section = page_of(tmp_path, dogs=report, faces_large=report_on("faces", seed=5)).partition("## dogs\n")[2]
    dogs, _, faces = section.partition("## faces\n")
    assert f"{numbers_of(report).plain.fid:.2f} (n = 5,000)" in dogs
    assert dogs.count("| **Not in the paper**: ") == 5
    assert 'src="results/faces-large/samples.png"' in faces
    assert "Figure" not in section
    assert "Not measured yet" not in section  # there is no recipe of that name


def test_missing_pictures_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "results", "mnist", report_on("mnist"))
    main(["results", str(tmp_path / "results")])
    assert "missing" not in capsys.readouterr().err
    (tmp_path / "results" / "mnist" / "stages.png").unlink()
    main(["results", str(tmp_path / "results")])
    assert "results/mnist/stages.png" in capsys.readouterr().err


# ---------------------------------------------------------------- damaged files and wrong calls


def without(*names: str) -> Callable[[dict[str, Any]], None]:
    """Takes that field away from a report."""

    def take(report: dict[str, Any]) -> None:
        for name in names[:-1]:
            report = report[name]
        del report[names[-1]]

    return take


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (without("seconds"), "seconds"),
        (without("model", "sigmas"), "model.sigmas"),
        (without("numbers", "plain", "fid"), "numbers.plain.fid"),
        (without("neighbors", "neighbors", "ratio"), "neighbors.neighbors.ratio"),
        (lambda report: report["numbers"]["plain"].update(fid="x"), "numbers.plain.fid"),
        (lambda report: report["numbers"]["plain"].update(n=True), "numbers.plain.n"),
        (lambda report: report["numbers"]["loss_by_sigma"][3].update(loss="x"), r"numbers.loss_by_sigma\[3\].loss"),
        (lambda report: report["model"].update(shape=[1, 2]), "model.shape"),
        (lambda report: report["made_on"].update(stages="x"), "made_on.stages"),
        (lambda report: report["stages"].update(colour=1), "stages.colour"),
        (lambda report: report.update(n=None), "n"),
    ],
)
def test_a_damaged_report_names_file_field_and_fix(
    change: Callable[[dict[str, Any]], None], field: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "results", "cifar10", report_on("cifar10"))
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))
    with pytest.raises(ValueError, match=rf"cifar10/report\.json: {field} .*\(make it again with scorefield report\)"):
        page_of(tmp_path)


def test_records_survive_json() -> None:
    report = report_on("mnist")
    assert from_json(Report, json.loads(json.dumps(to_json(report)))) == report
    assert "robustness" not in to_json(report)
    assert to_json(report)["numbers"]["plain"]["inception_score"] is None
    broken = to_json({"a": [replace(completion(), seam=math.inf)]})["a"][0]
    assert broken["seam"] is None
    assert math.isnan(from_json(Completion, broken).seam)


def test_wrong_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    path, results = write(tmp_path / "results", "mnist", report_on("mnist")), str(tmp_path / "results")
    (tmp_path / "file").touch()
    (tmp_path / "notes.md").write_text("# my own notes")
    (tmp_path / "empty").mkdir()

    def refused(code: int, words: str, *arguments: str) -> None:
        with pytest.raises(SystemExit) as stopped:
            main(["results", *arguments])
        assert stopped.value.code == code
        assert words in " ".join(capsys.readouterr().err.split())

    refused(2, "nowhere", str(tmp_path / "nowhere"))
    refused(2, "no reports in", str(tmp_path / "empty"))
    refused(2, "--out must be a file, FILE.md", results, "--out", str(tmp_path / "page.html"))
    refused(1, "file", results, "--out", str(tmp_path / "file" / "page.md"))
    refused(2, "was not made by scorefield results", results, "--out", str(tmp_path / "notes.md"))
    assert (tmp_path / "notes.md").read_text() == "# my own notes"
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "matplotlib.figure", None)
        refused(1, "pip install matplotlib", results)
    (path.parent / "remarks.md").write_bytes(b"\xff\xfe")
    refused(2, "remarks.md is not a text file", results)
    path.write_text("{")
    refused(2, "mnist/report.json is not a report", results)
    assert not list(tmp_path.glob("results.md"))


def test_links_and_commands_name_the_folder_as_seen_from_the_page_and_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = page_of(tmp_path / "docs", mnist=report_on("mnist"))
    main(["results", str(tmp_path / "docs" / "results")])
    assert (tmp_path / "docs" / "results.md").read_text(encoding="utf-8") == text
    drawn = (tmp_path / "docs" / "results" / "mnist" / "losses.png").read_bytes()
    elsewhere = page(load(tmp_path / "docs" / "results", tmp_path / "more" / "page.md"))
    assert 'src="../docs/results/mnist/samples.png"' in elsewhere
    assert "-n 50000 --out docs/results/cifar10\n" in elsewhere
    monkeypatch.chdir(tmp_path)
    main(["results"])  # docs/results is the default, and the page is always the same
    assert (tmp_path / "docs" / "results.md").read_text(encoding="utf-8") == text
    assert (tmp_path / "docs" / "results" / "mnist" / "losses.png").read_bytes() == drawn
    monkeypatch.chdir(tmp_path / "docs" / "results")
    main(["results", "."])
    assert (tmp_path / "docs" / "results.md").read_text(encoding="utf-8").count("<img") == text.count("<img")


# ---------------------------------------------------------------- quality against network calls


def made_up_frontier(values: dict[tuple[str, int], float]) -> Frontier:
    trials = [
        Trial(name, calls, value, 700, 1.0, {"name": name, "calls": calls}) for (name, calls), value in values.items()
    ]
    return Frontier("cifar10", "fid", 700, 0, trials[0].settings, None, {"machine": "a machine"}, tuple(trials))


def test_quality_against_calls_is_shown_where_it_was_measured(tmp_path: Path) -> None:
    write(tmp_path / "results", "cifar10", report_on("cifar10"))
    out = tmp_path / "results.md"
    before = page(load(tmp_path / "results", out))
    assert "network calls per sample" not in before
    values = {("annealed_langevin", 1000): 25.5, ("euler", 10): 80.25, ("heun", 19): math.inf, ("euler", 50): 25.25}
    (tmp_path / "measurements").mkdir()
    path = tmp_path / "measurements" / "frontier_cifar10.json"
    write_json(path, asdict(made_up_frontier(values)))
    main(["results", str(tmp_path / "results"), "--out", str(out)])
    text = out.read_text(encoding="utf-8")
    assert "| sampler | 10 calls | 19 calls | 50 calls | 1,000 calls |" in text
    assert "| `annealed_langevin` | – | – | – | 25.50 |" in text
    assert "| `euler` | 80.25 | – | 25.25 | – |" in text
    assert "| `heun` | – | diverges | – | – |" in text
    assert "(1,000 calls, 25.50) are\n50, of `euler`: 25.25." in text
    assert "`scorefield frontier cifar10 -n 700`, on a machine" in text
    assert 'src="results/cifar10/frontier.png"' in text
    assert (tmp_path / "results" / "cifar10" / "frontier.png").read_bytes().startswith(b"\x89PNG")
    write_json(path, asdict(made_up_frontier({("annealed_langevin", 1000): 25.5, ("euler", 10): 80.25})))
    assert "No other setting that was tried is as good" in page(load(tmp_path / "results", out))
    path.write_text('{"trials": 3}')
    with pytest.raises(ValueError, match=r"frontier_cifar10\.json is not a file of scorefield frontier"):
        load(tmp_path / "results", out)


def test_likelihoods_are_shown_where_they_were_measured(tmp_path: Path) -> None:
    write(tmp_path / "results", "cifar10", report_on("cifar10"))
    out, path = tmp_path / "results.md", tmp_path / "measurements" / "likelihood_cifar10.json"
    assert "Likelihood" not in page(load(tmp_path / "results", out))
    about = {"model": {"name": "unet-cifar10"}, "machine": "a machine", "sigma_range": [0.001, 40.0]}
    own = Measured("cifar10:test", 2, 3.25, 0.125, 61.0, 61.0, 9.0, [3.125, 3.375])
    other = Measured("mnist:test", 1, 2.5, math.nan, 55.0, 55.0, 9.0, [2.5], less_likely=0.25)
    path.parent.mkdir()
    write_likelihoods(path, Likelihoods(about, (own, other)))
    assert load(tmp_path / "results", out).likelihoods["cifar10"].sources[0] == own
    main(["results", str(tmp_path / "results"), "--out", str(out)])
    text = out.read_text(encoding="utf-8")
    assert "| cifar10:test | 2 | 3.250 ± 0.125 | 61 | – |" in text
    assert "| mnist:test | 1 | 2.500 | 55 | 25.0 % |" in text
    assert "`scorefield likelihood unet-cifar10 --data cifar10:test mnist:test -n 2`, on a machine" in text
    assert (tmp_path / "results" / "cifar10" / "likelihood.png").read_bytes().startswith(b"\x89PNG")
    path.write_text('{"bits_per_dim": 3}')
    with pytest.raises(ValueError, match=r"likelihood_cifar10\.json is not a file of scorefield likelihood"):
        load(tmp_path / "results", out)


def test_the_chart_of_samplers_that_all_diverge_is_empty(tmp_path: Path) -> None:
    found = made_up_frontier({("heun", 5): math.inf, ("euler", 5): 3.0, ("euler", 2): 4.0})
    assert lines(found) == {"euler": [(2, 4.0), (5, 3.0)]}
    found = replace(found, trials=found.trials[:1])
    assert lines(found) == {}
    assert draw_frontier(found, tmp_path / "frontier.png").read_bytes().startswith(b"\x89PNG")
