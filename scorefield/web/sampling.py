"""Image jobs: samples and completions, drawn by `Model.states` as the command line draws them."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
from torch import Tensor

from scorefield.images import to_bytes, to_float
from scorefield.models.model import kept_steps
from scorefield.samplers import SAMPLERS, changed, options, to_dict
from scorefield.web.jobs import Job, Update, updates_from
from scorefield.web.limits import Limits
from scorefield.web.models import Card, Models
from scorefield.web.requests import Fields, bad


@dataclass(frozen=True)
class SampleRequest:
    """The samples that a request asks for."""

    card: Card
    n: int
    seed: int
    sampler: Any
    """Settings of a sampler, one of the classes in `SAMPLERS`."""

    @property
    def settings(self) -> dict[str, Any]:
        """The request for JSON: the sampler as `to_dict` gives it, and its settings as the request names them."""
        chosen = {name: getattr(self.sampler, name) for name in options(type(self.sampler))}
        return {"model": self.card.name, "n": self.n, "seed": self.seed, **chosen, "sampler": to_dict(self.sampler)}

    @property
    def flags(self) -> list[str]:
        """The request as options of the command line."""
        default: Any = self.card.header.sampler
        words = ["-n", str(self.n), "--seed", str(self.seed)]
        words += ["--sampler", self.sampler.name] if self.sampler.name != default.name else []
        for name in options(type(self.sampler)):
            value, flag = getattr(self.sampler, name), f"--{name.replace('_', '-')}"
            words += ([flag] if value else []) if isinstance(value, bool) else [flag, str(value)]
        return words


class Hole(NamedTuple):
    """An image to complete, with the names that its files have on the command line."""

    image_name: str
    image: np.ndarray
    """Bytes (H, W, C), as the model sees it."""
    mask_name: str
    mask: Tensor
    """(H, W), True where the image is known."""


def field_names() -> tuple[str, ...]:
    """The fields of a request that say what to sample: n, the seed, a sampler's name and its settings."""
    return ("n", "seed", "sampler", *_setting_types())


def _setting_types() -> dict[str, type]:
    """The types of all samplers' settings, by name."""
    return {name: kind for cls in SAMPLERS.values() for name, (kind, _) in options(cls).items()}


def read_request(fields: Fields, card: Card, *, n: int, most: int, limits: Limits) -> SampleRequest:
    """What a request asks for. Settings that are not given are the model's own; n is the default number."""
    default: Any = card.header.sampler
    name = fields.choice("sampler", tuple(SAMPLERS), default.name)
    settings = {
        each: fields.optional(each, kind, most=max(limits.steps, getattr(default, each, 0) if kind is int else 0))
        for each, kind in _setting_types().items()
    }
    number = fields.whole("n", n, least=1, most=most)
    seed = fields.whole("seed", 0, least=0, most=2**32 - 1)
    try:
        return SampleRequest(card, number, seed, changed(default, settings, name=name))
    except ValueError as error:
        raise bad(str(error)) from error


def image_job(models: Models, request: SampleRequest, limits: Limits, hole: Hole | None = None) -> Job:
    """A job that draws samples, or completions of an image with a hole."""
    kind: Literal["sample", "inpaint"] = "sample"
    known, settings, words = None, request.settings, [request.card.place.given]
    if hole is not None:
        kind, known = "inpaint", (hole.image, hole.mask.numpy())
        settings |= {"image": hole.image_name, "mask": hole.mask_name}
        words += ["--image", hole.image_name, "--mask", hole.mask_name]
    words += [*request.flags, "--out", "samples.png" if hole is None else "inpainted.png"]
    return Job(
        kind,
        partial(_updates, models, request, hole, kept_steps(request.sampler.updates, frame_count(request, limits))),
        request.sampler.updates,
        settings,
        shlex.join(["scorefield", kind, *words]),
        known,
        getattr(request.sampler, "warning", None),
    )


def frame_count(request: SampleRequest, limits: Limits) -> int:
    """How many frames to keep: fewer of large images, but always the first and the last."""
    return max(2, min(limits.frames, limits.job_bytes // 2 // (request.n * math.prod(request.card.shape))))


def _updates(models: Models, request: SampleRequest, hole: Hole | None, keep: set[int]) -> Iterator[Update]:
    known = None if hole is None else (to_float(hole.image[None])[0], hole.mask)
    model = models.load(request.card)
    states = model.states(range(request.n), seed=request.seed, sampler=request.sampler, known=known)
    yield from updates_from(states, keep, to_bytes)
