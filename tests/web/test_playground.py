"""The API of the playground: points that follow the score of a mixture."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor

from scorefield.distributions import GaussianMixture
from scorefield.noise import SampleNoise, geometric, sample_seeds
from scorefield.samplers import annealed_langevin, langevin, last
from scorefield.web.limits import Limits
from scorefield.web.playground import FIELD_FIELDS, JOB_FIELDS, playground_job, score_field
from scorefield.web.requests import Fields
from web.live_server import Live
from web.live_server import tiny_live as tiny_live


@pytest.mark.parametrize("method", ["langevin", "annealed"])
def test_the_playgrounds_points_are_the_samplers(live: Live, method: str) -> None:
    means, weights = [[-5.0, 0.0], [5.0, 2.5]], [1.0, 3.0]
    settings = {"means": means, "weights": weights, "method": method, "n": 50, "steps": 40, "levels": 3, "seed": 2}
    found = live.events(live.start("playground", **settings))
    frames = [values for name, values in found if name == "frame"]
    noise = SampleNoise(sample_seeds(2, range(50)))
    x = 8 * (2 * noise.rand_like(torch.empty(50, 2)) - 1)
    score = GaussianMixture(means, 0.0, weights).score
    assert frames[0]["points"] == x.double().numpy().round(3).tolist()
    if method == "langevin":
        states = langevin(score, x, 1.0, step_size=0.1, steps=40, randn_like=noise.randn_like)
    else:
        sigmas = geometric(20.0, 1.0, 3)
        states = annealed_langevin(score, x, sigmas, step_size=0.1, steps=40, randn_like=noise.randn_like)
    assert frames[-1]["points"] == last(states).double().numpy().round(3).tolist()
    assert len(frames) <= 60
    status = found[-1][1]
    assert (status["state"], status["total"]) == ("done", 40 if method == "langevin" else 120)
    assert live.client.get(f"/api/jobs/{status['job']}/grid.png").status_code == 404


def test_both_methods_side_by_side_equal_each_alone(live: Live) -> None:
    settings = {"n": 20, "levels": 3, "seed": 4}
    both, annealed, plain = (
        [values for name, values in live.events(live.start("playground", **settings, **more)) if name == "frame"]
        for more in (
            {"method": "both", "steps": 10},
            {"method": "annealed", "steps": 10},
            {"method": "langevin", "steps": 30},
        )
    )
    assert [frame["step"] for frame in both] == list(range(31))
    for key, alone in (("annealed", annealed), ("langevin", plain)):
        assert [frame["points"][key] for frame in both] == [frame["points"] for frame in alone]
    assert [frame["sigma"] for frame in both] == [frame["sigma"] for frame in annealed]


def test_a_step_size_that_is_too_large_brings_a_warning(live: Live) -> None:
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        status = live.end(live.start("playground", n=2, steps=2, levels=2, step_size=50))
    assert "step_size 50" in status["warning"]
    assert "4σ² = 4" in status["warning"]


def test_the_score_field(live: Live) -> None:
    means, weights = [[-5.0, 0.0], [5.0, 2.5], [0, 8]], [1.0, 3.0, 2]
    answer = live.post("field", means=means, weights=weights, sigma=2.0, points=5).json()
    x, mixture = torch.tensor(answer["x"]), GaussianMixture(means, 0.0, weights)
    assert x.shape == (25, 2)
    assert x.abs().max() == 8
    assert torch.equal(torch.tensor(answer["score"]), mixture.score(x, 2.0))
    assert torch.equal(torch.tensor(answer["log_prob"]), mixture.log_prob(x, 2.0))
    assert len(live.post("field").json()["x"]) == 24**2


def test_points_are_moved_on_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine PyTorch's threads would wait for each other at every operation."""
    seen, score = set[int](), GaussianMixture.score

    def counted(mixture: GaussianMixture, x: Tensor, sigma: Tensor) -> Tensor:
        seen.add(torch.get_num_threads())
        return score(mixture, x, sigma)

    monkeypatch.setattr(GaussianMixture, "score", counted)
    torch.set_num_threads(3)
    try:
        updates = list(playground_job(Fields({"n": 5, "steps": 2, "method": "both"}, JOB_FIELDS), Limits()).run())
        score_field(Fields({"points": 3}, FIELD_FIELDS), Limits())
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(1)
    assert updates[-1].step == 20
    assert seen == {1}
