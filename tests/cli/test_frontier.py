"""Samplers from the command line, and scorefield frontier."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from cli.calls import failure
from scorefield import AnnealedLangevin, Heun, geometric, load
from scorefield.cli import main
from scorefield.models.model import save_model
from scorefield.models.recipes import Recipe
from scorefield.networks import RefineNet


def call(*words: object) -> None:
    main([str(word) for word in words])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of the paper's kind with three noise levels and no training."""
    path = tmp_path_factory.mktemp("model") / "small.safetensors"
    recipe = Recipe(width=2, levels=3, sigma_max=1.0, sigma_min=0.1, step_size=1e-3, sample_steps=4)
    network = RefineNet(channels=1, width=2, sigmas=geometric(1.0, 0.1, 3))
    save_model(path, network.state_dict(), None, recipe=recipe, shape=(1, 8, 8), step=0)
    return path


def test_sample_with_another_sampler(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "images.npy"
    call("sample", model, "-n", 3, "--sampler", "heun", "--calls", 3, "--out", out)
    wanted = load(model).sample(3, sampler=Heun(calls=3))
    assert np.abs(np.load(out)[..., 0] / 255 - wanted[:, 0].numpy()).max() < 0.01


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--sampler", "heun", "--calls", 0), "calls must be a whole number from 1 to 100,000; got 0"),
        (("--sampler", "heun", "--calls", 10**9), "calls must be a whole number from 1 to 100,000"),
        (("--sampler", "euler", "--calls", 9), "knows 3 noise levels, with which euler makes at most 3 calls"),
        (("--sampler", "heun", "--churn", -1), "churn and churn_noise must be finite and not negative"),
        (("--sampler", "heun", "--steps", 3), "heun has no setting steps"),
        (("--calls", 2), "3 noise levels need at least as many calls"),
    ],
)
def test_wrong_settings_write_nothing(
    model: Path, tmp_path: Path, words: tuple[object, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "images.npy"
    status, said = failure(capsys, "sample", model, *map(str, words), "--out", out)
    assert status == 2
    assert message in said
    assert not out.exists()


def test_unknown_samplers_are_answered_with_the_known_ones(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        call("sample", model, "--sampler", "hein")
    assert end.value.code == 2
    assert "annealed_langevin" in "".join(capsys.readouterr())


def test_frontier_of_the_toy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A table, a file and a chart; the second time nothing is measured again."""
    words = ("frontier", "toy", "-n", 200, "--samplers", "euler", "heun", "--calls", 5, 9, "--out", tmp_path)
    call(*words)
    found = json.loads((tmp_path / "frontier.json").read_text())
    usual = AnnealedLangevin(tuple(geometric(20.0, 1.0, 10).tolist()), step_size=0.1, steps=100)
    assert found["usual"]["sigmas"] == list(usual.sigmas)
    assert [(trial["sampler"], trial["calls"]) for trial in found["trials"]] == [
        ("annealed_langevin", 1000),
        ("euler", 5),
        ("euler", 9),
        ("heun", 5),
        ("heun", 9),
    ]
    assert "heavy mode" in capsys.readouterr().out
    assert (tmp_path / "frontier.png").read_bytes().startswith(b"\x89PNG")
    call(*words)
    assert json.loads((tmp_path / "frontier.json").read_text()) == found


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("toy", "--calls", "0"), "--calls must be 1 or more; got 0"),
        (("toy", "-n", "1"), "-n must be from 2"),
        (("nowhere",), "nowhere"),
    ],
)
def test_wrong_calls_of_frontier(
    tmp_path: Path, words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, said = failure(capsys, "frontier", *words, "--out", tmp_path / "out")
    assert status == 2
    assert message in said
