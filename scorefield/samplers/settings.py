"""Samplers as settings: one frozen dataclass for each, and the registry that knows them by name.

These classes are the only form of sampling settings. The command line's options, the web API's JSON, the key of the
sample cache, a model file's default sampler and the record of a report are all made from their fields. A new sampler
is a generator function, a class here, and a test; `register` adds the class.

This module does not import PyTorch, so that the command line can list samplers at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar, runtime_checkable

from scorefield.samplers.checks import check_calls, check_count
from scorefield.spacing import spaced

if TYPE_CHECKING:
    from torch import Tensor

    from scorefield.noise import RandnLike, SampleNoise
    from scorefield.samplers.base import Constraint, State
    from scorefield.score import Score


@runtime_checkable
class Sampler(Protocol):
    """What `Model.sample` asks of a sampler. Any class with these can be passed, registered or not."""

    @property
    def calls(self) -> int | None:
        """Network calls per image; None if they depend on the model's noise levels, before these are known."""

    @property
    def updates(self) -> int:
        """The step number of the last state."""

    def start(self, noise: SampleNoise, shape: tuple[int, ...]) -> Tensor:
        """The first x, (B, *shape), with one draw of the noise for each sample."""

    def __call__(
        self, score: Score, x: Tensor, *, constraint: Constraint = ..., randn_like: RandnLike = ...
    ) -> Iterator[State]:
        """All states from step 0, which is x itself, to the end."""


PACES = {"paper": 1, "quick": 4, "sketch": 10}
"""How many times fewer steps than a model's own the web page and the option --quick offer, by the page's names."""
SAMPLERS: dict[str, type[Any]] = {}
"""Classes of settings by their name."""

C = TypeVar("C", bound=type[Any])


def register(cls: C) -> C:
    """Add a class of settings to the registry, under its `name`."""
    if SAMPLERS.get(cls.name, cls) is not cls and SAMPLERS[cls.name].__qualname__ != cls.__qualname__:
        raise ValueError(f"there is a sampler called {cls.name} already: {SAMPLERS[cls.name].__qualname__}")
    SAMPLERS[cls.name] = cls
    return cls


def option(default: Any, help: str) -> Any:  # noqa: A002, ANN401
    """A field that the command line and the web API offer, with its help text."""
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True)
class NoiseLevels:
    """The sigmas that a network accepts: all from `low` to `high`, or only those `listed`, the largest first."""

    low: float
    high: float
    listed: tuple[float, ...] = ()

    def check(self, sigmas: tuple[float, ...]) -> None:
        """Raise an error if one of the sigmas is not accepted."""
        for sigma in sigmas:
            if self.listed and not any(math.isclose(sigma, level, rel_tol=1e-4) for level in self.listed):
                known = ", ".join(f"{level:.4g}" for level in self.listed)
                raise ValueError(f"the model knows only certain noise levels; got {sigma:.4g} (choose from {known})")
            if not self.low * (1 - 1e-4) <= sigma <= self.high * (1 + 1e-4):
                raise ValueError(
                    f"the model accepts noise levels from {self.low:g} to {self.high:g}; got {sigma:g} "
                    "(choose sigmas in that range)"
                )


@register
@dataclass(frozen=True)
class AnnealedLangevin:
    """Algorithm 1: Langevin dynamics at each noise level in turn, from uniform noise.

    With a single sigma this is plain Langevin dynamics (Eq. 4).
    """

    name: ClassVar[str] = "annealed_langevin"

    sigmas: tuple[float, ...]
    """The noise schedule: positive and decreasing."""
    step_size: float = option(
        2e-5, "ε, the step size at the last noise level, as in x + ε/2 s + √ε z (the paper: 2e-5)."
    )
    steps: int = option(
        100,
        "T, the number of steps at each noise level (the paper: 100). With fewer steps, keep T ε the same: a quarter "
        "of the steps, each four times as long.",
    )
    denoise: bool = option(False, "End with a denoising step, x + σ² s. The paper does not, and it changes the images.")

    def __post_init__(self) -> None:
        sigmas = tuple(map(float, self.sigmas))
        object.__setattr__(self, "sigmas", sigmas)
        decreasing = all(a > b for a, b in pairwise(sigmas))
        if not sigmas or not decreasing or not 0 < sigmas[-1] <= sigmas[0] < math.inf:
            raise ValueError(f"sigmas must be positive, finite and decreasing; got {list(sigmas)}")
        check_count("steps", self.steps)
        if not 0 < self.step_size < math.inf:
            raise ValueError(f"step_size must be a positive number; got {self.step_size}")

    @property
    def updates(self) -> int:
        return self.steps * len(self.sigmas) + self.denoise

    @property
    def calls(self) -> int:
        return self.updates

    def start(self, noise: SampleNoise, shape: tuple[int, ...]) -> Tensor:
        """Uniform noise in [0, 1), as in the paper."""
        return noise.rand(shape)

    def __call__(
        self,
        score: Score,
        x: Tensor,
        *,
        constraint: Constraint | None = None,
        randn_like: RandnLike | None = None,
    ) -> Iterator[State]:
        import torch

        from scorefield.samplers.base import unconstrained
        from scorefield.samplers.langevin_dynamics import annealed_langevin

        return annealed_langevin(
            score,
            x,
            self.sigmas,
            step_size=self.step_size,
            steps=self.steps,
            constraint=constraint or unconstrained,
            randn_like=randn_like or torch.randn_like,
            denoise=self.denoise,
        )

    def with_steps(self, steps: int) -> AnnealedLangevin:
        """The same sampler with another number of steps at each level, and a step size that keeps T ε the same."""
        return replace(self, steps=steps, step_size=float(f"{self.step_size * self.steps / steps:g}"))

    def changed(self, given: Mapping[str, Any]) -> AnnealedLangevin:
        """The same sampler with other settings; `calls` sets the number of steps, with T ε as it was."""
        values = dict(given)
        calls = values.pop("calls", None)
        sampler = replace(self, **values)
        if calls is None:
            return sampler
        if "steps" in values:
            raise ValueError("--calls sets the number of steps (leave out calls or steps)")
        check_calls(calls)
        steps = (calls - sampler.denoise) // len(self.sigmas)
        if steps < 1:
            least = len(self.sigmas) + sampler.denoise
            raise ValueError(
                f"{self.name} needs at least {least} calls with these settings; got calls={calls} (give more)"
            )
        return replace(sampler, steps=steps) if "step_size" in values else sampler.with_steps(steps)

    def at_pace(self, k: int) -> AnnealedLangevin:
        """The same sampler with k times fewer steps and, so that T ε stays the same, longer ones.

        ε is kept below 4σ² of the last noise level, from which on the dynamics diverges: it is at most 3σ².
        """
        quicker = self.with_steps(max(1, round(self.steps / k)))
        longest = max(self.step_size, 3 * self.sigmas[-1] ** 2)
        return replace(quicker, step_size=float(f"{min(quicker.step_size, longest):g}"))

    @property
    def warning(self) -> str | None:
        """A sentence about settings that may diverge, or None."""
        from scorefield.samplers.base import instability

        return instability(self.sigmas[-1], self.step_size)

    def shortfall(self, usual: AnnealedLangevin) -> str | None:
        """A sentence about steps that go less than half as far as the usual ones, so that noise would be left, or None.

        ε above 2σ² would bring noise of its own, so a longer step is proposed only below that.
        """
        here, wanted = self.steps * self.step_size, usual.steps * usual.step_size
        if here >= wanted / 2:
            return None
        longer = wanted / self.steps
        fix = f"--step-size {longer:.2g}" if longer < 2.01 * self.sigmas[-1] ** 2 else "more --steps"
        return f"T ε = {here:.2g} is {here / wanted:.0%} of the model's own, so images may stay noisy ({fix})"


def to_dict(sampler: Any) -> dict[str, Any]:  # noqa: ANN401
    """Settings as plain values for JSON, with the sampler's name."""
    values = {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(sampler).items()}
    return {"name": sampler.name, **values}


def from_dict(values: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """The inverse of `to_dict`. Unknown names and fields are errors."""
    values = dict(values)
    name = str(values.pop("name", None))
    if name not in SAMPLERS:
        raise ValueError(f"there is no sampler called {name} (choose from {', '.join(SAMPLERS)})")
    cls = SAMPLERS[name]
    known = [each.name for each in fields(cls)]
    if unknown := sorted(values.keys() - set(known)):
        raise ValueError(f"{name} has no setting {', '.join(unknown)} (its settings are {', '.join(known)})")
    try:
        return cls(**{key: tuple(value) if isinstance(value, list) else value for key, value in values.items()})
    except (TypeError, OverflowError) as error:  # a missing setting, or a value of a wrong type or beyond all numbers
        raise ValueError(f"wrong settings for {name}: {error}") from None


def options(cls: type[Any]) -> dict[str, tuple[Any, str]]:
    """The settings of a class that a user may give as options: their types, without None, and help texts, by name."""
    from typing import get_type_hints

    hints = get_type_hints(cls)
    found = {each.name: each.metadata["help"] for each in fields(cls) if "help" in each.metadata}
    return {name: (_without_none(hints[name]), text) for name, text in found.items()}


def _without_none(hint: Any) -> Any:  # noqa: ANN401
    """int for int | None; any other type as it is."""
    from typing import get_args

    *kinds, last = get_args(hint) or (hint,)
    return kinds[0] if kinds and last is type(None) else hint


def changed(
    sampler: Any,  # noqa: ANN401
    values: Mapping[str, Any],
    *,
    name: str | None = None,
    accepted: NoiseLevels | None = None,
) -> Any:  # noqa: ANN401
    """The sampler with other settings, or another sampler of that name. None keeps a setting.

    `accepted` says which noise levels the network takes; by default those of the sampler's own schedule.
    """
    given = {key: value for key, value in values.items() if value is not None}
    if accepted is None:
        accepted = NoiseLevels(sampler.sigmas[-1], sampler.sigmas[0], tuple(sampler.sigmas))
    if name is not None and name != sampler.name:
        sampler = _new(name, accepted)
    known = list(dict.fromkeys([*options(type(sampler)), *(["calls"] if hasattr(sampler, "changed") else [])]))
    if foreign := sorted(given.keys() - set(known)):
        raise ValueError(f"{sampler.name} has no setting {', '.join(foreign)} (its settings are {', '.join(known)})")
    if given:
        sampler = sampler.changed(given) if hasattr(sampler, "changed") else replace(sampler, **given)
    return sampler.scheduled(accepted) if hasattr(sampler, "scheduled") else sampler


def _new(name: str, accepted: NoiseLevels) -> Any:  # noqa: ANN401
    """The sampler of that name with its usual settings, on the levels of the network if it needs a schedule.

    In a range the levels are as near to each other as the paper's, 10 for a factor of 100. The step size of annealed
    Langevin dynamics is the paper's for these levels, 0.2 σ_L².
    """
    if name in SAMPLERS and hasattr(SAMPLERS[name], "scheduled"):
        return SAMPLERS[name]()
    levels = 1 + math.ceil(9 * math.log(accepted.high / accepted.low) / math.log(100) - 1e-9)
    sigmas = accepted.listed or spaced(accepted.high, accepted.low, levels, rho=math.inf)
    sampler = from_dict({"name": name, "sigmas": list(sigmas)})
    if isinstance(sampler, AnnealedLangevin):
        sampler = replace(sampler, step_size=float(f"{0.2 * sigmas[-1] ** 2:g}"))
    return sampler


def with_denoising(sampler: Any, denoise: bool) -> Any:  # noqa: ANN401
    """The sampler with or without a last denoising step; as it is where it has no such setting."""
    return replace(sampler, denoise=denoise) if "denoise" in options(type(sampler)) else sampler
