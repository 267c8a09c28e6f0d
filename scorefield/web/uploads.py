"""Uploaded images: refused unless they are small enough, of a known format, and undamaged."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image, UnidentifiedImageError
from starlette.exceptions import HTTPException
from torch import Tensor, from_numpy

from scorefield.data import pictures
from scorefield.web.limits import Limits
from scorefield.web.models import Card
from scorefield.web.requests import Upload, bad

KINDS = "a PNG, JPEG, WebP, BMP or GIF"


def open_upload(upload: Upload, limits: Limits, *, size: tuple[int, int] | None = None) -> Image.Image:
    """The image in a file, grey or RGB, rotated as its EXIF orientation says. `size`: the only size that is accepted.

    The size is read from the file's header: a small file that would fill the memory is refused before it is decoded.
    """

    def check_size(found: tuple[int, int]) -> None:
        width, height = found
        if max(found) > limits.side or width * height > limits.pixels:
            raise _too_large(f"{width:,} × {height:,}", limits)

    try:
        upright = pictures.decode(io.BytesIO(upload.content), check_size=check_size)
    except HTTPException:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise _too_large("it", limits) from None
    except UnidentifiedImageError:
        raise HTTPException(415, f"the file is no image that can be read (send {KINDS})") from None
    except Exception as error:  # Pillow raises many kinds of errors for damaged files, even SyntaxError
        message = f"the image is damaged or cut short: {type(error).__name__}: {error} (save it again as {KINDS})"
        raise HTTPException(415, message) from error
    if size is not None and upright.size != size:
        found = f"{upright.width} × {upright.height}"
        raise bad(f"the mask is {found}, but must have the model's size, {size[0]} × {size[1]}")
    return upright


def _too_large(what: str, limits: Limits) -> HTTPException:
    most = f"at most {limits.pixels:,} pixels, and {limits.side:,} along a side"
    return HTTPException(413, f"the image is too large: {what} has too many pixels ({most}: make it smaller)")


def fit_upload(upload: Upload, card: Card, limits: Limits) -> np.ndarray:
    """The image as the model sees it, (H, W, C)."""
    picture = open_upload(upload, limits).convert("L" if card.shape[0] == 1 else "RGB")
    return pictures.crop_and_resize(
        picture, upload.name, pictures.fit_to_model(card.shape, card.header.recipe.crop, picture.size)
    )


def read_mask(upload: Upload, card: Card, limits: Limits) -> Tensor:
    """The mask (H, W) in a file of the model's size: white is known, black is hidden."""
    _, height, width = card.shape
    known = np.asarray(open_upload(upload, limits, size=(width, height)).convert("L")) > 127
    if known.all():
        raise bad("the mask hides nothing (paint black what the model shall fill in)")
    return from_numpy(known)
