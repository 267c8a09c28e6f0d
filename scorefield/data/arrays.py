"""Arrays of images: .npy and .npz files."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from scorefield.data.cache import Prepared, Row, prepared
from scorefield.data.folders import VERSION
from scorefield.data.images import Images, Labels, Pixels, digest_of
from scorefield.data.npy import Array, is_archive, map_array, names_of, read_arrays
from scorefield.data.pictures import Fit, crop_and_resize
from scorefield.progress import Track

MOST_CLASSES = 2**16
TYPE_FIXES = {
    "f": "if its values are in [0, 1], without NaN: (array * 255).round().astype(np.uint8)",
    "b": "array.astype(np.uint8) * 255",
}
"""How to convert images of other types, by NumPy's letter for the kind of type."""


def array_images(
    pixels: Pixels, source: str, fit: Fit, labels: Labels | None, classes: tuple[str, ...], *, track: Track[Any]
) -> Images:
    """The images of an array. Cropped and resized ones are cached under the digest of the original images."""
    digest = digest_of(pixels)
    if fit == Fit():
        return Images(pixels, source, digest, labels, classes)

    def read(k: int) -> Row:
        from PIL import Image

        row = np.asarray(pixels[k])
        picture = Image.fromarray(row[..., 0] if row.shape[-1] == 1 else row)
        return Prepared(crop_and_resize(picture, names[k], fit), row.shape[:2])

    key = hashlib.sha256(repr((VERSION, digest, tuple(fit))).encode()).hexdigest()
    names = [f"{source}[{k}]" for k in range(len(pixels))]
    rows = map(read, range(len(pixels)))
    return prepared(key, source, names, rows, fit, labels, classes, track=track, what=f"resizing {source}")


def read_array(path: Path) -> tuple[Pixels, Labels | None, tuple[str, ...]]:
    """Images (N, H, W, C), labels and class names of an .npy file, memory-mapped, or an .npz file."""
    try:
        arrays = _read_packed(path) if is_archive(path) else {"images": map_array(path)}
    except ValueError as error:
        fix = "write uint8 images with np.save(FILE, images) or np.savez(FILE, images=images)"
        raise ValueError(f"{error} ({fix})") from error
    pixels = _checked_images(arrays["images"], path)
    return pixels, *_checked_labels(arrays.get("labels"), arrays.get("classes"), len(pixels), path)


def _read_packed(path: Path) -> dict[str, Array]:
    """The arrays "images", "labels" and "classes" of an .npz file, as far as it has them. The images may have any name
    if there is no other array."""
    names = names_of(path)
    others = [name for name in names if name not in ("labels", "classes")]
    images = others[0] if len(others) == 1 else next((name for name in ("images", "arr_0") if name in others), "")
    if not images:
        held = ", ".join(names) or "nothing"
        raise ValueError(f"cannot read {path} as an array: it holds {held}, and no array named 'images'")
    arrays = read_arrays(path, [images, *(name for name in ("labels", "classes") if name in names)])
    return {"images": arrays.pop(images), **arrays}


def _checked_images(array: Array, path: Path) -> Pixels:
    """An array of the right type and layout, with a channel axis. Any other is an error that says how to convert it."""
    channels = array.shape[-1] if array.ndim == 4 else 1
    if array.ndim not in (3, 4):
        fix = "reshape it; for a single image: array[None]"
    elif channels not in (1, 3) and array.shape[1] in (1, 3):
        fix = "put the channels last: array.transpose(0, 2, 3, 1)"
    elif channels not in (1, 3):
        fix = "remove the alpha channel: array[..., :3]" if channels == 4 else "keep one channel: array[..., :1]"
    elif array.dtype != np.uint8:
        fix = TYPE_FIXES.get(array.dtype.kind, "if its values are in 0 ... 255: array.astype(np.uint8)")
    elif not array.size:
        fix = "there is no image in it: save at least one"
    else:
        return array if array.ndim == 4 else array[..., None]
    raise ValueError(
        f"images must be uint8 of shape (N, H, W), (N, H, W, 1) or (N, H, W, 3); {path} holds {array.dtype} of shape "
        f"{array.shape} ({fix})"
    )


def _checked_labels(
    labels: Array | None, classes: Array | None, n: int, path: Path
) -> tuple[Labels | None, tuple[str, ...]]:
    """Labels as class numbers, and the class names: those given, or else "0", "1", ... up to the largest label."""
    if labels is None:
        return None, ()
    count = MOST_CLASSES if classes is None else classes.size
    if labels.shape != (n,):
        fix = "save one label for each image, or leave out the array 'labels'"
    elif labels.dtype.kind not in "iu":
        fix = "number the classes: classes, labels = np.unique(labels, return_inverse=True)"
    elif classes is not None and (classes.ndim != 1 or classes.dtype.kind != "U"):
        fix = "save the class names as classes=np.array(names), or leave out the array 'classes'"
    elif labels.min() < 0 or labels.max() >= count:
        fix = f"they are in {labels.min()} ... {labels.max()}: number the classes from 0, and name all of them"
    else:
        names = map(str, range(int(labels.max()) + 1)) if classes is None else classes.tolist()
        return labels.astype(np.int64), tuple(names)
    raise ValueError(
        f"labels must be {n} integers in 0 ... {count - 1}, one for each image; {path} holds {labels.dtype} of shape "
        f"{labels.shape} ({fix})"
    )
