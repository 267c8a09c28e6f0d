"""Samplers: generator functions that yield a `State` for step 0 and after each update, and their settings classes.

The caller decides on progress bars, thinning and stopping; nothing is stored. The functions are fetched when first
asked for, because PyTorch takes two seconds to import.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from scorefield.samplers.settings import (
    SAMPLERS,
    AnnealedLangevin,
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
    from scorefield.samplers.langevin_dynamics import annealed_langevin, langevin

__all__ = [
    "SAMPLERS",
    "AnnealedLangevin",
    "Constraint",
    "Sampler",
    "State",
    "annealed_langevin",
    "changed",
    "from_dict",
    "langevin",
    "last",
    "option",
    "options",
    "register",
    "to_dict",
    "unconstrained",
    "with_denoising",
]

_MODULES = {
    "base": ("Constraint", "State", "last", "unconstrained"),
    "langevin_dynamics": ("annealed_langevin", "langevin"),
}
"""Modules and the functions they define. No module may have the name of a function: its import would replace that."""

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        for module, names in _MODULES.items():
            if name in names:
                return getattr(import_module(f"scorefield.samplers.{module}"), name)
        raise AttributeError(f"module 'scorefield.samplers' has no attribute {name!r}")
