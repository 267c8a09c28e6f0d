"""The description of the API in OpenAPI 3.1, for programs.

The fields of a request are found by letting the functions that read requests read one: what they ask of each field is
what they check, so that the description cannot say anything else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args, get_origin

from scorefield.data.masks import NAMES
from scorefield.models.model import Header
from scorefield.models.recipes import Recipe
from scorefield.samplers import SAMPLERS, Heun, options
from scorefield.version import __version__
from scorefield.web import interpolating, playground, restoring, sampling
from scorefield.web.limits import Limits
from scorefield.web.models import Card, Place
from scorefield.web.requests import LONGEST, Fields

Schema = dict[str, Any]
FILE: Schema = {"type": "string", "contentMediaType": "application/octet-stream"}
HELP = {
    "model": "The name of a model, from /api/models.",
    "n": "How many images.",
    "seed": "The random seed: the same one makes the same images.",
    "sampler": "The sampler. Default: the model's own; to restore, the one that /api/models calls restoring.",
    "calls": "Network calls per image. Default: the sampler's own.",
    "label": "A class by its name or number, or none for no class. Default: a random class each.",
    "guidance": "The weight w in s₁ + w (s₁ − s₀). Above 0, images are more typical of their class. Doubles the time.",
    "image": "A picture file. It is cropped and resized as the model's training images were.",
    "example": "The name of one of the server's examples, in the place of an image.",
    "mask": "What is hidden, by name; or a PNG file of the model's size in which black is hidden.",
    "task": "superres:K, blur:SIGMA, gray or inpaint:MASK; or inpaint with a mask as a file.",
    "noise": "The standard deviation of the measurement's noise, for pixels from 0 to 1.",
    "method": "mmps has the best error bars, diffpir is fast; replace is Algorithm 2, for holes.",
    "iterations": "Backward passes per network call of mmps.",
    "strength": "How strongly dps and diffpir follow the measurement.",
    "measured": "Whether the image is the measurement itself: small, blurred or grey already.",
    "frames": "The number of images, with both ends.",
    "to_seed": "The seed of the other end.",
    "to_image": "The picture at the other end.",
    "to_example": "The name of the example at the other end.",
    "tolerance": "The tolerance of the solver between images.",
    "means": "The centres of the mixture's modes, points [x, y].",
    "weights": "The weight of each mode.",
    "steps": "Updates at each noise level.",
    "step_size": "The step size ε at the last noise level.",
    "sigma": "The noise level.",
    "sigma_max": "The largest noise level.",
    "sigma_min": "The smallest noise level.",
    "levels": "The number of noise levels.",
    "points": "Grid points along each side.",
}
"""A line about each field. Settings of samplers have their own."""
BY_MODEL = ("sampler", "label")
"""Fields whose default is the model's."""
TYPICAL = Card(
    "model",
    Place("model", Path("model"), pretrained=True),
    Path("model"),
    Header(Recipe(network="unet", labels=True, label_dropout=0.1), Heun(), (1, 28, 28), ("0", "1"), 0, {}),
    0,
)
"""A model to read a request for: with classes, and for all noise levels, so that every field applies."""


class Recorder(Fields):
    """Fields of a request that was not sent: each has its default, and what is asked of it is kept."""

    def __init__(self, known: Sequence[str]) -> None:
        super().__init__({}, known)
        self.found: dict[str, Schema] = {}

    def text(self, name: str) -> str | None:
        self.found.setdefault(name, {"type": "string", "maxLength": LONGEST})
        return None

    def choice(self, name: str, choices: Sequence[str], default: str) -> str:
        self.found[name] = {"type": "string", "enum": list(choices), "default": default}
        return default

    def whole(self, name: str, default: int, *, least: int | None = None, most: int) -> int:
        bounds = {} if least is None else {"minimum": least}
        self.found[name] = {"type": "integer", **bounds, "maximum": most, "default": default}
        return default

    def number(self, name: str, default: float, *, above: float = -math.inf, most: float = math.inf) -> float:
        bounds = ({"exclusiveMinimum": above} if above > -math.inf else {}) | (
            {"maximum": most} if most < math.inf else {}
        )
        self.found[name] = {"type": "number", **bounds, "default": default}
        return default

    def optional(self, name: str, kind: Any, *, most: int) -> None:  # noqa: ANN401
        if get_origin(kind) is Literal:
            self.choice(name, get_args(kind), "")
        elif kind is int:
            self.whole(name, 0, most=most)
        elif kind is bool:
            self.found[name] = {"type": "boolean"}
        elif kind is str:
            self.text(name)
        else:
            self.number(name, 0.0)
        self.found[name].pop("default", None)

    def text_or_whole(self, name: str) -> None:
        self.found[name] = {"type": ["string", "integer"], "maxLength": LONGEST}

    def rows(self, name: str, default: list[Any], *, most: int) -> list[Any]:
        self.found[name] = {"type": "array", "minItems": 1, "maxItems": most, "default": list(default)}
        return default


class Operation(NamedTuple):
    """One request of the API."""

    summary: str
    answer: Schema | str
    """The schema of its JSON, or the media type of its file."""
    read: Callable[[Recorder, Limits], object] | None = None
    """Reads the fields of its body."""
    form: bool = False
    files: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()
    example: Mapping[str, Any] = {}
    status: int = 200
    query: Mapping[str, Schema] = {}
    help: Mapping[str, str] = {}
    """Lines about fields that mean something else here than in `HELP`."""


def _object(**properties: str) -> Schema:
    """A JSON object: a line about each of its values."""
    return {
        "type": "object",
        "properties": {name: {"description": words} for name, words in properties.items()},
        "required": sorted(properties),
    }


ACCEPTED = _object(
    job="The job's name.",
    position="The number of jobs before it.",
    estimate="The seconds that it will take once it runs; null if that is not known.",
)
JOB = _object(
    job="The job's name.",
    kind="What it makes: sample, inpaint, restore, interpolate or playground.",
    state="queued, running, done, cancelled or failed.",
    position="The number of jobs before it.",
    step="The last step that was done.",
    total="The number of the last step.",
    sigma="The noise level of the last step; 0 after a denoising step.",
    level="The number of different noise levels so far.",
    seconds="How long it has run.",
    seconds_left="How long it will still take; null if that is not known.",
    estimate="The seconds that it should take in all; null if that is not known.",
    frames="The number of frames so far.",
    columns="Images in a row of a frame.",
    parts="Images beside its own: measurement, mean, deviation, original, each a PNG of the job.",
    numbers="Of a restoration at its end: residual and psnr.",
    error="Why it failed.",
    warning="What may be wrong with the settings.",
    settings="The settings, with the whole sampler.",
    command="The command line that makes the same.",
)
SECONDS = _object(seconds="How long the job will take once it runs; null if that is not known.")
MODELS = _object(models="The models, with their samplers and classes.", limits="The most that one request may ask for.")
FIELD = _object(x="The points of the grid.", score="The score at each.", log_prob="The log density at each.")
RUNS = _object(runs="The training runs, with name, step, steps and state.")
PNG, EVENTS, ANY = "image/png", "text/event-stream", "application/octet-stream"
VIEW: dict[str, Schema] = {"view": {"type": "string", "enum": ["noisy", "denoised"], "default": "noisy"}}


def _sample(fields: Recorder, limits: Limits) -> None:
    sampling.read_request(fields, TYPICAL, n=16, most=limits.n, limits=limits)


def _estimate(fields: Recorder, limits: Limits) -> None:
    _sample(fields, limits)
    method = Recorder(())
    restoring.read_method(method)
    fields.found |= {name: method.found[name] for name in ("task", "method", "iterations")}
    fields.found["method"].pop("default")  # without it, the time of samples is asked for


def _inpaint(fields: Recorder, limits: Limits) -> None:
    sampling.read_request(fields, TYPICAL, n=8, most=limits.completions, limits=limits)
    fields.text("example")
    fields.choice("mask", NAMES, "left")


def _restore(fields: Recorder, limits: Limits) -> None:
    restoring.read_request(fields, TYPICAL, limits)
    fields.text("example")
    restoring.read_method(fields)


def _interpolate(fields: Recorder, limits: Limits) -> None:
    interpolating.read_way(fields, TYPICAL, limits, images=False)
    fields.text("example")
    fields.text("to_example")


def _from_form(summary: str, read: Callable[[Recorder, Limits], object], *files: str, **more: Any) -> Operation:  # noqa: ANN401
    """A request that starts a job from a form with these files."""
    return Operation(summary, ACCEPTED, read, form=True, files=files, needed=("model",), status=202, **more)


FEW = {"sampler": "consistent_annealed", "calls": 30}
OPERATIONS: dict[tuple[str, str], Operation] = {
    ("get", "/api/openapi.json"): Operation("This description.", {"type": "object"}),
    ("get", "/api/models"): Operation("The models that are served, and the server's limits.", MODELS),
    ("get", "/api/examples/{name}.png"): Operation("One of the examples.", PNG),
    ("post", "/api/sample"): Operation(
        "Start a job that draws samples.",
        ACCEPTED,
        _sample,
        needed=("model",),
        example={"model": "mnist-small", "n": 4, "seed": 1, **FEW},
        status=202,
    ),
    ("post", "/api/estimate"): Operation(
        "How long samples, or with a method restorations, would take. It starts nothing.",
        SECONDS,
        _estimate,
        needed=("model",),
        example={"model": "mnist-small", "n": 4, **FEW, "task": "superres:4", "method": "mmps"},
    ),
    ("post", "/api/fit"): Operation(
        "A picture as the model sees it. The header X-Note says what was lost.",
        PNG,
        lambda fields, limits: None,
        form=True,
        files=("image",),
        needed=("model", "image"),
    ),
    ("post", "/api/inpaint"): _from_form(
        "Start a job that completes an image by Algorithm 2, as scorefield inpaint does.",
        _inpaint,
        "image",
        "mask",
        example={"model": "mnist-small", "example": "9", "mask": "left", "n": 2, **FEW},
    ),
    ("post", "/api/restore"): _from_form(
        "Start a job that restores an image from a measurement, as scorefield restore does.",
        _restore,
        "image",
        "mask",
        example={"model": "mnist-small", "example": "9", "task": "superres:4", "n": 2, "method": "diffpir", **FEW},
    ),
    ("post", "/api/interpolate"): _from_form(
        "Start a job that makes the images between two seeds, or two images, as scorefield interpolate does.",
        _interpolate,
        "image",
        "to_image",
        example={"model": "unet-mnist", "seed": 1, "to_seed": 2, "frames": 5},
        help={
            "seed": "The seed of the one end.",
            "calls": "Between seeds: network calls per image. Default: the sampler's own.",
            "label": "The class of all images. Default: between seeds the class of each end, with a change half-way; "
            "between images none.",
            "image": "The picture at the one end.",
            "example": "The name of the example at the one end.",
        },
    ),
    ("post", "/api/playground"): Operation(
        "Start a job that moves points by the exact score of a mixture; they are in its events.",
        ACCEPTED,
        playground.playground_job,
        example={"means": [[-5, -5], [5, 5]], "weights": [1, 4], "method": "both", "n": 50, "steps": 5},
        status=202,
        help={
            "n": "How many points.",
            "seed": "The random seed: the same one makes the same points.",
            "method": "Langevin dynamics alone, annealed, or both side by side from the same start.",
        },
    ),
    ("post", "/api/field"): Operation(
        "The score and the log density of a mixture on a grid.",
        FIELD,
        playground.score_field,
        example={"means": [[-5, -5], [5, 5]], "weights": [1, 4], "sigma": 1, "points": 3},
    ),
    ("get", "/api/jobs/{job}"): Operation("How far a job is.", JOB),
    ("delete", "/api/jobs/{job}"): Operation("Cancel a job. Its results so far are kept.", JOB),
    ("get", "/api/jobs/{job}/events"): Operation(
        "Server-Sent Events until the job ends: status and frame. When the last listener leaves, the job is cancelled.",
        EVENTS,
    ),
    ("get", "/api/jobs/{job}/frames/{number}.png"): Operation("All images of one frame.", PNG, query=VIEW),
    ("get", "/api/jobs/{job}/images/{number}.png"): Operation("One image of the last frame.", PNG),
    ("get", "/api/jobs/{job}/{name}"): Operation(
        "A file: grid.png (as the command line writes it), annealing.gif, images.npy; of a restoration also "
        "measurement.png, mean.png, deviation.png and original.png.",
        ANY,
        query=VIEW,
    ),
    ("get", "/api/runs"): Operation("The training runs.", RUNS),
    ("get", "/api/runs/{name}"): Operation("A run's recipe, losses and samples.", {"type": "object"}),
    ("get", "/api/runs/{name}/samples/{step}.png"): Operation("Samples drawn at a checkpoint.", PNG),
}
"""All requests, by their method and address."""


def fields_of(operation: Operation, limits: Limits) -> dict[str, Schema]:
    """The fields of an operation's body and their schemas."""
    assert operation.read is not None
    recorder = Recorder(())
    operation.read(recorder, limits)
    found: dict[str, Schema] = {"model": {"type": "string"}} if "model" in operation.needed else {}
    found |= recorder.found
    for name in operation.files:
        found[name] = {"anyOf": [found[name], FILE]} if name in found else dict(FILE)
    settings = {name: text for cls in SAMPLERS.values() for name, (_, text) in options(cls).items()}
    words = {**settings, **HELP, **operation.help}
    for name, schema in found.items():
        schema["description"] = words[name]
        if name in BY_MODEL:
            schema.pop("default", None)
    return found


def description(limits: Limits) -> Schema:
    """The whole description."""
    paths: dict[str, Schema] = {}
    for (method, path), operation in OPERATIONS.items():
        paths.setdefault(path, {})[method] = _described(path, operation, limits)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "scorefield",
            "version": __version__,
            "description": "Samples, restorations and interpolations of score-based models. Jobs run one after "
            "another; the jobs of several clients take turns.",
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": {"Error": _object(error="What is wrong, and the fix in brackets.")},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
        "x-limits": asdict(limits),
    }


def _described(path: str, operation: Operation, limits: Limits) -> Schema:
    kind, schema = "application/json", operation.answer
    if isinstance(operation.answer, str):
        kind, schema = operation.answer, {} if operation.answer == EVENTS else FILE
    error = {"$ref": "#/components/schemas/Error"}
    names = [part.partition("}")[0] for part in path.split("{")[1:]]
    parameters = [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]
    parameters += [{"name": name, "in": "query", "schema": each} for name, each in operation.query.items()]
    body = {}
    if operation.read is not None:
        fields = {"type": "object", "properties": fields_of(operation, limits), "additionalProperties": False}
        fields |= {"required": list(operation.needed)} if operation.needed else {}
        content = {"schema": fields, **({"example": operation.example} if operation.example else {})}
        media = "multipart/form-data" if operation.form else "application/json"
        body = {"requestBody": {"required": True, "content": {media: content}}}
    return {
        "summary": operation.summary,
        **({"parameters": parameters} if parameters else {}),
        **body,
        "responses": {
            str(operation.status): {"description": operation.summary, "content": {kind: {"schema": schema}}},
            "default": {"description": "An error.", "content": {"application/json": {"schema": error}}},
        },
    }
