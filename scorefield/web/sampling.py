"""Image jobs: samples and completions, drawn by `Model.states` as the command line draws them."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from scorefield.images import to_bytes, to_float
from scorefield.models.model import kept_steps
from scorefield.samplers import SAMPLERS, changed, options, to_dict
from scorefield.web.jobs import Job, Update, updates_from
from scorefield.web.limits import Limits
from scorefield.web.models import Card, Models
from scorefield.web.requests import Fields, bad


class SampleRequest(NamedTuple):
    """The samples that a request asks for."""

    card: Card
    n: int
    seed: int
    sampler: Any
    """Settings of a sampler, one of the classes in `SAMPLERS`."""


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
    card, n, seed, sampler = request
    chosen = {name: getattr(sampler, name) for name in options(type(sampler))}
    settings = {"model": card.name, "n": n, "seed": seed, **chosen, "sampler": to_dict(sampler)}
    command = ["scorefield", "sample" if hole is None else "inpaint", card.place.given]
    if hole is not None:
        settings |= {"image": hole.image_name, "mask": hole.mask_name}
        command += ["--image", hole.image_name, "--mask", hole.mask_name]
    command += ["-n", str(n), "--seed", str(seed)]
    if type(sampler) is not type(card.header.sampler):
        command += ["--sampler", sampler.name]
    for name, value in chosen.items():
        flag = f"--{name.replace('_', '-')}"
        command += ([flag] if value else []) if isinstance(value, bool) else [flag, str(value)]
    command += ["--out", "samples.png" if hole is None else "inpainted.png"]
    keep = kept_steps(sampler.updates, frame_count(request, limits))

    def run() -> Iterator[Update]:
        known = None if hole is None else (to_float(hole.image[None])[0], hole.mask)
        states = models.load(card).states(range(n), seed=seed, sampler=sampler, known=known)
        return updates_from(states, keep, to_bytes)

    return Job(
        "sample" if hole is None else "inpaint",
        run,
        sampler.updates,
        settings,
        shlex.join(command),
        None if hole is None else (hole.image, hole.mask.numpy()),
        getattr(sampler, "warning", None),
    )


def frame_count(request: SampleRequest, limits: Limits) -> int:
    """How many frames to keep: fewer of large images, but always the first and the last."""
    return max(2, min(limits.frames, limits.job_bytes // 2 // (request.n * math.prod(request.card.shape))))
