"""Samplers: generator functions that yield a `State` for step 0 and after each update, and their settings classes.

The caller decides on progress bars, thinning and stopping; nothing is stored. The functions are fetched when first
asked for, because PyTorch takes two seconds to import.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from scorefield.samplers.checks import MOST_CALLS
from scorefield.samplers.path_settings import (
    AdamsBashforth,
    Ancestral,
    AnnealedHMC,
    ConsistentAnnealed,
    DPMpp2M,
    DPMpp3M,
    Euler,
    Heun,
    PredictorCorrector,
    for_restoring,
)
from scorefield.samplers.settings import (
    PACES,
    SAMPLERS,
    AnnealedLangevin,
    NoiseLevels,
    Sampler,
    changed,
    from_dict,
    option,
    options,
    register,
    to_dict,
    with_denoising,
)

if TYPE_CHECKING:
    from scorefield.samplers.base import Constraint, State, last, unconstrained
    from scorefield.samplers.hamiltonian import annealed_hmc
    from scorefield.samplers.langevin_dynamics import annealed_langevin, langevin
    from scorefield.samplers.probability_flow import adams_bashforth, dpmpp_2m, dpmpp_3m, euler, heun
    from scorefield.samplers.stochastic import ancestral, consistent_annealed, predictor_corrector

__all__ = [
    "MOST_CALLS",
    "PACES",
    "SAMPLERS",
    "AdamsBashforth",
    "Ancestral",
    "AnnealedHMC",
    "AnnealedLangevin",
    "ConsistentAnnealed",
    "Constraint",
    "DPMpp2M",
    "DPMpp3M",
    "Euler",
    "Heun",
    "NoiseLevels",
    "PredictorCorrector",
    "Sampler",
    "State",
    "adams_bashforth",
    "ancestral",
    "annealed_hmc",
    "annealed_langevin",
    "changed",
    "consistent_annealed",
    "dpmpp_2m",
    "dpmpp_3m",
    "euler",
    "for_restoring",
    "from_dict",
    "heun",
    "langevin",
    "last",
    "option",
    "options",
    "predictor_corrector",
    "register",
    "to_dict",
    "unconstrained",
    "with_denoising",
]

_MODULES = {
    "base": ("Constraint", "State", "last", "unconstrained"),
    "hamiltonian": ("annealed_hmc",),
    "langevin_dynamics": ("annealed_langevin", "langevin"),
    "probability_flow": ("adams_bashforth", "dpmpp_2m", "dpmpp_3m", "euler", "heun"),
    "stochastic": ("ancestral", "consistent_annealed", "predictor_corrector"),
}
"""Modules and the functions they define. No module may have the name of a function: its import would replace that."""

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        for module, names in _MODULES.items():
            if name in names:
                return getattr(import_module(f"scorefield.samplers.{module}"), name)
        raise AttributeError(f"module 'scorefield.samplers' has no attribute {name!r}")
