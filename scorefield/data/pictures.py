"""One image: from a file of any common format to 8-bit grey or RGB, cropped and resized."""

from __future__ import annotations

import logging
import math
import os
import stat
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import numpy as np

from scorefield.data.images import Pixels

if TYPE_CHECKING:  # Pillow is imported where it is used: training on arrays does not need it
    from PIL import Image

ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")
"""Files in a folder with these endings, in lower or upper case, are images."""
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF")
"""What such files may hold. Pillow would open some other formats with outside programs."""
SIDES = (64, 32, 16, 8)
"""The sides of squares that a size is chosen from."""
TOO_SMALL = 0.1
"""The largest share of the images that may have to be enlarged to the chosen size."""
LEAST_SIDE = 20
"""Images are not halved if that makes a side shorter than this."""
ALIKE, SAME_SHAPE = 0.03, 0.98
"""Images have the same shape if their ratios of height to width differ by no more than ALIKE, as a share. The chosen
size has that shape if at least SAME_SHAPE of the images have it."""
KINDS = "PNG, JPEG, WebP, BMP, GIF or TIFF"
"""The same for messages."""
GREY = ("1", "L", "LA", "La")
"""Pillow's modes without colour, up to 8 bits."""
SURE = 2**22
"""So many pixels are decoded in any case."""
DENSEST = 10_000
"""The most pixels for each byte of a file that claims to have more: blank PNGs in black and white have 8,000, and
damaged files may claim any number. Blank TIFFs and WebPs may have more, and are decoded up to `MOST_BLANK` pixels."""
MOST_BLANK = 2**26
MOST_PIXELS = 2**27
"""The most pixels of any image: decoding takes up to nine bytes for each."""
MOST_BYTES = 2**31
"""The longest file that is read."""
STRIPE = 2**20
"""About how many pixels of 16 bits are converted at once, so that large images take little memory."""

TRAITS = {
    "frames": "animated or with several pages, of which the first is used",
    "turned": "turned as their EXIF orientation says",
    "clear": "with transparent parts, put in front of white",
    "deep": "of 16 bits per channel, rounded to 8",
    "print": "in the colours of print (CMYK), converted without a colour profile",
    "profile": "with a colour profile other than sRGB, which is not applied: their colours may be slightly off",
}
"""What a file may have that is handled, but that a user should know of, with what is done about it."""

Size = tuple[int, int]
"""Height and width."""

logging.getLogger("PIL").addHandler(logging.NullHandler())  # or it prints some errors besides raising them


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


def open_file(path: Path) -> BinaryIO:
    """A file of the disk, opened. Anything else with that name is an error: a pipe would be waited for without end."""
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode):
        kinds = {stat.S_IFDIR: "folder", stat.S_IFIFO: "pipe", stat.S_IFSOCK: "socket"}
        raise ValueError(f"it is a {kinds.get(stat.S_IFMT(mode), 'device')} and no file")
    opened = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    file = os.fdopen(opened, "rb")
    if (length := os.fstat(opened).st_size) > MOST_BYTES:
        file.close()
        raise ValueError(f"it has {length:,} bytes, and no image is read that has more than {MOST_BYTES:,}")
    return file


def size_in_file(path: Path) -> Size | None:
    """The size of the image in a file, turned as its EXIF orientation says, from its first bytes alone; None if they
    are not those of an image."""
    from PIL import Image

    try:
        with open_file(path) as file, Image.open(file, formats=FORMATS) as image:
            known = image.format != "PNG" or "exif" in image.info  # or Pillow would decode the image to find it
            turned = known and _orientation(image) >= 5
            return (image.width, image.height) if turned else (image.height, image.width)
    except Exception:  # Pillow raises many kinds of errors for damaged files; they are named when images are decoded
        return None


def _orientation(image: Image.Image) -> int:
    """The EXIF orientation, from 1 to 8; 1 if there is none that can be read."""
    try:
        found = image.getexif().get(0x0112)
    except Exception:  # damaged EXIF data
        return 1
    return found if isinstance(found, int) and 2 <= found <= 8 else 1


def unheard(trait: str) -> None:
    """The default of `tell`: nobody is told."""


class NotAnImageError(ValueError):
    """A file is of no kind that is read."""


def decode(
    file: Path | BinaryIO,
    *,
    check_size: Callable[[tuple[int, int]], None] | None = None,
    tell: Callable[[str], object] = unheard,
) -> Image.Image:
    """The image in a file, in mode L if it is grey and RGB otherwise, rotated as its EXIF orientation says. Of several
    frames or pages, the first. `check_size` is called with (width, height) before the pixels are decoded, and `tell`
    with each of TRAITS that the image has."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    if isinstance(file, Path):  # a path would be memory-mapped, by which Pillow garbles TIFFs that are to be rotated
        with open_file(file) as opened:
            return decode(opened, check_size=check_size, tell=tell)
    length = file.seek(0, os.SEEK_END)
    file.seek(0)
    try:
        found = Image.open(file, formats=FORMATS)
    except UnidentifiedImageError:
        file.seek(0)
        raise NotAnImageError(_not_an_image(file.read(64))) from None
    with found as image:
        if image.format == "TIFF":
            _silence_libtiff()
        if check_size is not None:
            check_size(image.size)
        sure = MOST_BLANK if image.format == "WEBP" or image.info.get("compression") == "group4" else SURE
        if math.prod(image.size) > max(sure, DENSEST * length):
            raise ValueError(f"it claims to have {image.width:,} × {image.height:,} pixels, in {length:,} bytes")
        most = min(MOST_PIXELS, MOST_BLANK) if image.format == "WEBP" else MOST_PIXELS  # WebP takes more memory
        if math.prod(image.size) > most:
            raise ValueError(f"it has {image.width:,} × {image.height:,} pixels; at most {most:,} are read")
        _tell_traits(image, tell)
        if _orientation(image) > 1:
            tell("turned")
            ImageOps.exif_transpose(image, in_place=True)
        return flat(image, tell=tell)


def _not_an_image(head: bytes) -> str:
    """Why a file that begins like this is no image, in words."""
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if not head:
        return "it is empty"
    if start.startswith((b"<!doctype", b"<html", b"<head", b"<?xml", b"<svg", b"{")):
        return "it holds text, such as a web page, and no image"
    if head[4:8] == b"ftyp":
        return "it holds an image or a film of another kind, such as HEIC or AVIF"
    return f"it holds no {KINDS} image"


def _tell_traits(image: Image.Image, tell: Callable[[str], object]) -> None:
    """Tell the traits that are known before an image is decoded."""
    with suppress(Exception):  # damage after the first frame
        # not MPO, the JPEG of some cameras: it always has a second picture, such as a thumbnail
        if image.format in ("GIF", "PNG", "WEBP", "TIFF") and getattr(image, "is_animated", False):
            tell("frames")
    tiles = (str(tile[3]) for tile in getattr(image, "tile", ()) if len(tile) > 3)
    if image.mode.startswith("I") or (image.format in ("PNG", "TIFF") and any(";16" in each for each in tiles)):
        tell("deep")
    if image.mode == "CMYK":
        tell("print")
    elif image.mode not in GREY and not image.mode.startswith("I") and not _is_srgb(image.info.get("icc_profile")):
        tell("profile")


def _is_srgb(profile: object) -> bool:
    """Whether a colour profile says that it is sRGB, which an image without one has."""
    names = ("sRGB".encode(encoding) for encoding in ("ascii", "utf-16-be"))
    return not isinstance(profile, bytes) or any(name in profile for name in names)


@cache
def _silence_libtiff() -> None:
    """Keep libtiff, where Pillow uses it, from printing errors that Pillow raises anyway."""
    import ctypes

    from PIL import _imaging

    with suppress(OSError, AttributeError):  # it may be built in, without a name that can be found
        ctypes.CDLL(_imaging.__file__).TIFFSetErrorHandler(None)


@contextmanager
def without_warnings() -> Iterator[None]:
    """Inside, Pillow does not warn about what it finds odd in a file: the file is read, or there is an error."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"PIL\.")
        yield


def open_image(path: Path) -> Image.Image:
    """The image in a file that a user named."""
    if path.is_dir():
        raise ValueError(f"{path} is a folder (name one image in it)")
    if not path.is_file():
        raise FileNotFoundError(f"there is no image {path} (check its name)")
    try:
        with without_warnings():
            return decode(path)
    except Exception as error:  # Pillow raises many kinds of errors for damaged files, even SyntaxError
        raise ValueError(f"{path} cannot be read as an image: {reason(error)} (save it again as {KINDS})") from error


def reason(error: Exception) -> str:
    """Why an image cannot be read: our own words, or what Pillow calls it."""
    if type(error) in (ValueError, NotAnImageError):
        return f"{error}"
    words = error.strerror if isinstance(error, OSError) else None  # without the file's path, which may change
    return f"{type(error).__name__}: {words or error}"


def flat(image: Image.Image, *, tell: Callable[[str], object] = unheard) -> Image.Image:
    """Any image in mode L if it is grey, and RGB otherwise, in front of a white background."""
    if image.mode == "F":
        raise ValueError(
            "its pixels are floating-point numbers, which may have any range (save them with 8 or 16 bits)"
        )
    if image.mode.startswith("I"):
        return _eight_bits(image, tell)
    mode = "L" if image.mode in GREY else "RGB"
    if image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        flattened = _over_white(image, mode, tell)
    else:
        flattened = image.convert(mode)
    return _without_colour(flattened) if image.mode in ("P", "PA") else flattened


def _stripes(image: Image.Image) -> Iterator[tuple[int, Image.Image]]:
    """An image in parts of whole rows, each with the number of its first row: less memory for what is done to them."""
    rows = max(1, STRIPE // max(1, image.width))
    for top in range(0, image.height, rows):
        yield top, image.crop((0, top, image.width, min(top + rows, image.height)))


def _eight_bits(image: Image.Image, tell: Callable[[str], object]) -> Image.Image:
    """16-bit grey: 0 ... 65535 becomes 0 ... 255 by v → round(v · 255/65535) = round(v/257)."""
    from PIL import Image

    made = np.empty((image.height, image.width), np.uint8)
    clear, seen = image.info.get("transparency"), False
    for top, part in _stripes(image):
        values = np.asarray(part).astype(np.int64).clip(0, 65535)
        if isinstance(clear, int):
            seen |= bool((values == clear).any())
            values[values == clear] = 65535
        made[top : top + part.height] = (values + 128) // 257
    if seen:
        tell("clear")
    return Image.fromarray(made)


def _over_white(image: Image.Image, mode: str, tell: Callable[[str], object]) -> Image.Image:
    """A transparent image as L or RGB in front of white: round((a·c + (255 − a)·255) / 255)."""
    from PIL import Image

    white, least = Image.new(mode, image.size, "white"), 255
    for top, part in _stripes(image):
        layer = part.convert(f"{mode}A")
        opacity = layer.getchannel("A")
        white.paste(layer.convert(mode), (0, top), mask=opacity)
        least = min(least, np.asarray(opacity).min())
    if least < 255:
        tell("clear")
    return white


def _without_colour(image: Image.Image) -> Image.Image:
    """RGB as L if all its pixels are grey: programs that shrink PNG files give grey images a palette."""
    pixels = (np.asarray(part) for _, part in _stripes(image))
    return image.getchannel("R") if all((part == part[..., :1]).all() for part in pixels) else image


def fit_image(image: Image.Image, name: str, channels: int, fit: Fit) -> tuple[Pixels, list[str]]:
    """The pixels (H, W, C) of an image in mode L or RGB, in grey or in colour as a model wants it, cropped and resized;
    and a line about each change that may surprise."""
    colour, notes = image.mode == "RGB", list[str]()
    if colour and channels == 1 and _without_colour(image).mode == "RGB":
        notes.append(f"{name} has colours and the model's images are grey: only its brightness is used")
    if not colour and channels == 3:
        notes.append(f"{name} is grey and the model's images have colours: red, green and blue are the same in it")
    if change := describe_fit([(image.height, image.width)], fit):
        notes.append(f"{name} is {change}")
    mode = "L" if channels == 1 else "RGB"
    return crop_and_resize(image if image.mode == mode else image.convert(mode), name, fit), notes


def describe_fit(sizes: Iterable[Size], fit: Fit) -> str:
    """What is done to images of these sizes, such as "cropped to the middle 20 × 20 and shrunk to 8 × 8, from 30 × 20
    pixels (height × width)". Nothing if they stay as they are."""
    before = sorted(set(sizes), key=math.prod)
    parts = [_used_part(size, fit) for size in before]
    done = []
    if parts != before:
        done.append("cropped to the middle" + (f" {_times(parts[0])}" if len(set(parts)) == 1 else ""))
    if fit.size is not None and any(part != fit.size for part in parts):
        target = math.prod(fit.size)
        shrunk, enlarged = (all(sign * math.prod(part) > sign * target for part in parts) for sign in (1, -1))
        done.append(f"{'shrunk' if shrunk else 'enlarged' if enlarged else 'resized'} to {_times(fit.size)}")
    ends = " ... ".join(dict.fromkeys(map(_times, (before[0], before[-1])))) if before else ""
    return f"{' and '.join(done)}, from {ends} pixels (height × width)" if done else ""


def choose_size(sizes: Mapping[Size, int], most: int) -> Size:
    """One size for images of these sizes and numbers: as many pixels as a square whose side is the largest of SIDES, up
    to `most`, that few of the images are smaller than. It is a square unless the images share another shape. If all
    images have one size that is not square, it is half their height and width, if these are whole and it has at least
    half as many pixels: then nothing is cropped.
    """
    size = _by_side(sizes, most)
    if len(sizes) > 1 or size[0] == size[1]:
        return size
    ((height, width),) = sizes
    half, rest = (height // 2, width // 2), (height % 2, width % 2)
    whole = rest == (0, 0) and min(half) >= LEAST_SIDE
    return half if whole and math.prod(size) / 2 <= math.prod(half) <= most**2 else size


def _by_side(sizes: Mapping[Size, int], most: int) -> Size:
    """The size of `choose_size` that comes from SIDES."""
    total = sum(sizes.values())
    ratios = sorted((height / width, n) for (height, width), n in sizes.items())
    passed, middle = 0, 1.0
    for ratio, n in ratios:
        if (passed := passed + n) >= total / 2:
            middle = ratio
            break
    alike = sum(n for ratio, n in ratios if abs(ratio / middle - 1) <= ALIKE)
    stretch = math.sqrt(middle) if alike >= SAME_SHAPE * total and 0.5 <= middle <= 2 else 1.0
    for side in (side for side in SIDES if side <= most):
        step = side // 8
        height, width = (step * round(8 * factor) for factor in (stretch, 1 / stretch))
        smaller = sum(n for (tall, wide), n in sizes.items() if tall < height or wide < width)
        if smaller <= TOO_SMALL * total or side == SIDES[-1]:
            break
    return height, width


def _used_part(size: Size, fit: Fit) -> Size:
    """The size of the part of an image that `crop_and_resize` uses."""
    height, width = size if fit.crop is None else (fit.crop, fit.crop)
    if fit.size is None:
        return height, width
    tall, wide = fit.size
    return min(height, max(1, round(width * tall / wide))), min(width, max(1, round(height * wide / tall)))


def _times(size: Size) -> str:
    return f"{size[0]} × {size[1]}"


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
