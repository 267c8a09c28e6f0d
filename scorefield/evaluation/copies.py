"""Samples beside the training images next to them: whether they are copies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from scorefield.data import Images
from scorefield.data.images import Pixels
from scorefield.evaluation.search import Embed, search
from scorefield.evaluation.subjects import HELD_OUT
from scorefield.images import grid, resized_like, save_png, zoom_for
from scorefield.metrics import Neighbors
from scorefield.progress import Track, silent

COLUMNS = 10
"""Neighbours shown beside each sample."""
ROWS = 20
"""Samples shown, at most."""
NEIGHBOURS = 50
"""Neighbours searched: the farthest of them tells how near is near."""


def check_neighbors(what: str, shape: tuple[int, ...] | None, training: Images, cure: str) -> None:
    """Whether these can be the neighbours of images of that shape (C, H, W); None: of any, in Inception's space."""
    if len(training) < 3:
        raise ValueError(f"{training.name} has {len(training)} images: too few to be anybody's neighbours ({cure})")
    if shape is not None and shape != training.shape:
        raise ValueError(f"{what} has images of {shape}, {training.name} of {training.shape} ({cure})")


def others_are(held_out: Images | None) -> str:
    """What the samples are compared with, in words."""
    return "held-out images" if held_out is not None else "training images among the others"


def neighbors_of(
    samples: Pixels,
    training: Images,
    held_out: Images | None,
    embed: Embed,
    *,
    flips: bool = True,
    device: torch.device | str = "cpu",
    track: Track[Any] = silent,
) -> tuple[Neighbors, Neighbors]:
    """The neighbours of the samples and of the held-out images; without these, of training images among the others."""
    if held_out is not None:
        others, skip = np.asarray(held_out.pixels[:HELD_OUT]), 0
    else:
        others, skip = np.asarray(training.pixels[:: max(1, len(training) // HELD_OUT)][:HELD_OUT]), 1
    sets, k = [samples, others], NEIGHBOURS + skip
    both = search(sets, training.pixels, embed, k=k, flips=flips, device=device, track=track)
    n = len(samples)
    mine = Neighbors(both.distances[:n, :NEIGHBOURS], both.numbers[:n, :NEIGHBOURS])
    return mine, Neighbors(both.distances[n:, skip:], both.numbers[n:, skip:])


def save_neighbors(out: Path, samples: Pixels, training: Pixels, found: Neighbors) -> None:
    """A picture: samples, a red line, and their neighbours."""
    shown = min(ROWS, len(samples))

    def sheet(pixels: Pixels, columns: int) -> Pixels:
        made = grid(pixels, columns=columns)
        return np.repeat(made, 3, axis=2) if made.shape[2] == 1 else made

    left = sheet(samples[:shown], 1)
    numbers = found.numbers[:shown, :COLUMNS].numpy()
    right = sheet(resized_like(training[numbers.reshape(-1)], samples), numbers.shape[1])
    line = np.zeros((len(left), 2, 3), np.uint8) + np.array([220, 20, 20], np.uint8)
    picture = np.concatenate([left, line, right], axis=1)
    save_png(out, picture, zoom=zoom_for(picture, target=1400))
