"""scripts/compare_normalisation.py: the network with group norm, and the comparison itself on random images."""

from __future__ import annotations

import importlib.util
import json
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from small_evaluation import ALONE, Small, dots
from small_evaluation import small as small
from torch import nn

from scorefield.images import to_bytes
from scorefield.models.build import build_network
from scorefield.models.recipes import RECIPES
from scorefield.networks import UNet
from scorefield.networks.unet import Conv
from scorefield.training.bench import forward_flop

RECIPE = replace(RECIPES["unet-cifar10"], width=8, stages=(1, 2), blocks=(2, 1), attention=(1,))


def load_script() -> ModuleType:
    path = Path(__file__).parents[2] / "scripts" / "compare_normalisation.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


script = load_script()


def kernels(network: nn.Module) -> list[tuple[int, ...]]:
    """The shapes of all convolutions, sorted."""
    convs = (module for module in network.modules() if isinstance(module, (Conv, nn.Conv2d)))
    return sorted(tuple(conv.weight.shape) for conv in convs if conv.weight.ndim == 4)


def test_group_norm_has_the_other_networks_shape() -> None:
    theirs = build_network(RECIPE, channels=3, labels=10).eval()
    ours = script.group_norm_network(RECIPE, channels=3, labels=10).eval()
    assert {type(m).__name__ for m in ours.modules()} >= {"GroupNorm", "GroupNormBlock", "GroupNormAttention"}
    assert not any(isinstance(module, Conv) for module in ours.modules())
    # on the way down the other one has its shortcut before the first convolution, which then has as many inputs as
    # outputs: here once, from 8 to 16 channels
    expected = sorted([*kernels(theirs), (16, 8, 3, 3)])
    expected.remove((16, 16, 3, 3))
    assert kernels(ours) == expected
    assert forward_flop(ours, (3, 8, 8), 1.0) == pytest.approx(forward_flop(theirs, (3, 8, 8), 1.0), rel=0.03)


def test_group_norm_begins_without_a_network_and_then_uses_all_of_it() -> None:
    """With its last convolution 0, the score is that of N(½, σ_d²) noise around: −(x − ½)/(σ² + σ_d²)."""
    network = script.group_norm_network(RECIPE, channels=3, labels=2)
    x, sigma, label = torch.rand(2, 3, 8, 8), torch.tensor([0.1, 2.0]), torch.tensor([1, -1])
    variance = (sigma**2 + 0.25**2)[:, None, None, None]
    torch.testing.assert_close(network(x, sigma, label), (0.5 - x) / variance)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    (network(x, sigma, label).square().sum() + network.log_variance(sigma).sum()).backward()
    unused = [
        name for name, p in network.named_parameters() if p.requires_grad and (p.grad is None or not p.grad.any())
    ]
    assert unused == []
    network.eval()
    assert not torch.equal(network(x, sigma, label), network(x, sigma, label.flip(0)))
    assert isinstance(network, UNet)


def test_the_comparison(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Trained once; a second run finds all there is, and refuses to compare what was trained otherwise."""
    script.main(["--smoke", "--out", str(tmp_path)])
    found = json.loads((tmp_path / "comparison.json").read_text())
    first, second = found["results"]
    assert (first["network"], second["network"]) == ("magnitude-preserving", "group-norm")
    assert (first["learning_rate"], second["learning_rate"]) == (7e-3, 1e-3)
    for each in (first, second):
        assert each["iterations"] == 6
        assert each["images_per_second"] == pytest.approx(24 / each["training_seconds"])
        assert each["loss"] == pytest.approx(np.mean([loss for _, loss, _ in each["loss_by_sigma"]]), rel=1e-5)
        assert each["fid"] is None
    for one, other, row in zip(
        first["loss_by_sigma"], second["loss_by_sigma"], found["difference"]["loss_by_sigma"], strict=True
    ):
        assert row[0] == one[0] == other[0]
        assert row[1] == pytest.approx(other[1] - one[1], abs=1e-3)
        assert row[2] < (one[2] ** 2 + other[2] ** 2) ** 0.5  # the images and the noise are common to both
    said = capsys.readouterr().out
    assert said.count("6 iterations in ") == 2
    assert "difference" in said

    def again(*_: object, **__: object) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr(script, "train", again)
    script.main(["--smoke", "--out", str(tmp_path)])
    assert json.loads((tmp_path / "comparison.json").read_text()) == found
    with pytest.raises(ValueError, match=r"was trained for 4 minutes at learning rate 0\.001 \(ask for the same"):
        script.main(["--smoke", "--out", str(tmp_path), "--learning-rates", "0.007", "0.002"])


def test_training_starts_from_the_first_weights_after_compilation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the two runs the first compiles, and is forgotten."""
    seen = list[tuple[Any, ...]]()

    def train(recipe: Any, out: Path, group: object, *, network: nn.Module, **options: Any) -> None:  # noqa: ANN401
        assert isinstance(network, UNet)
        assert (network.dropout, network.middle.dropout) == (0, 0.05)
        seen.append((recipe.steps, {name: value.clone() for name, value in network.state_dict().items()}, options))
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.add_(1)
        out.mkdir()
        (out / "log.csv").write_text("step,loss,seconds\n50,1.0,4.0\n")

    monkeypatch.setattr(script, "train", train)
    recipe, _ = script.smoke(RECIPE, tmp_path)
    result = script.train_one("magnitude-preserving", recipe, 0.5, tmp_path / "run", ALONE)
    (warm, before, _), (steps, after, options) = seen
    assert (warm, steps) == (2, 6)
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert (options["minutes"], options["plan"]) == (0.5, True)
    assert (result.iterations, result.training_seconds, result.images_per_second) == (50, 4.0, 50 * 4 / 4.0)


def test_fid_is_that_of_the_models_samples(small: Small, tmp_path: Path) -> None:
    """By the formula |μ − μ'|² + tr(S + S' − 2 √(S S')), with the features of a small network."""
    recipe = replace(script.smoke(RECIPE, tmp_path)[0], steps=1, sampler="heun", sample_calls=3, held_out=0, previews=0)
    network = script.group_norm_network(recipe, channels=3, labels=2)
    script.train(recipe, tmp_path / "run", ALONE, network=network)
    model = script.trained_model("group-norm", recipe, tmp_path / "run", ALONE)
    np.save(tmp_path / "real.npy", dots(40, 1, (8, 8, 3)))
    blank = script.Result("group-norm", 1.0, 1e-3, 0, 0.0, 0.0, 0.0, 0, 0.0, 0)
    found = script.with_fid(blank, model, 30, str(tmp_path / "real.npy"), ALONE)
    a = small(torch.tensor(to_bytes(model.sample(30)))).double().numpy()
    b = small(torch.tensor(np.load(tmp_path / "real.npy"))).double().numpy()
    s, t = np.cov(a.T), np.cov(b.T)
    roots = np.sqrt(np.linalg.eigvals(s @ t).real.clip(0))
    distance = ((a.mean(0) - b.mean(0)) ** 2).sum() + np.trace(s) + np.trace(t) - 2 * roots.sum()
    assert found.fid == pytest.approx(distance, rel=1e-3)
    assert (found.fid_n, found.calls) == (30, 3)
