"""Restorations of images: measurements by name, samples of their posterior, and how good they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from scorefield.data.images import Pixels
from scorefield.data.masks import make_mask
from scorefield.data.pictures import Fit
from scorefield.images import grid, to_bytes
from scorefield.models.model import Model
from scorefield.operators import Blur, Downsample, Grayscale, Mask, Operator
from scorefield.posteriors import Measurement, residual
from scorefield.progress import Track, silent
from scorefield.samplers import Sampler, State, to_dict

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
    """Floats (N, C, H, W): restorations with these numbers, of which number k is of image k // n. `measurement` has a
    row of y for each image. `replace_known` is Algorithm 2. `settings` are those of `Model.states`."""
    parts = [numbers[first : first + batch_size] for first in range(0, len(numbers), batch_size)]
    settings |= {"sampler": sampler, "size": min(batch_size, len(numbers))}

    def states() -> Iterator[State]:
        for part in parts:
            y = measurement.y[[k // n for k in part]]
            if replace_known:
                given: dict[str, Any] = {"known": (y, measurement.operator.mask)}  # type: ignore[attr-defined]
            else:
                given = {"measurement": replace(measurement, y=y)}
            yield from (state for state in model.states(part, **given, **settings) if state.step)

    total = sampler.updates * len(parts)
    made = [state.x.cpu() for state in track(states(), "restoring", total) if state.step == sampler.updates]
    return torch.cat([torch.empty(0, *model.shape), *made]).clamp(0, 1)


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
    each = {"mmps": measurement.iterations, "dps": 1}.get(method, 0)
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
        backward_passes=each * (sampler.calls or 0),
        seconds=round(seconds, 2),
        seed=seed,
        sampler=to_dict(sampler),
        machine=machine,
    )


def sheet(y: Tensor, operator: Operator, made: Tensor, originals: Tensor | None) -> Pixels:
    """A row for each image: its measurement, the restorations, their mean, their standard deviation (in units of its
    largest), and the original if it is known."""
    size, channels = made.shape[-2:], made.shape[2]
    shown = torch.where(operator.measured(y), y, 0.5)
    shown = F.interpolate(shown, size, mode="nearest").expand(-1, channels, -1, -1)
    std = made.std(1, correction=0)
    std = std / std.flatten(1).amax(1).clamp_min(1e-6)[:, None, None, None]
    columns = [shown, *made.unbind(1), made.mean(1), std, *([] if originals is None else [originals])]
    pictures = np.concatenate([to_bytes(each) for each in torch.stack(columns, 1)])
    made_of: Pixels = grid(pictures, columns=len(columns))
    return made_of
