"""A set of images in one array, with labels; its split into training and held-out images; and stateless batches."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]
"""Images with values 0 ... 255, (N, H, W, C), or one of them, (H, W, C)."""
Labels = NDArray[np.int64]
"""The class number of each image, (N,)."""


@dataclass(frozen=True, eq=False)
class Images:
    """Images in memory or in a read-only memory map, with their labels if they have any."""

    pixels: Pixels = field(repr=False)
    """(N, H, W, C), where C is 1 (grey) or 3 (red, green, blue)."""
    name: str
    """The source as the user gave it."""
    digest: str
    """SHA-256 of the pixels and their shape, in hexadecimal. It does not depend on the source or the labels."""
    labels: Labels | None = field(default=None, repr=False)
    classes: tuple[str, ...] = ()
    """The name of each class, by its number; empty if there are no labels."""
    notes: tuple[str, ...] = field(default=(), repr=False)
    """What a user should know about how they were read: files that were skipped, images that were cropped or shrunk."""
    skipped: tuple[str, ...] = field(default=(), repr=False)
    """The names of files that could not be read, if they come from a folder."""

    def __post_init__(self) -> None:
        if self.labels is not None and len(self.labels) != len(self.pixels):
            raise ValueError(
                f"{self.name}: {len(self.pixels)} images, but {len(self.labels)} labels "
                "(to select images together with their labels, use Images.take or Images.first)"
            )

    def __len__(self) -> int:
        return len(self.pixels)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(C, H, W) of one image, the order that networks use."""
        _, height, width, channels = self.pixels.shape
        return channels, height, width

    def take(self, rows: slice | NDArray[np.int64], part: str) -> Images:
        """The images in these rows, with their labels. `part` says which they are; their digest is derived from it."""
        return _part(self, self.pixels[rows], rows, part)

    def first(self, n: int) -> Images:
        """The first n images, or all of them if there are fewer, with their labels."""
        return self.take(slice(n), f"the first {n}")


class Batch(NamedTuple):
    """Some images with their labels."""

    pixels: Pixels
    labels: Labels | None


def digest_of(pixels: Pixels) -> str:
    """SHA-256 of shape and content, about a second for each GB. It reads memory maps larger than memory in pieces."""
    digest = hashlib.sha256(repr(tuple(map(int, pixels.shape))).encode())
    rows = max(1, 2**24 // max(1, pixels[:1].nbytes))
    for start in range(0, len(pixels), rows):
        digest.update(np.ascontiguousarray(pixels[start : start + rows]).reshape(-1).data)
    return digest.hexdigest()


def split(images: Images, held_out: int) -> tuple[Images, Images]:
    """(images to train on, `held_out` held-out images): chosen at random, but always the same for the same images.

    A memory map stays one: the held-out images are not removed from it, but overwritten by images from its end.
    """
    left = len(images) - held_out
    if held_out < 0:
        raise ValueError(f"held_out must be 0 or more; got {held_out}")
    if left < 1:
        raise ValueError(
            f"holding out {held_out} of the {len(images)} images in {images.name} leaves none to train on "
            f"(hold out at most {len(images) - 1})"
        )
    seed = int(hashlib.sha256(images.digest.encode()).hexdigest(), 16)
    rows = np.sort(_shuffled(len(images), seed)[:held_out])
    overwritten, others = rows[rows < left], np.setdiff1d(np.arange(left, len(images)), rows)
    order = np.arange(left)
    order[overwritten] = others
    pixels = _private(images.pixels)
    pixels[overwritten] = images.pixels[others]
    pixels = pixels[:left]
    pixels.flags.writeable = False
    training = _part(images, pixels, order, f"all but {held_out} held out")
    return training, images.take(rows, f"the {held_out} held out")


def _part(images: Images, pixels: Pixels, rows: slice | NDArray[np.int64], part: str) -> Images:
    digest = hashlib.sha256(f"{part} of {images.digest}".encode()).hexdigest()
    labels = None if images.labels is None else images.labels[rows]
    return Images(pixels, images.name, digest, labels, images.classes, images.notes)


def _private(pixels: Pixels) -> Pixels:
    """A writable copy of the pixels. Of a memory-mapped file, only the pages written to are copied."""
    if isinstance(pixels, np.memmap) and pixels.mode == "r" and pixels.flags.c_contiguous and pixels.filename:
        file = Path(pixels.filename)
        if pixels.offset + pixels.nbytes == file.stat().st_size:
            return np.memmap(file, dtype=np.uint8, mode="c", offset=pixels.offset, shape=pixels.shape)
    return np.array(pixels)


def batch(images: Images, *, seed: int, step: int, rank: int = 0, world: int = 1, size: int) -> Batch:
    """The batch of one process at one step: `size` images with their labels. It depends on the arguments alone, so
    that a resumed run sees the same batches.

    The batches are cut from an endless stream of shuffled passes through the images. The process with this `rank` among
    `world` processes takes positions step·size·world + rank·size + k, k < size: together they take what a single
    process with batches of size·world would take.
    """
    if not len(images):
        raise ValueError(f"there are no images in this part of {images.name} (hold out more)")
    rows = indices(len(images), seed=seed, step=step, rank=rank, world=world, size=size)
    pixels = np.take(np.asarray(images.pixels), rows, axis=0)
    return Batch(pixels, None if images.labels is None else images.labels[rows])


def indices(n: int, *, seed: int, step: int, rank: int = 0, world: int = 1, size: int) -> NDArray[np.int64]:
    """The rows of that batch in a set of n images."""
    if min(seed, step) < 0 or size < 1:
        raise ValueError(f"seed and step must be 0 or more and size 1 or more; got {seed=}, {step=}, {size=}")
    if not 0 <= rank < world:
        raise ValueError(f"rank must be one of 0 ... world − 1; got {rank=}, {world=}")
    start = (step * world + rank) * size
    stop = start + size
    passes = range(start // n, (stop - 1) // n + 1)
    return np.concatenate([_shuffled(n, seed, e)[max(start - e * n, 0) : stop - e * n] for e in passes])


@lru_cache(maxsize=2)
def _shuffled(n: int, seed: int, *key: int) -> NDArray[np.int64]:
    """0 ... n − 1 in the order of n random numbers.

    NumPy promises that the bits of its generators do not change, but not that the results of `permutation` do not.
    """
    order = np.argsort(np.random.Philox(np.random.SeedSequence(seed, spawn_key=key)).random_raw(n), kind="stable")
    order.flags.writeable = False  # it is cached
    return order
