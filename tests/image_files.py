"""Image files for the tests of data, in a folder of the test's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from scorefield.data import load, named

Array = NDArray[Any]


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing outside the test's own folder is read or written, and nothing is asked of the network."""
    monkeypatch.setenv("SCOREFIELD_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(named, "MNIST_URL", "http://127.0.0.1:9/")
    monkeypatch.setattr(named, "CIFAR10_URL", "http://127.0.0.1:9/cifar-10-binary.tar.gz")
    return tmp_path / "data"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "images").mkdir()
    return tmp_path / "images"


def noise(*shape: int, seed: int = 0, dtype: type = np.uint8) -> Array:
    return np.random.default_rng(seed).integers(0, np.iinfo(dtype).max, shape, dtype=dtype, endpoint=True)


def put(path: Path, pixels: Array, *, quality: int = 95, orientation: int | None = None) -> Path:
    """A new image file; JPEG alone loses something."""
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


def cache_of(root: Path) -> list[str]:
    return sorted(path.suffix for path in (root / "cache").glob("*"))


GREYS = noise(6, 5)


def fill(folder: Path, n: int) -> Array:
    pixels = noise(n, 4, 4, 3)
    for k, image in enumerate(pixels):
        put(folder / f"{k:03}.png", image)
    return pixels


def forbidden(path: Path) -> Image.Image:
    raise AssertionError(f"{path} was decoded")


def triangle(source: int, target: int) -> Array:
    """Resizing as a matrix: row k weighs the source by a triangle about (k + ½)·scale, as wide as scale either side."""
    scale = source / target
    centres, places = (np.arange(target) + 0.5) * scale, np.arange(source) + 0.5
    weights = np.maximum(0, 1 - abs(places - centres[:, None]) / max(scale, 1))
    return weights / weights.sum(1, keepdims=True)


def resized(pixels: Array, height: int, width: int) -> Array:
    """By the triangle filter along both axes, unrounded."""
    rows, columns = triangle(pixels.shape[0], height), triangle(pixels.shape[1], width)
    return np.einsum("ih,hwc,jw->ijc", rows, pixels.astype(float), columns, optimize=True)
