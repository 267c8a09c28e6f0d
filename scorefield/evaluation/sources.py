"""From names to what is measured and what it is compared with: models, samples, training and held-out images."""

from __future__ import annotations

import warnings
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from scorefield import data
from scorefield.data import SETS, Images
from scorefield.data.images import Pixels
from scorefield.data.named import short_name
from scorefield.distributed import Group
from scorefield.evaluation.features import (
    Extractor,
    Reference,
    is_statistics_file,
    make_reference,
    random_rows,
    read_statistics,
)
from scorefield.models import hub
from scorefield.models.model import Model, Weights, load
from scorefield.models.pretrained import PREFIX, is_pretrained, known, listed, nearest
from scorefield.progress import Track, silent
from scorefield.training.run import training_images

HELD_OUT = 1000
"""The most images of a test split that the objective and the memorisation report use."""


def resolve_model(name: str, *, weights: Weights | None, device: torch.device) -> Model | None:
    """The model that a name means: a run folder, a model file or a pretrained model. None if the name means images.

    mnist is the data set, and model:mnist the pretrained model of that name.
    """
    path = Path(name)
    run = path.is_dir() and ((path / "recipe.json").exists() or (path / "checkpoints").is_dir())
    file = path.is_file() and path.resolve().suffix in (".safetensors", "")
    images = data.exists(name)
    if run or file or name.startswith((PREFIX, hub.PREFIX)) or (not images and is_pretrained(name)):
        return load(name, weights=weights, device=device)
    if not images:
        raise ValueError(
            f"{name!r} does not exist, neither as a model nor as images ({nearest(name, [*known(), *SETS])}{listed()}; "
            f"data sets: {', '.join(SETS)}; or give a path)"
        )
    return None


def choose_images(name: str, n: int, group: Group, *, track: Track[object] = silent) -> ChosenImages:
    """n images of that source, drawn at random, or all of them if there are fewer."""
    images = group.main_first(partial(data.load, name, track=track))
    return ChosenImages(images, random_rows(n, len(images)))


class ChosenImages:
    """Some of the rows of an array or memory map, read slice by slice."""

    def __init__(self, images: Images, numbers: NDArray[np.int64]) -> None:
        self.pixels, self.notes, self.numbers = images.pixels, images.notes, numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, part: slice) -> Pixels:
        return self.pixels[self.numbers[part]]


def may_be_shown(source: str) -> bool:
    """Whether the images of a source may be published. Files and folders with the name of a data set that may not be
    shown, such as celeba, may not be shown either."""
    name = short_name(source)
    if (named := SETS.get(name.partition(":")[0])) is not None:
        return named.publishable
    return not any(each.name in name.lower() for each in SETS.values() if not each.publishable)


def load_training_images(
    model: Model | None, source: str | None, group: Group, *, track: Track[object] = silent
) -> tuple[Images, Images | None]:
    """The images to compare with, and those held out of them, if any.

    They are all images of `source`; or what the model was trained on, if `source` is None or holds just that.
    """

    def found() -> tuple[Images, Images | None]:
        if source is None:
            if model is None or model.metadata.get("imported_from"):
                raise ValueError(
                    "name the images to compare with (--data mnist, cifar10, celeba, a folder or an array)"
                )
            return _load_own(model, track)
        if source in SETS:
            return load_fitted(source, model, track), load_fitted(f"{source}:test", model, track).first(HELD_OUT)
        return _load_moved(model, source, track) or (load_fitted(source, model, track), None)

    return group.main_first(found)


def load_fitted(name: str, model: Model | None, track: Track[object]) -> Images:
    """Images in the size of the model's, cropped as its training images were unless they are too small for that."""
    if model is None:
        return data.load(name, track=track)
    load = partial(data.load, name, image_size=model.shape[1:], track=track)
    try:
        images = load(crop=model.recipe.crop)
    except ValueError:
        if model.recipe.crop is None:
            raise
        images = load()
    if images.shape[0] == model.shape[0]:
        return images
    theirs, ours = ("grey" if n == 1 else "in colour" for n in (images.shape[0], model.shape[0]))
    note = f"the images of {name} are {theirs}, and the model's are {ours}: they are compared as they are"
    return replace(images, notes=(*images.notes, note))


def load_test_images(model: Model, source: str | None, group: Group, *, track: Track[object] = silent) -> Images:
    """All test images of the data set `source`, or of the one that the model was trained on."""
    name = source or model.recipe.data
    if name not in SETS:
        raise ValueError(f"{name} has no test images (leave out the part real, or use one of {', '.join(SETS)})")
    return group.main_first(partial(load_fitted, f"{name}:test", model, track))


def _load_own(model: Model, track: Track[object]) -> tuple[Images, Images | None]:
    """What the model was trained on, and what was held out of it. If that is a test split, more of it than in
    training."""
    try:
        images, held_out = training_images(model.recipe, track=track)
    except (ValueError, OSError) as error:
        raise ValueError(f"cannot find what the model was trained on (name it with --data): {error}") from error
    if model.metadata.get("data_digest", images.digest) != images.digest:
        warnings.warn(
            f"{images.name} is not what the model was trained on: it has changed since, so that the model may have "
            "been trained on images that count as held out",
            stacklevel=2,
        )
    if model.recipe.data in SETS:
        with suppress(FileNotFoundError):
            load = partial(data.load, image_size=model.recipe.image_size, crop=model.recipe.crop, track=track)
            held_out = load(f"{model.recipe.data}:test").first(HELD_OUT)
    return images, held_out


def _load_moved(model: Model | None, source: str, track: Track[object]) -> tuple[Images, Images | None] | None:
    """What the model was trained on and what was held out of it, if `source` is where that is now."""
    if model is None or "data_digest" not in model.metadata or is_statistics_file(source):
        return None
    try:
        images, held_out = training_images(replace(model.recipe, data=source), track=track)
    except (ValueError, OSError):
        return None
    return (images, held_out) if images.digest == model.metadata["data_digest"] else None


def load_held_out(model: Model, source: str | None, group: Group, *, track: Track[object] = silent) -> Images | None:
    """What was held out of the model's training data, which may be in `source` now. None if it cannot be found."""

    def found() -> Images | None:
        moved = _load_moved(model, source, track) if source is not None and source not in SETS else None
        return (moved or _load_own(model, track))[1]

    try:
        return group.main_first(found)
    except (ValueError, OSError):
        return None


def load_reference(
    model: Model | None, source: str | None, network: Extractor, group: Group, *, track: Track[object] = silent
) -> tuple[Reference, Images | None]:
    """The images of `load_training_images`, or a statistics file, as a reference; and the model's held-out images."""
    own = load_held_out(model, source, group, track=track) if model is not None and source is not None else None
    if is_statistics_file(source):
        return read_statistics(source), own
    images, held_out = load_training_images(model, source, group, track=track)
    return make_reference(images, network, group, track=track), own if source is not None else held_out
