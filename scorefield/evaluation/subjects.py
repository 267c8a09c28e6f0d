"""What is measured, and what it is measured against."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from scorefield import data
from scorefield.checkpoint import Model, Weights, load
from scorefield.data import Images
from scorefield.data.named import SETS
from scorefield.distributed import Group
from scorefield.evaluation.features import Extractor, Rows
from scorefield.evaluation.pool import How, Pool
from scorefield.evaluation.reference import Reference, is_statistics_file, reference_of, statistics_file
from scorefield.progress import Track, silent
from scorefield.runs.train import data_of

HELD_OUT = 1000
"""Images of a test split that the objective and the memorisation report use, at most."""


def model_of(name: str, *, weights: Weights | None, device: torch.device) -> Model | None:
    """The model that is meant: a run folder or a model file; None where the name means images."""
    path = Path(name)
    run = path.is_dir() and ((path / "recipe.json").exists() or (path / "checkpoints").is_dir())
    if not run and path.resolve().suffix != ".safetensors":
        return None
    return load(path, weights=weights, device=device)


def rows_of(
    name: str, model: Model | None, n: int, how: How, group: Group, *, batch_size: int, track: Track[object] = silent
) -> Rows:
    """n samples of the model; or without one, the first n images of that name."""
    if model is not None:
        return Pool(model, how).draw(n, group, batch_size=batch_size, track=track)
    return group.main_first(partial(data.load, name, track=track)).pixels[:n]


def training_images(
    model: Model | None, source: str | None, group: Group, *, track: Track[object] = silent
) -> tuple[Images, Images | None]:
    """(images to compare with, those held out of them, if any): of `source`, or what the model was trained on."""

    def found() -> tuple[Images, Images | None]:
        if model is not None and not model.facts.get("imported_from"):
            recipe = replace(model.recipe, data=source or model.recipe.data)
            return data_of(replace(recipe, held_out=HELD_OUT) if recipe.data in SETS else recipe, track=track)
        if source is None:
            raise ValueError("say what to compare with: --data mnist, say, or --data FOLDER")
        size = model.shape[1:] if model is not None else None
        images = data.load(source, image_size=size, track=track)
        if source not in SETS:
            return images, None
        test = data.load(f"{source}:test", image_size=size, track=track)
        return images, replace(test, pixels=test.pixels[:HELD_OUT])

    return group.main_first(found)


def reference_for(
    model: Model | None, source: str | None, network: Extractor, group: Group, *, track: Track[object] = silent
) -> tuple[Reference, Images | None]:
    """The reference that `training_images` make, or that a statistics file is, and the images held out."""
    if source is not None and is_statistics_file(source):
        return statistics_file(source), None
    images, held_out = training_images(model, source, group, track=track)
    return reference_of(images, network, group, track=track), held_out
