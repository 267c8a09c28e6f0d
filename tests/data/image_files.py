"""Image files for the tests of data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from scorefield.data import Images, load

Array = NDArray[Any]


def noise(*shape: int, seed: int = 0, dtype: type = np.uint8) -> Array:
    return np.random.default_rng(seed).integers(0, np.iinfo(dtype).max, shape, dtype=dtype, endpoint=True)


def put(path: Path, pixels: Array, *, quality: int = 95, orientation: int | None = None) -> Path:
    """Write an image file; only JPEG is not lossless."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(pixels)
    if orientation is None:
        image.save(path, quality=quality, lossless=True)
    else:
        image.getexif()[0x0112] = orientation
        image.save(path, quality=quality, lossless=True, exif=image.getexif())
    return path


def stored(path: Path) -> tuple[str, Array]:
    """Mode and pixels of an image file as Pillow reads it."""
    with Image.open(path) as image:
        return image.mode, np.asarray(image)


def only(folder: Path, *, image_size: int | tuple[int, int] | None = None, crop: int | None = None) -> Array:
    """The pixels of the one image in a folder."""
    (pixels,) = load(str(folder), image_size=image_size, crop=crop).pixels
    return pixels


def labels_of(images: Images) -> list[int]:
    """The labels, which these images must have."""
    assert images.labels is not None
    assert images.labels.dtype == np.int64
    return images.labels.tolist()


def cache_of(root: Path) -> list[str]:
    """The endings of the files in the cache."""
    return sorted(path.suffix for path in (root / "cache").glob("*"))


GREYS = noise(6, 5)


def fill(folder: Path, n: int) -> Array:
    """Write n small images, 000.png, 001.png, ..., and return their pixels."""
    pixels = noise(n, 4, 4, 3)
    for k, image in enumerate(pixels):
        put(folder / f"{k:03}.png", image)
    return pixels


def forbidden(path: Path, **options: Any) -> Image.Image:  # noqa: ANN401
    raise AssertionError(f"{path} was decoded")


def triangle(source: int, target: int) -> Array:
    """Resizing as a matrix: row k has triangular weights, centred at (k + ½)·scale, of half-width max(scale, 1)."""
    scale = source / target
    centres, places = (np.arange(target) + 0.5) * scale, np.arange(source) + 0.5
    weights = np.maximum(0, 1 - abs(places - centres[:, None]) / max(scale, 1))
    return weights / weights.sum(1, keepdims=True)


def resized(pixels: Array, height: int, width: int) -> Array:
    """The image resized by the triangle filter along both axes, not rounded."""
    rows, columns = triangle(pixels.shape[0], height), triangle(pixels.shape[1], width)
    return np.einsum("ih,hwc,jw->ijc", rows, pixels.astype(float), columns, optimize=True)
