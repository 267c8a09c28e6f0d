"""What a report.json holds, as typed records, and the way from records to JSON and back.

JSON keys are the names of the fields: `fid`, `kid`, `precision`, ... A number that is not
finite is null. An optional field that holds None is left out of the file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from scorefield.files import parse_json
from scorefield.training.history import TrainingHistory

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class ModelRecord:
    """The model, without any paths of the machine that it was trained on."""

    step: int
    """Training iterations so far."""
    weights: str
    """raw or ema."""
    digest: str
    """The first 12 hexadecimal digits of the model's digest."""
    parameters: int
    shape: tuple[int, int, int]
    """(C, H, W)."""
    sigmas: tuple[float, ...]
    """The noise levels that it was trained on, the largest first."""
    recipe: dict[str, Any]
    """Its training settings, by the names of the recipe's fields."""
    data: str | None = None
    """What it was trained on."""
    data_digest: str | None = None
    data_images: int | None = None
    data_range: str | None = None
    start_digest: str | None = None
    """Digest of the model that its training began with, if it began with one."""
    machine: str | None = None
    """Where it was trained."""
    imported_from: str | None = None
    """The file that it was imported from, if it was not trained here."""


@dataclass(frozen=True, kw_only=True)
class Metrics:
    """The metrics of n images against a reference. What could not be measured is None, and `notes` say why."""

    n: int
    fid: float
    inception_score: float | None
    inception_score_deviation: float | None = None
    inception_score_splits: int | None = None
    kid: float | None = None
    kid_standard_error: float | None = None
    precision: float | None = None
    recall: float | None = None
    kept_n: tuple[int, int] | None = None
    """The images that KID, precision and recall compare: of the samples, and of the reference."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RealMetrics(Metrics):
    """The metrics of the data set's own test images."""

    name: str
    digest: str


@dataclass(frozen=True, kw_only=True)
class ReferenceRecord:
    """The images that samples were compared with."""

    name: str
    digest: str
    n: int | None
    """None where a file of statistics does not say."""


@dataclass(frozen=True, kw_only=True)
class LevelLoss:
    """The loss σ² ℓ(σ) at one noise level."""

    sigma: float
    loss: float
    standard_error: float | None = None
    """None in reports of older versions, for which every image was measured at one level only."""


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """The metrics of the samples, without and with the last denoising step, and the objective on held-out images."""

    plain: Metrics
    denoised: Metrics
    reference: ReferenceRecord
    inception: str
    """Digest of the network whose features were compared."""
    preprocessing: tuple[str, ...] = ()
    loss: float | None = None
    """The mean of `loss_by_sigma` (Eq. 6)."""
    loss_standard_error: float | None = None
    loss_by_sigma: tuple[LevelLoss, ...] = ()
    loss_n: int | None = None
    """Number of held-out images."""
    loss_data: str | None = None
    """Their name and digest."""


@dataclass(frozen=True, kw_only=True)
class RobustnessCell:
    """The metrics for one step size ε and number of steps T; none of them where sampling diverged."""

    step_size: float
    steps: int
    n: int | None = None
    fid: float | None = None
    kid: float | None = None
    kid_standard_error: float | None = None
    precision: float | None = None
    recall: float | None = None
    diverged: str | None = None
    """The error that ended the sampling."""


@dataclass(frozen=True, kw_only=True)
class Robustness:
    """How much the sampler's settings matter."""

    n: int
    cells: tuple[RobustnessCell, ...]


@dataclass(frozen=True, kw_only=True)
class DigitsVerdict:
    """What the classifier of digits says of n samples."""

    n: int
    accepted: float
    accepted_standard_error: float
    histogram: tuple[int, ...]
    distance_to_uniform: float
    """½ Σ |share of a digit − 1/10|; NaN where no sample was accepted."""
    distance_by_chance: float
    """Its mean over as many draws from ten equally likely digits."""
    confidence: float
    """A sample is accepted where the classifier is surer than this of one digit."""
    as_asked: float | None = None
    """The share of the accepted samples that are the digit that was asked for; None for a model without classes."""


@dataclass(frozen=True, kw_only=True)
class ClassifierTest:
    """How good the classifier of digits is, on MNIST's test images and on images that are no digits."""

    accuracy: float
    n: int
    accepted: float
    histogram: tuple[int, ...]
    distance_to_uniform: float
    noisy_accepted: float
    rejected: dict[str, float]
    """The share of each kind of image that is no digit; kinds that it was trained on."""
    rejected_unseen: dict[str, float]
    """The same for kinds that it was not trained on."""


@dataclass(frozen=True, kw_only=True)
class Digits:
    """The verdict on samples without and with the last denoising step, and the test of the classifier."""

    plain: DigitsVerdict
    denoised: DigitsVerdict
    test: ClassifierTest


@dataclass(frozen=True, kw_only=True)
class Samples:
    """Pictures of samples."""

    files: tuple[str, ...]
    shown: int


@dataclass(frozen=True, kw_only=True)
class Stages:
    """A picture of samples on their way from noise, a row each."""

    files: tuple[str, ...]
    rows: int
    steps: tuple[int, ...]
    """The steps after which a state is shown; 0 is the start."""
    sigmas: tuple[float | None, ...]
    """The noise levels of these steps; the start has none."""


@dataclass(frozen=True, kw_only=True)
class Copy:
    """A sample that is called a copy of a training image, by their numbers."""

    sample: int
    training_image: int


@dataclass(frozen=True, kw_only=True)
class Memorisation:
    """How near samples are to training images, against held-out images. The keys of the dicts are quantiles."""

    n: int
    ratio: dict[str, float]
    """Distance to the nearest training image over the median of the held-out images' distances."""
    held_out_ratio: dict[str, float]
    held_out_distance: float
    """That median."""
    isolation: dict[str, float]
    """Distance to the nearest training image over the distance to the farthest neighbour found."""
    held_out_isolation: dict[str, float]
    copies: tuple[Copy, ...]
    held_out_copies: int
    held_out_n: int
    chance: float
    """How probable as many copies among the samples are by chance."""
    alarm: bool


@dataclass(frozen=True, kw_only=True)
class NeighborsPart:
    """Pictures of samples beside their nearest training images, and whether they are copies, in two spaces."""

    files: tuple[str, ...]
    others: str
    """What the samples are compared with, in words."""
    data: str
    data_digest: str
    neighbors: Memorisation
    neighbors_inception: Memorisation


@dataclass(frozen=True, kw_only=True)
class Completion:
    """Completions of images under one mask. Distances are root mean squares of differences of values in [0, 1]."""

    images: int
    completions: int
    """For each image."""
    hidden: float
    """Share of the pixels."""
    known_error: float
    """Distance of the completions to the known pixels, in units of the last noise level."""
    distance: float
    """Between two completions of one image, over the hidden pixels."""
    distance_between_images: float | None
    """Between two images, over the hidden pixels; None for a single image."""
    seam: float
    """Steepness of the completions across the border of the mask, over that of the noisy images."""
    inside: float | None
    """The same within the mask."""


@dataclass(frozen=True, kw_only=True)
class Inpainting:
    """Pictures of completions, and the numbers for each mask."""

    files: tuple[str, ...]
    masks: dict[str, Completion]


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What made a part of a report."""

    machine: str
    processes: int
    scorefield: str
    torch: str


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """The drawing of samples, which several parts share."""

    images: int
    """Samples that were drawn for this report, and not found in the sample cache."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """All of a report.json. A part that has not been made is None."""

    command: str
    """The command line that makes this report."""
    n: int
    """Number of samples."""
    data: str | None = None
    """The images to compare with, where they are not those that the model was trained on."""
    model: ModelRecord
    sampler: dict[str, Any]
    """The sampler, as `samplers.to_dict` describes it; `samplers.from_dict` makes it again."""
    seed: int
    precision: str
    """The arithmetic of the network."""
    label: str | None = None
    """The class of the samples, or none for no class. None: a random class each, or a model without classes."""
    guidance: float | None = None
    """The weight of guidance towards the class. None: no guidance."""
    calls: int
    """Network calls per sample. With guidance each is for twice as many images, and costs twice as much."""
    training: TrainingHistory | None = None
    seconds: dict[str, float]
    """Time that each part took, with `preparing` and `sampling`."""
    made_on: dict[str, Machine]
    """Where each part was made."""
    sampling: Sampling | None = None
    samples: Samples | None = None
    stages: Stages | None = None
    neighbors: NeighborsPart | None = None
    numbers: Numbers | None = None
    inpainting: Inpainting | None = None
    robustness: Robustness | None = None
    real: RealMetrics | None = None
    digits: Digits | None = None


# ---------------------------------------------------------------- JSON


def read_report(path: Path) -> Report:
    """The report in a file; an error names the file, the field and what to do."""
    try:
        values = parse_json(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not a report: {error} (make it again with scorefield report)") from error
    return from_json(Report, values, source=path)


def to_json(record: Any) -> Any:  # noqa: ANN401
    """Plain dicts, lists, strings and numbers for a record, or for a dict or sequence of records."""
    if is_dataclass(record):
        values = {field: getattr(record, field.name) for field in fields(record)}
        return {f.name: to_json(value) for f, value in values.items() if value is not None or f.default is MISSING}
    if isinstance(record, Mapping):
        return {key: to_json(value) for key, value in record.items()}
    if isinstance(record, (list, tuple)):
        return [to_json(value) for value in record]
    return None if isinstance(record, float) and not math.isfinite(record) else record


def from_json(cls: type[T], values: object, *, source: str | Path = "report.json") -> T:
    """The record of type `cls` that these values describe. `source`: the file's name, for errors."""
    try:
        record: T = _parsed(cls, values, "")
    except ValueError as error:
        raise ValueError(f"{source}: {error} (make it again with scorefield report)") from None
    return record


def _parsed(kind: Any, value: Any, place: str) -> Any:  # noqa: ANN401
    """The value as the annotation `kind` has it, or a ValueError. `place`: the field's full name, with dots."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if origin in (Union, UnionType):  # X | None, the only unions here
        (known,) = (each for each in arguments if each is not NoneType)
        return None if value is None else _parsed(known, value, place)
    if is_dataclass(kind) and isinstance(value, Mapping):
        return _record(kind, value, place)
    if origin is dict and isinstance(value, Mapping):
        return {key: _parsed(arguments[1], each, f"{place}.{key}") for key, each in value.items()}
    if origin is tuple and isinstance(value, (list, tuple)):
        kinds = arguments[:1] * len(value) if arguments[-1] is ... else arguments
        if len(kinds) == len(value):
            return tuple(_parsed(each, value[k], f"{place}[{k}]") for k, each in enumerate(kinds))
    if kind is float and value is None:
        return math.nan
    number = isinstance(value, float) or (type(value) is int and value.bit_length() < 1000)  # larger ones overflow
    if (kind is float and number) or (kind in (int, str, bool) and type(value) is kind):
        return value
    wanted = getattr(kind, "__name__", str(kind)) if origin is None else str(kind)
    raise ValueError(f"{place or 'the whole file'} should be of type {wanted}, and is {str(value)[:60]!r}")


def _record(cls: Any, values: Mapping[str, Any], place: str) -> Any:  # noqa: ANN401
    kinds, known = get_type_hints(cls), {field.name: field for field in fields(cls)}
    names = {name: f"{place}.{name}".lstrip(".") for name in [*known, *values]}
    for name in values:
        if name not in known:
            raise ValueError(f"{names[name]} is not a field of a report")
    for name, field in known.items():
        if name not in values and field.default is MISSING:
            raise ValueError(f"{names[name]} is missing")
    return cls(**{name: _parsed(kinds[name], value, names[name]) for name, value in values.items()})
