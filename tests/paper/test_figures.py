"""Figures 2 and 3 on toy data, and the list of all figures."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from scorefield import distributed
from scorefield.cli import main
from scorefield.networks import MLP
from scorefield.paper import FIGURES, fig2, fig3, image_figures
from scorefield.paper.output import Result


@cache
def fig3_samples() -> dict[str, Tensor]:
    return fig3.draw_samples(fig3.Settings(), range(5))


def test_fig3_langevin_gets_the_weights_wrong_and_annealing_gets_them_right() -> None:
    samples = fig3_samples()
    share = {method: np.array(fig3.heavy_fractions(x)) for method, x in samples.items()}
    assert all(x.shape == (5, 1280, 2) for x in samples.values())
    assert (abs(share["exact"] - 0.80) <= 0.03).all()
    assert (abs(share["langevin"] - 0.50) <= 0.06).all()
    assert (abs(share["annealed"] - 0.78) <= 0.03).all()


def test_fig3_each_seed_is_drawn_for_itself() -> None:
    few = replace(fig3.QUICK, samples=4, langevin_steps=3, annealed_steps=2)
    both, second = fig3.draw_samples(few, range(2)), fig3.draw_samples(few, [1])
    for method, x in both.items():
        torch.testing.assert_close(x[1:], second[method])
        assert not torch.equal(x[0], x[1])


def test_fig3_the_spread_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fig3.spread([0.7, 0.8, 0.9]) == pytest.approx(
        {"mean": 0.8, "standard_error": 0.1 / 3**0.5, "least": 0.7, "most": 0.9}
    )
    monkeypatch.setattr(fig3, "Settings", lambda: replace(fig3.QUICK, samples=8, langevin_steps=2, annealed_steps=1))
    numbers = fig3.make(tmp_path, seeds=3).numbers
    assert (numbers["seeds"], len(numbers["spread"])) == (3, 3)
    assert numbers["spread"]["exact"]["least"] <= numbers["heavy_fraction"]["exact"]
    assert fig3.make(tmp_path, quick=True).numbers["spread"] == {}


def test_fig3_samples_have_the_width_of_the_modes() -> None:
    """Both methods end at unit variance inside a mode, times 1/(1 − 0.1/4) because of the discretisation."""
    for method, samples in fig3_samples().items():
        heavy = samples[0][samples[0].sum(1) > 0]
        expected = 1.0 if method == "exact" else 1 / (1 - 0.1 / 4)
        assert abs(heavy.var(0).mean() / expected - 1) < 4.5 / len(heavy) ** 0.5


def test_fig2_the_error_of_the_exact_score_is_zero_and_of_a_zero_score_one() -> None:
    assert fig2.relative_errors(partial(fig2.DATA.score, sigma=0.0)) == fig2.Errors(near=0.0, far=0.0)
    assert fig2.relative_errors(torch.zeros_like) == fig2.Errors(near=1.0, far=1.0)


def test_fig2_training_is_reproducible_and_leaves_the_global_random_state_alone() -> None:
    before = torch.get_rng_state()
    one, two, other = (fig2.train(fig2.Settings(iterations=5), seed=seed)[0] for seed in (0, 0, 1))
    assert torch.equal(before, torch.get_rng_state())
    for a, b, c in zip(one.parameters(), two.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)
        assert not torch.equal(a, c)


@pytest.mark.parametrize("name", ["fig2", "fig3"])
def test_quick_figures_are_a_picture_and_its_numbers(name: str, tmp_path: Path) -> None:
    result = FIGURES[name](tmp_path / "new" / "folder", quick=True)
    assert result.picture == tmp_path / "new" / "folder" / f"{name}.png"
    assert sorted(p.name for p in result.picture.parent.iterdir()) == [f"{name}.json", f"{name}.png"]
    numbers = json.loads(result.picture.with_suffix(".json").read_text())
    assert numbers == json.loads(json.dumps(result.numbers))
    pixels = np.asarray(Image.open(result.picture).convert("RGB"))
    assert pixels.shape[1] >= 1000
    assert len(np.unique(pixels.reshape(-1, 3), axis=0)) > 100
    if name == "fig2":  # a short training shows the effect, too
        learned_near_the_modes_alone(numbers)


def test_the_settings_are_the_papers() -> None:
    """Appendix B.1."""
    assert asdict(fig2.Settings()) == {
        "iterations": 10_000,
        "batch_size": 128,
        "learning_rate": 1e-3,
        "width": 128,
        "layers": 3,
    }
    assert asdict(fig3.Settings()) == {
        "samples": 1280,
        "step_size": 0.1,
        "langevin_steps": 1000,
        "annealed_steps": 100,
        "levels": 10,
        "sigma_max": 20.0,
        "sigma_min": 1.0,
    }
    network = fig2.train(fig2.Settings(iterations=1))[0]
    shapes = [tuple(p.shape) for p in network.parameters()]
    assert shapes == [(128, 2), (128,), (128, 128), (128,), (2, 128), (2,)]


def learned_near_the_modes_alone(numbers: dict[str, Any]) -> None:
    """Of seeds 0 to 2 the errors near the modes are 0.13 to 0.14 after 2,000 iterations, those far from them 3.3 to 3.5
    times as large."""
    assert numbers["relative_error_near"] < 0.2
    assert numbers["relative_error_far"] > 3 * numbers["relative_error_near"]


@pytest.mark.nightly
def test_fig2_the_score_is_learned_near_the_modes_and_not_far_from_them(tmp_path: Path) -> None:
    learned_near_the_modes_alone(FIGURES["fig2"](tmp_path).numbers)


def test_fig2_is_trained_as_in_the_paper_unless_it_is_to_be_quick(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = list[fig2.Settings]()

    def train(settings: fig2.Settings, **_: object) -> tuple[MLP, list[fig2.Errors]]:
        trained.append(settings)
        return MLP(dim=2, width=2, layers=2), [fig2.Errors(0.1, 0.5)]

    monkeypatch.setattr(fig2, "train", train)
    for quick in (False, True):
        numbers = FIGURES["fig2"](tmp_path, quick=quick).numbers
        assert numbers["settings"] == asdict(trained[-1])
    assert trained == [fig2.Settings(), fig2.QUICK]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_all_makes_the_figures_that_can_be_made_here(
    device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def pretend(name: str, out: Path, **_: object) -> Result:
        return Result(out / f"{name}.png", {})

    for name in FIGURES:
        monkeypatch.setitem(FIGURES, name, partial(pretend, name))
    monkeypatch.setattr(image_figures, "make", pretend)
    monkeypatch.setattr(image_figures, "pretrained_models", lambda: {"mnist-small": Path(), "cifar10": Path()})
    monkeypatch.setattr(distributed, "pick_device", lambda _: torch.device(device))
    main(["figure", "all", "--out", str(tmp_path)])
    printed = capsys.readouterr()
    made = ["fig3", "fig2", "fig4"] if device == "cpu" else ["fig3", "fig2", "fig1", "fig4", "fig5", "fig6", "table1"]
    assert [Path(line).stem for line in printed.out.split()] == made
    assert ("fig1, fig5, fig6, table1" in printed.err) == (device == "cpu")


def test_figures_of_models_show_the_pretrained_models_of_this_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_figures, "pretrained_models", lambda: dict.fromkeys(["mnist-small", "cifar10"], Path()))
    gpu, cpu = torch.device("cuda"), torch.device("cpu")
    assert image_figures.models_for("fig5", gpu) == ["mnist-small", "cifar10"]
    assert image_figures.models_for("fig6", gpu) == image_figures.models_for("table1", gpu) == ["cifar10"]
    assert image_figures.models_for("fig4", cpu) == ["mnist-small"]
    assert image_figures.models_for("fig6", cpu) == []
    monkeypatch.setattr(image_figures, "pretrained_models", lambda: dict.fromkeys(["mnist-small", "mnist"], Path()))
    assert image_figures.models_for("fig5", gpu) == ["mnist"]
