"""Images between two others, made as `scorefield interpolate` makes them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from scorefield import samplers
from scorefield.acceleration.threads import pytorch_threads
from scorefield.evaluation import interpolation
from scorefield.images import to_bytes, to_float
from scorefield.samplers import Sampler, State
from scorefield.samplers.watched import Watched
from scorefield.web.estimates import Work
from scorefield.web.jobs import Job, Update
from scorefield.web.limits import Limits
from scorefield.web.models import SOLVER_CALLS, Card, Models
from scorefield.web.requests import Fields, Upload, bad, fit_upload, malformed
from scorefield.web.sampling import SampleRequest, read_label, watched_updates, work_of

FIELDS = ("frames", "label", "seed", "to_seed", "calls", "image", "to_image", "example", "to_example", "tolerance")
FRAMES = 9
TOLERANCE = 1e-4
ENDS = ("image", "to_image")


class Way(NamedTuple):
    """What lies between which ends."""

    card: Card
    frames: int
    label: str | int | None
    seeds: tuple[int, int] | None
    sampler: Sampler
    tolerance: float


def read_way(fields: Fields, card: Card, limits: Limits, *, images: bool) -> Way:
    """The images between two that a request asks for: between seeds, or between images if it names some."""
    if card.accepted is None:
        raise bad(
            f"{card.name} knows only certain noise levels, and the way from noise to images needs all of them (choose "
            "a model for all noise levels, such as those of the recipe unet-mnist)"
        )
    frames = fields.whole("frames", FRAMES, least=2, most=limits.n)
    most = 2**32 - 1
    seeds = fields.whole("seed", 0, least=0, most=most), fields.whole("to_seed", 1, least=0, most=most)
    calls = fields.optional("calls", int, most=samplers.MOST_CALLS)
    tolerance = fields.number("tolerance", TOLERANCE, above=0, most=0.1)
    if images and calls is not None:
        raise bad("calls applies to seeds; images are decoded with a tolerance (leave it out)")
    try:
        label = read_label(fields.text_or_whole("label"), card.header.labels)
        assert calls is None or isinstance(calls, int)
        sampler = interpolation.deterministic(card.sampler, SOLVER_CALLS if images else calls, card.accepted)
    except ValueError as error:
        raise bad(str(error)) from error
    if images and label is None and card.header.labels and not card.null_label:
        raise bad(f"the model needs a class (give a label: {', '.join(card.header.labels)})")
    return Way(card, frames, label, None if images else seeds, sampler, tolerance)


def fit_ends(given: Mapping[str, Upload], card: Card, limits: Limits) -> tuple[list[str], list[np.ndarray]]:
    """The names and the pixels of both images."""
    if missing := [name for name in ENDS if name not in given]:
        raise malformed(f"two images are needed, or none; {missing[0]} is missing (send a file, or name an example)")
    return [given[name].file_name for name in ENDS], [fit_upload(given[name], card, limits)[0] for name in ENDS]


def interpolation_job(
    models: Models, way: Way, limits: Limits, names: Sequence[str] = (), ends: Sequence[np.ndarray] = ()
) -> Job:
    """A job that makes the images between two seeds, or between two images if there are any."""
    card, frames, label, seeds, sampler, tolerance = way
    settings: dict[str, Any] = {"model": card.name, "n": frames, "frames": frames, "label": label}
    command = ["scorefield", "interpolate", card.place.given]
    if seeds is not None:
        settings |= {"seed": seeds[0], "to_seed": seeds[1], "calls": sampler.calls}
        settings["sampler"] = samplers.to_dict(sampler)
        command += ["--seeds", *map(str, seeds)]
    else:
        settings |= {"image": names[0], "to_image": names[1], "tolerance": tolerance}
        settings["sampler"] = {"name": "probability flow", "sigmas": [card.accepted.high] if card.accepted else []}
        command += ["--images", *names]
    command += ["--frames", str(frames)] + ([] if label is None else ["--label", str(label)])
    command += ["--tolerance", str(tolerance)] if seeds is None else ["--calls", str(sampler.calls)]
    command += ["--out", "interpolation.png"]

    def between_seeds(both: tuple[int, int]) -> Iterator[Update]:
        watched = list[Watched]()

        def watch(each: Sampler) -> Sampler:
            watched.append(Watched(each))
            return watched[0]

        states: Iterator[State] = interpolation.between_seeds(
            models.load(card), both, frames, label=label, sampler=sampler, watch=watch
        )
        return watched_updates(states, watched[0], as_request(way), limits)

    def between_images() -> Iterator[Update]:
        x = [to_float(each[None])[0] for each in ends]

        def stop_if_cancelled() -> None:
            if job.ended:
                raise ValueError("cancelled")

        first = np.stack([ends[0] if 2 * k < frames else ends[1] for k in range(frames)])
        yield Update(frame=first)
        made, _ = interpolation.between_images(
            models.load(card), (x[0], x[1]), frames, label=label, tolerance=tolerance, on_call=stop_if_cancelled
        )
        with pytorch_threads(1):
            yield Update(1, frame=to_bytes(torch.clamp(made, 0, 1)))

    job = Job(
        "interpolate",
        between_images if seeds is None else lambda: between_seeds(seeds),
        1 if seeds is None else sampler.updates,
        settings,
        shlex.join(command),
        work=work(way),
    )
    return job


def as_request(way: Way) -> SampleRequest:
    """A request for as many samples with the same sampler; between images, for samples that take about as long."""
    return SampleRequest(way.card, way.frames, 0, way.sampler, way.label)


def work(way: Way) -> Work | None:
    """What the machine computes, as far as it is known: between images the solver decides."""
    return None if way.seeds is None else work_of(as_request(way))
