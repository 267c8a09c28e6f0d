"""The playground: points in a plane that follow the exact score of a mixture, as in the paper's figure 3."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scorefield.distributions import GaussianMixture
from scorefield.paper.fig3 import Settings
from scorefield.paper.output import EXTENT, HEAVY, LIGHT, WEIGHTS, grid
from scorefield.models.generate import kept_steps
from scorefield.noise import SampleNoise, geometric, sample_seeds
from scorefield.samplers import State, annealed_langevin, langevin, unstable
from scorefield.web.jobs import Job, Update
from scorefield.web.limits import Limits
from scorefield.web.requests import Fields, bad, in_bounds, malformed

BOTH = ["langevin", "annealed"]
METHODS = (*BOTH, "both")
MIXTURE = ("means", "weights")
KNOWN = (*MIXTURE, "method", "n", "seed", "steps", "step_size", "sigma_max", "sigma_min", "levels")
FIELD = (*MIXTURE, "sigma", "points")
PAPER = Settings()
WIDEST = 100.0
"""The largest σ."""


def mixture_of(fields: Fields, limits: Limits) -> dict[str, list[Any]]:
    """Means and weights; the paper's where they are not given."""
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
    """The score and the log density at places on a grid, at one σ."""
    mixture = GaussianMixture(**mixture_of(fields, limits), stds=0.0)
    sigma = fields.number("sigma", PAPER.sigma_min, above=0.001, most=WIDEST)
    x = grid(fields.whole("points", 24, least=2, most=limits.field))
    return {"x": x.tolist(), "score": mixture.score(x, sigma).tolist(), "log_prob": mixture.log_prob(x, sigma).tolist()}


def playground_job(fields: Fields, limits: Limits) -> Job:
    """Points that move from a uniform start, by plain or by annealed Langevin dynamics, or by both side by side."""
    method = fields.choice("method", METHODS, "annealed")
    plain = method == "langevin"
    levels = 1 if plain else fields.whole("levels", PAPER.levels, least=1, most=limits.levels)
    steps = PAPER.langevin_steps if plain else PAPER.annealed_steps
    settings: dict[str, Any] = {
        **mixture_of(fields, limits),
        "method": method,
        "n": fields.whole("n", PAPER.samples, least=1, most=limits.points),
        "seed": fields.whole("seed", 0, least=0, most=2**32 - 1),
        "steps": fields.whole("steps", min(steps, limits.updates // levels), least=1, most=limits.updates // levels),
        "step_size": fields.number("step_size", PAPER.step_size, above=0),
        "sigma_max": fields.number("sigma_max", PAPER.sigma_max, above=0.01, most=WIDEST),
        "sigma_min": fields.number("sigma_min", PAPER.sigma_min, above=0.01, most=WIDEST),
        "levels": levels,
    }
    try:
        sigmas = geometric(
            settings["sigma_max"] if levels > 1 else settings["sigma_min"], settings["sigma_min"], levels
        )
    except ValueError as error:
        raise bad(str(error)) from error
    work = partial(_states, settings, sigmas, kept_steps(settings["steps"] * levels, limits.frames))
    warning = unstable(settings["sigma_min"], settings["step_size"])
    return Job("playground", work, settings["steps"] * levels, settings, warning=warning)


def _states(settings: dict[str, Any], sigmas: Tensor, keep: set[int]) -> Iterator[Update]:
    """The points after each step, (N, 2); of both methods (2, N, 2), plain Langevin dynamics first."""
    methods = BOTH if settings["method"] == "both" else [settings["method"]]
    walks = [_walk(method, settings, sigmas) for method in methods]
    levels = sigmas.tolist()

    def frame(xs: list[Tensor]) -> NDArray[np.float32]:
        return (torch.stack(xs) if len(xs) > 1 else xs[0]).numpy()

    yield Update(0, levels[0], 1, frame([start for start, _ in walks]))
    for each in zip(*(states for _, states in walks), strict=True):
        step = each[0].step
        level = (step - 1) // settings["steps"]
        yield Update(step, levels[level], level + 1, frame([state.x for state in each]) if step in keep else None)


def _walk(method: str, settings: dict[str, Any], sigmas: Tensor) -> tuple[Tensor, Iterator[State]]:
    """Where the points start, and the states that follow; Langevin takes as many steps as all levels together."""
    noise = SampleNoise(sample_seeds(settings["seed"], range(settings["n"])))
    start = EXTENT * (2 * noise.rand_like(torch.empty(settings["n"], 2)) - 1)
    score = GaussianMixture(settings["means"], 0.0, settings["weights"]).score
    steps, how = settings["steps"], {"step_size": settings["step_size"], "randn_like": noise.randn_like}
    if method == "annealed":
        return start, annealed_langevin(score, start, sigmas, steps=steps, **how)
    return start, langevin(score, start, settings["sigma_min"], steps=steps * len(sigmas), **how)
