"""Quality against cost: a model sampled by several samplers with several numbers of network calls.

For an image model the quality is FID. For the toy mixture of Fig. 3, whose score and distribution are known, it is the
distance between the samples and the distribution itself, so that the errors are the samplers' own.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from scorefield import samplers
from scorefield.distributions import GaussianMixture
from scorefield.files import parse_json, write_json
from scorefield.noise import SampleNoise, geometric, sample_seeds
from scorefield.samplers import NoiseLevels, last

DIRECTIONS = 16
"""Directions in which the distance of points is measured."""


@dataclass(frozen=True)
class Trial:
    """One sampler with one number of calls."""

    sampler: str
    calls: int
    """Network calls per sample that were made, which may be fewer than were asked for."""
    value: float
    """FID, or the distance to the exact distribution; infinite (null in JSON) for a sampler that diverged."""
    n: int
    seconds: float
    settings: dict[str, Any]
    """The sampler, as `samplers.to_dict` describes it."""
    share: float | None = None
    """Of the toy mixture: the share of the samples in the heavy mode."""


@dataclass(frozen=True)
class Frontier:
    """All trials of one model."""

    what: str
    """The model, or toy."""
    metric: str
    """fid or distance."""
    n: int
    seed: int
    usual: dict[str, Any]
    """The setting that is marked: the paper's, or the model's own."""
    floor: float | None
    """What as many exact samples have in the mean; None where that is not known."""
    about: dict[str, Any]
    """The model, the machine and the reference."""
    trials: tuple[Trial, ...] = ()

    @property
    def own(self) -> Trial | None:
        """The trial of the setting that is marked."""
        return next((trial for trial in self.trials if trial.settings == self.usual), None)

    @property
    def cheapest(self) -> Trial | None:
        """The trial with the fewest calls of those that are at least as good as the marked one."""
        if self.own is None:
            return None
        good = [trial for trial in self.trials if trial.value <= self.own.value]
        return min(good, key=lambda trial: (trial.calls, trial.value))


def candidates(
    usual: Any,  # noqa: ANN401
    accepted: NoiseLevels,
    names: Sequence[str],
    calls: Sequence[int],
) -> tuple[list[Any], list[str]]:
    """The samplers to try, each once, and notes about those that cannot make so many or so few calls.

    The usual one comes first. It is an error if there is no other that can make one of these numbers of calls.
    """
    found, notes = [usual], []
    for name in names:
        for number in calls:
            try:
                sampler = samplers.changed(usual, {"calls": number}, name=name, accepted=accepted)
            except ValueError as error:
                notes.append(f"{name} with {number} calls is left out: {error}")
                continue
            if sampler not in found:
                found.append(sampler)
    if len(notes) == len(names) * len(calls):
        raise ValueError(f"there is nothing to try: {notes[0]}")
    return found, notes


def run_trials(
    path: Path,
    start: Frontier,
    found: Sequence[Any],
    measure: Callable[[Any], tuple[float, float | None]],
    *,
    write: bool = True,
) -> Iterator[Frontier]:
    """Measure these samplers one after the other. Each result is written to the file, where it is found again.

    `measure(sampler)` gives the value and the share of the heavy mode, if there is one. Earlier trials of the same
    model, number and seed stay in the file.
    """
    trials = {json.dumps(trial.settings, sort_keys=True): trial for trial in earlier(path, start)}
    for sampler in found:
        settings = samplers.to_dict(sampler)
        key = json.dumps(settings, sort_keys=True)
        if key not in trials:
            began = time.perf_counter()
            try:
                value, share = measure(sampler)
            except FloatingPointError:  # it diverged
                value, share = math.inf, None
            seconds = round(time.perf_counter() - began, 2)
            trials[key] = Trial(sampler.name, sampler.calls, value, start.n, seconds, settings, share)
        frontier = replace(start, trials=tuple(trials.values()))
        if write:
            write_json(path, asdict(frontier) | {"trials": [asdict(trial) for trial in frontier.trials]})
        yield frontier


def read_frontier(path: Path) -> Frontier:
    """The trials in a file that `run_trials` wrote."""
    try:
        values = parse_json(path.read_text(encoding="utf-8"))
        trials = [Trial(**trial) for trial in values["trials"]]
        found = [replace(trial, value=math.inf) if trial.value is None else trial for trial in trials]
        return Frontier(**values | {"trials": tuple(found)})
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is not a file of scorefield frontier: {error!r} (make it again)") from error


def earlier(path: Path, start: Frontier) -> tuple[Trial, ...]:
    """The trials in a file, if they are of the same model, number of samples and seed."""
    try:
        found = read_frontier(path)
    except (OSError, ValueError):
        return ()
    same = all(getattr(found, name) == getattr(start, name) for name in ("what", "metric", "n", "seed"))
    return found.trials if same and found.about == json.loads(json.dumps(start.about)) else ()


class Toy:
    """The two modes of Fig. 3, 1/5 N(light, I) + 4/5 N(heavy, I), with their exact score, and the distance to them."""

    accepted = NoiseLevels(0.05, 20.0)

    def __init__(self, light: Sequence[float], heavy: Sequence[float], weights: Sequence[float], extent: float) -> None:
        self.mixture, self.extent = GaussianMixture([light, heavy], 1.0, weights), extent
        self.points = GaussianMixture([light, heavy], 0.0, weights)
        self.usual = samplers.AnnealedLangevin(tuple(geometric(20.0, 1.0, 10).tolist()), step_size=0.1, steps=100)

    def sample(self, sampler: Any, n: int, seed: int = 0) -> Tensor:  # noqa: ANN401
        """n samples, from exact ones of the first noise level, so that only the sampler's own errors are left.

        Annealed Langevin dynamics is that of the figure: from uniform noise, and down to σ = 1 on two points, which is
        the same distribution.
        """
        noise = SampleNoise(sample_seeds(seed, range(n)))
        if isinstance(sampler, samplers.AnnealedLangevin):
            x = self.extent * (2 * noise.rand((2,)) - 1)
            return last(sampler(self.points.score, x, randn_like=noise.randn_like))
        x = self.mixture.sample(n, sampler.sigmas[0], generator=torch.Generator().manual_seed(seed))
        return last(sampler(self.mixture.score, x, randn_like=noise.randn_like))

    def floor(self, n: int, sets: int = 20) -> float:
        """The distance that n exact samples have, in the mean over that many sets of them."""
        generator = torch.Generator().manual_seed(0)
        return sum(self.measure(self.mixture.sample(n, generator=generator))[0] for _ in range(sets)) / sets

    def measure(self, x: Tensor) -> tuple[float, float]:
        """The distance to the mixture, and the share in the heavy mode."""
        return distance_to(self.mixture, x), (x.sum(1) > 0).double().mean().item()


def distance_to(mixture: GaussianMixture, x: Tensor) -> float:
    """The sliced Wasserstein distance between points in the plane, (N, 2), and a mixture.

    The mean over directions of  ∫ |F_N(t) − F(t)| dt,  where F_N is the share of the points whose projection is below t
    and F the mixture's own, a sum of normal distribution functions: only the points are random.
    """
    angles = math.pi * torch.arange(DIRECTIONS, dtype=torch.float64) / DIRECTIONS
    directions = torch.stack([angles.cos(), angles.sin()])
    means = mixture.means.double() @ directions
    stds = (mixture.variances.double() @ directions.square()).sqrt()
    along = (x.double() @ directions).sort(0).values
    ends = torch.stack([along.min(), along.max(), (means - 8 * stds).min(), (means + 8 * stds).max()])
    t = torch.linspace(ends.min().item(), ends.max().item(), 4001, dtype=torch.float64)
    each = torch.special.ndtr((t - means[..., None]) / stds[..., None])
    exact = torch.einsum("k,kdt->dt", mixture.weights.double(), each)
    below = torch.searchsorted(along.T.contiguous(), t.expand(DIRECTIONS, -1).contiguous(), right=True) / len(x)
    return torch.trapezoid((below - exact).abs(), t, dim=1).mean().item()
