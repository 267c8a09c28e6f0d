"""The training images nearest to samples, and whether the samples are copies of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scorefield.data import Images
from scorefield.data.images import Pixels
from scorefield.distributed import float64_device
from scorefield.evaluation.inception import GPU_BATCH
from scorefield.evaluation.records import Copy, Memorisation
from scorefield.evaluation.sources import HELD_OUT
from scorefield.images import grid, resized_like, save_png, zoom_for
from scorefield.metrics import Neighbors, nearest
from scorefield.progress import Track, plural, silent

COLUMNS = 10
"""Neighbours shown beside each sample."""
ROWS = 20
"""The most samples shown."""
NEIGHBORS = 50
"""Neighbours searched for each image. The distance to the farthest of them is the scale of distances there."""
COPY = 1 / 3
"""An image is called a copy of its nearest training image if their distance is below this share of the distance to its
farthest neighbour; or of the distance of any held-out image to its nearest training image, which finds copies of images
that are in the training set many times."""
CHANCE = 0.05
"""The alarm is raised if the samples would have this many copies by chance with a probability below this."""
QUANTILES = (0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)

Embed = Callable[[Tensor], Tensor]
"""Bytes (B, H, W, C) -> the points (B, D) between which distances are measured."""


def in_pixels(pixels: Tensor) -> Tensor:
    """Images as points: their pixels in [0, 1]."""
    return pixels.flatten(1).double() / 255


def check_neighbors(what: str, shape: tuple[int, ...] | None, training: Images, fix: str) -> None:
    """Check that images of this shape (C, H, W) can be compared with the training images. None stands for images of
    any shape, in Inception's space."""
    if len(training) < 3:
        count = plural(len(training), "image")
        raise ValueError(f"{training.name} has {count}: too few to search for neighbours ({fix})")
    if shape is not None and shape != training.shape:
        raise ValueError(f"{what} has images of {shape}, but {training.name} has images of {training.shape} ({fix})")


def describe_others(held_out: Images | None) -> str:
    """What the samples are compared with, in words."""
    return "held-out images" if held_out is not None else "training images, each against the others"


def describe_copy(neighbors: int, held_out: Images | None) -> str:
    """What is called a copy, in words, where that many neighbours were searched for each image."""
    return (
        "a copy is an image whose distance to the nearest training image is below a third of its distance to the "
        f"farthest of the {neighbors} nearest, or of the smallest such distance among the {describe_others(held_out)}"
    )


def find_neighbors(
    samples: Pixels,
    training: Images,
    held_out: Images | None,
    embed: Embed,
    *,
    flips: bool = True,
    device: torch.device | str = "cpu",
    track: Track[Any] = silent,
) -> tuple[Neighbors, Neighbors]:
    """The training images nearest to the samples, and those nearest to the held-out images; or, if there are none, to
    some training images among the other ones. An image counts as it is or mirrored (`flips`). The search is exact."""
    if held_out is not None:
        others, skip = np.asarray(held_out.pixels[:HELD_OUT]), 0
    else:  # each training image is its own nearest neighbour, which is skipped
        others, skip = np.asarray(training.pixels[:: max(1, len(training) // HELD_OUT)][:HELD_OUT]), 1
    slow, cpu, accurate = embed is not in_pixels, torch.device(device).type == "cpu", float64_device(device)
    device = device if slow else accurate
    size, block = 100 if cpu else GPU_BATCH, 100 if slow and cpu else 4 * GPU_BATCH

    def embedded(pixels: Pixels, what: str = "") -> Tensor:
        parts = [pixels[first : first + size] for first in range(0, len(pixels), size)]
        tracked = track(parts, what, len(parts)) if slow and what else iter(parts)
        return torch.cat([embed(torch.as_tensor(np.array(part)).to(device)).to(accurate) for part in tracked])

    def blocks() -> Iterator[tuple[int, Tensor]]:
        starts = range(0, len(training), block)
        for start in track(starts, f"searching {plural(len(training), 'image')} for neighbours", len(starts)):
            yield start, embedded(training.pixels[start : start + block])

    images, n = (samples, others), len(samples)
    forms = [torch.cat([embedded(each, f"features of {plural(len(each), 'image')}") for each in images])]
    if flips:
        mirrored = (each[:, :, ::-1] for each in images)
        what = "features of {}".format
        forms.append(torch.cat([embedded(each, what(plural(len(each), "mirror image"))) for each in mirrored]))
    found = nearest(forms, blocks(), k=min(NEIGHBORS + skip, len(training)))
    distances, numbers = found.distances.cpu(), found.numbers.cpu()
    mine = Neighbors(distances[:n, :NEIGHBORS], numbers[:n, :NEIGHBORS])
    return mine, Neighbors(distances[n:, skip:], numbers[n:, skip:])


def measure_memorisation(samples: Neighbors, held_out: Neighbors) -> Memorisation:
    """How near samples are to the training images, against held-out images, which the model cannot have copied.

    `ratio` is a sample's distance to its nearest training image over the median of the held-out images' distances; it
    should be about 1. `isolation` is that distance over the distance to the farthest neighbour found, usually the 50th.
    It is small for copies only, while the distance itself is also small for any smooth image.

    Test sets contain near duplicates of training images (CIFAR-10 is known for it), so that a held-out image may be
    called a copy. The alarm therefore compares the numbers of copies, by Fisher's exact test. A single sample whose
    distance is below a third of any held-out image's is enough for the alarm.
    """
    usual, least = held_out.distances[:, 0].median().item(), held_out.distances[:, 0].min().item()
    copies, held_out_copies = _find_copies(samples, least), _find_copies(held_out, least)
    n, others = len(samples.distances), len(held_out.distances)
    chance = _probability_of_at_least(len(copies), n, len(copies) + len(held_out_copies), n + others)
    blatant = bool((samples.distances[:, 0] < COPY * least).any())
    return Memorisation(
        n=n,
        ratio=_quantiles(samples.distances[:, 0] / usual),
        held_out_ratio=_quantiles(held_out.distances[:, 0] / usual),
        held_out_distance=usual,
        isolation=_quantiles(_isolation(samples)),
        held_out_isolation=_quantiles(_isolation(held_out)),
        copies=tuple(Copy(sample=k, training_image=int(samples.numbers[k, 0])) for k in copies),
        held_out_copies=len(held_out_copies),
        held_out_n=others,
        chance=chance,
        alarm=bool(copies) and (blatant or chance < CHANCE),
    )


def _isolation(found: Neighbors) -> Tensor:
    """The distance to the nearest over the distance to the farthest neighbour found, (Q,); 0 if all are at distance
    0."""
    return (found.distances[:, 0] / found.distances[:, -1]).nan_to_num(nan=0.0)


def _find_copies(found: Neighbors, least: float) -> list[int]:
    near = (_isolation(found) < COPY) | (found.distances[:, 0] < COPY * least)
    return near.nonzero().flatten().tolist()


def _quantiles(values: Tensor) -> dict[str, float]:
    ordered = values.double().sort().values
    return {f"{q:g}": ordered[round(q * (len(ordered) - 1))].item() for q in QUANTILES}


def _probability_of_at_least(k: int, n: int, marked: int, total: int) -> float:
    """P(X ≥ k), where X counts the marked ones among n drawn from `total`: the tail of the hypergeometric law."""

    def log_ways(a: int, b: int) -> float:
        return math.lgamma(a + 1) - math.lgamma(b + 1) - math.lgamma(a - b + 1)

    tail = range(max(k, n + marked - total), min(n, marked) + 1)
    terms = (math.exp(log_ways(marked, i) + log_ways(total - marked, n - i) - log_ways(total, n)) for i in tail)
    return min(1.0, sum(terms))


def save_neighbors(out: Path, samples: Pixels, training: Pixels, found: Neighbors) -> None:
    """Write a picture with the samples to the left of a red line and their neighbours to the right."""
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
