"""Restorations of an image, drawn as `scorefield restore` draws them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from scorefield.data import pictures
from scorefield.data.masks import NAMES
from scorefield.distributed import device_name
from scorefield.evaluation import restorations
from scorefield.evaluation.restorations import REPLACE
from scorefield.images import to_bytes, to_float
from scorefield.models.model import Model
from scorefield.operators import Mask, Operator
from scorefield.posteriors import ITERATIONS, METHODS, NOISE, Measurement
from scorefield.samplers import State
from scorefield.samplers.watched import Watched
from scorefield.web import sampling
from scorefield.web.estimates import Speeds, Work
from scorefield.web.jobs import Job, Result, Update
from scorefield.web.limits import Limits
from scorefield.web.models import Card, Models
from scorefield.web.requests import LONGEST, Fields, Upload, bad, malformed, open_upload, read_mask
from scorefield.web.sampling import SampleRequest, settings_of, watched_updates, words_of, work_of

FIELDS = ("task", "noise", "method", "iterations", "strength", "measured")
HOLE = "inpaint"
MASK = "mask.png"
"""The name of a painted mask on the command line."""
BACKWARD = 4
"""What a backward pass costs, in network calls, until it was measured. (On two cores 3 to 4: it does not share a batch
among threads as well as a call does.)"""


class Method(NamedTuple):
    """How a measurement is used."""

    task: str
    name: str
    """One of `METHODS`, or `REPLACE`."""
    noise: float
    iterations: int
    strength: float
    measured: bool
    """The image is the measurement itself."""

    @property
    def passes(self) -> int:
        """Backward passes for each network call."""
        return restorations.backward_passes(self.name, self.iterations)

    def measurement(self, y: Tensor, operator: Operator) -> Measurement:
        name = METHODS[0] if self.name == REPLACE else self.name
        return Measurement(y, operator, self.noise, name, self.iterations, self.strength)


class Given(NamedTuple):
    """A measurement of an image."""

    image_name: str
    y: Tensor
    operator: Operator
    original: np.ndarray | None
    """Bytes (H, W, C), as the model sees it; None if only the measurement is known."""


def read_request(fields: Fields, card: Card, limits: Limits) -> SampleRequest:
    """The restorations that a request asks for."""
    return sampling.read_request(
        fields, card, n=8, most=limits.completions, limits=limits, usual=card.restoration_sampler
    )


def read_method(fields: Fields) -> Method:
    """The task and the method that a request names."""
    task = fields.text("task") or f"{HOLE}:left"
    if len(task) > LONGEST:
        raise bad(f"task is too long: at most {LONGEST} characters (use {restorations.TASKS})")
    name, _, mask = task.partition(":")
    if name == HOLE and mask and mask not in NAMES:  # never the name of a file of this machine
        raise bad(f"a hole is one of {', '.join(NAMES)} (or send the mask as a file, with the task {HOLE})")
    method = Method(
        task,
        fields.choice("method", (*METHODS, REPLACE), METHODS[0]),
        fields.number("noise", NOISE, above=0, most=10),
        fields.whole("iterations", ITERATIONS, least=1, most=10),
        fields.number("strength", 1.0, above=0, most=100),
        bool(fields.optional("measured", bool, most=1)),
    )
    if method.name == REPLACE and name != HOLE:
        raise bad(f"the method {REPLACE} fills in hidden pixels, and knows nothing of {task} (use {METHODS[0]})")
    method.measurement(torch.zeros(1), nn.Identity())  # type: ignore[arg-type]  # its own checks
    return method


def measure_upload(
    given: Upload, files: Mapping[str, Upload], card: Card, method: Method, *, seed: int, limits: Limits
) -> tuple[Given, Method]:
    """The measurement of an image that was sent, by the functions of the command line; and the method with its task as
    the command line names it."""
    picture = open_upload(given, limits)
    fit = pictures.fit_to_model(card.shape, card.header.recipe.crop, picture.size)
    try:
        if "mask" in files:
            if method.task.partition(":")[0] != HOLE:
                raise malformed(f"a mask belongs to the task {HOLE}; got {method.task} (leave one of them out)")
            operator: Operator = Mask(read_mask(files["mask"], card, limits))
            method = method._replace(task=f"{HOLE}:{MASK}")
        else:
            operator = restorations.parse_task(method.task, card.shape, fit, picture.size, seed=seed)
        y, original, _ = restorations.measured_image(
            picture,
            given.file_name,
            card.shape,
            method.task,
            operator,
            fit,
            noise=method.noise,
            seed=seed,
            measured=method.measured,
        )
    except ValueError as error:
        raise bad(str(error)) from error
    return Given(given.file_name, y, operator, original), method


def restore_job(models: Models, request: SampleRequest, method: Method, given: Given, limits: Limits) -> Job:
    """A job that draws restorations of one image."""
    card, n, seed, sampler, label, guidance = request
    settings = settings_of(request) | {"image": given.image_name, **method._asdict()}
    settings["method"] = settings.pop("name")
    command = ["scorefield", "restore", card.place.given, "--image", given.image_name, "--task", method.task]
    command += ["--measured"] if method.measured else []
    command += ["--noise", str(method.noise), "--method", method.name]
    command += ["--iterations", str(method.iterations)] if method.name == "mmps" else []
    command += ["--strength", str(method.strength)] if method.name in ("dps", "diffpir") else []
    command += [*words_of(request, named=True), "--out", "restored.png"]
    measurement = method.measurement(given.y, given.operator)
    original = None if given.original is None else to_float(given.original[None])

    def finish(model: Model, made: Tensor) -> None:
        made = made.clamp(0, 1)[None]
        found = restorations.describe(
            method.task,
            measurement,
            made,
            original,
            method=method.name,
            sampler=sampler,
            seed=seed,
            seconds=0.0,
            machine=device_name(model.device),
        )
        _, mean, deviation = (to_bytes(each)[0] for each in restorations.shown(given.y, given.operator, made))
        job.parts = job.parts | {"mean": mean, "deviation": deviation}
        sheet = restorations.sheet(given.y, given.operator, made, original)
        job.result = Result(sheet, {"residual": found.residual, "psnr": found.psnr})

    def run() -> Iterator[Update]:
        model, watched = models.load(card), Watched(sampler)
        states = restorations.states(
            model,
            measurement,
            range(n),
            n,
            replace_known=method.name == REPLACE,
            sampler=watched,
            seed=seed,
            label=label,
            guidance=guidance,
            size=n,
        )

        def seen() -> Iterator[State]:
            for state in states:
                if state.step == sampler.updates:
                    finish(model, state.x.cpu())
                yield state

        return watched_updates(seen(), watched, request, limits)

    job = Job(
        "restore",
        run,
        sampler.updates,
        settings,
        shlex.join(command),
        warning=getattr(sampler, "warning", None),
        work=restore_work(request, method),
    )
    nothing = torch.zeros(1, 1, *card.shape)
    job.parts["measurement"] = to_bytes(restorations.shown(given.y, given.operator, nothing)[0])[0]
    if given.original is not None:
        job.parts["original"] = given.original
    return job


def restore_work(request: SampleRequest, method: Method) -> Work:
    """What a restoration makes the machine compute: calls with backward passes have a speed of their own."""
    work = work_of(request)
    return work._replace(what=(work.what, method.passes)) if method.passes else work


def estimate(speeds: Speeds, request: SampleRequest, method: Method) -> float | None:
    """The seconds that restorations take: from earlier ones, or else from the network's calls."""
    own, plain = restore_work(request, method), work_of(request)
    if not method.passes or speeds.knows(own):
        return speeds.estimate(own)
    seconds = speeds.estimate(plain)
    return None if seconds is None else seconds * (1 + BACKWARD * method.passes)
