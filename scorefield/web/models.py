"""The models that are served: what the header of each file says, and the models that are loaded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError, safe_open

from scorefield import samplers
from scorefield.data.named import short_name
from scorefield.distributed import pick_device
from scorefield.evaluation.interpolation import deterministic
from scorefield.models import hub
from scorefield.models.checkpoint import BrokenCheckpointError, model_files, newest_whole
from scorefield.models.model import Header, Model, load, parse_header
from scorefield.models.pretrained import find, pretrained_models
from scorefield.samplers.path_settings import CountedSampler, PathSampler

FIRST = "unet-mnist"
"""The pretrained model with which the page opens, if it is there: a network for all noise levels with classes."""
SOLVER_CALLS = 170
"""Calls of the network between two images, about: the solver decides. (unet-mnist: 171 for 9 images, 177 for 3.)"""
_EXAMPLES = Path(__file__).parent / "examples"
_NINE = Path(__file__).parents[1] / "paper" / "digit.png"
DIGITS = {"9": _NINE} | {file.stem: file for file in sorted(_EXAMPLES.glob("*.png"))}
"""Digits of MNIST's test set."""
PHOTOS = {file.stem: file for file in sorted((_EXAMPLES / "cifar10").glob("*.png"))}
"""The first test image of each of CIFAR-10's classes."""
FACES = {file.stem: file for file in sorted((_EXAMPLES / "celeba").glob("*.png"))}
"""Samples of a pretrained model: CelebA's terms do not allow to pass its own images on."""
EXAMPLES = DIGITS | PHOTOS | FACES
"""Images to complete."""


class Place(NamedTuple):
    """Where a model is: a file, or a run folder, whose newest checkpoint is used."""

    given: str
    """Its name on the command line."""
    path: Path
    pretrained: bool


@dataclass(frozen=True)
class Card:
    """What is known about a model before it is loaded."""

    name: str
    place: Place
    file: Path
    header: Header
    parameters: int

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.header.shape

    @property
    def accepted(self) -> samplers.NoiseLevels | None:
        """The noise levels that its network accepts, where they are a range; None for a list, its sampler's own."""
        recipe = self.header.recipe
        return samplers.NoiseLevels(recipe.sigma_min, recipe.sigma_max) if recipe.network == "unet" else None

    @property
    def sampler(self) -> Any:  # noqa: ANN401
        """Its default sampler, with its noise schedule."""
        return samplers.changed(self.header.sampler, {}, accepted=self.accepted)

    @property
    def restoration_sampler(self) -> Any:  # noqa: ANN401
        """The default sampler of restorations."""
        if self.accepted is None:
            return self.sampler
        return samplers.changed(samplers.for_restoring(self.sampler, self.accepted), {}, accepted=self.accepted)

    @property
    def null_label(self) -> bool:
        """Whether its network was trained with labels left out, so that it can do without a class."""
        return bool(self.header.labels and self.header.recipe.label_dropout)

    def samplers(self) -> dict[str, Any]:
        """The samplers that suit it, with their usual settings, by name; its own first.

        A network that knows a list of noise levels suits samplers that make several updates at each: the others would
        need a start with the distribution of its first level (docs/samplers.md).
        """
        found = {self.sampler.name: self.sampler}
        for name, cls in samplers.SAMPLERS.items():
            one_step = issubclass(cls, PathSampler) and not issubclass(cls, CountedSampler)
            if not (one_step and self.accepted is None):
                with suppress(ValueError):  # it cannot be used with these noise levels at all
                    found.setdefault(name, samplers.changed(self.header.sampler, {}, name=name, accepted=self.accepted))
        return found

    @property
    def quick(self) -> Any:  # noqa: ANN401
        """The sampler with few network calls that the page offers where its own takes long."""
        if self.accepted is not None:
            return samplers.changed(
                self.header.sampler, {"calls": 20}, name=samplers.DPMpp2M.name, accepted=self.accepted
            )
        levels = len(self.sampler.sigmas)
        calls = {"calls": max(30, levels)}
        return samplers.changed(self.header.sampler, calls, name=samplers.ConsistentAnnealed.name)

    @property
    def data(self) -> str:
        """The name of its training images, without their place on this machine."""
        return short_name(self.header.metadata.get("data", "unknown"))

    @property
    def examples(self) -> list[str]:
        if self.shape[0] == 1:
            return sorted(DIGITS)
        return sorted(PHOTOS if self.data == "cifar10" else FACES if self.data.startswith("celeba") else ())

    def described(self) -> dict[str, Any]:
        """The model's description for JSON."""
        sampler, start, quick = samplers.to_dict(self.sampler), self.header.recipe.start, self.quick
        restoring = self.restoration_sampler
        flow: Any = None if self.accepted is None else deterministic(self.sampler, None, self.accepted)
        return {
            "name": self.name,
            "shape": self.shape,
            "sigmas": sampler.get("sigmas", []),
            "steps": sampler.get("steps"),
            "step_size": sampler.get("step_size"),
            "sampler": sampler,
            "paces": _paces(self.sampler),
            "samplers": [_described(each) for each in self.samplers().values()],
            "restoring": None if restoring == self.sampler else _described(restoring),
            "quick": {"sampler": quick.name, "calls": quick.calls},
            "parameters": self.parameters,
            "trained": self.header.step,
            "start": short_name(start) if start else None,
            "data": self.data,
            "kind": "pretrained" if self.place.pretrained else "run" if self.place.path.is_dir() else "file",
            "examples": self.examples,
            "labels": self.header.labels,
            "null_label": self.null_label,
            "range": None if self.accepted is None else [self.accepted.low, self.accepted.high],
            "flow": None if flow is None else {"sampler": flow.name, "calls": flow.calls, "solver_calls": SOLVER_CALLS},
        }


def _described(sampler: Any) -> dict[str, Any]:  # noqa: ANN401
    """A sampler that may be chosen, for JSON: what it is, its network calls, and its settings."""
    about = (type(sampler).__doc__ or "").partition("\n")[0]
    settings = {name: getattr(sampler, name) for name in samplers.options(type(sampler))}
    return {
        "name": sampler.name,
        "about": about,
        "calls": sampler.calls,
        "sigmas": list(getattr(sampler, "sigmas", ())),
        "settings": settings,
        "paces": _paces(sampler),
    }


def _paces(sampler: samplers.Sampler) -> dict[str, dict[str, Any]]:
    """Steps and step sizes for each pace of the page, for JSON; none for samplers that have no paces."""
    if not isinstance(sampler, samplers.AnnealedLangevin):
        return {}
    each = {str(k): sampler.at_pace(k) for k in samplers.PACES.values()}
    return {k: {"steps": paced.steps, "step_size": paced.step_size} for k, paced in each.items()}


class Models:
    """The pretrained models and those that the command line names. Only the worker loads them."""

    def __init__(self, given: Sequence[str] = (), *, device: str = "auto") -> None:
        self._device, self._places = device, _find_places(given)
        self._loaded: dict[str, tuple[Card, Model]] = {}
        for place in self._places.values():  # a name that is no model is an error before the server starts
            if place.path.is_file():
                _read_header(place.path)
            elif not (_has_begun(place.path) or _may_begin(place.path)):
                raise FileNotFoundError(f"{place.path} holds no training run and no model (name a run's folder)")

    @property
    def on_cpu(self) -> bool:
        """Whether they run on the CPU."""
        return pick_device(self._device).type == "cpu"

    @property
    def waiting(self) -> list[str]:
        """Names of runs that have not begun yet."""
        return [name for name, place in self._places.items() if not _has_begun(place.path)]

    @property
    def runs(self) -> dict[str, Path]:
        """The folders of training runs, by name."""
        return {name: place.path for name, place in self._places.items() if (place.path / "recipe.json").is_file()}

    def cards(self) -> dict[str, Card]:
        """All models by name. Runs without a checkpoint are left out, and damaged files."""
        cards = dict[str, Card]()
        for name, place in self._places.items():
            files = model_files(place.path) if place.path.is_dir() else [place.path]
            if (found := newest_whole(files, _read_header, skip=lambda message: None)) is not None:
                file, (header, parameters) = found
                cards[name] = Card(name, place, file, header, parameters)
        return cards

    def load(self, card: Card) -> Model:
        """The model, which stays loaded until its file says something else, or a run has a newer checkpoint."""
        if card.name not in self._loaded or self._loaded[card.name][0] != card:
            self._loaded[card.name] = card, load(card.file, device=pick_device(self._device))
        return self._loaded[card.name][1]


def _find_places(given: Sequence[str]) -> dict[str, Place]:
    """The models by name. A name is the last part of the path, with a number if it is taken.

    Those given come first, then the pretrained ones: `FIRST`, then the smallest, which is the fastest, and so on.
    """
    files = sorted(pretrained_models().items(), key=lambda item: (item[0] != FIRST, item[1].stat().st_size))
    pretrained = {name: Place(name, path, True) for name, path in files}
    names = {path: name for name, path in files}
    places: dict[str, Place] = {}
    for each in given:
        path = Path(each) if _may_begin(Path(each)) else find(each)
        if path not in names:
            file = path.resolve().name.removesuffix(".safetensors") or "model"
            stem = hub.parse(each).repository.partition("/")[2] if hub.is_hub(each) else file
            candidates = (f"{stem}-{number}" if number > 1 else stem for number in count(1))
            names[path] = next(name for name in candidates if name not in names.values())
        name = names[path]
        places.setdefault(name, pretrained.get(name) or Place(each, path, False))
    return {**places, **pretrained}


def _may_begin(path: Path) -> bool:
    """Whether a run may begin there: an empty folder, or a path without a suffix that does not exist yet."""
    empty = path.is_dir() and not any(path.iterdir())
    return empty or (not path.exists() and not path.suffix and len(path.parts) > 1 and not hub.is_hub(str(path)))


def _has_begun(path: Path) -> bool:
    return path.is_file() or (path / "recipe.json").is_file() or bool(model_files(path))


NOT_LEARNED = ("sigmas", *(f"{part}.{name}" for part in ("fourier", "uncertainty") for name in ("frequency", "phase")))
"""What the files of our networks hold besides parameters."""


def _read_header(file: Path) -> tuple[Header, int]:
    """What a model file says about itself, and its number of parameters. The weights are not read."""
    try:
        with safe_open(file, framework="np") as opened:
            metadata = opened.metadata() or {}
            sizes = {name: math.prod(opened.get_slice(name).get_shape()) for name in opened.keys()}  # noqa: SIM118
        header = parse_header(metadata, file)
        kind = min(name.partition("/")[0] for name in sizes)  # raw or ema; a file may hold both
    except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
        raise BrokenCheckpointError(f"{file} is damaged or no scorefield model ({error})") from error
    weights = {name.removeprefix(f"{kind}/"): size for name, size in sizes.items() if name.startswith(f"{kind}/")}
    return header, sum(size for name, size in weights.items() if name not in NOT_LEARNED)
