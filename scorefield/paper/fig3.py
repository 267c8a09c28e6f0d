"""Figure 3: plain Langevin dynamics gets the weights of the modes wrong, annealing gets them right.

Samples of 1/5 N((−5, −5), I) + 4/5 N((5, 5), I): exact ones, by Langevin dynamics, and by annealed Langevin dynamics,
both with the exact score. Between the modes the density is almost zero, so a point that starts on one side stays there,
whatever the weights: half of the samples end up in each mode. Strong noise connects the modes, and as it decreases, the
points divide in the right proportion.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from scorefield.distributions import GaussianMixture
from scorefield.noise import SampleNoise, geometric, sample_seeds
from scorefield.paper.output import EXTENT, HEAVY, LIGHT, WEIGHTS, Result, grid, new_figure, save, toy_axes, toy_work
from scorefield.progress import Track, silent
from scorefield.samplers import State, annealed_langevin, langevin, last

if TYPE_CHECKING:
    from matplotlib.figure import Figure

POINTS = GaussianMixture([LIGHT, HEAVY], 0.0, WEIGHTS)
"""The appendix's σ, 20 ... 1, is the whole standard deviation of a component: noise σ on two points, which is the data
at σ = 1. (Section 4.3 says 10 ... 0.1. With ε = 0.1 that diverges, because α₁ = 1000 is larger than 4σ₁² = 400.)"""


@dataclass(frozen=True)
class Settings:
    """Appendix B.1."""

    samples: int = 1280
    step_size: float = 0.1
    langevin_steps: int = 1000
    annealed_steps: int = 100
    levels: int = 10
    sigma_max: float = 20.0
    sigma_min: float = 1.0


QUICK = Settings(samples=320)
SEEDS = 24
"""How often all is repeated, for the spread of the shares. The picture shows the first."""


def draw_samples(settings: Settings, seeds: Sequence[int], track: Track[State] = silent) -> dict[str, Tensor]:
    """Samples of each seed by each of the three methods, (seeds, samples, 2)."""
    n, sigma, epsilon = settings.samples, settings.sigma_min, settings.step_size
    noise = SampleNoise([chain for each in seeds for chain in sample_seeds(each, range(n))])
    start = EXTENT * (2 * noise.rand_like(torch.empty(len(seeds) * n, 2)) - 1)
    plain = langevin(
        POINTS.score, start, sigma, step_size=epsilon, steps=settings.langevin_steps, randn_like=noise.randn_like
    )
    sigmas = geometric(settings.sigma_max, sigma, settings.levels)
    annealed = annealed_langevin(
        POINTS.score, start, sigmas, step_size=epsilon, steps=settings.annealed_steps, randn_like=noise.randn_like
    )

    def end(states: Iterator[State], what: str, steps: int) -> Tensor:
        made = last(track(islice(states, 1, None), f"fig3: {what}", steps))  # step 0 is the start
        return made.unflatten(0, (len(seeds), n))

    exact = [POINTS.sample(n, sigma, generator=torch.Generator().manual_seed(each)) for each in seeds]
    return {
        "exact": torch.stack(exact),
        "langevin": end(plain, "Langevin dynamics", settings.langevin_steps),
        "annealed": end(annealed, "annealed Langevin dynamics", settings.levels * settings.annealed_steps),
    }


def heavy_fractions(x: Tensor) -> list[float]:
    """The fraction of the samples of each seed that are nearer to the heavy mode."""
    found: list[float] = (x.sum(-1) > 0).double().mean(-1).tolist()
    return found


def spread(values: list[float]) -> dict[str, float]:
    """Their mean with its standard error, and their range."""
    error = statistics.stdev(values) / math.sqrt(len(values))
    return {"mean": statistics.mean(values), "standard_error": error, "least": min(values), "most": max(values)}


def make(out: Path, *, quick: bool = False, seed: int = 0, seeds: int = SEEDS, track: Track[State] = silent) -> Result:
    """Write fig3.png and fig3.json to `out`. The quick figure has one seed."""
    settings, seeds = (QUICK, 1) if quick else (Settings(), seeds)
    with toy_work() as timing:
        samples = draw_samples(settings, [(seed + k) % 2**32 for k in range(seeds)], track)
    fractions = {method: heavy_fractions(x) for method, x in samples.items()}
    numbers = {
        "heavy_fraction": {method: shares[0] for method, shares in fractions.items()},
        "spread": {method: spread(shares) for method, shares in fractions.items() if seeds > 1},
        "seeds": seeds,
        "n": settings.samples,
        "seed": seed,
        "quick": quick,
        "settings": asdict(settings),
        **timing,
    }
    first = {method: x[0] for method, x in samples.items()}
    return save(_draw(first, numbers["heavy_fraction"], settings.sigma_min), numbers, out, "fig3")


def _draw(samples: dict[str, Tensor], fractions: dict[str, float], sigma: float) -> Figure:
    titles = {"exact": "exact sampling", "langevin": "Langevin dynamics", "annealed": "annealed Langevin dynamics"}
    figure = new_figure(11, 4)
    fine = grid(161)
    density = POINTS.log_prob(fine, sigma).exp().reshape(161, 161).T.numpy()
    for axes, (method, x) in zip(figure.subplots(1, 3), samples.items(), strict=True):
        axes.contour(density, extent=(-EXTENT, EXTENT, -EXTENT, EXTENT), levels=6, colors="0.75", linewidths=0.6)
        colour = "tab:red" if method == "langevin" else "tab:blue"
        axes.scatter(*x.T.numpy(), s=4, alpha=0.5, linewidths=0, color=colour)
        toy_axes(axes, titles[method])
        for (_, y), share in ((HEAVY, fractions[method]), (LIGHT, 1 - fractions[method])):
            axes.text(0, y, f"{share:.0%}", ha="center", va="center", fontsize=14, color="0.25")
    return figure
