"""What the figures share: the paper's toy data, matplotlib, and the files of a figure: a picture and its numbers."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from scorefield.acceleration.threads import pytorch_threads
from scorefield.distributed import device_name
from scorefield.files import new_file, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LIGHT, HEAVY = [-5.0, -5.0], [5.0, 5.0]
WEIGHTS = [1 / 5, 4 / 5]
EXTENT = 8.0
"""The toy figures show [−8, 8]²."""


class Result(NamedTuple):
    """A finished figure: the file of its picture, and its numbers, which are in a JSON file beside it."""

    picture: Path
    numbers: dict[str, Any]


@contextmanager
def toy_work() -> Iterator[dict[str, Any]]:
    """A context for the work on a toy figure: it fails at once if matplotlib is missing, and uses one thread.

    More threads gain nothing on such small tensors, and on a busy machine they wait for each other. The dict that it
    gives holds the time and the machine when the work is done.
    """
    new_figure(1, 1)
    began, timing = time.perf_counter(), dict[str, Any]()
    try:
        with pytorch_threads(1):
            yield timing
    finally:
        timing |= {"seconds": round(time.perf_counter() - began, 1), "machine": device_name(torch.device("cpu"))}


def new_figure(width: float, height: float) -> Figure:
    """An empty figure; it needs no screen."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("figures need matplotlib (pip install matplotlib)") from error
    return Figure(figsize=(width, height), dpi=150, layout="constrained")


def save(figure: Figure, numbers: dict[str, Any], out: Path, name: str) -> Result:
    """Write out/NAME.png and out/NAME.json. If the writing is interrupted, the files stay as they were before."""
    picture, beside = out / f"{name}.png", out / f"{name}.json"
    with new_file(picture) as image, new_file(beside) as text:
        figure.savefig(image, format="png")
        text.write(json.dumps(plain(numbers), indent=2).encode() + b"\n")
    return Result(picture, numbers)


def grid(points: int) -> Tensor:
    """A regular grid of points² points over the square that the toy figures show, (points², 2)."""
    ticks = torch.linspace(-EXTENT, EXTENT, points)
    return torch.cartesian_prod(ticks, ticks)


def toy_axes(axes: Axes, title: str) -> None:
    """Square axes with few ticks, pale lines and this title."""
    axes.set(xlim=(-EXTENT, EXTENT), ylim=(-EXTENT, EXTENT), aspect="equal", xticks=(-5, 0, 5), yticks=(-5, 0, 5))
    axes.tick_params(length=2, labelsize=8, color="0.6", labelcolor="0.4")
    for side in axes.spines.values():
        side.set_color("0.8")
    axes.set_title(title, fontsize=10)
