"""Slips that a user makes in Python: each gives an error that says what to do, and leaves nothing behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from labelled import Labelled
from torch import Tensor, nn

import scorefield as sf


class Wide(nn.Module):
    def __init__(self, channels: int = 1) -> None:
        super().__init__()
        self.layer = nn.Conv2d(channels, channels, 1)

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        return self.layer(x) / sigma.reshape(-1, 1, 1, 1)


@pytest.fixture
def recipe(tmp_path: Path) -> sf.Recipe:
    np.save(tmp_path / "dots.npy", np.random.default_rng(0).integers(0, 256, (12, 6, 6), dtype=np.uint8))
    return sf.Recipe(data=str(tmp_path / "dots.npy"), steps=1, batch_size=2, previews=0, held_out=0)


@pytest.mark.parametrize("recipe", ["tinny", {"steps": 3}, None])
def test_something_else_in_place_of_a_recipe(recipe: Any, tmp_path: Path) -> None:  # noqa: ANN401
    with pytest.raises(ValueError, match=r"sf\.Recipe.*tiny"):
        sf.train(recipe, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_class_in_place_of_a_network(recipe: sf.Recipe, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"Wide\(\.\.\.\)"):
        sf.train(recipe, tmp_path / "run", network=Wide)  # type: ignore[arg-type]
    sf.train(recipe, tmp_path / "run", network=Wide())
    with pytest.raises(ValueError, match=r"Wide\(\.\.\.\)"):
        sf.load(tmp_path / "run", network=Wide)  # type: ignore[arg-type]


def test_a_network_that_does_not_fit_the_images_leaves_no_run(recipe: sf.Recipe, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"network\(x, sigma\) fails for x of shape \(2, 1, 6, 6\)"):
        sf.train(recipe, tmp_path / "run", network=Wide(channels=3))
    assert not (tmp_path / "run").exists()


def test_weights_of_another_network(recipe: sf.Recipe, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"refinenet, which do not fit this Wide \(leave network out\)") as error:
        sf.load("mnist-small", network=Wide())
    assert len(str(error.value)) < 500
    sf.train(recipe, tmp_path / "run", network=Wide())
    with pytest.raises(ValueError, match="Wide as it was trained"):
        sf.load(tmp_path / "run", network=Wide(channels=2))


@pytest.mark.parametrize("sampler", ["annealed_langevin", sf.AnnealedLangevin])
def test_a_name_or_a_class_in_place_of_a_sampler(sampler: Any) -> None:  # noqa: ANN401
    with pytest.raises(ValueError, match=r"sf\.AnnealedLangevin\(model\.sigmas\)"):
        sf.load("mnist-small").sample(1, sampler=sampler)


def test_an_image_of_0_to_255(recipe: sf.Recipe, tmp_path: Path) -> None:
    model = sf.load("mnist-small")
    with pytest.raises(ValueError, match=r"in \[0, 1\].*image / 255"):
        model.inpaint(torch.full((1, 28, 28), 200.0), torch.ones(28, 28), n=1)


def test_sigma_may_be_a_number_and_labels_names() -> None:
    sampler = sf.AnnealedLangevin((1.0, 0.1), step_size=1e-4, steps=1)
    model = sf.Model(Labelled(labels=2), (1, 4, 4), sampler, labels=("cat", "dog"))
    x, label = torch.rand(2, 1, 4, 4), torch.tensor([0, 1])
    assert torch.equal(model.score(x, 0.1, label=label), model.score(x, torch.tensor(0.1), label=label))
    assert torch.equal(model.sample(3, label=["dog", "cat", "dog"]), model.sample(3, label=[1, 0, 1]))
    with pytest.raises(ValueError, match="cow"):
        model.sample(2, label=["dog", "cow"])
