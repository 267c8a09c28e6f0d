"""Quality against network calls: the exact distance, the trials of the toy mixture, and how they go on."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from scorefield import GaussianMixture
from scorefield.evaluation.frontier import Frontier, Toy, Trial, candidates, distance_to, read_frontier, run_trials
from scorefield.samplers import SAMPLERS, AnnealedLangevin, Euler, NoiseLevels, to_dict

TOY = Toy([-5.0, -5.0], [5.0, 5.0], [1 / 5, 4 / 5], 8.0)
START = Frontier("toy", "distance", 500, 0, to_dict(TOY.usual), None, {})


def test_distance_of_one_point_to_a_normal_distribution() -> None:
    """W₁ between a point at the mean and N(0, 1) is E|t| = √(2/π), in every direction."""
    normal = GaussianMixture([[0.0, 0.0]], 1.0, [1.0])
    assert distance_to(normal, torch.zeros(7, 2)) == pytest.approx(math.sqrt(2 / math.pi), rel=1e-4)


def test_distance_of_a_shift_is_its_mean_projection() -> None:
    """Points moved far away by (a, 0): the mean of |a cos θ| over directions, 2a/π but for 16 of them."""
    normal = GaussianMixture([[0.0, 0.0]], 0.01, [1.0])
    x = torch.zeros(3, 2) + torch.tensor([100.0, 0.0])
    mean = sum(abs(math.cos(math.pi * k / 16)) for k in range(16)) / 16
    assert distance_to(normal, x) == pytest.approx(100 * mean, rel=1e-3)
    assert mean == pytest.approx(2 / math.pi, abs=0.01)


def test_distance_of_wrong_shares() -> None:
    """All points of the light mode in the heavy one: 1/5 of the mass moved by 10√2 along the diagonal, projected."""
    points = torch.tensor([[5.0, 5.0]]).expand(20_000, 2)
    x = points + torch.randn(20_000, 2, generator=torch.Generator().manual_seed(0))
    mean = sum(abs(math.cos(math.pi * k / 16 - math.pi / 4)) for k in range(16)) / 16
    assert distance_to(TOY.mixture, x) == pytest.approx(10 * math.sqrt(2) * mean / 5, rel=0.05)


def test_exact_samples_are_near() -> None:
    x = TOY.mixture.sample(20_000, generator=torch.Generator().manual_seed(0))
    distance, share = TOY.measure(x)
    assert distance < 0.1
    assert share == pytest.approx(0.8, abs=0.01)


@pytest.mark.parametrize("name", [name for name in SAMPLERS if name != "annealed_hmc"])
def test_every_sampler_finds_the_shares_of_the_toy(name: str) -> None:
    (_, *found), notes = candidates(TOY.usual, TOY.accepted, [name], [200])
    assert not notes
    distance, share = TOY.measure(TOY.sample(found[0], 2000))
    assert share == pytest.approx(0.8, abs=0.05)
    assert distance < 0.5


def test_candidates() -> None:
    """Each once, the usual one first; those that cannot make so many calls are named."""
    listed = NoiseLevels(0.1, 1.0, (1.0, 0.5, 0.1))
    usual = AnnealedLangevin(listed.listed, step_size=1e-3, steps=4)
    found, notes = candidates(usual, listed, ["euler", "annealed_langevin", "heun"], [2, 3, 12])
    assert [(each.name, each.calls) for each in found] == [
        ("annealed_langevin", 12),
        ("euler", 2),
        ("euler", 3),
        ("annealed_langevin", 3),
        ("heun", 1),
        ("heun", 3),
    ]
    assert [note.partition(" is left out")[0] for note in notes] == [
        "euler with 12 calls",
        "annealed_langevin with 2 calls",
        "heun with 12 calls",
    ]


def test_trials_are_written_one_by_one_and_found_again(tmp_path: Path) -> None:
    path, measured = tmp_path / "frontier.json", []

    def measure(sampler: Any) -> tuple[float, float | None]:  # noqa: ANN401
        measured.append(sampler.calls)
        if sampler.calls == 3:
            raise FloatingPointError("diverged")
        return float(sampler.calls), 0.5

    found = [Euler(calls=k).scheduled(TOY.accepted) for k in (2, 3)]
    stages = [len(json.loads(path.read_text())["trials"]) for _ in run_trials(path, START, found, measure)]
    assert stages == [1, 2]
    *_, last = run_trials(path, START, [*found, Euler(calls=4).scheduled(TOY.accepted)], measure)
    assert measured == [2, 3, 4]
    assert [trial.value for trial in last.trials] == [2, math.inf, 4]
    assert json.loads(path.read_text())["trials"][1]["value"] is None
    *_, other = run_trials(path, Frontier(**(vars(START) | {"seed": 1})), found[:1], measure)
    assert measured == [2, 3, 4, 2]
    assert len(other.trials) == 1


def trials_of(values: dict[tuple[str, int], float]) -> tuple[Trial, ...]:
    return tuple(Trial(name, calls, value, 500, 1.0, {"calls": calls}) for (name, calls), value in values.items())


def test_the_cheapest_trial_that_is_as_good_as_the_marked_one() -> None:
    trials = trials_of({("a", 1000): 2.0, ("b", 10): 2.5, ("b", 50): 2.0, ("c", 50): 1.9, ("c", 90): 1.0})
    found = replace(START, usual={"calls": 1000}, trials=trials)
    assert found.own == trials[0]
    assert found.cheapest == trials[3]
    assert replace(found, trials=trials[1:]).cheapest is None
    assert replace(found, trials=trials[:2]).cheapest == trials[0]


def test_a_file_that_is_no_frontier(tmp_path: Path) -> None:
    path = tmp_path / "frontier.json"
    for text in ("", "[]", '{"trials": [{}]}', '{"what": "toy", "trials": []}'):
        path.write_text(text)
        with pytest.raises(ValueError, match=r"frontier\.json is not a file of scorefield frontier"):
            read_frontier(path)
