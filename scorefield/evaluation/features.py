"""One pass over images, of which all the numbers are made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from scorefield.data.images import Pixels
from scorefield.distributed import Group
from scorefield.evaluation.inception import AT_ONCE
from scorefield.metrics import ClassScore, Statistics
from scorefield.progress import Track, silent

KEPT = 10_000
"""So many images' features are kept for KID, precision and recall: memory does not grow with n."""


class Rows(Protocol):
    """Images as bytes (N, H, W, C) that are read slice by slice: an array, a memory map, samples on the disk."""

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice, /) -> Pixels: ...


class Extractor(Protocol):
    """A network that makes features of images: Inception, or a smaller one in tests."""

    classes: Tensor | None
    digest: str

    def __call__(self, pixels: Tensor) -> Tensor:
        """Bytes (B, H, W, C) -> (B, D)."""

    def logits(self, features: Tensor) -> Tensor: ...


@dataclass
class Measured:
    """What a pass over n images leaves."""

    statistics: Statistics
    kept: Tensor
    """Features of up to KEPT images drawn at random, in random order, (K, D) in float32."""
    classes: ClassScore | None = None

    @property
    def n(self) -> int:
        return self.statistics.n


def measured(
    rows: Rows,
    n: int,
    network: Extractor,
    group: Group,
    *,
    batch_size: int = 0,
    piece: range | None = None,
    track: Track[Any] = silent,
    what: str = "features",
) -> Measured:
    """The first n images through the network, in one pass shared by all processes of the group; each gets the result.

    It does not depend on the batch size nor on the number of processes, but for rounding. `piece`: only these of them,
    by one process.
    """
    mine = group.share(n) if piece is None else piece
    size = batch_size or (AT_ONCE if group.device.type == "cuda" else 32)
    places = places_of(n)
    statistics: Statistics | None = None
    classes = ClassScore.empty(n, len(network.classes), device=group.device) if network.classes is not None else None
    kept = []
    starts = range(mine.start, mine.stop, size)
    for start in track(starts, f"{what} (batches of {size})", len(starts)):
        part = range(start, min(start + size, mine.stop))
        features = network(torch.as_tensor(np.array(rows[part.start : part.stop])).to(group.device))
        statistics = statistics or Statistics.empty(features.shape[1], device=group.device)
        statistics.add(features)
        here = places[part.start : part.stop]
        kept.append((here[here < KEPT], features[(here < KEPT).to(features.device)].float().cpu()))
        if classes is not None:
            classes.add(network.logits(features), here)
    return _joined(statistics, kept, classes, group)


def places_of(n: int) -> Tensor:
    """The places of n images in a random order, always the same: image files come sorted by name, often by class."""
    order = np.argsort(np.random.Philox(np.random.SeedSequence(n)).random_raw(n), kind="stable")
    places = torch.empty(n, dtype=torch.int64)
    places[torch.tensor(order)] = torch.arange(n)
    return places


def _joined(
    statistics: Statistics | None, kept: list[tuple[Tensor, Tensor]], classes: ClassScore | None, group: Group
) -> Measured:
    """What all processes have seen, joined by rank."""
    if statistics is not None:
        statistics = Statistics(statistics.n, statistics.mean.cpu(), statistics.scatter.cpu())
    if classes is not None:
        classes = ClassScore(classes.n, classes.count.cpu(), classes.total.cpu(), classes.entropy.cpu())
    parts = [part for part in group.all((statistics, kept, classes)) if part[0] is not None]
    whole, _, classes = parts[0]
    for more, _, others in parts[1:]:
        whole.merge(more)
        if classes is not None:
            classes.merge(others)
    places, features = (torch.cat(each) for each in zip(*(pair for part in parts for pair in part[1]), strict=True))
    return Measured(whole, features[places.argsort()], classes)


def kept_order(n: int, pieces: Sequence[range]) -> Tensor:
    """Where what `measured` keeps of each of these pieces of n images, one after the other, belongs among all."""
    places = places_of(n)
    parts = (places[piece.start : piece.stop] for piece in pieces)
    return torch.cat([part[part < KEPT].sort().values for part in parts]).argsort()
