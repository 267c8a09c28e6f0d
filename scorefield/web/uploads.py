"""Images that come from outside: opened only as far as they are small, of a known kind, and whole."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError
from starlette.exceptions import HTTPException
from torch import Tensor, from_numpy

from scorefield.data import pictures
from scorefield.web.limits import Limits
from scorefield.web.models import Card
from scorefield.web.requests import Upload, bad

KINDS = "a PNG, JPEG, WebP, BMP or GIF"


def opened(upload: Upload, limits: Limits, *, size: tuple[int, int] | None = None) -> Image.Image:
    """The image in a file, grey or RGB and the right way up. `size`: the only width and height that it may have.

    The size stands in the file's header: a few bytes that would fill the memory are refused before they are decoded.
    """
    try:
        with Image.open(io.BytesIO(upload.content), formats=pictures.FORMATS) as image:
            _check_size(image.size, limits)
            upright = pictures.flat(ImageOps.exif_transpose(image))
    except HTTPException:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise _too_large("it", limits) from None
    except UnidentifiedImageError:
        raise HTTPException(415, f"the file is no image that can be read (send {KINDS})") from None
    except Exception as error:  # Pillow raises a dozen kinds for damaged files, SyntaxError among them
        message = f"the image is damaged or cut short: {type(error).__name__}: {error} (save it anew, as {KINDS})"
        raise HTTPException(415, message) from error
    if size is not None and upright.size != size:
        found = f"{upright.width} × {upright.height}"
        raise bad(f"the mask is {found}, and must be of the model's size, {size[0]} × {size[1]}")
    return upright


def _check_size(found: tuple[int, int], limits: Limits) -> None:
    width, height = found
    if max(found) > limits.side or width * height > limits.pixels:
        raise _too_large(f"{width:,} × {height:,}", limits)


def _too_large(what: str, limits: Limits) -> HTTPException:
    most = f"at most {limits.pixels:,} pixels, and {limits.side:,} along a side"
    return HTTPException(413, f"the image is too large: {what} has too many pixels ({most}: make it smaller)")


def fitted(upload: Upload, card: Card, limits: Limits) -> np.ndarray:
    """The image as the model sees it, (H, W, C)."""
    picture = opened(upload, limits).convert("L" if card.shape[0] == 1 else "RGB")
    return pictures.fitted(picture, upload.name, pictures.fit_for(card.shape, card.recipe.crop, picture.size))


def mask_in(upload: Upload, card: Card, limits: Limits) -> Tensor:
    """The mask (H, W) in a file of the model's size: white is known, black is hidden."""
    _, height, width = card.shape
    known = np.asarray(opened(upload, limits, size=(width, height)).convert("L")) > 127
    if known.all():
        raise bad("the mask hides nothing (paint black what is to be filled in)")
    return from_numpy(known)
