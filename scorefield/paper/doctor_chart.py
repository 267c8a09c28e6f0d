"""The doctor's pictures: images under noise beside their distances, and a model's errors beside what is possible."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from scorefield.data.images import Pixels
from scorefield.doctor.advice import PAPER
from scorefield.doctor.checkup import Errors
from scorefield.doctor.geometry import Geometry
from scorefield.files import new_file
from scorefield.images import grid, to_bytes
from scorefield.paper.output import new_figure

SHOWN = 10
"""Noise levels that are shown."""
COLOURS = {"advised": "tab:green", "paper": "tab:red", "continuous": "tab:blue"}


def draw_images_under_noise(
    title: str,
    images: Tensor,
    geometry: Geometry,
    distances: tuple[Tensor, Tensor],
    sigmas: Sequence[float],
    sigma_max: float,
    path: Path,
) -> Path:
    """Some images (n, C, H, W) under the advised noise levels; below, distances between images on the scale of σ.

    `sigma_max` is the largest σ of a network for all noise levels.
    """
    figure = new_figure(7.6, 1.2 + 0.62 * len(images) + 3.0)
    above, below = figure.subplots(2, 1, height_ratios=[0.62 * len(images) + 0.4, 3.0])
    places = np.unique(np.linspace(0, len(sigmas) - 1, min(SHOWN, len(sigmas))).round().astype(int))
    shown = [sigmas[k] for k in places][::-1]
    noise = torch.randn(images.shape, generator=torch.Generator().manual_seed(0))
    columns = [images, *(images + sigma * noise for sigma in shown)]
    sheet = grid(to_bytes(torch.stack(columns, 1).flatten(0, 1)), columns=len(columns), gap=1)
    above.imshow(sheet, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
    width = sheet.shape[1] / len(columns)
    above.set_xticks([(k + 0.5) * width for k in range(len(columns))], ["σ = 0", *(f"{each:.2g}" for each in shown)])
    above.set_yticks([])
    above.tick_params(length=0, labelsize=8)
    above.set_title(title, fontsize=10, parse_math=False)
    pairs, nearest = distances
    positive = pairs[pairs > 0]
    low = min(min(sigmas), PAPER.sigma_min, float(positive[0]) if len(positive) else 1.0) / 2
    edges = list(np.geomspace(low, 2 * max(sigma_max, geometry.farthest, 1.0), 120))
    for values, label in ((pairs, "two images"), (nearest, "an image and the nearest other")):
        counts, _ = np.histogram(values.numpy(), edges)
        below.stairs(counts / max(1, counts.max()), edges, fill=True, alpha=0.5, label=f"distance between {label}")
    for words, (most, least), kind in (
        ("advised list of levels", (max(sigmas), min(sigmas)), "advised"),
        ("the paper's list", (PAPER.sigma_max, PAPER.sigma_min), "paper"),
    ):
        for sigma in (most, least):
            below.axvline(sigma, color=COLOURS[kind], lw=1.2, ls="-" if sigma == most else ":")
        below.plot([], [], color=COLOURS[kind], label=f"{words}: σ from {most:g} to {least:g}")
    below.axvline(sigma_max, color=COLOURS["continuous"], lw=1.2)
    below.plot([], [], color=COLOURS["continuous"], label=f"largest σ for all noise levels: {sigma_max:g}")
    below.set_xscale("log")
    below.set(xlabel="σ, or distance (pixels in [0, 1])", yticks=[], ylim=(0, 1.6), xlim=(edges[0], edges[-1]))
    below.legend(fontsize=7.5, frameon=False, loc="upper left", ncols=2)
    for side in ("top", "right", "left"):
        below.spines[side].set_visible(False)
    with new_file(path) as file:
        figure.savefig(file, format="png", metadata={"Software": None})
    return path


def draw_checkup(title: str, errors: Errors, samples: Pixels | None, path: Path) -> Path:
    """A model's errors by noise level, between the trivial and the best that is possible; and its samples."""
    figure = new_figure(7.6 if samples is None else 10.4, 4.0)
    left, *right = figure.subplots(
        1, 1 if samples is None else 2, squeeze=False, width_ratios=None if samples is None else [1.6, 1]
    )[0]
    left.plot(errors.sigmas, errors.trivial, color="0.5", ls="--", label="trivial: the mean image, or a score of 0")
    left.plot(errors.sigmas, errors.training, color="tab:blue", marker="o", ms=3.5, label="training images")
    if errors.held_out is not None:
        left.plot(errors.sigmas, errors.held_out, color="tab:orange", marker="o", ms=3.5, label="held-out images")
    for name, values in errors.others.items():
        left.plot(errors.sigmas, values, lw=1, ls=":", marker=".", label=f"{name} weights")
    exact = [(sigma, each) for sigma, each in zip(errors.sigmas, errors.exact, strict=True) if each is not None]
    floor = (
        min((each for each in (*errors.judged, *errors.trivial) if math.isfinite(each) and each > 0), default=1e-3) / 5
    )
    if drawn := [(sigma, each) for sigma, each in exact if each > floor]:
        left.plot(*zip(*drawn, strict=True), color="tab:red", ls="--", label="least possible on training images")
    left.set(xscale="log", yscale="log", xlabel="σ", ylabel="share of the noise that is not recognised")
    left.set_ylim(floor, 1.6)
    left.set_title(title, fontsize=10, parse_math=False)
    left.legend(fontsize=7.5, frameon=False)
    for side in ("top", "right"):
        left.spines[side].set_visible(False)
    if samples is not None:
        right[0].imshow(grid(samples), cmap="gray", vmin=0, vmax=255, interpolation="nearest")
        right[0].set_axis_off()
        right[0].set_title(f"{len(samples)} samples", fontsize=10)
    with new_file(path) as file:
        figure.savefig(file, format="png", metadata={"Software": None})
    return path
