"""Small model files to share: one set of weights, in 16 bit, and nothing of the machine on which it was trained."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from scorefield.models.checkpoint import Weights, held_by, read_model, recipe_from_json, write
from scorefield.data.named import name_alone
from scorefield.models.recipes import Recipe
from scorefield.models.pretrained import shipped_models
from scorefield.version import __version__

Precision = Literal["float16", "float32"]


@dataclass(frozen=True)
class Exported:
    """What an export wrote."""

    held: tuple[Weights, ...]
    size: int
    """Bytes."""
    change: float
    """The largest of all tensors' ‖rounded − exact‖ / ‖exact‖."""


def export(
    model: str | Path, out: Path, *, weights: Weights | Literal["both"] | None = None, precision: Precision = "float16"
) -> Exported:
    """A model file with these weights of the model; by default those that `load` would choose.

    float16 rather than bfloat16: weights are far from its largest number, and it has three more bits.
    """
    path, tensors, metadata = read_model(model)
    held = held_by(tensors)
    wanted = held if weights == "both" else (weights or held[-1],)
    if not set(wanted) <= set(held) or (weights == "both" and len(held) < 2):
        raise ValueError(f"{path} holds {' and '.join(held)} weights; got weights={weights}")
    exact = {name: value for name, value in tensors.items() if name.startswith(tuple(f"{kind}/" for kind in wanted))}
    kept = {name: _rounded(name, value, precision) for name, value in exact.items()}
    write(out, kept, {**_without_paths(metadata), "weights": ", ".join(wanted), "stored": precision})
    return Exported(wanted, out.stat().st_size, max(_change(value, kept[name]) for name, value in exact.items()))


def _rounded(name: str, value: Tensor, precision: Precision) -> Tensor:
    """The noise levels stay as they are, because a network looks its levels up in them."""
    if name.endswith("/sigmas"):
        return value
    rounded = value.to(getattr(torch, precision))
    if not rounded.isfinite().all():
        limit = torch.finfo(torch.float16).max
        raise ValueError(
            f"{name} holds {value.abs().max():g}, and {precision} reaches to {limit:g} (--precision float32)"
            if value.isfinite().all()
            else f"{name} holds values that are not finite (take another checkpoint)"
        )
    return rounded


def _change(exact: Tensor, rounded: Tensor) -> float:
    """‖rounded − exact‖ / ‖exact‖; 0 for a tensor of zeros."""
    size = exact.double().norm()
    return ((rounded.double() - exact.double()).norm() / size).item() if size else 0.0


def published(recipe: Recipe) -> dict[str, Any]:
    """A recipe's settings without places of this machine: of the folders or files that the data and the first weights
    came from, the names alone (./NAME for what is not the shipped model of that name). No word of first weights where
    there were none: reports from before there were any stay comparable, and older software can read such files."""
    settings = asdict(recipe) | {"data": name_alone(recipe.data)}
    start = settings.pop("start")
    if start is None:
        return settings
    alone = name_alone(start)
    return {**settings, "start": f"./{alone}" if alone != start and alone in shipped_models() else alone}


def _without_paths(metadata: Mapping[str, str]) -> dict[str, str]:
    """All that a file says of itself, as it may be published."""
    facts = {name: value for name, value in metadata.items() if name not in ("sha256", "format")}
    recipe = recipe_from_json(metadata["recipe"])
    facts |= {"version": __version__, "recipe": json.dumps(published(recipe))}
    return facts | ({"data": name_alone(metadata["data"])} if "data" in metadata else {})
