"""One pass of images through a network, from whose features all metrics are computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from scorefield.data.images import Pixels
from scorefield.distributed import Group
from scorefield.evaluation.inception import GPU_BATCH
from scorefield.metrics import ClassScore, Statistics
from scorefield.progress import Track, silent

KEPT = 10_000
"""The most images whose features are kept for KID, precision and recall, so that memory does not grow with n."""


class Rows(Protocol):
    """Images as bytes (N, H, W, C) that are read slice by slice: an array, a memory map, or samples on disk."""

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice, /) -> Pixels: ...


class Extractor(Protocol):
    """A network that computes features of images: Inception, or a smaller one in tests."""

    classes: Tensor | None
    digest: str

    def __call__(self, pixels: Tensor) -> Tensor:
        """Bytes (B, H, W, C) -> features (B, D)."""

    def logits(self, features: Tensor) -> Tensor: ...


@dataclass
class Features:
    """What a pass over n images computes."""

    statistics: Statistics
    kept: Tensor
    """Features of up to KEPT images drawn at random, in random order, (K, D) in float32."""
    classes: ClassScore | None = None

    @property
    def n(self) -> int:
        return self.statistics.n


def measure(
    rows: Rows,
    n: int,
    network: Extractor,
    group: Group,
    *,
    batch_size: int = 0,
    piece: range | None = None,
    track: Track[Any] = silent,
    what: str = "features",
) -> Features:
    """The features of the first n images, in one pass that all processes of the group share; each gets the result.

    Except for rounding, it does not depend on the batch size or the number of processes. `piece`: measure only these
    of the n images, in one process.
    """
    mine = group.share(n) if piece is None else piece
    size = batch_size or (GPU_BATCH if group.device.type == "cuda" else 32)
    places = random_places(n)
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
    return _join(statistics, kept, classes, group)


def random_places(n: int) -> Tensor:
    """The places of n images in a random order, which is always the same: image files are sorted by name, and so often
    by class."""
    order = np.argsort(np.random.Philox(np.random.SeedSequence(n)).random_raw(n), kind="stable")
    places = torch.empty(n, dtype=torch.int64)
    places[torch.tensor(order)] = torch.arange(n)
    return places


def _join(
    statistics: Statistics | None, kept: list[tuple[Tensor, Tensor]], classes: ClassScore | None, group: Group
) -> Features:
    """What all processes have measured, joined by rank."""
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
    return Features(whole, features[places.argsort()], classes)


def kept_order(n: int, pieces: Sequence[range]) -> Tensor:
    """The order that puts the features kept from these pieces of n images, one piece after the other, into the order
    in which a single pass would keep them."""
    places = random_places(n)
    parts = (places[piece.start : piece.stop] for piece in pieces)
    return torch.cat([part[part < KEPT].sort().values for part in parts]).argsort()
