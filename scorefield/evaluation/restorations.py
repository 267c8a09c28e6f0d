"""Restorations of images: measurements by name, samples of their posterior, and how good they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from scorefield.data import pictures
from scorefield.data.images import Pixels
from scorefield.data.masks import make_mask
from scorefield.data.pictures import Fit
from scorefield.images import grid, to_bytes, to_float
from scorefield.models.model import Model
from scorefield.operators import Blur, Downsample, Grayscale, Mask, Operator
from scorefield.posteriors import Measurement, residual
from scorefield.progress import Track, silent
from scorefield.samplers import Sampler, State, to_dict

if TYPE_CHECKING:
    from PIL import Image

TASKS = "superres:K, blur:SIGMA, gray, or inpaint:MASK with left, center, ... or an image file"
REPLACE = "replace"
"""Algorithm 2, beside the methods of `posterior`."""


@dataclass(frozen=True)
class Restoration:
    """How well images were restored."""

    task: str
    method: str
    noise: float
    iterations: int
    """Of mmps."""
    strength: float
    """Of dps and diffpir."""
    images: int
    n: int
    """Restorations of each image."""
    residual: float
    """The root mean square of ‖A x − y‖/(noise √M): 1 for true samples of the posterior."""
    psnr: float | None
    """Of the mean of each image's restorations, in dB, the mean over the images; None if the originals are unknown."""
    fid: float | None
    calls: int
    """Network calls per restoration."""
    backward_passes: int
    """Per restoration."""
    seconds: float
    """For all restorations."""
    seed: int
    sampler: dict[str, Any]
    machine: str
    """Where it was measured."""


def parse_task(
    task: str, shape: Sequence[int], fit: Fit, size: tuple[int, int] | None = None, *, seed: int = 0
) -> Operator:
    """The measurement that a task undoes, for images (C, H, W), checked on one. `fit` and `size`: see `make_mask`."""
    name, _, value = task.partition(":")
    operator: Operator
    if name == "superres" and value.isdecimal():
        operator = Downsample(int(value))
    elif name == "blur" and value.replace(".", "", 1).isdecimal():
        operator = Blur(float(value))
    elif task == "gray":
        if shape[0] != 3:
            raise ValueError("gray wants a model of colour images, and this one's are grey already (use another task)")
        operator = Grayscale()
    elif name == "inpaint" and value:
        operator = Mask(make_mask(value, fit, size, seed=seed))
    else:
        raise ValueError(f"there is no task {task!r} (use {TASKS})")
    operator(torch.zeros(1, *shape))
    return operator


def measure(x: Tensor, operator: Operator, noise: float, seed: int) -> Tensor:
    """y = A x + noise · z,  0 where nothing is measured."""
    y = operator(x)
    z = torch.randn(y.shape, generator=torch.Generator().manual_seed(seed))
    return torch.where(operator.measured(y), y + noise * z.to(y), 0)


def measured_image(
    picture: Image.Image,
    name: str,
    shape: tuple[int, int, int],
    task: str,
    operator: Operator,
    fit: Fit,
    *,
    noise: float,
    seed: int,
    measured: bool = False,
) -> tuple[Tensor, Pixels | None, list[str]]:
    """The measurement (1, C', H', W') of a picture, the original (H, W, C), and a line about each change of it that may
    surprise. `measured`: the picture is the measurement itself, without an original."""
    if not measured:
        pixels, notes = pictures.fit_image(picture, name, shape[0], fit)
        return measure(to_float(pixels[None]), operator, noise, seed), pixels, notes
    _, channels, height, width = operator(torch.zeros(1, *shape)).shape
    given = 1 if picture.mode == "L" else 3
    if (given, picture.height, picture.width) != (channels, height, width):
        colours = {1: "grey", 3: "in colour"}
        raise ValueError(
            f"the measurement of {task} is {height} × {width}, {colours[channels]}; {name} is {picture.height} × "
            f"{picture.width}, {colours[given]} (convert it, or leave out --measured if it is an original)"
        )
    return to_float(pictures.crop_and_resize(picture, name, Fit())[None]), None, []


def states(
    model: Model,
    measurement: Measurement,
    part: Sequence[int],
    n: int,
    *,
    replace_known: bool = False,
    **settings: Any,  # noqa: ANN401
) -> Iterator[State]:
    """The states of the restorations with these numbers, as one batch. `measurement` has a row of y for each image, and
    number k is of image k // n. `replace_known` is Algorithm 2. `settings` are those of `Model.states`."""
    y = measurement.y[[k // n for k in part]]
    if replace_known:
        given: dict[str, Any] = {"known": (y, measurement.operator.mask)}  # type: ignore[attr-defined]
    else:
        given = {"measurement": replace(measurement, y=y)}
    return model.states(part, **given, **settings)


def restore(
    model: Model,
    measurement: Measurement,
    numbers: Sequence[int],
    n: int,
    *,
    sampler: Sampler,
    batch_size: int,
    replace_known: bool = False,
    track: Track[Any] = silent,
    **settings: Any,  # noqa: ANN401
) -> Tensor:
    """Floats (N, C, H, W): restorations with these numbers, batch by batch. See `states`."""
    parts = [numbers[first : first + batch_size] for first in range(0, len(numbers), batch_size)]
    settings |= {"sampler": sampler, "size": min(batch_size, len(numbers)), "replace_known": replace_known}

    def batches() -> Iterator[State]:
        for part in parts:
            yield from (state for state in states(model, measurement, part, n, **settings) if state.step)

    total = sampler.updates * len(parts)
    made = [state.x.cpu() for state in track(batches(), "restoring", total) if state.step == sampler.updates]
    return torch.cat([torch.empty(0, *model.shape), *made]).clamp(0, 1)


def backward_passes(method: str, iterations: int) -> int:
    """Backward passes for each network call."""
    return {"mmps": iterations, "dps": 1}.get(method, 0)


def describe(
    task: str,
    measurement: Measurement,
    made: Tensor,
    originals: Tensor | None,
    *,
    method: str,
    sampler: Sampler,
    seed: int,
    seconds: float,
    machine: str,
    fid: float | None = None,
) -> Restoration:
    """The numbers for restorations (I, n, C, H, W) of images (I, C, H, W), if these are known."""
    images, n = made.shape[:2]
    rows = replace(measurement, y=measurement.y.repeat_interleave(n, 0))
    psnr = None
    if originals is not None:
        errors = (made.mean(1) - originals).square().flatten(1).mean(1)
        psnr = (-10 * errors.clamp_min(1e-10).log10()).mean().item()
    return Restoration(
        task=task,
        method=method,
        noise=measurement.noise,
        iterations=measurement.iterations,
        strength=measurement.strength,
        images=images,
        n=n,
        residual=residual(made.flatten(0, 1), rows).square().mean().sqrt().item(),
        psnr=psnr,
        fid=fid,
        calls=sampler.calls or 0,
        backward_passes=backward_passes(method, measurement.iterations) * (sampler.calls or 0),
        seconds=round(seconds, 2),
        seed=seed,
        sampler=to_dict(sampler),
        machine=machine,
    )


def shown(y: Tensor, operator: Operator, made: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What is shown beside restorations (I, n, C, H, W), (I, C, H, W) each: the measurement, enlarged and grey where
    nothing is measured; the mean; and the standard deviation, in units of its largest."""
    size, channels = made.shape[-2:], made.shape[2]
    seen = torch.where(operator.measured(y), y, 0.5)
    seen = F.interpolate(seen, size, mode="nearest").expand(-1, channels, -1, -1)
    std = made.std(1, correction=0)
    return seen, made.mean(1), std / std.flatten(1).amax(1).clamp_min(1e-6)[:, None, None, None]


def sheet(y: Tensor, operator: Operator, made: Tensor, originals: Tensor | None) -> Pixels:
    """A row for each image: its measurement, the restorations, their mean, their standard deviation (in units of its
    largest), and the original if it is known."""
    seen, mean, std = shown(y, operator, made)
    columns = [seen, *made.unbind(1), mean, std, *([] if originals is None else [originals])]
    rows = np.concatenate([to_bytes(each) for each in torch.stack(columns, 1)])
    made_of: Pixels = grid(rows, columns=len(columns))
    return made_of
