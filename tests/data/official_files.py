"""The official files of MNIST and CIFAR-10, with any pixels and labels in them."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from data.image_files import Array
from scorefield.data.named import MNIST_FILES


def idx(array: Array, magic: int | None = None) -> bytes:
    """An IDX file."""
    magic = 0x800 + array.ndim if magic is None else magic
    return struct.pack(f">{1 + array.ndim}I", magic, *array.shape) + array.tobytes()


def records(pixels: Array, labels: Sequence[int] | None = None) -> bytes:
    """(N, 32, 32, 3) in CIFAR-10's binary version: a label, then all of red, all of green, all of blue."""
    labels = [k % 10 for k in range(len(pixels))] if labels is None else labels
    planes = (image.transpose(2, 0, 1).tobytes() for image in pixels)
    return b"".join(bytes([label]) + image for label, image in zip(labels, planes, strict=True))


def put_mnist(
    root: Path, part: str, pixels: Array, labels: Sequence[int] | None = None, *, packed: bool = False
) -> tuple[Path, Path]:
    """Write MNIST's image file and label file of a part; without labels, they are 0, 1, ..., 9, 0, ..."""
    (root / "mnist").mkdir(parents=True, exist_ok=True)
    numbers = np.array([k % 10 for k in range(len(pixels))] if labels is None else labels, np.uint8)
    image_file, label_file = (root / "mnist" / f"{name}{'.gz' if packed else ''}" for name in MNIST_FILES[part])
    for path, content in ((image_file, idx(pixels)), (label_file, idx(numbers))):
        path.write_bytes(gzip.compress(content) if packed else content)
    return image_file, label_file
