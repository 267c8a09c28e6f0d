"""Data: named data sets, folders of images and arrays, loaded as uint8 pixels (N, H, W, C) with labels, and batches."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from scorefield.data.arrays import array_images, read_array
from scorefield.data.folders import folder_images, folder_sizes
from scorefield.data.images import Batch, Images, batch, indices, split
from scorefield.data.named import SETS
from scorefield.data.pictures import ENDINGS, Size, choose_size, parse_fit
from scorefield.data.places import folder_of
from scorefield.progress import Track, silent

__all__ = [
    "SETS",
    "Batch",
    "Images",
    "Size",
    "batch",
    "choose_size",
    "exists",
    "folder_of",
    "indices",
    "load",
    "sizes",
    "split",
]


def exists(source: str) -> bool:
    """Whether this is the name of a data set or the path of any file or folder."""
    return source.partition(":")[0] in SETS or Path(source).expanduser().exists()


def load(
    source: str,
    *,
    image_size: int | tuple[int, int] | None = None,
    crop: int | None = None,
    track: Track[Any] = silent,
) -> Images:
    """The images of a source, with their labels if it has any: a named data set (`cifar10`, `cifar10:test`), a folder
    of images (one subfolder for each class gives labels), an .npy or .npz file (with `images` and `labels`).

    `crop` cuts a centred square with this side out of each image. Then `image_size`, one number or (H, W), cuts it to
    that aspect ratio and resizes it. A folder is decoded once; its images are kept in the cache. `notes` of the result
    says what was skipped, cropped or resized.
    """
    fit = parse_fit(image_size, crop)
    name, colon, part = source.partition(":")
    if name in SETS:
        named = SETS[name]
        if colon and part not in named.parts:
            raise ValueError(f"{name} has no part {part!r} (choose from {', '.join(named.parts)})")
        images = named.load(part or named.parts[0], fit, track)
        return replace(images, name=source, classes=() if images.labels is None else named.classes)
    path = Path(source).expanduser()
    if source and path.is_dir():
        return folder_images(path, source, fit, track=track)
    if path.suffix.lower() in (".npy", ".npz") and path.is_file():
        pixels, labels, classes = read_array(path)
        return array_images(pixels, source, fit, labels, classes, track=track)
    what = "is neither a folder nor an array of images" if source and path.exists() else "does not exist"
    if path.suffix.lower() in ENDINGS and path.is_file():
        what = "is a single image"
    sets = ", ".join(f"{each.name}[:{'|'.join(each.parts[1:])}]" for each in SETS.values())
    raise ValueError(
        f"data source {source!r} {what} (give a named data set, one of {sets}; a folder of images; "
        "or an .npy or .npz file of uint8 images (N, H, W[, C]))"
    )


def sizes(source: str, *, track: Track[Any] = silent) -> Counter[Size]:
    """How many images of a folder or an array have each size (height, width), without decoding them. Files that are no
    images are left out; `load` names them. Of a source of another kind, nothing."""
    path = Path(source).expanduser()
    if source.partition(":")[0] in SETS or not source:
        return Counter()
    if path.is_dir():
        return folder_sizes(path, track=track)
    if path.suffix.lower() in (".npy", ".npz") and path.is_file():
        pixels, _, _ = read_array(path)
        return Counter({pixels.shape[1:3]: len(pixels)})
    return Counter()
