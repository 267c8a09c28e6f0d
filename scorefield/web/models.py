"""The models that are served: what is known of each from its file's header, and the loaded ones."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError, safe_open

from scorefield.models.checkpoint import Model, load, model_files, recipe_from_json
from scorefield.data.named import name_alone
from scorefield.distributed import pick_device
from scorefield.paper.demo import DIGIT
from scorefield.acceleration.fast import for_sampling
from scorefield.models.recipes import Recipe
from scorefield.score import Score
from scorefield.models.pretrained import find, shipped_models

_EXAMPLES = Path(__file__).parent / "examples"
DIGITS = {"9": DIGIT} | {file.stem: file for file in sorted(_EXAMPLES.glob("*.png"))}
"""Of MNIST's test set, to be completed."""
PHOTOS = {file.stem: file for file in sorted((_EXAMPLES / "cifar10").glob("*.png"))}
"""The first test image of each of CIFAR-10's classes."""
FACES = {file.stem: file for file in sorted((_EXAMPLES / "celeba").glob("*.png"))}
"""Drawn by a model of ours: CelebA's terms keep its own out."""
EXAMPLES = DIGITS | PHOTOS | FACES


class Place(NamedTuple):
    """Where a model is: a file, or a run folder whose newest one is meant."""

    given: str
    """What the command line calls it."""
    path: Path
    shipped: bool


@dataclass(frozen=True)
class Card:
    """What a model's file tells of it before it is loaded."""

    name: str
    place: Place
    file: Path
    recipe: Recipe
    shape: tuple[int, int, int]
    sigmas: list[float]
    parameters: int
    trained: int
    data: str

    @property
    def examples(self) -> list[str]:
        if self.shape[0] == 1:
            return sorted(DIGITS)
        return sorted(PHOTOS if self.data == "cifar10" else FACES if self.data.startswith("celeba") else ())

    def described(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "name": self.name,
            "shape": self.shape,
            "sigmas": self.sigmas,
            "steps": self.recipe.sample_steps,
            "step_size": self.recipe.step_size,
            "parameters": self.parameters,
            "trained": self.trained,
            "start": name_alone(self.recipe.start) if self.recipe.start else None,
            "data": self.data,
            "kind": "shipped" if self.place.shipped else "run" if self.place.path.is_dir() else "file",
            "examples": self.examples,
        }


def _places(given: Sequence[str]) -> dict[str, Place]:
    """A name for each model, which is the last part of its path, with a number where that is taken.

    Those given come first, then the shipped ones, the quickest, which is the smallest, before the others.
    """
    files = sorted(shipped_models().items(), key=lambda item: item[1].stat().st_size)
    shipped = {name: Place(name, path, True) for name, path in files}
    places: dict[str, Place] = {}
    for each in dict.fromkeys(given):
        path = Path(each) if _may_begin(Path(each)) else find(each)
        if (known := next((name for name, place in shipped.items() if place.path == path), None)) is not None:
            places[known] = shipped[known]
        if path in [place.path for place in places.values()]:
            continue
        name = stem = path.resolve().name.removesuffix(".safetensors") or "model"
        number = 1
        while name in places or name in shipped:
            number += 1
            name = f"{stem}-{number}"
        places[name] = Place(each, path, False)
    return {**places, **shipped}


def _may_begin(path: Path) -> bool:
    """Whether a run may begin there: a path without a suffix to nothing, or to an empty folder."""
    empty = path.is_dir() and not any(path.iterdir())
    return empty or (not path.exists() and not path.suffix and len(path.parts) > 1)


def _begun(path: Path) -> bool:
    return path.is_file() or (path / "recipe.json").is_file() or bool(model_files(path))


class Models:
    """The shipped models and those that the command line names. The worker alone loads them."""

    def __init__(self, given: Sequence[str] = (), *, device: str = "auto") -> None:
        self._device, self._places = device, _places(given)
        self._loaded: dict[str, tuple[Path, Model]] = {}
        self._scores: dict[str, tuple[tuple[Path, int], Score]] = {}
        for place in self._places.values():  # what is no model is said before the server starts
            if place.path.is_file():
                _card("", place, place.path)
            elif not (_begun(place.path) or _may_begin(place.path)):
                raise FileNotFoundError(f"{place.path} holds no training run and no model (name a run's folder)")

    @property
    def awaited(self) -> list[str]:
        """Those of whose training nothing is to be seen yet."""
        return [name for name, place in self._places.items() if not _begun(place.path)]

    @property
    def folders(self) -> dict[str, Path]:
        """Those that were given as a folder."""
        return {name: place.path for name, place in self._places.items() if place.path.is_dir()}

    def cards(self) -> dict[str, Card]:
        """All of them, but for runs that have no model yet."""
        found = {name: _newest(name, place) for name, place in self._places.items()}
        return {name: card for name, card in found.items() if card is not None}

    def score(self, card: Card, n: int) -> tuple[Model, Score]:
        """The model, and its score for batches of n, as `scorefield sample` has it."""
        device = pick_device(self._device)
        if card.name not in self._loaded or self._loaded[card.name][0] != card.file:
            self._loaded[card.name] = card.file, load(card.file, device=device)
        model = self._loaded[card.name][1]
        key = card.file, 0 if device.type == "cpu" else n  # a recording on a GPU is made for one size
        if card.name not in self._scores or self._scores[card.name][0] != key:
            self._scores[card.name] = key, for_sampling(model.network, model.shape, size=n)
        return model, self._scores[card.name][1]


def _newest(name: str, place: Place) -> Card | None:
    for file in reversed(model_files(place.path)) if place.path.is_dir() else [place.path]:
        try:
            return _card(name, place, file)
        except (
            OSError,
            ValueError,
            KeyError,
            TypeError,
        ):  # gone or damaged: then the one before it
            continue
    return None


def _card(name: str, place: Place, file: Path) -> Card:
    try:
        with safe_open(file, framework="np") as opened:
            facts = opened.metadata() or {}
            sizes = {each: math.prod(opened.get_slice(each).get_shape()) for each in opened.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{file} is damaged or no safetensors file ({error})") from error
    if facts.get("kind") != "scorefield model":
        raise ValueError(f"{file} is no scorefield model (released checkpoints become one with: scorefield import)")
    kind = min(each.partition("/")[0] for each in sizes)  # one of raw and ema
    return Card(
        name,
        place,
        file,
        recipe_from_json(facts["recipe"]),
        tuple(json.loads(facts["shape"])),
        json.loads(facts["sigmas"]),
        sum(size for each, size in sizes.items() if each.startswith(f"{kind}/") and each != f"{kind}/sigmas"),
        int(facts["step"]),
        name_alone(facts.get("data", "unknown")),
    )
