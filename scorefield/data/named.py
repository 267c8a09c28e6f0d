"""Data sets known by name, in their official files."""

from __future__ import annotations

import gzip
import io
import re
import struct
import tarfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from scorefield.data.arrays import array_images
from scorefield.data.download import NO_NETWORK, check, download
from scorefield.data.folders import file_images
from scorefield.data.images import Images, Pixels
from scorefield.data.pictures import Fit
from scorefield.data.places import folder_of
from scorefield.files import new_file
from scorefield.progress import Track

SETS = {"mnist": ("train", "test"), "cifar10": ("train", "test"), "celeba": ("train", "valid", "test")}
"""Names of the data sets and of their parts."""

MNIST_URL = "https://ossci-datasets.s3.amazonaws.com/mnist/"
MNIST_FILES = {"train": "train-images-idx3-ubyte", "test": "t10k-images-idx3-ubyte"}
MNIST_SHA256 = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
}
"""Of the unpacked files."""
MNIST_MAGIC = 0x00000803

CIFAR10_URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
CIFAR10_MD5 = "c32a1d4ab5d03f1284b67883e8d87530"
CIFAR10_FILES = {"train": [f"data_batch_{k}.bin" for k in range(1, 6)], "test": ["test_batch.bin"]}
CIFAR10_FOLDER = "cifar-10-batches-bin"
CIFAR10_RECORD = 1 + 3 * 32 * 32

CELEBA_URL = "https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html"
CELEBA_CROP, CELEBA_SIZE = 140, (32, 32)
"""As in the paper."""


def name_alone(source: str) -> str:
    """The last part of a path; of a folder that is called like a data set, ./NAME, which is not the data set."""
    *before, name = re.split(r"[/\\]", re.sub(r"[/\\]+$", "", source))
    return f"./{name}" if before and name.partition(":")[0] in SETS else name


def named_images(name: str, part: str, source: str, fit: Fit, *, track: Track[Any]) -> Images:
    """A part of a data set, fetched first if it is not on this machine."""
    if part not in SETS[name]:
        raise ValueError(f"{name} has no part {part!r} (choose from {', '.join(SETS[name])})")
    if name == "celeba":
        return celeba(part, source, fit, track=track)
    pixels = mnist(part, track=track) if name == "mnist" else cifar10(part, track=track)
    return array_images(pixels, source, fit, track=track)


def _missing(name: str, files: str, why: str) -> FileNotFoundError:
    return FileNotFoundError(
        f"{name}: {files} not found in {folder_of(name)}, and {why} "
        f"(put what is missing there, or set SCOREFIELD_DATA to the folder that holds {name}/)"
    )


def mnist(part: str, *, track: Track[Any]) -> Pixels:
    """(N, 28, 28, 1) from an IDX file."""
    name = MNIST_FILES[part]
    return _idx(*mnist_file(name, MNIST_SHA256[name], track=track))


def mnist_file(name: str, sha256: str, *, track: Track[Any]) -> tuple[bytes, Path]:
    """The content of one of MNIST's files, plain or gzipped, fetched first if it is not on this machine; its place."""
    plain = folder_of("mnist") / name
    packed = plain.with_name(f"{name}.gz")
    if not plain.is_file() and packed.is_file():
        try:
            return gzip.decompress(packed.read_bytes()), packed
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(f"{packed} is damaged: {error} (delete it, and it is downloaded anew)") from error
    if not plain.is_file():
        _fetch_mnist(plain, sha256, track=track)
    return plain.read_bytes(), plain


def _fetch_mnist(plain: Path, sha256: str, *, track: Track[Any]) -> None:
    url = f"{MNIST_URL}{plain.name}.gz"
    try:
        packed = download(url, track=track)
    except NO_NETWORK as error:
        files = f"{plain.name} and {plain.name}.gz"
        raise _missing("mnist", files, f"{url} cannot be downloaded: {error}") from error
    try:
        content = gzip.decompress(packed)
    except (EOFError, gzip.BadGzipFile, zlib.error):
        content = b""  # fails the check
    check(content, url, "sha256", sha256)
    with new_file(plain) as file:
        file.write(content)


def _idx(content: bytes, path: Path) -> Pixels:
    """IDX: a magic number (unsigned bytes, three axes), the lengths of the axes, all big-endian, and the bytes."""
    cure = "(delete it, and it is downloaded anew)"
    if len(content) < 16:
        raise ValueError(f"{path} has only {len(content)} bytes {cure}")
    magic, n, height, width = struct.unpack(">4I", content[:16])
    if magic != MNIST_MAGIC:
        raise ValueError(f"{path} is no IDX file of images: it starts with {magic:#x}, not {MNIST_MAGIC:#x} {cure}")
    if len(content) != 16 + n * height * width or not n * height * width:
        raise ValueError(f"{path} should hold {n} images of {height}×{width}, but has {len(content)} bytes {cure}")
    return np.frombuffer(content, np.uint8, offset=16).reshape(n, height, width, 1)


def cifar10(part: str, *, track: Track[Any]) -> Pixels:
    """(N, 32, 32, 3) from the files of the binary version, which may lie in the folder that their archive makes."""
    wanted, folder = CIFAR10_FILES[part], folder_of("cifar10")
    places = [place for place in (folder, folder / CIFAR10_FOLDER) if all((place / name).is_file() for name in wanted)]
    if not places:
        _fetch_cifar10(folder, wanted, track=track)
    records = [_records((places or [folder])[0] / name) for name in wanted]
    pixels = np.empty((sum(map(len, records)), 32, 32, 3), np.uint8)
    start = 0
    for each in records:
        pixels[start : start + len(each)] = each.transpose(0, 2, 3, 1)
        start += len(each)
    return pixels


def _records(path: Path) -> Pixels:
    """One file's images, (N, 3, 32, 32): each record is a label and 1024 bytes of red, of green and of blue."""
    content = np.fromfile(path, np.uint8)
    whole = len(content) > 0 and len(content) % CIFAR10_RECORD == 0
    if not whole or content[::CIFAR10_RECORD].max() > 9:
        raise ValueError(
            f"{path} is no file of CIFAR-10's binary version: its {len(content)} bytes are not records of a label, "
            "0 ... 9, and 3072 bytes (delete it, and it is downloaded anew)"
        )
    return content.reshape(-1, CIFAR10_RECORD)[:, 1:].reshape(-1, 3, 32, 32)


def _fetch_cifar10(folder: Path, wanted: list[str], *, track: Track[Any]) -> None:
    """All files of the archive, whichever were asked for; only those known by name are unpacked."""
    try:
        packed = download(CIFAR10_URL, track=track)
    except NO_NETWORK as error:
        raise _missing("cifar10", ", ".join(wanted), f"{CIFAR10_URL} cannot be downloaded: {error}") from error
    check(packed, CIFAR10_URL, "md5", CIFAR10_MD5)
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        for name in CIFAR10_FILES["train"] + CIFAR10_FILES["test"]:
            content = archive.extractfile(f"{CIFAR10_FOLDER}/{name}")
            assert content is not None, name
            with new_file(folder / name) as file:
                file.write(content.read())


def celeba(part: str, source: str, fit: Fit, *, track: Track[Any]) -> Images:
    """The aligned and cropped faces, centre-cropped and resized as in the paper, unless told otherwise."""
    folder = folder_of("celeba")
    faces, partition = folder / "img_align_celeba", folder / "list_eval_partition.txt"
    if not faces.is_dir() or not partition.is_file():
        why = f"it is not to be downloaded by programs: get both, the first from img_align_celeba.zip, at {CELEBA_URL}"
        raise _missing("celeba", "img_align_celeba/ and list_eval_partition.txt", why)
    number = str(SETS["celeba"].index(part))
    lines = [line.split() for line in partition.read_text(encoding="utf-8").splitlines() if line.strip()]
    names = sorted(line[0] for line in lines if line[1:] == [number])
    if not names:
        raise ValueError(f"{partition} lists no images of the {part} part, number {number} (download it anew)")
    if absent := [name for name in names if not (faces / name).is_file()]:
        raise ValueError(
            f"{len(absent)} of the {len(names)} images of the {part} part are not in {faces}, {absent[0]} for one "
            "(unpack img_align_celeba.zip anew)"
        )
    return file_images(faces, names, source, Fit(fit.crop or CELEBA_CROP, fit.size or CELEBA_SIZE), track=track)
