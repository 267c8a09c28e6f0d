"""A set of images in one array, its two parts for training and for checking, and batches that need no state."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]
"""Images of 0 ... 255, (N, H, W, C), or one of them, (H, W, C)."""


@dataclass(frozen=True, eq=False)
class Images:
    """Images as they lie in memory or in a read-only memory map, ready for `batch`."""

    pixels: Pixels = field(repr=False)
    """(N, H, W, C), C is 1 (grey) or 3 (red, green, blue)."""
    name: str
    """The source as the user gave it."""
    digest: str
    """SHA-256 of the pixels and their shape, in hexadecimal: the same images, from wherever, have the same digest."""

    def __len__(self) -> int:
        return len(self.pixels)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(C, H, W) of one image, the order that networks use."""
        _, height, width, channels = self.pixels.shape
        return channels, height, width


def digest_of(pixels: Pixels) -> str:
    """SHA-256 of shape and content, about a second for each GB; in pieces, for memory maps larger than memory."""
    digest = hashlib.sha256(repr(tuple(map(int, pixels.shape))).encode())
    rows = max(1, 2**24 // max(1, pixels[:1].nbytes))
    for start in range(0, len(pixels), rows):
        digest.update(np.ascontiguousarray(pixels[start : start + rows]).reshape(-1).data)
    return digest.hexdigest()


def split(images: Images, held_out: int) -> tuple[Images, Images]:
    """(the part to train on, `held_out` images to check on): drawn at random, but always the same for the same images.

    A memory map stays one: the images held out are not removed from it, but covered by ones from its end.
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
    others = np.setdiff1d(np.arange(left, len(images)), rows)
    kept = _private(images.pixels)
    kept[rows[rows < left]] = images.pixels[others]
    kept = kept[:left]
    kept.flags.writeable = False
    return _part(images, kept, f"all but {held_out}"), _part(images, images.pixels[rows], f"the {held_out}")


def _part(images: Images, pixels: Pixels, which: str) -> Images:
    return Images(pixels, images.name, hashlib.sha256(f"{which} held out of {images.digest}".encode()).hexdigest())


def _private(pixels: Pixels) -> Pixels:
    """The same pixels to write on, unseen by others: of a memory-mapped file, only the pages written to are copied."""
    if isinstance(pixels, np.memmap) and pixels.mode == "r" and pixels.flags.c_contiguous and pixels.filename:
        file = Path(pixels.filename)
        if pixels.offset + pixels.nbytes == file.stat().st_size:
            return np.memmap(file, dtype=np.uint8, mode="c", offset=pixels.offset, shape=pixels.shape)
    return np.array(pixels)


def batch(images: Images, *, seed: int, step: int, rank: int = 0, world: int = 1, size: int) -> Pixels:
    """The batch of one process at one step, (size, H, W, C): a function of the arguments alone, so resuming is exact.

    The batches are cut from an endless stream, one shuffled pass through the images after the other. The process with
    this `rank` among `world` takes positions step·size·world + rank·size + k, k < size: all of them together take what
    a single one would with size·world.
    """
    if not len(images):
        raise ValueError(f"there are no images in this part of {images.name} (hold out more)")
    places = indices(len(images), seed=seed, step=step, rank=rank, world=world, size=size)
    return np.take(np.asarray(images.pixels), places, axis=0)


def indices(n: int, *, seed: int, step: int, rank: int = 0, world: int = 1, size: int) -> NDArray[np.int64]:
    """Which of n images make up that batch."""
    if min(seed, step) < 0 or size < 1:
        raise ValueError(f"seed and step must be 0 or more and size 1 or more; got {seed=}, {step=}, {size=}")
    if not 0 <= rank < world:
        raise ValueError(f"rank must be one of 0 ... world − 1; got {rank=}, {world=}")
    start = (step * world + rank) * size
    return _stream(n, seed, start, start + size)


def _stream(n: int, seed: int, start: int, stop: int) -> NDArray[np.int64]:
    """The indices at these positions of the stream, pass by pass."""
    passes = range(start // n, (stop - 1) // n + 1)
    return np.concatenate([_pass(n, seed, e)[max(start - e * n, 0) : stop - e * n] for e in passes])


@lru_cache(maxsize=2)
def _pass(n: int, seed: int, number: int) -> NDArray[np.int64]:
    return _shuffled(n, seed, number)


def _shuffled(n: int, seed: int, *key: int) -> NDArray[np.int64]:
    """0 ... n − 1 in the order of n random numbers.

    NumPy promises that the bits of its generators stay what they are, but not that `permutation` does.
    """
    return np.argsort(np.random.Philox(np.random.SeedSequence(seed, spawn_key=key)).random_raw(n), kind="stable")
