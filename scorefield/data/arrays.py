"""Arrays of images: .npy and .npz files."""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scorefield.data.cache import prepared
from scorefield.data.folders import VERSION
from scorefield.data.images import Images, Pixels, digest_of
from scorefield.data.pictures import Fit, fitted
from scorefield.progress import Track

Array = NDArray[Any]

KEYS = ("images", "arr_0")
"""Where the images are looked for in an .npz file of several arrays."""


def array_images(pixels: Pixels, source: str, fit: Fit, *, track: Track[Any]) -> Images:
    """The images of an array; cropped and resized ones are cached under the digest of those they came from."""
    images = Images(pixels, source, digest_of(pixels))
    if fit == Fit():
        return images

    def read(k: int) -> Pixels:
        from PIL import Image

        row = np.asarray(pixels[k])
        return fitted(Image.fromarray(row[..., 0] if row.shape[-1] == 1 else row), f"{source}[{k}]", fit)

    key = hashlib.sha256(repr((VERSION, images.digest, tuple(fit))).encode()).hexdigest()
    names = [f"{source}[{k}]" for k in range(len(images))]
    return prepared(key, source, names, map(read, range(len(images))), track=track, what=f"resizing {source}")


def read_array(path: Path) -> Pixels:
    """The images in an .npy file, memory-mapped, or in an .npz file, as (N, H, W, C). Pickles are never opened."""
    try:
        array, keys = _opened(path)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(
            f"cannot read {path} as an array: {error} (write it by np.save or np.savez, as uint8)"
        ) from error
    if array is None:
        raise ValueError(f"{path} holds {', '.join(keys) or 'nothing'} (name the array of images {KEYS[0]!r})")
    return _checked(array, path)


def _opened(path: Path) -> tuple[Array | None, list[str]]:
    """The array in a file, or in an archive of arrays the one of images, if there is one, and the names of all."""
    with path.open("rb") as file:
        if file.read(2) == b"PK":  # a zip archive
            file.seek(0)
            with np.load(file, allow_pickle=False) as arrays:
                keys = list(arrays)
                key = keys[0] if len(keys) == 1 else next((key for key in KEYS if key in keys), None)
                return (None if key is None else arrays[key]), keys
    return np.load(path, mmap_mode="r", allow_pickle=False), []


def _checked(array: Array, path: Path) -> Pixels:
    """Arrays of the right type and layout, with a channel axis; every other one is refused with the way to mend it."""
    wrong = f"images must be uint8 of shape (N, H, W), (N, H, W, 1) or (N, H, W, 3); {path} holds {array.dtype}"
    wrong += f" of shape {array.shape}"
    if array.ndim not in (3, 4):
        raise ValueError(f"{wrong} (reshape it; for a single image: array[None])")
    if array.ndim == 4 and array.shape[-1] not in (1, 3):
        raise ValueError(f"{wrong} ({_layout_cure(array.shape)})")
    if array.dtype != np.uint8:
        raise ValueError(f"{wrong} ({_type_cure(array.dtype)})")
    if not array.size:
        raise ValueError(f"{wrong}: there is no image in it")
    return array if array.ndim == 4 else array[..., None]


def _layout_cure(shape: tuple[int, ...]) -> str:
    if shape[1] in (1, 3):
        return "put the channels last: array.transpose(0, 2, 3, 1)"
    if shape[-1] == 4:
        return "take off the opacity: array[..., :3]"
    return "keep one channel, array[..., :1], or three"


def _type_cure(dtype: np.dtype[Any]) -> str:
    if dtype.kind == "f":
        return "if it runs from 0 to 1, without NaN: (array * 255).round().astype(np.uint8)"
    if dtype.kind == "b":
        return "array.astype(np.uint8) * 255"
    return "if it runs from 0 to 255: array.astype(np.uint8)"
