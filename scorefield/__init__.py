"""scorefield: generative modelling by estimating gradients of the data distribution (Song & Ermon, 2019)."""

from importlib import import_module
from typing import TYPE_CHECKING

from scorefield.version import __version__

if TYPE_CHECKING:
    from scorefield import distributions, networks, noise, objectives
    from scorefield.models.checkpoint import Model, load
    from scorefield.constraints import known_pixels
    from scorefield.distributions import GaussianMixture
    from scorefield.noise import SampleNoise, geometric
    from scorefield.samplers import State, annealed_langevin, langevin, last
    from scorefield.score import Score, denoised, from_denoiser, from_energy

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

_HOME = {
    "checkpoint": ("Model", "load"),
    "constraints": ("known_pixels",),
    "distributions": ("GaussianMixture",),
    "networks": (),
    "noise": ("SampleNoise", "geometric"),
    "objectives": (),
    "samplers": ("State", "annealed_langevin", "langevin", "last"),
    "score": ("Score", "denoised", "from_denoiser", "from_energy"),
}
"""Modules, and the names that live in them. They are fetched when first asked for: PyTorch takes two seconds to import,
for which the command line's help need not wait."""

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        for module, names in _HOME.items():
            if name == module or name in names:
                found = import_module(f"scorefield.{module}")
                globals()[name] = found if name == module else getattr(found, name)
                return globals()[name]
        raise AttributeError(f"module 'scorefield' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
