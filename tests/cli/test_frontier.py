"""Samplers from the command line, and scorefield frontier."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from small_evaluation import Small, dots
from small_evaluation import small as small

from cli.calls import failure
from scorefield import AnnealedLangevin, ConsistentAnnealed, Heun, geometric, load
from scorefield.cli import main
from scorefield.evaluation.frontier import read_frontier
from scorefield.images import to_bytes
from scorefield.models.model import save_model
from scorefield.models.recipes import Recipe
from scorefield.networks import RefineNet
from scorefield.samplers import to_dict, with_denoising


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
        (("--calls", 2), "annealed_langevin needs at least 3 calls with these settings; got calls=2 (give more)"),
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


def test_a_machine_without_matplotlib_makes_the_numbers_and_another_the_chart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("frontier", "toy", "--samplers", "euler", "--calls", 5, "-n", 50, "--out", tmp_path)
    with monkeypatch.context() as without:
        without.setattr("scorefield.cli.frontier.find_spec", lambda name: None)
        call(*words)
    assert "there will be no chart, since matplotlib is missing" in capsys.readouterr().err
    numbers = (tmp_path / "frontier.json").read_bytes()
    assert not (tmp_path / "frontier.png").exists()
    call(*words)
    assert (tmp_path / "frontier.json").read_bytes() == numbers
    assert (tmp_path / "frontier.png").exists()


def test_frontier_of_a_model(model: Path, small: Small, tmp_path: Path) -> None:
    """The FID of the images that Model.sample makes. The model's own sampler is marked, with a last denoising step."""
    np.save(tmp_path / "data.npy", data := dots(50, 1))
    words = (
        "frontier",
        model,
        "-n",
        40,
        "--samplers",
        "consistent_annealed",
        "--calls",
        6,
        "--data",
        tmp_path / "data.npy",
    )
    call(*words, "--out", tmp_path / "out", "--device", "cpu")
    found = read_frontier(tmp_path / "out" / "frontier.json")
    loaded, real = load(model), small(torch.from_numpy(data[..., None])).double()
    own = with_denoising(loaded.sampler, True)
    assert found.usual == to_dict(own)
    assert [(trial.sampler, trial.calls) for trial in found.trials] == [
        ("annealed_langevin", 13),
        ("consistent_annealed", 6),
    ]
    for trial, sampler in zip(found.trials, (own, ConsistentAnnealed(calls=6)), strict=True):
        features = small(torch.from_numpy(to_bytes(loaded.sample(40, sampler=sampler)))).double()
        (m, c), (m2, c2) = ((each.mean(0), each.T.cov()) for each in (features, real))
        cross = torch.linalg.eigvals(c @ c2).real.clamp(min=0).sqrt().sum()
        assert trial.value == pytest.approx(
            ((m - m2).square().sum() + c.trace() + c2.trace() - 2 * cross).item(), rel=1e-3
        )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("toy", "--calls", "5", "0"), "--calls must be from 1 to 100,000; got 0"),
        (("toy", "--calls", "1000000000"), "--calls must be from 1 to 100,000; got 1000000000"),
        (
            ("toy", "--samplers", "annealed_hmc", "--calls", "3"),
            "nothing to try: annealed_hmc with 3 calls is left out",
        ),
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
    assert not (tmp_path / "out").exists()
