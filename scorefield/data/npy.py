"""Arrays in .npy and .npz files. Pickles are never opened, and no memory is taken for what a file only claims."""

from __future__ import annotations

import math
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

Array = NDArray[Any]

MOST_PACKED = 1100
"""A packed file cannot become longer than about this many times: 1,032 for zip's usual method."""


def map_array(path: Path) -> Array:
    """The array in an .npy file, memory-mapped. A ValueError says what is wrong with a damaged file."""
    with _reading(path):
        if is_archive(path):  # which NumPy would open, and not close if it is damaged
            raise ValueError("it is an archive of arrays")
        array: Array = np.load(path, mmap_mode="r", allow_pickle=False)
        return array


def is_archive(path: Path) -> bool:
    """Whether this is a zip archive, as .npz files are, whatever it is called."""
    with path.open("rb") as file:
        return file.read(2) == b"PK"


def names_of(path: Path) -> list[str]:
    """The names of the arrays in an .npz file."""
    with _reading(path), zipfile.ZipFile(path) as archive:
        return [name.removesuffix(".npy") for name in archive.namelist()]


def read_arrays(path: Path, names: Sequence[str]) -> dict[str, Array]:
    """These arrays of an .npz file, by name. A ValueError says what is wrong with a damaged file."""
    with _reading(path):
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                if member.filename.removesuffix(".npy") in names:
                    _check_claims(archive, member, path.stat().st_size)
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in names}


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Inside, all that is wrong with the content of the file is a ValueError, and NumPy does not warn."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about headers that an old Python wrote
            yield
    except (FileNotFoundError, PermissionError, IsADirectoryError, MemoryError):
        raise
    except Exception as error:  # NumPy parses headers as Python; it, zipfile and zlib raise errors of many kinds
        raise ValueError(f"cannot read {path} as an array: {_words(error)}") from error


def _check_claims(archive: zipfile.ZipFile, member: zipfile.ZipInfo, size: int) -> None:
    """Raise an error for a member that claims to be longer than it can be in an archive of that size, or an array that
    claims to be longer than its member."""
    usual = member.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
    if usual and member.file_size > MOST_PACKED * min(member.compress_size, size) + 1000:
        raise ValueError(f"{member.filename} cannot have {member.file_size:,} bytes in a file of {size:,}")
    with archive.open(member) as file:
        version = npy.read_magic(file)
        readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
        if version in readers:
            shape, _, dtype = readers[version](file)
            if math.prod(shape) * dtype.itemsize > member.file_size and not dtype.hasobject:
                raise ValueError(f"{member.filename} has {member.file_size:,} bytes, which are no array of {shape}")


def _words(error: Exception) -> str:
    return " ".join(f"{error}".split())[:300] or type(error).__name__
