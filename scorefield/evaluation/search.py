"""The training images next to given ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scorefield.data.images import Pixels
from scorefield.evaluation.features import Rows
from scorefield.evaluation.inception import AT_ONCE
from scorefield.metrics import Neighbors, nearest
from scorefield.progress import Track, silent

Embed = Callable[[Tensor], Tensor]
"""Bytes (B, H, W, C) -> the points (B, D) among which distances are measured."""


def in_pixels(pixels: Tensor) -> Tensor:
    """Images as points: their pixels in [0, 1]."""
    return pixels.flatten(1).double() / 255


def search(
    images: Sequence[Pixels],
    training: Rows,
    embed: Embed,
    *,
    k: int,
    flips: bool = True,
    block: int | None = None,
    device: torch.device | str = "cpu",
    track: Track[Any] = silent,
) -> Neighbors:
    """The k training images next to each of the images, as they are or mirrored (`flips`). Exact.

    `images`: one or more sets of them, which may differ in size where `embed` takes that. `block`: training images
    that are looked at together; None: few where they take long.
    """
    slow, cpu = embed is not in_pixels, torch.device(device).type == "cpu"
    block, size = block or (100 if slow and cpu else 4 * AT_ONCE), 100 if cpu else AT_ONCE

    def embedded(pixels: Pixels, what: str = "") -> Tensor:
        parts = [pixels[first : first + size] for first in range(0, len(pixels), size)]
        told = track(parts, what, len(parts)) if slow and what else iter(parts)
        return torch.cat([embed(torch.as_tensor(np.array(part)).to(device)) for part in told])

    def blocks() -> Iterator[tuple[int, Tensor]]:
        starts = range(0, len(training), block)
        for start in track(starts, f"searching {len(training)} images for neighbours", len(starts)):
            yield start, embedded(training[start : start + block])

    forms = [torch.cat([embedded(each, f"features of {len(each)} images") for each in images])]
    if flips:
        mirrored = (each[:, :, ::-1] for each in images)
        forms.append(torch.cat([embedded(each, f"features of {len(each)} mirror images") for each in mirrored]))
    found = nearest(forms, blocks(), k=min(k, len(training)))
    return Neighbors(found.distances.cpu(), found.numbers.cpu())
