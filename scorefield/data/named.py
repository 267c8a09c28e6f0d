"""Data sets known by name, read from their official files.

To add a data set, write its loader and its entry in `SETS`.
"""

from __future__ import annotations

import gzip
import io
import math
import os
import re
import struct
import tarfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scorefield.data.arrays import array_images
from scorefield.data.download import NO_NETWORK, check, download
from scorefield.data.folders import file_images
from scorefield.data.images import Images
from scorefield.data.pictures import Fit
from scorefield.data.places import folder_of
from scorefield.files import new_file
from scorefield.progress import Track

DELETE = "(delete it, and it is downloaded again)"


@dataclass(frozen=True)
class NamedSet:
    """A data set that is known by name."""

    name: str
    title: str
    """The name as people write it."""
    parts: tuple[str, ...]
    """What may follow the name and a colon. The first part is the default."""
    load: Callable[[str, Fit, Track[Any]], Images]
    """(part, crop and size, progress) -> its images with their labels; downloaded first if necessary and allowed."""
    classes: tuple[str, ...] = ()
    """The class names, by label; empty if the data set has no labels."""
    publishable: bool = True
    """Whether the terms of the data set allow its images to be shown in public."""


def short_name(source: str) -> str:
    """The last part of a path, which says nothing about this machine. A folder with the name of a data set becomes
    ./NAME, so that it is not taken for the data set."""
    *before, name = re.split(r"[/\\]", re.sub(r"[/\\]+$", "", source))
    return f"./{name}" if before and name.partition(":")[0] in SETS else name


def _download(name: str, url: str, files: str, track: Track[Any]) -> bytes:
    try:
        return download(url, track=track)
    except NO_NETWORK as error:
        raise _missing(name, files, f"{url} cannot be downloaded: {error}") from error


def _missing(name: str, files: str, why: str) -> FileNotFoundError:
    return FileNotFoundError(
        f"{name}: {files} not found in {folder_of(name)}, and {why} "
        f"(put what is missing there, or set SCOREFIELD_DATA to the folder that holds {name}/)"
    )


# ---------------------------------------------------------------- MNIST

MNIST_URL = "https://ossci-datasets.s3.amazonaws.com/mnist/"
MNIST_FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
MNIST_SHA256 = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
"""Checksums of the unpacked files."""
MOST_UNPACKED = 2**28
"""The longest of them has 47 MB, and a damaged file may claim any length."""


def load_mnist(part: str, fit: Fit, track: Track[Any]) -> Images:
    """(N, 28, 28, 1) from IDX files. If the label file is missing and cannot be downloaded, there are no labels."""
    image_file, label_file = MNIST_FILES[part]
    pixels, labels, note = _mnist_array(image_file, 3, track)[..., None], None, ""
    try:
        labels = _mnist_array(label_file, 1, track).astype(np.int64)
    except OSError as error:
        note = f"the images of mnist are loaded without their labels: {error}"
    if labels is not None and (len(labels) != len(pixels) or labels.max() > 9):
        raise ValueError(
            f"{label_file} in {folder_of('mnist')} should hold {len(pixels)} labels 0 ... 9, one for each image, but "
            f"has {len(labels)} labels 0 ... {labels.max()} {DELETE}"
        )
    images = array_images(pixels, f"mnist:{part}", fit, labels, (), track=track)
    return replace(images, notes=(note, *images.notes)) if note else images


def _mnist_array(name: str, dimensions: int, track: Track[Any]) -> NDArray[np.uint8]:
    """The array in one of MNIST's files, plain or gzipped, which is downloaded first if it is not on this machine."""
    plain = folder_of("mnist") / name
    packed = plain.with_name(f"{name}.gz")
    if plain.is_file():
        return _parse_idx(plain.read_bytes(), plain, dimensions)
    if not packed.is_file():
        return _parse_idx(_download_mnist(plain, track), plain, dimensions)
    if (unpacked := _unpack(packed.read_bytes())) is None:
        raise ValueError(f"{packed} is damaged: it cannot be unpacked {DELETE}")
    return _parse_idx(unpacked, packed, dimensions)


def _download_mnist(plain: Path, track: Track[Any]) -> bytes:
    url = f"{MNIST_URL}{plain.name}.gz"
    packed = _download("mnist", url, f"{plain.name} and {plain.name}.gz", track)
    content = check(_unpack(packed) or b"", url, "sha256", MNIST_SHA256[plain.name])
    with new_file(plain) as file:
        file.write(content)
    return content


def _unpack(packed: bytes) -> bytes | None:
    """The content of a gzip file; None if it is damaged or far too long."""
    try:
        with gzip.open(io.BytesIO(packed)) as file:
            content = file.read(MOST_UNPACKED + 1)
    except (EOFError, OSError, zlib.error):
        return None
    return content if len(content) <= MOST_UNPACKED else None


def _parse_idx(content: bytes, path: Path, dimensions: int) -> NDArray[np.uint8]:
    """IDX: a magic number (0x800 for unsigned bytes, plus the number of dimensions), the shape, all as big-endian
    32-bit integers, and the bytes."""
    header = 4 * (1 + dimensions)
    magic, *shape = struct.unpack(f">{1 + dimensions}I", content[:header].ljust(header, b"\0"))
    if magic != 0x800 + dimensions or len(content) != header + math.prod(shape) or not math.prod(shape):
        raise ValueError(
            f"{path} is not an IDX file with {dimensions} dimensions: it starts with {magic:#x} (expected "
            f"{0x800 + dimensions:#x}) and the shape {tuple(shape)}, and has {len(content)} bytes {DELETE}"
        )
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)


# ---------------------------------------------------------------- CIFAR-10

CIFAR10_URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
CIFAR10_MD5 = "c32a1d4ab5d03f1284b67883e8d87530"
CIFAR10_FILES = {"train": [f"data_batch_{k}.bin" for k in range(1, 6)], "test": ["test_batch.bin"]}
CIFAR10_FOLDER = "cifar-10-batches-bin"
CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR10_RECORD = 1 + 3 * 32 * 32


def load_cifar10(part: str, fit: Fit, track: Track[Any]) -> Images:
    """(N, 32, 32, 3) from the files of the binary version, which may be in the folder that their archive unpacks to."""
    wanted, folder = CIFAR10_FILES[part], folder_of("cifar10")
    places = [place for place in (folder, folder / CIFAR10_FOLDER) if all((place / name).is_file() for name in wanted)]
    if not places:
        _download_cifar10(folder, wanted, track)
    records = np.concatenate([_cifar10_records((places or [folder])[0] / name) for name in wanted])
    pixels = np.ascontiguousarray(records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
    return array_images(pixels, f"cifar10:{part}", fit, records[:, 0].astype(np.int64), (), track=track)


def _cifar10_records(path: Path) -> NDArray[np.uint8]:
    """The records of one file, (N, 3073): a label, then 1024 bytes each of red, green and blue."""
    content = np.fromfile(path, np.uint8)
    whole = len(content) > 0 and len(content) % CIFAR10_RECORD == 0
    if not whole or content[::CIFAR10_RECORD].max() > 9:
        raise ValueError(
            f"{path} is not a file of CIFAR-10's binary version: its {len(content)} bytes are not records of a label "
            f"0 ... 9 and 3072 bytes {DELETE}"
        )
    return content.reshape(-1, CIFAR10_RECORD)


def _download_cifar10(folder: Path, wanted: list[str], track: Track[Any]) -> None:
    """Download the archive and unpack all parts; only files with known names are unpacked."""
    packed = check(_download("cifar10", CIFAR10_URL, ", ".join(wanted), track), CIFAR10_URL, "md5", CIFAR10_MD5)
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        for name in CIFAR10_FILES["train"] + CIFAR10_FILES["test"]:
            content = archive.extractfile(f"{CIFAR10_FOLDER}/{name}")
            assert content is not None, name
            with new_file(folder / name) as file:
                file.write(content.read())


# ---------------------------------------------------------------- CelebA

CELEBA_URL = "https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html"
CELEBA_PARTS = ("train", "valid", "test")
"""By their number in list_eval_partition.txt."""
CELEBA_CROP, CELEBA_SIZE = 140, (32, 32)
"""As in the paper."""


def load_celeba(part: str, fit: Fit, track: Track[Any]) -> Images:
    """The aligned and cropped faces; centre-cropped and resized as in the paper, unless `fit` says otherwise."""
    folder = folder_of("celeba")
    faces, partition = folder / "img_align_celeba", folder / "list_eval_partition.txt"
    if not faces.is_dir() or not partition.is_file():
        why = f"programs may not download it: get both, the first from img_align_celeba.zip, at {CELEBA_URL}"
        raise _missing("celeba", "img_align_celeba/ and list_eval_partition.txt", why)
    number = str(CELEBA_PARTS.index(part))
    lines = [line.split() for line in partition.read_text(encoding="utf-8", errors="replace").splitlines()]
    names = sorted(line[0] for line in lines if line[1:] == [number])
    if not names:
        raise ValueError(f"{partition} lists no images of the {part} part, number {number} (download it again)")
    if absent := [name for name in names if not os.path.isfile(faces / name)]:  # noqa: PTH113 (for any name)
        raise ValueError(
            f"{faces} lacks {len(absent)} of the {len(names)} images that {partition.name} lists for the {part} part, "
            f"for example {absent[0]} (unpack img_align_celeba.zip again)"
        )
    fit = Fit(fit.crop or CELEBA_CROP, fit.size or CELEBA_SIZE)
    return file_images(faces, names, f"celeba:{part}", fit, track=track)


# ---------------------------------------------------------------- the registry

SETS: Mapping[str, NamedSet] = {
    each.name: each
    for each in (
        NamedSet("mnist", "MNIST", tuple(MNIST_FILES), load_mnist, tuple("0123456789")),
        NamedSet("cifar10", "CIFAR-10", tuple(CIFAR10_FILES), load_cifar10, CIFAR10_CLASSES),
        NamedSet("celeba", "CelebA", CELEBA_PARTS, load_celeba, publishable=False),
    )
}
"""The named data sets, by name."""
