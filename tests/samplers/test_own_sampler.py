"""A sampler of your own: as the guide shows it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import scorefield
from scorefield import SampleNoise, Score, State
from scorefield.models.model import save_model
from scorefield.samplers import SAMPLERS, Constraint, changed, from_dict, option, options, register, to_dict
from scorefield.score import denoised

# ---------------------------------------------------------------- what a user writes


@dataclass(frozen=True)
class Denoiser:
    """Denoise at each noise level, then add the noise of the next."""

    name: ClassVar[str] = "denoiser"

    sigmas: tuple[float, ...]
    noise: float = option(1.0, "How much of the noise of the next level is added, from 0 to 1.")

    @property
    def calls(self) -> int:
        return len(self.sigmas)

    @property
    def updates(self) -> int:
        return len(self.sigmas)

    def start(self, noise: SampleNoise, shape: tuple[int, ...]) -> Tensor:
        return self.sigmas[0] * noise.randn(shape)

    @torch.no_grad()
    def __call__(
        self,
        score: Score,
        x: Tensor,
        *,
        constraint: Constraint = scorefield.samplers.unconstrained,
        randn_like: scorefield.noise.RandnLike = torch.randn_like,
    ) -> Iterator[State]:
        sigmas = x.new_tensor([*self.sigmas, 0.0])
        yield State(x, sigmas[0], 0)
        for step, (sigma, following) in enumerate(pairwise(sigmas), 1):
            x = denoised(score, x, sigma) + self.noise * following * randn_like(x)
            x = constraint(following)(x)
            yield State(x, following, step)


# ---------------------------------------------------------------- what it gives


class Centre(nn.Module):
    """The score of images that are all one grey, N(μ, σ²): a denoiser finds it at once."""

    def __init__(self) -> None:
        super().__init__()
        self.grey = nn.Parameter(torch.tensor(0.25))

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        sigma = sigma.reshape(-1, 1, 1, 1) if sigma.ndim else sigma
        return (self.grey - x) / sigma**2


@pytest.fixture
def model() -> scorefield.Model:
    return scorefield.Model(Centre(), (1, 4, 4), scorefield.AnnealedLangevin((1.0, 0.1), step_size=1e-3, steps=5))


def test_a_sampler_of_your_own_samples_and_inpaints(model: scorefield.Model) -> None:
    sampler = Denoiser(sigmas=(1.0, 0.5, 0.1))
    assert isinstance(sampler, scorefield.samplers.Sampler)
    samples = model.sample(5, seed=1, sampler=sampler)
    torch.testing.assert_close(samples, torch.full((5, 1, 4, 4), 0.25))
    image, mask = torch.full((1, 4, 4), 0.75), torch.zeros(4, 4)
    mask[:2] = 1
    filled = model.inpaint(image, mask, n=3, sampler=sampler)
    torch.testing.assert_close(filled[:, :, :2], torch.full((3, 1, 2, 4), 0.75))
    torch.testing.assert_close(filled[:, :, 2:], torch.full((3, 1, 2, 4), 0.25))


def test_its_start_and_its_noise_belong_to_the_sample(model: scorefield.Model) -> None:
    sampler = Denoiser(sigmas=(1.0, 0.5, 0.1), noise=0.5)
    states = list(model.states(range(3), seed=2, sampler=sampler))
    alone = list(model.states([2], seed=2, sampler=sampler))
    assert [state.step for state in states] == [0, 1, 2, 3]
    for one, other in zip(states, alone, strict=True):
        torch.testing.assert_close(one.x[2], other.x[0])


def test_many_samples_are_drawn_with_it(model: scorefield.Model) -> None:
    (first, images), (last, more) = model.draw(range(5), batch_size=3, sampler=Denoiser((1.0, 0.1)), frames=2)
    assert (list(first), list(last)) == ([0, 1, 2], [3, 4])
    assert (images.shape, more.shape) == ((3, 2, 4, 4, 1), (2, 2, 4, 4, 1))
    assert np.unique(more[:, -1]).tolist() == [64]


def test_a_sampler_that_miscounts_its_steps_is_an_error(model: scorefield.Model) -> None:
    class Miscounting(Denoiser):
        @property
        def updates(self) -> int:
            return 7

    with pytest.raises(ValueError, match="ended at step 2, but its `updates` says 7"):
        list(model.draw(range(2), batch_size=2, sampler=Miscounting((1.0, 0.1))))


def test_registered_it_is_known_by_its_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("scorefield.samplers.settings.SAMPLERS", dict(SAMPLERS))
    sampler = Denoiser(sigmas=(1.0, 0.1), noise=0.5)
    with pytest.raises(ValueError, match="no sampler called denoiser"):
        from_dict(to_dict(sampler))
    register(Denoiser)
    assert to_dict(sampler) == {"name": "denoiser", "sigmas": [1.0, 0.1], "noise": 0.5}
    assert from_dict(to_dict(sampler)) == sampler
    assert list(options(Denoiser)) == ["noise"]
    langevin = scorefield.AnnealedLangevin((1.0, 0.1))
    assert changed(langevin, {"noise": 0.5}, name="denoiser") == sampler
    network, path = Centre(), tmp_path / "m.safetensors"
    recipe = scorefield.Recipe(network="Centre")
    save_model(path, network.state_dict(), None, recipe=recipe, shape=(1, 4, 4), step=0, sampler=sampler)
    assert scorefield.load(path, network=Centre()).sampler == sampler
