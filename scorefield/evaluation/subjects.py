"""What is measured, and what it is measured against."""

from __future__ import annotations

import hashlib
import warnings
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from scorefield import data
from scorefield.models.checkpoint import Model, Weights, load
from scorefield.data import Images
from scorefield.data.images import Pixels
from scorefield.data.named import SETS
from scorefield.distributed import Group
from scorefield.evaluation.features import Extractor, Rows, places_of
from scorefield.evaluation.reference import Reference, is_statistics_file, reference_of, statistics_file
from scorefield.progress import Track, silent
from scorefield.training.run import data_of
from scorefield.models.pretrained import PREFIX, listed, shipped_models

HELD_OUT = 1000
"""Images of a test split that the objective and the memorisation report use, at most."""


def model_of(name: str, *, weights: Weights | None, device: torch.device) -> Model | None:
    """The model that is meant: a run folder, a model file or a shipped model; None where the name means images.

    mnist is the data set, and model:mnist the shipped model of that name.
    """
    path = Path(name)
    run = path.is_dir() and ((path / "recipe.json").exists() or (path / "checkpoints").is_dir())
    file = path.is_file() and path.resolve().suffix in (".safetensors", "")
    images = data.exists(name)
    if run or file or name.startswith(PREFIX) or (not images and name in shipped_models()):
        return load(name, weights=weights, device=device)
    if not images:
        raise ValueError(
            f"{name!r} does not exist: no model, no images ({listed()}; data sets: {', '.join(SETS)}; or name a path)"
        )
    return None


def rows_of(name: str, n: int, group: Group, *, track: Track[object] = silent) -> Rows:
    """n images of that source, drawn at random, or all if they are fewer."""
    pixels = group.main_first(partial(data.load, name, track=track)).pixels
    return pixels if n >= len(pixels) else Chosen(pixels, (places_of(len(pixels)) < n).nonzero().flatten().numpy())


class Chosen:
    """Some of the rows of an array or memory map, read as they are asked for."""

    def __init__(self, pixels: Pixels, numbers: NDArray[np.int64]) -> None:
        self.pixels, self.numbers = pixels, numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, part: slice) -> Pixels:
        return self.pixels[self.numbers[part]]


def training_images(
    model: Model | None, source: str | None, group: Group, *, track: Track[object] = silent
) -> tuple[Images, Images | None]:
    """(images to compare with, those held out of them, if any): all of `source`; or what the model was trained on,
    where `source` is None or holds just that."""

    def found() -> tuple[Images, Images | None]:
        if source is None:
            if model is None or model.facts.get("imported_from"):
                raise ValueError("say what to compare with (--data with mnist, cifar10, celeba, a folder or an array)")
            return _own(model, track)
        if source in SETS:
            return _fitted(source, model, track), _first(_fitted(f"{source}:test", model, track))
        return _moved(model, source, track) or (_fitted(source, model, track), None)

    return group.main_first(found)


def _fitted(name: str, model: Model | None, track: Track[object]) -> Images:
    """As the training images were; images too small to be cropped are taken for cropped ones."""
    if model is None:
        return data.load(name, track=track)
    load = partial(data.load, name, image_size=model.shape[1:], track=track)
    try:
        return load(crop=model.recipe.crop)
    except ValueError:
        if model.recipe.crop is None:
            raise
        return load()


def whole_test_split(model: Model, source: str | None, group: Group, *, track: Track[object] = silent) -> Images:
    """All test images of the data set that is `source`, or that the model was trained on."""
    name = source or model.recipe.data
    if name not in SETS:
        raise ValueError(f"{name} has no test images ({', '.join(SETS)} have some; or do without the part real)")
    return group.main_first(partial(_fitted, f"{name}:test", model, track))


def _own(model: Model, track: Track[object]) -> tuple[Images, Images | None]:
    """What the model was trained on, and what was held out of it; of a test split, more than training looked at."""
    try:
        images, held_out = data_of(model.recipe, track=track)
    except (ValueError, OSError) as error:
        raise ValueError(f"cannot find what the model was trained on (name it with --data): {error}") from error
    if model.facts.get("data_digest", images.digest) != images.digest:
        warnings.warn(
            f"{images.name} is not what the model was trained on: it has changed since, so that images called held "
            "out may have been trained on",
            stacklevel=2,
        )
    if model.recipe.data in SETS:
        with suppress(FileNotFoundError):
            load = partial(data.load, image_size=model.recipe.image_size, crop=model.recipe.crop, track=track)
            held_out = _first(load(f"{model.recipe.data}:test"))
    return images, held_out


def _moved(model: Model | None, source: str, track: Track[object]) -> tuple[Images, Images | None] | None:
    """What the model was trained on and what was held out of it, if `source` is the place where that lies now."""
    if model is None or "data_digest" not in model.facts or is_statistics_file(source):
        return None
    try:
        images, held_out = data_of(replace(model.recipe, data=source), track=track)
    except (ValueError, OSError):
        return None
    return (images, held_out) if images.digest == model.facts["data_digest"] else None


def _first(images: Images) -> Images:
    digest = hashlib.sha256(f"the first {HELD_OUT} of {images.digest}".encode()).hexdigest()
    return replace(images, pixels=images.pixels[:HELD_OUT], digest=digest)


def held_out_images(model: Model, source: str | None, group: Group, *, track: Track[object] = silent) -> Images | None:
    """What was held out of the model's training data, which may lie in `source` now; None where it cannot be had."""

    def found() -> Images | None:
        moved = _moved(model, source, track) if source is not None and source not in SETS else None
        return (moved or _own(model, track))[1]

    try:
        return group.main_first(found)
    except (ValueError, OSError):
        return None


def reference_for(
    model: Model | None, source: str | None, network: Extractor, group: Group, *, track: Track[object] = silent
) -> tuple[Reference, Images | None]:
    """The reference that `training_images` make, or that a statistics file is; and what was held out of the model's."""
    own = held_out_images(model, source, group, track=track) if model is not None and source is not None else None
    if source is not None and is_statistics_file(source):
        return statistics_file(source), own
    images, held_out = training_images(model, source, group, track=track)
    return reference_of(images, network, group, track=track), own if source is not None else held_out
