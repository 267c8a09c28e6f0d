"""Samplers whose progress is looked at."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from scorefield import ConsistentAnnealed, Heun
from scorefield.distributions import GaussianMixture
from scorefield.noise import SampleNoise
from scorefield.samplers import SAMPLERS, AnnealedHMC, Sampler, State, last
from scorefield.samplers.watched import Watched

SIGMAS = (2.0, 0.5, 0.1)


@pytest.mark.parametrize("name", SAMPLERS)
def test_the_states_are_the_same_and_no_call_is_added(name: str) -> None:
    calls = 0

    def score(x: Tensor, sigma: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return -x / (1 + sigma**2)

    sampler = SAMPLERS[name](sigmas=SIGMAS)
    watched = Watched(sampler)
    assert isinstance(watched, Sampler)
    assert (watched.calls, watched.updates) == (sampler.calls, sampler.updates)
    runs = list[list[State]]()
    for each in (sampler, watched):
        noise, calls = SampleNoise([1, 2]), 0
        runs.append(list(each(score, each.start(noise, (3,)), randn_like=noise.randn_like)))
        assert calls == sampler.calls
    assert all(torch.equal(one.x, other.x) for one, other in zip(*runs, strict=True))


def test_the_estimate_belongs_to_the_last_call() -> None:
    """Heun's last call of a step is at its end; the data is a point at 3, which the score of N(3, σ²) points to."""
    watched = Watched(Heun(sigmas=SIGMAS))
    states = watched(lambda x, sigma: (3 - x) / sigma**2, torch.zeros(2, 1))
    estimates = [watched.denoised for _ in states]
    assert estimates[0] is None  # no call before the first state
    assert len(estimates) == 4
    assert all(each is not None and torch.allclose(each, torch.full((2, 1), 3.0)) for each in estimates[1:])


def test_the_last_step_of_a_path_is_the_estimate() -> None:
    watched, mixture = Watched(ConsistentAnnealed(sigmas=SIGMAS)), GaussianMixture(torch.rand(2, 3), 0.1, torch.ones(2))
    made = last(watched(mixture.score, torch.randn(4, 3)))
    assert watched.denoised is not None
    assert torch.equal(made, watched.denoised)


def test_a_metropolis_test_still_finds_the_density() -> None:
    """Only with it do states say which examples moved."""
    mixture = GaussianMixture(torch.zeros(1, 2), 0.1, torch.ones(1))
    states = list(Watched(AnnealedHMC(sigmas=SIGMAS))(mixture.score, torch.randn(4, 2)))
    assert states[1].accepted is not None
