"""One image: from a file of any common format to 8-bit grey or RGB, cropped and resized."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import numpy as np

from scorefield.data.images import Pixels

if TYPE_CHECKING:  # Pillow is imported where it is used: training on arrays does not need it
    from PIL import Image

ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".bmp")
"""Files in a folder with these endings, in lower or upper case, are images."""
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF")
"""What such files may hold (a GIF often has another ending). Pillow would open some other formats with outside
programs."""
GREY = ("1", "L", "LA", "La")
"""Pillow's modes without colour, up to 8 bits."""


class Fit(NamedTuple):
    """How images are brought to one size: a centre crop to a square, then a resize to (H, W). None skips the step."""

    crop: int | None = None
    size: tuple[int, int] | None = None


def fit_to_model(shape: tuple[int, int, int], crop: int | None, size: tuple[int, int]) -> Fit:
    """How an image of this size (width, height) is fitted to a model of this shape (C, H, W): as its training images
    were. An image that already has the model's size, or that is too small for the crop, is not cropped."""
    _, height, width = shape
    if crop is not None and (size == (width, height) or crop > min(size)):
        crop = None
    return Fit(crop, (height, width))


def parse_fit(image_size: int | Sequence[int] | None, crop: int | None) -> Fit:
    """The crop and the size that the user asked for, checked."""
    if crop is not None and crop < 1:
        raise ValueError(f"crop must be positive; got {crop}")
    if image_size is None:
        return Fit(crop)
    size = [image_size, image_size] if isinstance(image_size, int) else list(image_size)
    if len(size) != 2 or min(size) < 1:
        raise ValueError(f"image_size must be one positive number, or height and width; got {image_size}")
    return Fit(crop, (size[0], size[1]))


def decode(file: Path | BinaryIO, *, check_size: Callable[[tuple[int, int]], None] | None = None) -> Image.Image:
    """The image in a file, in mode L if it is grey and RGB otherwise, rotated as its EXIF orientation says. Of an
    animation, the first frame. `check_size` is called with (width, height) before the pixels are decoded."""
    from PIL import Image, ImageOps

    with Image.open(file, formats=FORMATS) as image:
        if check_size is not None:
            check_size(image.size)
        return flat(ImageOps.exif_transpose(image))


def open_image(path: Path) -> Image.Image:
    """The image in a file that a user named."""
    if path.is_dir():
        raise ValueError(f"{path} is a folder (name one image in it)")
    if not path.is_file():
        raise FileNotFoundError(f"there is no image {path}")
    try:
        return decode(path)
    except Exception as error:  # Pillow raises many kinds of errors for damaged files, even SyntaxError
        raise ValueError(f"{path} is no image that can be read ({type(error).__name__}: {error})") from error


def flat(image: Image.Image) -> Image.Image:
    """Any image in mode L if it is grey, and RGB otherwise, in front of a white background."""
    if image.mode.startswith("I"):
        return _eight_bits(image)
    grey = image.mode in GREY
    if image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        flattened = _over_white(image.convert("LA" if grey else "RGBA"))
    else:
        flattened = image.convert("L" if grey else "RGB")
    return _without_colour(flattened) if image.mode in ("P", "PA") else flattened


def _eight_bits(image: Image.Image) -> Image.Image:
    """16-bit grey: 0 ... 65535 becomes 0 ... 255 by v → round(v · 255/65535) = round(v/257)."""
    from PIL import Image

    values = np.asarray(image).astype(np.int64).clip(0, 65535)
    if isinstance(clear := image.info.get("transparency"), int):
        values[values == clear] = 65535
    return Image.fromarray(((values + 128) // 257).astype(np.uint8))


def _over_white(image: Image.Image) -> Image.Image:
    """LA or RGBA in front of white: round((a·c + (255 − a)·255) / 255)."""
    from PIL import Image

    opaque = image.mode.removesuffix("A")
    white = Image.new(opaque, image.size, "white")
    white.paste(image.convert(opaque), mask=image.getchannel("A"))
    return white


def _without_colour(image: Image.Image) -> Image.Image:
    """RGB as L if all its pixels are grey: programs that shrink PNG files give grey images a palette."""
    red, green, blue = (np.asarray(channel) for channel in image.split())
    return image.getchannel("R") if np.array_equal(red, green) and np.array_equal(green, blue) else image


def crop_and_resize(image: Image.Image, name: str, fit: Fit) -> Pixels:
    """The pixels (H, W, C) of an image in mode L or RGB, cropped and resized. `name` is for the error message."""
    if (side := fit.crop) is not None:
        if side > min(image.size):
            raise ValueError(
                f"cannot crop {side}×{side} out of {name}, which is {image.height}×{image.width} "
                f"(crop at most {min(image.size)}, remove the smaller images, or use --crop None if they are cropped)"
            )
        left, top = (image.width - side) // 2, (image.height - side) // 2
        image = image.crop((left, top, left + side, top + side))
    if fit.size is not None:
        image = _resized(image, *fit.size)
    pixels = np.asarray(image)
    return pixels if pixels.ndim == 3 else pixels[..., None]


def _resized(image: Image.Image, height: int, width: int) -> Image.Image:
    """The largest centred part with this aspect ratio, resized with Pillow's antialiased triangle filter.

    The paper's released code resizes CelebA with this filter. Its weights are positive, so it adds no halos at edges as
    LANCZOS and BICUBIC do. The part begins at a whole pixel, so that an image that needs no scaling is not blurred.
    """
    from PIL import Image

    part_width = min(image.width, image.height * width / height)
    part_height = min(image.height, image.width * height / width)
    left, top = int((image.width - part_width) / 2), int((image.height - part_height) / 2)
    part = image.crop((left, top, left + math.ceil(part_width), top + math.ceil(part_height)))
    return part.resize((width, height), Image.Resampling.BILINEAR, box=(0, 0, part_width, part_height))
