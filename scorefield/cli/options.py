"""The options of all commands that sample a model. The sampler's own settings come from its class."""

from __future__ import annotations

from dataclasses import dataclass, make_dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from scorefield import samplers
from scorefield.cli.app import Device, Flag, check_seed, say

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
    weights: Literal["raw", "ema"] | None = None
    """The raw weights or their moving average. None: the average if the model has one."""
    device: Device = "auto"
    precision: Literal["auto", "float32"] = "auto"
    """Precision of the network's arithmetic; auto is float16 with fused kernels on GPUs. Images are float32."""

    def check(self, *, least: int = 1) -> None:
        """Raise an error for a wrong value. `least` is the smallest number of samples allowed."""
        if not least <= self.n <= MOST or self.batch_size < 1:
            bounds = f"-n must be from {least} to {MOST:,}, --batch-size at least 1"
            raise ValueError(f"{bounds}; got {self.n} and {self.batch_size}")
        check_seed(self.seed)

    @property
    def given(self) -> dict[str, Any]:
        """The sampler's settings that were given on the command line."""
        values = {name: getattr(self, name) for name in SETTINGS}
        return {name: value for name, value in values.items() if value is not None and value is not False}

    def sampler_for(self, model: Model) -> Any:  # noqa: ANN401
        """The model's default sampler with the settings that were given."""
        return samplers.changed(model.sampler, self.given, name=getattr(self, "sampler"))  # noqa: B009

    def check_unused(self, what: str, other: str) -> None:
        """Raise an error for options that apply to models only, where images are measured."""
        names = [*self.given, *(name for name in ("sampler", "weights") if getattr(self, name) is not None)]
        if names:
            flags = ", ".join(f"--{name.replace('_', '-')}" for name in names)
            verb = "applies" if len(names) == 1 else "apply"
            raise ValueError(f"{flags} {verb} only to models; {what!r} is images" + (f" ({other})" if other else ""))


def _settings() -> dict[str, tuple[Any, Any]]:
    """The settings of all samplers as options: types and defaults, by name."""
    found: dict[str, tuple[Any, Any]] = {}
    for cls in samplers.SAMPLERS.values():
        for name, (kind, text) in samplers.options(cls).items():
            if kind is bool:
                found.setdefault(name, (Annotated[Flag, tyro.conf.arg(help=text)], False))
            else:
                help_ = tyro.conf.arg(help=f"{text} None: the model's own.")
                found.setdefault(name, (Annotated[kind | None, help_], None))
    return found


SETTINGS = _settings()
if TYPE_CHECKING:
    Sampling = _Sampling
else:
    _name = Annotated[
        Literal[tuple(samplers.SAMPLERS)] | None, tyro.conf.arg(help="The sampler. None: the model's own.")
    ]
    _fields = [("sampler", _name, None), *((name, *option) for name, option in SETTINGS.items())]
    Sampling = make_dataclass(
        "Sampling", _fields, bases=(_Sampling,), frozen=True, namespace={"__doc__": _Sampling.__doc__}
    )

SamplingOptions = tyro.conf.OmitArgPrefixes[Sampling]


def note_shortfall(sampler: Any, model: Model, group: Group) -> None:  # noqa: ANN401
    """Print a note if the sampler's settings go much less far than the model's own."""
    same = type(sampler) is type(model.sampler) and hasattr(sampler, "shortfall")
    if group.main and same and (message := sampler.shortfall(model.sampler)):
        say(f"note: {message}")
