"""Image jobs: samples and completions, drawn by `Model.states` as the command line draws them."""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from scorefield.acceleration.threads import on_one_thread
from scorefield.images import to_bytes, to_float
from scorefield.models.model import check_guidance, class_name, class_number, kept_steps, parse_label
from scorefield.samplers import MOST_CALLS, SAMPLERS, State, changed, options, to_dict
from scorefield.samplers.watched import Watched
from scorefield.web.estimates import Speeds, Work
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
    label: str | int | None = None
    """The class, or none for no class. None: a random class each, or a model without classes."""
    guidance: float = 0.0


class Hole(NamedTuple):
    """An image to complete, with the names that its files have on the command line."""

    image_name: str
    image: np.ndarray
    """Bytes (H, W, C), as the model sees it."""
    mask_name: str
    mask: Tensor
    """(H, W), True where the image is known."""


def field_names() -> tuple[str, ...]:
    """The fields of a request that say what to sample: n, the seed, a sampler's name and its settings, a class and
    guidance towards it."""
    return ("n", "seed", "sampler", *_setting_types(), "label", "guidance")


def _setting_types() -> dict[str, Any]:
    """The types of all samplers' settings, by name."""
    found = {name: kind for cls in SAMPLERS.values() for name, (kind, _) in options(cls).items()}
    return {"calls": int} | found


def read_request(fields: Fields, card: Card, *, n: int, most: int, limits: Limits, usual: Any = None) -> SampleRequest:  # noqa: ANN401
    """What a request asks for: the sampler that it names, or else the usual one, by default the model's own. n is the
    default number."""
    default = card.sampler if usual is None or fields.text("sampler") else usual
    name = fields.choice("sampler", tuple(SAMPLERS), default.name)
    settings = {
        each: fields.optional(each, kind, most=_most(each, default, limits)) for each, kind in _setting_types().items()
    }
    number = fields.whole("n", n, least=1, most=most)
    seed = fields.whole("seed", 0, least=0, most=2**32 - 1)
    guidance = fields.number("guidance", 0.0)
    try:
        label = read_label(fields.text_or_whole("label"), card.header.labels)
        check_guidance(guidance, card.header.labels, label)
        return SampleRequest(
            card, number, seed, changed(default, settings, name=name, accepted=card.accepted), label, guidance
        )
    except ValueError as error:
        raise bad(str(error)) from error


def read_label(given: str | int | None, labels: Sequence[str]) -> str | int | None:
    """The class that a request names, by its name or its number, which is a text in a form."""
    label = given if isinstance(given, int) else parse_label(labels, given)
    return None if label is None else class_name(labels, class_number(labels, label))


def _most(name: str, default: Any, limits: Limits) -> int:  # noqa: ANN401
    """The largest whole number that a setting may have. Work is limited by its estimate; this only keeps it sane."""
    own = getattr(default, name, 0)
    return MOST_CALLS if name == "calls" else max(limits.steps, own if isinstance(own, int) else 0)


def image_job(models: Models, request: SampleRequest, limits: Limits, hole: Hole | None = None) -> Job:
    """A job that draws samples, or completions of an image with a hole."""
    card, n, seed, sampler, label, guidance = request
    settings, command = settings_of(request), ["scorefield", "sample" if hole is None else "inpaint", card.place.given]
    if hole is not None:
        settings |= {"image": hole.image_name, "mask": hole.mask_name}
        command += ["--image", hole.image_name, "--mask", hole.mask_name]
    command += [*words_of(request), "--out", "samples.png" if hole is None else "inpainted.png"]

    def run() -> Iterator[Update]:
        known, watched = None if hole is None else (to_float(hole.image[None])[0], hole.mask), Watched(sampler)
        states = models.load(card).states(
            range(n), seed=seed, sampler=watched, label=label, guidance=guidance, known=known
        )
        return watched_updates(states, watched, request, limits)

    return Job(
        "sample" if hole is None else "inpaint",
        run,
        sampler.updates,
        settings,
        shlex.join(command),
        None if hole is None else (hole.image, hole.mask.numpy()),
        warning=getattr(sampler, "warning", None),
        work=work_of(request),
    )


def watched_updates(
    states: Iterator[State], watched: Watched, request: SampleRequest, limits: Limits
) -> Iterator[Update]:
    """The states of a sampler as updates of a job, with the estimate of the clean images at each, and the images
    themselves at the end."""
    total = watched.updates
    keep = kept_steps(total, frame_count(request, limits))

    def estimate(state: State) -> Tensor | None:
        return None if state.step == total else watched.denoised

    return on_one_thread(updates_from(states, keep, to_bytes, denoised=estimate))


def settings_of(request: SampleRequest) -> dict[str, Any]:
    """The settings of a job, for JSON."""
    card, sampler = request.card, request.sampler
    settings = {"model": card.name, "n": request.n, "seed": request.seed, **_chosen(sampler)}
    settings |= {"sampler": to_dict(sampler)}
    return settings | ({"label": request.label, "guidance": request.guidance} if card.header.labels else {})


def _chosen(sampler: Any) -> dict[str, Any]:  # noqa: ANN401
    return {name: getattr(sampler, name) for name in options(type(sampler))}


def words_of(request: SampleRequest, *, named: bool = False) -> list[str]:
    """The options of the command line that say the same. `named`: with the sampler's name, even if it is the model's
    own."""
    sampler, words = request.sampler, ["-n", str(request.n), "--seed", str(request.seed)]
    words += [] if request.label is None else ["--label", str(request.label)]
    words += ["--guidance", str(request.guidance)] if request.guidance else []
    if named or type(sampler) is not type(request.card.sampler):
        words += ["--sampler", sampler.name]
    for name, value in _chosen(sampler).items():
        if value is None:
            continue
        flag = f"--{name.replace('_', '-')}"
        words += ([flag] if value else []) if isinstance(value, bool) else [flag, str(value)]
    return words


def work_of(request: SampleRequest) -> Work:
    """What a request for samples, or for completions, makes the machine compute. A call with guidance is for twice as
    many images, and counts as two."""
    card, times = request.card, 2 if request.guidance else 1
    return Work((card.name, card.shape, card.parameters), request.n, times * request.sampler.calls)


def estimate(speeds: Speeds, request: SampleRequest) -> float | None:
    """The seconds that samples take."""
    return speeds.estimate(work_of(request))


def size_to_measure(speeds: Speeds, request: SampleRequest, *, few: int) -> int | None:
    """The size of a batch by which to learn the speed for a request; None if enough is known.

    A few images tell the time of many, not exactly. So many are measured too, if that takes no more than a second.
    """
    work = work_of(request)
    small = work._replace(n=min(work.n, few))
    if speeds.knows(work):
        return None
    if not speeds.knows(small):
        return small.n
    return work.n if (speeds.estimate(work._replace(calls=1)) or 0) < 1 else None


def measure(models: Models, speeds: Speeds, request: SampleRequest, *, few: int) -> None:
    """Learn the speed for a request from the first steps of the model's own sampler.

    Only the worker's thread may call this.
    """
    card, sampler = request.card, request.card.sampler
    while (n := size_to_measure(speeds, request, few=few)) is not None:
        seconds = _step_seconds(models.load(card).states(range(n), sampler=sampler))
        speeds.record(work_of(request)._replace(n=n), seconds * sampler.updates / (sampler.calls or 1))


def _step_seconds(states: Iterator[State]) -> float:
    """The time of one step: of the second, which is faster, if the first takes less than a second."""
    before, seconds = 0.0, math.inf
    for state in states:
        now = time.perf_counter()
        if state.step:
            seconds = min(seconds, now - before)
        before = now
        if state.step >= 2 or 1 < seconds < math.inf:
            break
    return seconds


def frame_count(request: SampleRequest, limits: Limits) -> int:
    """How many frames to keep, with noise and without: fewer of large images, but always the first and the last."""
    return max(2, min(limits.frames, limits.job_bytes // 2 // (2 * request.n * math.prod(request.card.shape))))
