"""scorefield: generative modelling by estimating gradients of the data distribution (Song & Ermon, 2019)."""

from scorefield import distributions, networks, noise, objectives
from scorefield.checkpoint import Model, load
from scorefield.constraints import known_pixels
from scorefield.distributions import GaussianMixture
from scorefield.noise import SampleNoise, geometric
from scorefield.samplers import State, annealed_langevin, langevin, last
from scorefield.score import Score, denoised, from_denoiser, from_energy
from scorefield.version import __version__

__all__ = [
    "GaussianMixture",
    "Model",
    "SampleNoise",
    "Score",
    "State",
    "__version__",
    "annealed_langevin",
    "denoised",
    "distributions",
    "from_denoiser",
    "from_energy",
    "geometric",
    "known_pixels",
    "langevin",
    "last",
    "load",
    "networks",
    "noise",
    "objectives",
]
