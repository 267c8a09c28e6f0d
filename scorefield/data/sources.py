"""What a user may name as data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scorefield.data.arrays import array_images, read_array
from scorefield.data.folders import folder_images
from scorefield.data.images import Images
from scorefield.data.named import SETS, named_images
from scorefield.data.pictures import fit_of
from scorefield.progress import Track, silent


def exists(source: str) -> bool:
    """Whether there is something of that name: a named set, or a path, to whatever."""
    return source.partition(":")[0] in SETS or Path(source).expanduser().exists()


def load(
    source: str,
    *,
    image_size: int | tuple[int, int] | None = None,
    crop: int | None = None,
    track: Track[Any] = silent,
) -> Images:
    """The images of a source: a named set (`cifar10`, `cifar10:test`), a folder of images, an .npy or .npz file.

    `crop` cuts a centred square of that side out of each image; `image_size`, one number or (H, W), then resizes it,
    after it was cropped to that aspect ratio. A folder is decoded once and its images kept in the cache.
    """
    fit = fit_of(image_size, crop)
    name, colon, part = source.partition(":")
    if name in SETS:
        return named_images(name, part if colon else "train", source, fit, track=track)
    path = Path(source).expanduser()
    if source and path.is_dir():
        return folder_images(path, source, fit, track=track)
    if path.suffix.lower() in (".npy", ".npz") and path.is_file():
        return array_images(read_array(path), source, fit, track=track)
    what = "is neither a folder nor an array of images" if source and path.exists() else "does not exist"
    sets = ", ".join(f"{name}[:{'|'.join(parts[1:])}]" for name, parts in SETS.items())
    raise ValueError(
        f"data source {source!r} {what} (give a named set, one of {sets}; a folder of images; "
        "or an .npy or .npz file of uint8 images (N, H, W[, C]))"
    )
