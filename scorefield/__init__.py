"""scorefield: score-based generative modelling, after Song & Ermon (2019)."""

from importlib import import_module
from typing import TYPE_CHECKING

from scorefield.version import __version__

if TYPE_CHECKING:
    from scorefield import data, distributions, metrics, networks, noise, objectives, samplers
    from scorefield.constraints import known_pixels
    from scorefield.distributions import GaussianMixture
    from scorefield.models.model import Model, load
    from scorefield.models.recipes import RECIPES, Recipe
    from scorefield.noise import SampleNoise, geometric
    from scorefield.samplers import AnnealedLangevin, State, annealed_langevin, langevin, last
    from scorefield.score import Score, denoised, from_denoiser, from_energy
    from scorefield.training import train

__all__ = [
    "RECIPES",
    "AnnealedLangevin",
    "GaussianMixture",
    "Model",
    "Recipe",
    "SampleNoise",
    "Score",
    "State",
    "__version__",
    "annealed_langevin",
    "data",
    "denoised",
    "distributions",
    "from_denoiser",
    "from_energy",
    "geometric",
    "known_pixels",
    "langevin",
    "last",
    "load",
    "metrics",
    "networks",
    "noise",
    "objectives",
    "samplers",
    "train",
]

_MODULES = {
    "constraints": ("known_pixels",),
    "data": (),
    "distributions": ("GaussianMixture",),
    "metrics": (),
    "models.model": ("Model", "load"),
    "models.recipes": ("RECIPES", "Recipe"),
    "networks": (),
    "noise": ("SampleNoise", "geometric"),
    "objectives": (),
    "samplers": ("AnnealedLangevin", "State", "annealed_langevin", "langevin", "last"),
    "score": ("Score", "denoised", "from_denoiser", "from_energy"),
    "training": ("train",),
}
"""Modules and the names they define. They are imported when first asked for: PyTorch takes two seconds to import, and
the command line's help need not wait for it."""

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        for module, names in _MODULES.items():
            if name == module or name in names:
                found = import_module(f"scorefield.{module}")
                globals()[name] = found if name == module else getattr(found, name)
                return globals()[name]
        raise AttributeError(f"module 'scorefield' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
