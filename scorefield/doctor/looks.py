"""What can be wrong with a set of images: copies among them, empty images, classes of very different sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from scorefield.data import Images
from scorefield.data.images import Pixels
from scorefield.images import to_float
from scorefield.training.run import FEW

BLOCK = 2**25
"""How many bytes of images are looked at at once."""
NEAR = 0.02
"""Images are near-duplicates if their hashes agree and the root mean square of their difference is below this."""
COMPARED = 50
"""An image is compared with so many others of the same hash, so that thousands with one hash take no time."""
FLAT = 2
"""An image is constant if its pixels differ by at most so many grey levels of 255."""
NAMED = 5
UNBALANCED = 5.0
"""Classes are noted if the largest has this many times the images of the smallest."""


class Pair(NamedTuple):
    """Two images, by their numbers."""

    first: int
    second: int


@dataclass(frozen=True)
class Looks:
    """What was seen."""

    n: int
    shape: tuple[int, int, int]
    duplicates: tuple[Pair, ...]
    """Images that equal an earlier one, with that."""
    near_duplicates: tuple[Pair, ...]
    constant: tuple[int, ...]
    """Images without content."""
    classes: dict[str, int]
    """The number of images in each class."""

    def warnings(self, name_of: Callable[[int], str] = str) -> list[str]:
        """What a user should do something about, with what to do. `name_of` names an image by its number."""
        found = []
        if self.n < FEW:
            found.append(
                f"{self.n:,} images are few: a network may learn them by heart, and its samples be copies (check with "
                "scorefield neighbors; add images, or start from a pretrained model with --start)"
            )
        if self.duplicates:
            found.append(
                f"{_share(len(self.duplicates), self.n)} equal another one{_listed(self.duplicates, name_of)}: "
                "such images will be drawn too often, and held-out images may be training images (remove them)"
            )
        if self.near_duplicates:
            found.append(
                f"{_share(len(self.near_duplicates), self.n)} nearly equal another one"
                f"{_listed(self.near_duplicates, name_of)} (remove them, unless they are meant)"
            )
        if self.constant:
            named = ", ".join(map(name_of, self.constant[:NAMED])) + ", ..." * (len(self.constant) > NAMED)
            found.append(f"{_share(len(self.constant), self.n)} are one colour all over: {named} (remove them)")
        if self.classes and max(self.classes.values()) >= UNBALANCED * max(1, min(self.classes.values())):
            small, large = (
                min(self.classes, key=self.classes.__getitem__),
                max(self.classes, key=self.classes.__getitem__),
            )
            found.append(
                f"the classes differ in size: {small} has {self.classes[small]:,} and {large} {self.classes[large]:,} "
                f"images, so that {small} is learned less well (add images of it)"
            )
        return found


def look(images: Images) -> Looks:
    """Look at all images once."""
    pixels = images.pixels
    digests, hashes, flat = list[int](), list[NDArray[np.uint64]](), list[int]()
    count = max(1, BLOCK // max(1, pixels[:1].nbytes))
    for start in range(0, len(pixels), count):
        block = np.ascontiguousarray(pixels[start : start + count])
        rows = block.reshape(len(block), -1)
        digests += [hash(row.tobytes()) for row in rows]
        spread = block.reshape(len(block), -1, block.shape[-1])
        differ = (spread.max(1).astype(int) - spread.min(1)).max(1)
        flat += (start + np.flatnonzero(differ <= FLAT)).tolist()
        hashes.append(difference_hash(block))
    same = tuple(_equal(pixels, digests))
    skipped = {pair.second for pair in same} | set(flat)
    near = tuple(_near(pixels, np.concatenate(hashes), skipped))
    classes = dict[str, int]()
    if images.labels is not None:
        counts = np.bincount(images.labels, minlength=len(images.classes)).tolist()
        classes = dict(zip(images.classes, counts, strict=True))
    return Looks(len(pixels), images.shape, same, near, tuple(flat), classes)


def difference_hash(pixels: Pixels) -> NDArray[np.uint64]:
    """64 bits for each image: whether each of 8 × 8 parts of it, in grey, is brighter than the part to its right."""
    small = F.adaptive_avg_pool2d(to_float(pixels).mean(1, keepdim=True), (8, 9))
    bits = (small[..., 1:] < small[..., :-1] - 1e-6).flatten(1).numpy()
    return np.packbits(bits, axis=1).view(np.uint64)[:, 0]


def _equal(pixels: Pixels, digests: Sequence[int]) -> Iterator[Pair]:
    """Images that equal an earlier one, with the earliest of these."""
    first = dict[int, int]()
    for k, digest in enumerate(digests):
        earlier = first.setdefault(digest, k)
        if earlier != k and np.array_equal(pixels[earlier], pixels[k]):
            yield Pair(earlier, k)


def _near(pixels: Pixels, hashes: NDArray[np.uint64], skipped: set[int]) -> Iterator[Pair]:
    """Images that have the hash of an earlier one and nearly its pixels."""
    members = dict[int, list[int]]()
    for k, each in enumerate(hashes.tolist()):
        if k in skipped:
            continue
        earlier = members.setdefault(each, [])
        if earlier:
            there = torch.tensor(np.asarray(pixels[earlier[-COMPARED:]])).float() / 255
            here = torch.tensor(np.asarray(pixels[k])).float() / 255
            apart = (there - here).square().flatten(1).mean(1).sqrt()
            if apart.min() < NEAR:
                yield Pair(earlier[-COMPARED:][int(apart.argmin())], k)
                continue
        earlier.append(k)


def _share(n: int, of: int) -> str:
    return f"{n:,} of {of:,} images ({n / of:.1%})"


def _listed(pairs: Sequence[Pair], name_of: Callable[[int], str]) -> str:
    """The first pairs by name: (3 and 7, 4 and 9, ...)."""
    named = ", ".join(f"{name_of(each.first)} and {name_of(each.second)}" for each in pairs[:NAMED])
    return f" ({named}{', ...' * (len(pairs) > NAMED)})"
