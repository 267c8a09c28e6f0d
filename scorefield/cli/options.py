"""The options of all commands that sample a model. The sampler's own settings come from its class."""

from __future__ import annotations

import math
from dataclasses import dataclass, make_dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from scorefield import samplers
from scorefield.cli.app import Device, Flag, check_seed, plain_help, say

if TYPE_CHECKING:
    from scorefield.distributed import Group
    from scorefield.models.model import Model

MOST = 10_000_000
"""The largest number of samples."""


@dataclass(frozen=True)
class _Sampling:
    """How to sample."""

    n: Annotated[int, tyro.conf.arg(aliases=["-n"])]
    """Number of samples."""
    seed: int = 0
    """Random seed. Image k of a seed is the same, up to rounding, for any n, batch size and number of processes."""
    batch_size: int = 64
    """Number of samples drawn at once."""
    weights: str | None = None
    """Raw weights (raw), their moving average (ema), or another average of the model, such as ema-0.1. Default: ema if
    the model has it."""
    device: Device = "auto"
    precision: Literal["auto", "float32"] = "auto"
    """Precision of the network's arithmetic; auto is float16 with fused kernels on GPUs. Images are float32."""
    label: Annotated[str | None, tyro.conf.arg(metavar="NAME|NUMBER|none")] = None
    """The class to sample, for models with classes, or none for no class. Default: a random class each."""
    guidance: Annotated[float, tyro.conf.arg(metavar="W")] = 0.0
    """Weight w of guidance towards the class, s₁ + w (s₁ − s₀). All but 0 double the cost of each network call."""

    quick: Flag = False
    """A quarter of the model's steps, each four times as long, as on the web page: slightly worse images."""

    def check(self, *, least: int = 1) -> None:
        """Raise an error for a wrong value. `least` is the smallest number of samples allowed."""
        if not least <= self.n <= MOST:
            raise ValueError(f"-n must be from {least} to {MOST:,}; got {self.n}")
        if self.batch_size < 1:
            raise ValueError(f"--batch-size must be at least 1; got {self.batch_size}")
        check_seed(self.seed)
        check_guidance(self.guidance)
        if self.quick and (given := [name for name in ("steps", "step_size") if name in self.given]):
            flags = " and ".join(f"--{name.replace('_', '-')}" for name in given)
            raise ValueError(
                f"--quick chooses the steps and their size; got {flags} as well (leave out one or the other)"
            )

    @property
    def given(self) -> dict[str, Any]:
        """The sampler's settings that were given on the command line."""
        values = {name: getattr(self, name) for name in SETTINGS}
        return {name: value for name, value in values.items() if value is not None and value is not False}

    def sampler_for(self, model: Model, usual: Any = None) -> Any:  # noqa: ANN401
        """The sampler that was named, or else the usual one, by default the model's own; with the settings that were
        given."""
        name = getattr(self, "sampler")  # noqa: B009
        base = model.sampler if usual is None or name is not None else usual
        sampler = samplers.changed(base, self.given, name=name, accepted=model.accepted)
        if not self.quick:
            return sampler
        if not hasattr(sampler, "at_pace"):
            raise ValueError(f"--quick does not apply to the sampler {sampler.name} (choose its settings yourself)")
        return sampler.at_pace(samplers.PACES["quick"])

    def label_for(self, model: Model) -> str | int | None:
        """The class that was given, by its name if there is one of that name, or else by its number."""
        from scorefield.models.model import parse_label

        return parse_label(model.labels, self.label)

    def check_unused(self, what: str, other: str) -> None:
        """Raise an error for options that apply to models only, where images are measured."""
        others = {"quick": self.quick, "sampler": getattr(self, "sampler"), "weights": self.weights}  # noqa: B009
        others |= {"label": self.label, "guidance": self.guidance}
        names = [*self.given, *(name for name, value in others.items() if value)]
        if names:
            flags = ", ".join(f"--{name.replace('_', '-')}" for name in names)
            verb = "applies" if len(names) == 1 else "apply"
            raise ValueError(f"{flags} {verb} only to models; {what!r} is images" + (f" ({other})" if other else ""))


def _settings() -> dict[str, tuple[Any, Any]]:
    """The settings of all samplers as options: types and defaults, by name. Each says to which samplers it applies."""
    kinds: dict[str, Any] = {}
    texts: dict[str, dict[str, list[str]]] = {}
    for sampler, cls in samplers.SAMPLERS.items():
        for name, (kind, text) in samplers.options(cls).items():
            kinds.setdefault(name, kind)
            texts.setdefault(name, {}).setdefault(text, []).append(sampler)
    return {name: _option(kind, texts[name]) for name, kind in kinds.items()}


def _option(kind: Any, texts: dict[str, list[str]]) -> tuple[Any, Any]:  # noqa: ANN401
    """The type and the default of an option with these help texts, each for some samplers."""
    text = " ".join(each if _common(names) else f"{', '.join(names)}: {each}" for each, names in texts.items())
    if kind is bool:
        return Annotated[Flag, tyro.conf.arg(help=text)], False
    return Annotated[kind | None, tyro.conf.arg(help=f"{text} Default: the sampler's own.")], None


def _common(names: list[str]) -> bool:
    """Whether these are so many samplers that it is not worth naming them."""
    return len(names) >= len(samplers.SAMPLERS) - 1


SETTINGS = _settings()
if TYPE_CHECKING:
    SamplerName = str
    Sampling = _Sampling
else:
    SamplerName = Literal[tuple(samplers.SAMPLERS)]
    _name = Annotated[
        SamplerName | None,
        tyro.conf.arg(
            help="The sampler. Default: the model's own; to restore with a U-Net for all noise levels, heun --churn 8."
        ),
    ]
    _fields = [("sampler", _name, None), *((name, *option) for name, option in SETTINGS.items())]
    Sampling = plain_help(
        make_dataclass("Sampling", _fields, bases=(_Sampling,), frozen=True, namespace={"__doc__": _Sampling.__doc__})
    )

SamplingOptions = tyro.conf.OmitArgPrefixes[Sampling]


def check_guidance(guidance: float) -> None:
    if not math.isfinite(guidance):
        raise ValueError(f"--guidance must be finite; got {guidance} (0 is no guidance)")


def note_guidance(guidance: float, group: Group) -> None:
    """Print a note on what guidance costs."""
    if guidance and group.main:
        say("note: with guidance each network call is for twice as many images, and takes about twice as long")


def note_shortfall(sampler: Any, model: Model, group: Group) -> None:  # noqa: ANN401
    """Print a note if the sampler's settings go much less far than the model's own."""
    same = type(sampler) is type(model.sampler) and hasattr(sampler, "shortfall")
    if group.main and same and (message := sampler.shortfall(model.sampler)):
        say(f"note: {message}")
