"""The settings of the samplers that walk along a path of noise levels down to 0: one frozen dataclass for each.

    model.sample(8, sampler=Heun(calls=18))                # the schedule follows from what the model accepts
    model.sample(8, sampler=Heun(sigmas=(80, 5, 0.1)))     # a schedule of one's own; the 0 at its end is added

A network that accepts all σ from σ_min to σ_max gets a schedule with as many levels as `calls` allows. One that knows a
list of levels, like the paper's, is asked for these alone: samplers that make one step from each level take all or some
of them, and the others make more updates at each.

Like `settings`, this module does not import PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from scorefield.samplers.checks import (
    MOST_CALLS,
    check_calls,
    check_churn,
    check_corrector,
    check_count,
    check_fresh,
    check_leapfrog_size,
    check_order,
    check_taken,
)
from scorefield.samplers.settings import NoiseLevels, option, register
from scorefield.spacing import check_rho, spaced

if TYPE_CHECKING:
    from torch import Tensor

    from scorefield.noise import RandnLike, SampleNoise
    from scorefield.samplers.base import Constraint, State
    from scorefield.score import Score

P = TypeVar("P", bound="PathSampler")
K = TypeVar("K", bound="CountedSampler")

SPACING = "How the noise levels are spaced: karras (evenly in σ^(1/ρ)) or geometric (evenly in log σ)."
RESTORING, CHURN = 35, 8.0
"""The usual number of network calls of a restoration, and its churn."""
COUNTED = "By default 1, or as many as the calls allow where the model knows a list of levels."


@dataclass(frozen=True, kw_only=True)
class PathSampler:
    """What the samplers below share."""

    name: ClassVar[str]
    usual_calls: ClassVar[int]

    calls: int | None = option(None, "The most network calls per image. The noise schedule follows from it.")
    sigmas: tuple[float, ...] = ()
    """The noise schedule without its final 0; empty until a model is sampled."""
    schedule: Literal["karras", "geometric"] = option("karras", SPACING)
    rho: float = option(7.0, "ρ of the karras schedule. A larger one makes shorter steps at small σ.")

    def __post_init__(self) -> None:
        sigmas = tuple(map(float, self.sigmas))
        object.__setattr__(self, "sigmas", sigmas)
        if self.calls is not None:
            check_calls(self.calls)
        if self.schedule not in ("karras", "geometric"):
            raise ValueError(f"schedule must be karras or geometric; got {self.schedule!r}")
        check_rho(self.rho)
        if not sigmas:
            return
        if not all(a > b for a, b in pairwise(sigmas)) or not 0 < sigmas[-1] <= sigmas[0] < math.inf:
            raise ValueError(
                f"sigmas must be positive, finite and decreasing; got {list(sigmas)} (0 is added at the end)"
            )
        made = self._calls(len(sigmas))
        if self.calls not in (None, made):
            raise ValueError(f"{len(sigmas)} sigmas make {made} calls; got calls={self.calls} (leave one of them out)")
        if made > MOST_CALLS:
            raise ValueError(
                f"these settings make {made:,} calls per image, more than {MOST_CALLS:,} (choose smaller ones)"
            )
        object.__setattr__(self, "calls", made)

    @property
    def updates(self) -> int:
        return self._updates(len(self._path()) - 1)

    def start(self, noise: SampleNoise, shape: tuple[int, ...]) -> Tensor:
        """Gaussian noise of the first level around grey, 0.5."""
        return 0.5 + self._path()[0] * noise.randn(shape)

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

        return self._function()(
            score,
            x,
            self._path(),
            constraint=constraint or unconstrained,
            randn_like=randn_like or torch.randn_like,
            **self._arguments(),
        )

    def scheduled(self: P, accepted: NoiseLevels) -> P:
        """The same sampler with the noise schedule for a network that accepts these levels."""
        if self.sigmas:
            accepted.check(self.sigmas)
            return self
        if accepted.listed:
            chosen = self._for_list(len(accepted.listed))
            levels = chosen._most_levels(len(accepted.listed))
            return replace(chosen, calls=None, sigmas=spread(accepted.listed, levels))
        levels = self._most_levels(None)
        low = accepted.high if levels == 1 else accepted.low
        rho = self.rho if self.schedule == "karras" else math.inf
        return replace(self, calls=None, sigmas=spaced(accepted.high, low, levels, rho=rho))

    def changed(self: P, given: Mapping[str, Any]) -> P:
        """The same sampler with other settings. A number of calls or a spacing asks for a new schedule."""
        new = {"calls", "schedule", "rho"} & given.keys()
        return replace(self, **({"sigmas": ()} if new else {"calls": None}), **given)

    def _path(self) -> tuple[float, ...]:
        if not self.sigmas:
            raise ValueError(
                f"{type(self).__name__} has no noise schedule yet (sample a model with it, or pass sigmas=...)"
            )
        return (*self.sigmas, 0.0)

    def _most_levels(self, known: int | None) -> int:
        """The number of noise levels that `calls` allows. A network that knows a list of levels may have too few."""
        first, second = self._calls(1), self._calls(2)
        calls = self.calls if self.calls is not None else self.usual_calls if known is None else self._calls(known)
        if calls < first:
            raise ValueError(
                f"{self.name} needs at least {first:,} calls with these settings; got calls={calls} (give more)"
            )
        levels = 1 + (calls - first) // (second - first)
        if known is not None and levels > known:
            raise ValueError(
                f"the model knows {known} noise levels, with which {self.name} makes at most {self._calls(known)} "
                f"calls; got calls={calls} ({self._cure()})"
            )
        return levels

    def _for_list(self: P, known: int) -> P:
        """The same sampler with a count of updates at each level that suits a list of so many levels."""
        return self

    def _cure(self) -> str:
        return "ask for fewer, or use annealed_langevin, predictor_corrector or consistent_annealed"

    def _calls(self, levels: int) -> int:
        """Network calls with so many levels and a step from the last one to 0."""
        raise NotImplementedError

    def _updates(self, levels: int) -> int:
        return self._calls(levels)

    def _function(self) -> Callable[..., Iterator[State]]:
        """The generator function, which has the sampler's name."""
        from scorefield import samplers

        function: Callable[..., Iterator[State]] = getattr(samplers, self.name)
        return function

    def _arguments(self) -> dict[str, Any]:
        """Settings that the function takes."""
        return {}


@dataclass(frozen=True, kw_only=True)
class FlowSampler(PathSampler):
    """What the deterministic samplers share."""

    resample: int = option(1, "Make every step this many times, with its noise added again in between: for inpainting.")

    def __post_init__(self) -> None:
        check_count("resample", self.resample)
        super().__post_init__()

    def _calls(self, levels: int) -> int:
        return levels * self.resample

    def _updates(self, levels: int) -> int:
        return levels * (2 * self.resample - 1)

    def _arguments(self) -> dict[str, Any]:
        return {"resample": self.resample}


@register
@dataclass(frozen=True, kw_only=True)
class Euler(FlowSampler):
    """The probability flow by Euler's method, one call a step. Also known as DDIM."""

    name: ClassVar[str] = "euler"
    usual_calls: ClassVar[int] = 50


@register
@dataclass(frozen=True, kw_only=True)
class Heun(FlowSampler):
    """The probability flow by Heun's method (Karras et al. 2022), two calls a step, with fresh noise if churn > 0."""

    name: ClassVar[str] = "heun"
    usual_calls: ClassVar[int] = 35

    churn: float = option(0.0, "S_churn of Karras et al.: how much fresh noise is added. 0: none.")
    churn_min: float = option(0.0, "The smallest noise level at which fresh noise is added.")
    churn_max: float = option(
        1e9, "The largest noise level at which fresh noise is added; lowered to what the network accepts."
    )
    churn_noise: float = option(1.0, "The fresh noise is multiplied by this.")

    def __post_init__(self) -> None:
        check_churn(self.churn, self.churn_min, self.churn_max, self.churn_noise)
        super().__post_init__()

    def scheduled(self, accepted: NoiseLevels) -> Heun:
        """With the noise schedule, and with churn_max so low that no level is raised above what the network accepts."""
        found = super().scheduled(accepted)
        gamma = min(self.churn / len(found.sigmas), math.sqrt(2) - 1)
        if gamma and accepted.listed:
            raise ValueError("churn needs a network for all noise levels; this one knows a list of them (churn 0)")
        highest = accepted.high / (1 + gamma)
        raised = [s for s in found.sigmas if self.churn_min <= s <= self.churn_max]
        if not gamma or not raised or raised[0] <= highest:
            return found
        if self.churn_min > highest:
            raise ValueError(
                f"churn raises the noise by a factor of {1 + gamma:.4g}, and the network accepts up to "
                f"{accepted.high:g}; got churn_min={self.churn_min:g} (choose one below {highest:.4g})"
            )
        return replace(found, churn_max=highest)

    def _calls(self, levels: int) -> int:
        return (2 * levels - 1) * self.resample

    def _arguments(self) -> dict[str, Any]:
        names = ("churn", "churn_min", "churn_max", "churn_noise")
        return super()._arguments() | {name: getattr(self, name) for name in names}


@register
@dataclass(frozen=True, kw_only=True)
class DPMpp2M(FlowSampler):
    """DPM-Solver++(2M) of Lu et al. (2022), one call a step."""

    name: ClassVar[str] = "dpmpp_2m"
    usual_calls: ClassVar[int] = 20

    schedule: Literal["karras", "geometric"] = option("geometric", SPACING)


@register
@dataclass(frozen=True, kw_only=True)
class DPMpp3M(FlowSampler):
    """DPM-Solver++(3M) of Lu et al. (2022), one call a step."""

    name: ClassVar[str] = "dpmpp_3m"
    usual_calls: ClassVar[int] = 20

    schedule: Literal["karras", "geometric"] = option("geometric", SPACING)


@register
@dataclass(frozen=True, kw_only=True)
class AdamsBashforth(FlowSampler):
    """The probability flow by Adams and Bashforth's method, one call a step. Also known as LMS and iPNDM."""

    name: ClassVar[str] = "adams_bashforth"
    usual_calls: ClassVar[int] = 20

    order: int = option(4, "The order of the method, 1 to 4. The first steps have lower orders.")

    def __post_init__(self) -> None:
        check_order(self.order)
        super().__post_init__()

    def _arguments(self) -> dict[str, Any]:
        return super()._arguments() | {"order": self.order}


@register
@dataclass(frozen=True, kw_only=True)
class Ancestral(PathSampler):
    """Ancestral sampling: the reverse of adding noise step by step, one call a step."""

    name: ClassVar[str] = "ancestral"
    usual_calls: ClassVar[int] = 100

    eta: float = option(1.0, "How much of the noise of each step is fresh, from 0 to 1.")

    def __post_init__(self) -> None:
        check_fresh(self.eta)
        super().__post_init__()

    def _calls(self, levels: int) -> int:
        return levels

    def _arguments(self) -> dict[str, Any]:
        return {"eta": self.eta}


@dataclass(frozen=True, kw_only=True)
class CountedSampler(PathSampler):
    """What the samplers share that make several updates at each level: as many as the setting called `counted`."""

    counted: ClassVar[str] = "steps"
    least: ClassVar[int] = 1

    schedule: Literal["karras", "geometric"] = option("geometric", SPACING)

    def __post_init__(self) -> None:
        if (given := getattr(self, self.counted)) is not None:
            check_count(self.counted, given, least=self.least)
        super().__post_init__()

    @property
    def _count(self) -> int:
        given = getattr(self, self.counted)
        return 1 if given is None else int(given)

    def _for_list(self: K, known: int) -> K:
        """With as many updates at each level as the calls allow, unless their number is given."""
        if getattr(self, self.counted) is not None:
            return self
        first, second = (self._with(self.least + k)._calls(known) for k in (0, 1))
        extra = max(((self.calls or self.usual_calls) - first) // (second - first), 0)
        chosen = self._with(self.least + extra)
        return replace(chosen, calls=self.calls and min(self.calls, chosen._calls(known)))

    def _with(self: K, count: int) -> K:
        changes: dict[str, Any] = {self.counted: count}
        return replace(self, **changes)

    def _cure(self) -> str:
        return f"ask for fewer, or for more {self.counted}"


@register
@dataclass(frozen=True, kw_only=True)
class PredictorCorrector(CountedSampler):
    """Reverse diffusion with Langevin corrections at each level (Song et al. 2021)."""

    name: ClassVar[str] = "predictor_corrector"
    usual_calls: ClassVar[int] = 200
    counted: ClassVar[str] = "corrections"
    least: ClassVar[int] = 0

    corrections: int | None = option(None, "Langevin steps at each noise level. " + COUNTED)
    snr: float = option(0.16, "r, the signal-to-noise ratio that sets the size of these steps.")
    norms: Literal["expected", "measured"] = option(
        "expected", "Whether that takes |z|/|s| to be σ, or measures it for each image as the paper does."
    )

    def __post_init__(self) -> None:
        check_corrector(self.snr, self.norms)
        super().__post_init__()

    def _calls(self, levels: int) -> int:
        return levels * (1 + self._count)

    def _arguments(self) -> dict[str, Any]:
        return {"corrections": self._count, "snr": self.snr, "norms": self.norms}


@register
@dataclass(frozen=True, kw_only=True)
class ConsistentAnnealed(CountedSampler):
    """Consistent annealed sampling (Jolicoeur-Martineau et al. 2021): no more noise than the level says."""

    name: ClassVar[str] = "consistent_annealed"
    usual_calls: ClassVar[int] = 200

    steps: int | None = option(None, "Updates at each noise level. " + COUNTED)
    eta: float | None = option(None, "η, the share of the noise that each update takes away.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.eta is not None:
            check_taken(self.eta, self.sigmas)

    def _calls(self, levels: int) -> int:
        return levels * self._count

    def _arguments(self) -> dict[str, Any]:
        return {"steps": self._count, "eta": self.eta or self._usual_eta()}

    def _usual_eta(self) -> float:
        """1.5 times the least η that reaches the next level; 1 with several updates at each level.

        The latter made the best digits with the paper's network.
        """
        ratio = max((b / a for a, b in pairwise(self.sigmas)), default=0.5)
        return 1.0 if self._count > 1 else min(1.5 * (1 - ratio), 1.0)


@register
@dataclass(frozen=True, kw_only=True)
class AnnealedHMC(CountedSampler):
    """Hamiltonian dynamics at each noise level."""

    name: ClassVar[str] = "annealed_hmc"
    usual_calls: ClassVar[int] = 1000

    steps: int | None = option(None, "Trajectories at each noise level. " + COUNTED)
    leapfrog: int = option(5, "Leapfrog steps of each trajectory, one network call each.")
    leapfrog_size: float = option(0.5, "The size of a leapfrog step as a multiple of σ; it must be below 2.")

    def __post_init__(self) -> None:
        check_count("leapfrog", self.leapfrog)
        check_leapfrog_size("leapfrog_size", self.leapfrog_size)
        super().__post_init__()

    def _calls(self, levels: int) -> int:
        return levels * self._count * self.leapfrog + 1

    def _updates(self, levels: int) -> int:
        return levels * self._count + 1

    def _arguments(self) -> dict[str, Any]:
        return {"steps": self._count, "leapfrog": self.leapfrog, "step_size": self.leapfrog_size}


def spread(levels: tuple[float, ...], n: int) -> tuple[float, ...]:
    """n of the levels, evenly spread, the first and (of two or more) the last among them."""
    return tuple(levels[round(k * (len(levels) - 1) / max(n - 1, 1))] for k in range(n))


def for_restoring(own: Any, accepted: NoiseLevels) -> Any:  # noqa: ANN401
    """The usual sampler of restorations by a model with this sampler and these noise levels: one with fresh noise, in
    place of one that follows the probability flow.

    The score of a posterior is only roughly right at high noise levels. The flow keeps the errors that come of it, and
    fresh noise lets later steps mend them (docs/measurements/restoring_samplers.json). `ancestral` does that too, but
    as a method of order 1 it draws too little spread with so few calls.
    """
    noisy = not isinstance(own, FlowSampler) or (isinstance(own, Heun) and own.churn)
    if accepted.listed or noisy:
        return own
    # fresh noise below half of the largest σ, as in the measurement
    return Heun(calls=RESTORING, churn=CHURN, churn_max=accepted.high / 2)
