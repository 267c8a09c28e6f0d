"""Small model files to share: one set of weights, in 16 bit, and no path of the machine that trained it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from scorefield.data.named import short_name
from scorefield.models.checkpoint import write
from scorefield.models.model import Weights, held_weights, parse_header, read_model, usual_weights
from scorefield.models.pretrained import is_pretrained
from scorefield.models.recipes import LATER, Recipe
from scorefield.samplers import Sampler, to_dict
from scorefield.version import __version__

Precision = Literal["float16", "float32"]


@dataclass(frozen=True)
class Exported:
    """What an export wrote."""

    held: tuple[Weights, ...]
    size: int
    """Size of the file in bytes."""
    change: float
    """The largest relative rounding error ‖rounded − exact‖ / ‖exact‖ of a tensor."""


def export(
    model: str | Path,
    out: Path,
    *,
    weights: Weights | None = None,
    precision: Precision = "float16",
    sampler: Sampler | None = None,
) -> Exported:
    """Write a model file with these weights of the model; by default those that `load` would choose; "both" for
    all. `sampler` becomes its default sampler.

    float16 rather than bfloat16: weights are far below its largest number, and it has three more bits.
    """
    path, tensors, metadata = read_model(model)
    recipe, held = parse_header(metadata, path).recipe, held_weights(tensors, path)
    wanted = held if weights == "both" else (weights or usual_weights(held),)
    if not set(wanted) <= set(held) or (weights == "both" and len(held) < 2):
        raise ValueError(
            f"{path} holds {' and '.join(held)} weights; got weights={weights} (choose from what it holds)"
        )
    exact = {name: value for name, value in tensors.items() if name.startswith(tuple(f"{kind}/" for kind in wanted))}
    kept = {name: _rounded(name, value, precision) for name, value in exact.items()}
    about = {**_without_paths(metadata, recipe), "weights": ", ".join(wanted), "stored": precision}
    if sampler is not None:
        about["sampler"] = json.dumps(to_dict(sampler))
    write(out, kept, about)
    return Exported(wanted, out.stat().st_size, max(_change(value, kept[name]) for name, value in exact.items()))


def _rounded(name: str, value: Tensor, precision: Precision) -> Tensor:
    """Noise levels keep their precision, because a network looks its levels up in them; whole numbers stay whole."""
    if name.endswith("/sigmas") or not value.is_floating_point():
        return value
    rounded = value.to(getattr(torch, precision))
    if not rounded.isfinite().all():
        limit = torch.finfo(torch.float16).max
        raise ValueError(
            f"{name} holds {value.abs().max():g}, and the largest {precision} number is {limit:g} (--precision float32)"
            if value.isfinite().all()
            else f"{name} holds values that are not finite (choose another checkpoint)"
        )
    return rounded


def _change(exact: Tensor, rounded: Tensor) -> float:
    """‖rounded − exact‖ / ‖exact‖; 0 for a tensor of zeros."""
    size = exact.double().norm()
    return ((rounded.double() - exact.double()).norm() / size).item() if size else 0.0


def published(recipe: Recipe) -> dict[str, Any]:
    """A recipe's settings as JSON has them, without paths of this machine: the data and the starting weights are given
    by name only, as ./NAME where another pretrained model has that name. A recipe without starting weights does not
    mention them, nor settings that older versions did not have where they have their defaults."""
    usual = Recipe()
    settings: dict[str, Any] = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in asdict(recipe).items()
        if name not in LATER or value != getattr(usual, name)
    }
    settings["data"] = short_name(recipe.data)
    start = settings.pop("start")
    if start is None:
        return settings
    alone = short_name(start)
    return {**settings, "start": f"./{alone}" if alone != start and is_pretrained(alone) else alone}


def _without_paths(metadata: Mapping[str, str], recipe: Recipe) -> dict[str, str]:
    """A file's metadata as they may be published."""
    kept = {name: value for name, value in metadata.items() if name not in ("sha256", "format")}
    kept |= {"version": __version__, "recipe": json.dumps(published(recipe))}
    return kept | ({"data": short_name(metadata["data"])} if "data" in metadata else {})
