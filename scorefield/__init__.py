"""scorefield: score-based generative modelling, after Song & Ermon (2019)."""

from importlib import import_module
from typing import TYPE_CHECKING

from scorefield.version import __version__

if TYPE_CHECKING:
    from scorefield import data, distributions, metrics, networks, noise, objectives, operators, samplers
    from scorefield.constraints import known_pixels
    from scorefield.distributions import GaussianMixture
    from scorefield.likelihood import bits_per_dim, decode, encode, log_likelihood
    from scorefield.models.model import Model, load
    from scorefield.models.recipes import RECIPES, Recipe
    from scorefield.networks.diffusers_score import from_diffusers
    from scorefield.noise import SampleNoise, geometric, karras
    from scorefield.posteriors import posterior
    from scorefield.samplers import (
        AdamsBashforth,
        Ancestral,
        AnnealedHMC,
        AnnealedLangevin,
        ConsistentAnnealed,
        DPMpp2M,
        DPMpp3M,
        Euler,
        Heun,
        PredictorCorrector,
        State,
        adams_bashforth,
        ancestral,
        annealed_hmc,
        annealed_langevin,
        consistent_annealed,
        dpmpp_2m,
        dpmpp_3m,
        euler,
        heun,
        langevin,
        last,
        predictor_corrector,
    )
    from scorefield.score import Score, denoised, from_denoiser, from_energy, guided
    from scorefield.training import train

__all__ = [
    "RECIPES",
    "AdamsBashforth",
    "Ancestral",
    "AnnealedHMC",
    "AnnealedLangevin",
    "ConsistentAnnealed",
    "DPMpp2M",
    "DPMpp3M",
    "Euler",
    "GaussianMixture",
    "Heun",
    "Model",
    "PredictorCorrector",
    "Recipe",
    "SampleNoise",
    "Score",
    "State",
    "__version__",
    "adams_bashforth",
    "ancestral",
    "annealed_hmc",
    "annealed_langevin",
    "bits_per_dim",
    "consistent_annealed",
    "data",
    "decode",
    "denoised",
    "distributions",
    "dpmpp_2m",
    "dpmpp_3m",
    "encode",
    "euler",
    "from_denoiser",
    "from_diffusers",
    "from_energy",
    "geometric",
    "guided",
    "heun",
    "karras",
    "known_pixels",
    "langevin",
    "last",
    "load",
    "log_likelihood",
    "metrics",
    "networks",
    "noise",
    "objectives",
    "operators",
    "posterior",
    "predictor_corrector",
    "samplers",
    "train",
]

_MODULES = {
    "constraints": ("known_pixels",),
    "data": (),
    "distributions": ("GaussianMixture",),
    "likelihood": ("bits_per_dim", "decode", "encode", "log_likelihood"),
    "metrics": (),
    "models.model": ("Model", "load"),
    "models.recipes": ("RECIPES", "Recipe"),
    "networks": (),
    "networks.diffusers_score": ("from_diffusers",),
    "noise": ("SampleNoise", "geometric", "karras"),
    "objectives": (),
    "operators": (),
    "posteriors": ("posterior",),
    "samplers": (
        "AdamsBashforth",
        "Ancestral",
        "AnnealedHMC",
        "AnnealedLangevin",
        "ConsistentAnnealed",
        "DPMpp2M",
        "DPMpp3M",
        "Euler",
        "Heun",
        "PredictorCorrector",
        "State",
        "adams_bashforth",
        "ancestral",
        "annealed_hmc",
        "annealed_langevin",
        "consistent_annealed",
        "dpmpp_2m",
        "dpmpp_3m",
        "euler",
        "heun",
        "langevin",
        "last",
        "predictor_corrector",
    ),
    "score": ("Score", "denoised", "from_denoiser", "from_energy", "guided"),
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
