"""What a user may name as data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scorefield.data.arrays import array_images, read_array
from scorefield.data.folders import folder_images
from scorefield.data.images import Images
from scorefield.data.named import SETS, named_images
from scorefield.data.pictures import parse_fit
from scorefield.progress import Track, silent


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
    that aspect ratio and resizes it. A folder is decoded once; its images are kept in the cache.
    """
    fit = parse_fit(image_size, crop)
    if source.partition(":")[0] in SETS:
        return named_images(source, fit, track=track)
    path = Path(source).expanduser()
    if source and path.is_dir():
        return folder_images(path, source, fit, track=track)
    if path.suffix.lower() in (".npy", ".npz") and path.is_file():
        pixels, labels, classes = read_array(path)
        return array_images(pixels, source, fit, labels, classes, track=track)
    what = "is neither a folder nor an array of images" if source and path.exists() else "does not exist"
    sets = ", ".join(f"{each.name}[:{'|'.join(each.parts[1:])}]" for each in SETS.values())
    raise ValueError(
        f"data source {source!r} {what} (give a named data set, one of {sets}; a folder of images; "
        "or an .npy or .npz file of uint8 images (N, H, W[, C]))"
    )
