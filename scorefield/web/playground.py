"""The playground: points in a plane that follow the exact score of a mixture, as in the paper's Figure 3."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from scorefield.acceleration.threads import on_one_thread, pytorch_threads
from scorefield.distributions import GaussianMixture
from scorefield.models.model import kept_steps
from scorefield.noise import SampleNoise, geometric, sample_seeds
from scorefield.paper.fig3 import Settings
from scorefield.paper.output import EXTENT, HEAVY, LIGHT, WEIGHTS, grid
from scorefield.samplers import AnnealedLangevin, State
from scorefield.web.jobs import Job, Update, updates_from
from scorefield.web.limits import Limits
from scorefield.web.requests import Fields, bad, in_bounds, malformed

BOTH = ["langevin", "annealed"]
METHODS = (*BOTH, "both")
MIXTURE = ("means", "weights")
JOB_FIELDS = (*MIXTURE, "method", "n", "seed", "steps", "step_size", "sigma_max", "sigma_min", "levels")
FIELD_FIELDS = (*MIXTURE, "sigma", "points")
PAPER = Settings()
LARGEST_SIGMA = 100.0


def read_mixture(fields: Fields, limits: Limits) -> dict[str, list[Any]]:
    """Means and weights; the paper's if they are not given."""
    means = fields.rows("means", [LIGHT, HEAVY], most=limits.modes)
    weights = fields.rows("weights", WEIGHTS if len(means) == len(WEIGHTS) else [1.0] * len(means), most=limits.modes)
    if len(weights) != len(means):
        raise bad(f"each of the {len(means)} means needs a weight; got {len(weights)}")
    if not all(isinstance(mean, list) and len(mean) == 2 for mean in means):
        raise malformed("means must be a list of points [x, y]")
    return {
        "means": [[_coordinate(value) for value in mean] for mean in means],
        "weights": [in_bounds("a weight", weight, above=1e-9, most=1e6) for weight in weights],
    }


def _coordinate(value: object) -> float:
    number = in_bounds("a coordinate", value)
    if not abs(number) <= EXTENT:
        raise bad(f"coordinates must be from {-EXTENT:g} to {EXTENT:g}; got {number:g}")
    return number


def score_field(fields: Fields, limits: Limits) -> dict[str, Any]:
    """The score and the log density on a grid, at one σ."""
    mixture = GaussianMixture(**read_mixture(fields, limits), stds=0.0)
    sigma = fields.number("sigma", PAPER.sigma_min, above=0.001, most=LARGEST_SIGMA)
    x = grid(fields.whole("points", 24, least=2, most=limits.field))
    with pytorch_threads(1):
        score, log_prob = mixture.score(x, sigma), mixture.log_prob(x, sigma)
    return {"x": x.tolist(), "score": score.tolist(), "log_prob": log_prob.tolist()}


def playground_job(fields: Fields, limits: Limits) -> Job:
    """Points that move from a uniform start by plain or by annealed Langevin dynamics, or by both side by side.

    Side by side, plain Langevin dynamics takes as many steps as annealing takes over all its noise levels.
    """
    method = fields.choice("method", METHODS, "annealed")
    plain = method == "langevin"
    levels = 1 if plain else fields.whole("levels", PAPER.levels, least=1, most=limits.levels)
    steps = PAPER.langevin_steps if plain else PAPER.annealed_steps
    settings: dict[str, Any] = {
        **read_mixture(fields, limits),
        "method": method,
        "n": fields.whole("n", PAPER.samples, least=1, most=limits.points),
        "seed": fields.whole("seed", 0, least=0, most=2**32 - 1),
        "steps": fields.whole("steps", min(steps, limits.updates // levels), least=1, most=limits.updates // levels),
        "step_size": fields.number("step_size", PAPER.step_size, above=0),
        "sigma_max": fields.number("sigma_max", PAPER.sigma_max, above=0.01, most=LARGEST_SIGMA),
        "sigma_min": fields.number("sigma_min", PAPER.sigma_min, above=0.01, most=LARGEST_SIGMA),
        "levels": levels,
    }
    low, high = settings["sigma_min"], settings["sigma_max"]
    try:
        sigmas = geometric(high if levels > 1 else low, low, levels).tolist()
        samplers = {
            "langevin": AnnealedLangevin((low,), step_size=settings["step_size"], steps=settings["steps"] * levels),
            "annealed": AnnealedLangevin(tuple(sigmas), step_size=settings["step_size"], steps=settings["steps"]),
        }
    except ValueError as error:
        raise bad(str(error)) from error
    chosen = [samplers[each] for each in (BOTH if method == "both" else [method])]
    total, score = chosen[0].updates, GaussianMixture(settings["means"], 0.0, settings["weights"]).score
    keep = kept_steps(total, limits.frames)

    def walk(sampler: AnnealedLangevin) -> Iterator[State]:
        noise = SampleNoise(sample_seeds(settings["seed"], range(settings["n"])))
        return sampler(score, EXTENT * (2 * noise.rand((2,)) - 1), randn_like=noise.randn_like)

    def run() -> Iterator[Update]:
        with pytorch_threads(1):
            states = zip(*map(walk, chosen), strict=True)
        return on_one_thread(updates_from(map(_side_by_side, states), keep, Tensor.numpy))

    return Job("playground", run, total, settings, warning=chosen[0].warning)


def _side_by_side(states: tuple[State, ...]) -> State:
    """States of one walk, (N, 2), or of both as one, (2, N, 2), with the noise level of the last."""
    return states[-1]._replace(x=torch.stack([state.x for state in states])) if len(states) > 1 else states[0]
