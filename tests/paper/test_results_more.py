"""The results page: figures that are not about image models, completions, other settings of the sampler."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from made_up_reports import fake, made, row_of

from scorefield.paper.paper import HOLES

ROOT = Path(__file__).parents[1]
FIG1 = {
    "spread": {
        "0": {"iterations": 10_000, "mean": -123456.7, "std": 2345.6, "wander": 1234.5, "quantiles": {"50": -1.2e6}},
        "0.01": {"iterations": 10_000, "not_finite_from": 4321},
    },
    "machine": "a machine",
    "precision": "TF32",
    "quick": False,
}
FIG2 = {"relative_error_near": 0.123, "relative_error_far": 0.567, "near": "near it", "far": "far off", "quick": False}
FIG3 = {"heavy_fraction": {"exact": 0.801, "langevin": 0.512, "annealed": 0.789}, "quick": False}


def write(docs: Path, **figures: dict[str, Any]) -> None:
    (docs / "results" / "figures").mkdir(parents=True)
    for name, numbers in figures.items():
        (docs / "results" / "figures" / f"{name}.json").write_text(json.dumps(numbers))


def cells(text: str, figure: str) -> list[str]:
    (line,) = [line for line in text.splitlines() if line.startswith(f"| **{figure}**: ")]
    return [cell.strip() for cell in line.strip("| ").split(" | ")]


def test_figures_stand_beside_the_papers(tmp_path: Path) -> None:
    write(tmp_path, fig1=FIG1, fig2=FIG2, fig3=FIG3)
    text = made(tmp_path)
    one, two, three = (cells(text, f"Figure {k}")[1] for k in (1, 2, 3))
    assert 'src="results/figures/fig1.png"' in one
    assert (
        "σ = 0, last 10,000 iterations: -123,457 ± 2,346, median -1.2 million, means of 100 iterations ± 1,234" in one
    )
    assert "σ = 0.01, not finite from iteration 4,321 on" in one
    assert "relative error 0.12 near it, 0.57 far off" in two
    assert "exact 0.80, langevin 0.51, annealed 0.79" in three
    assert "`scorefield figure fig3 --out " in three


def test_figures_that_are_not_made_or_only_quickly_are_asked_for(tmp_path: Path) -> None:
    write(tmp_path, fig3={**FIG3, "quick": True})
    text = made(tmp_path)
    for k in (1, 2, 3):
        assert cells(text, f"Figure {k}")[1].startswith(f"not made yet: `scorefield figure fig{k} --out ")


@pytest.mark.parametrize("content", ["", "[]", "{}", "3"])
def test_a_file_that_is_no_figures(content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, fig3=FIG3)
    (tmp_path / "results" / "figures" / "fig3.json").write_text(content)
    with pytest.raises(SystemExit):
        made(tmp_path)
    assert "fig3.json is no figure" in capsys.readouterr().err


def completions(seed: int) -> dict[str, Any]:
    told = {"images": 10, "completions": 8, "known_error": 1.01, "distance_between_images": 0.4}
    inside = {"inside": 1.125, "hidden": 0.25} if seed == 1 else {}  # which the first reports do not tell
    return {**told, "distance": 0.2 + seed / 100, "seam": 1.25 if seed else None, **inside}


def test_completions_and_what_is_said_of_them(tmp_path: Path) -> None:
    masks = {name: completions(seed) for seed, name in enumerate(HOLES)}
    fake(tmp_path / "results", "cifar10", seed=4, digits=None, inpainting={"files": [], "masks": masks})
    place = tmp_path / "results" / "cifar10" / "report.json"
    report = json.loads(place.read_text())
    report["seconds"]["inpainting"] = 12
    report["made_on"]["inpainting"] = {"machine": "another machine"}
    place.write_text(json.dumps(report))
    (tmp_path / "results" / "inpainting.md").write_text("\nLooked at: nine of ten.\n", encoding="utf-8")
    text = made(tmp_path)
    assert (
        text.index("## Inpainting\n")
        < text.index("\nLooked at: nine of ten.\n\n")
        < text.index("### CIFAR-10, completed")
    )
    left = cells(text, "Figures 6 and 17")[1]
    assert 'src="results/cifar10/inpainting_left.png"' in left
    assert "<br>8 completions each, without the last denoising step<br>" in left
    first, second = "CIFAR-10, the left half", "CIFAR-10, the middle"
    assert row_of(text, first) == [first, "10", "–", "1.01", "0.200", "0.400", "–", "–"]
    assert row_of(text, second) == [second, "10", "25%", "1.01", "0.210", "0.400", "1.25", "1.12"]
    assert "12 s on another machine for all pictures of this kind</sub>" in left
    assert all(f"inpainting_{name}.png" in text for name in HOLES)
    assert "of which letters are hidden" in text
    assert "of which the middle is hidden" in text
    report["sampler"]["denoise"] = True
    place.write_text(json.dumps(report))
    assert "<br>8 completions each<br>" in cells(made(tmp_path), "Figures 6 and 17")[1]


def test_holes_that_the_paper_has_not_are_not_asked_for(tmp_path: Path) -> None:
    fake(tmp_path / "results", "cifar10", seed=4, digits=None)
    fake(tmp_path / "results", "mnist", seed=5)
    text = made(tmp_path)
    assert cells(text, "Figures 6 and 17")[1].startswith("not measured yet: `scorefield report runs/cifar10 ")
    assert text.count("inpainting") == 1


def test_other_settings_of_the_sampler(tmp_path: Path) -> None:
    found = [
        {"step_size": 2e-5, "steps": 100, "fid": 31.26, "kid": 0.0123},
        {"step_size": 5e-6, "steps": 100, "fid": 41.0},
        {"step_size": 2e-5, "steps": 10, "diverged": "x is not finite"},
    ]
    fake(tmp_path / "results", "cifar10", seed=4, digits=None, robustness={"n": 1000, "cells": found})
    text = made(tmp_path)
    assert row_of(text, "ε = 2e-05") == ["ε = 2e-05", "diverges", "31.3 (12.3)"]
    assert row_of(text, "ε = 5e-06") == ["ε = 5e-06", "–", "41.0"]
    assert "|  | T = 10 | T = 100 |" in text
    assert "n = 1,000" in text


def test_raw_weights_stand_beside_the_averaged_ones(tmp_path: Path) -> None:
    for seed, name in enumerate(("cifar10-raw", "cifar10")):
        fake(tmp_path / "results", name, seed=seed, digits=None)
    text = made(tmp_path)
    assert "| NCSN | NCSN, raw weights |" in text


def test_the_commands_of_raw_weights_are_of_the_same_run(tmp_path: Path) -> None:
    command = "scorefield report runs/cifar10/best --weights raw --out docs/results/cifar10-raw -n 5000"
    fake(tmp_path / "results", "cifar10-raw", seed=1, digits=None, command=command)
    text = made(tmp_path)
    assert " --out runs/cifar10\n" in text
    assert "scorefield select runs/cifar10\n" in text
    assert "runs/cifar10-raw" not in text


def test_images_that_must_not_be_published_are_not_shown(tmp_path: Path) -> None:
    fake(tmp_path / "results", "celeba", seed=1, digits=None)
    text = made(tmp_path)
    assert "results/celeba/samples.png" in text
    assert "results/celeba/neighbors" not in text
    assert "which its terms keep out" in cells(text, "Figure 9")[1]
    assert "0 of 1,000 samples are copies" in cells(text, "Figure 9")[1]


def test_neither_are_they_in_the_repository() -> None:
    """Not there, and not to be added by mistake."""
    git = partial(subprocess.run, cwd=ROOT, capture_output=True, text=True)
    if shutil.which("git") is None or git(["git", "ls-files", "--error-unmatch", "README.md"]).returncode:
        pytest.skip("not a checkout that git knows")
    for name in ("celeba/neighbors.png", "celeba-raw/neighbors_inception.png", "celeba/inpainting_text.png"):
        assert git(["git", "check-ignore", f"docs/results/{name}"]).returncode == 0
    there = git(["git", "ls-files", "docs/results/celeba*"]).stdout
    assert "samples.png" in there
    assert not re.search("neighbors|text", there)
