"""A request's body: JSON, form fields and images, each checked for its type and its bounds."""

from __future__ import annotations

import io
import json
import math
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn, get_args, get_origin

import numpy as np
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request
from torch import Tensor, from_numpy

from scorefield.data import pictures
from scorefield.web.limits import Limits
from scorefield.web.models import Card

if TYPE_CHECKING:  # Pillow is imported where it is used
    from PIL import Image

PATIENCE = 10
"""An upload is read, and thrown away, up to this multiple of the limit before it is cut off: a client that is still
sending would not see the answer."""

LONGEST = 255
"""The most characters of a name."""


def bad(message: str) -> HTTPException:
    """The error for a value that is not possible."""
    return HTTPException(400, message)


def malformed(message: str) -> HTTPException:
    """The error for a field that is missing, unknown or of the wrong type."""
    return HTTPException(422, message)


async def _read_body(request: Request, most: int, fix: str) -> bytes:
    """The request's body. Never more than `most` bytes are kept in memory, and none of a body that is too large."""
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size <= most:
            chunks.append(chunk)
            continue
        chunks.clear()
        if size > PATIENCE * most:
            break
    if size > most:
        raise HTTPException(413, f"the request is too large: at most {most:,} bytes ({fix})")
    return b"".join(chunks)


async def read_json(request: Request, limits: Limits) -> Mapping[str, Any]:
    """The JSON object in a request's body."""
    try:
        values = json.loads(await _read_body(request, limits.json_bytes, "send less"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise malformed(f"the body is not JSON: {error} (send an object as described at /api)") from error
    if not isinstance(values, dict):
        raise malformed('the body must be a JSON object, such as {"model": "mnist-small"}')
    return values


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a number")


class Upload(NamedTuple):
    """A file in a form."""

    name: str
    content: bytes

    @property
    def file_name(self) -> str:
        """The last 80 characters of its name, without folders."""
        return Path(self.name).name[-80:] or "image"


async def read_form(request: Request, limits: Limits) -> tuple[dict[str, str], dict[str, Upload]]:
    """The fields and the files of a form."""
    if not request.headers.get("content-type", "").startswith("multipart/form-data"):
        raise malformed("the body must be a form with the content type multipart/form-data (see /api)")
    body = await _read_body(request, limits.upload_bytes, "make the image smaller")

    async def stream() -> AsyncGenerator[bytes, None]:
        yield body

    try:
        form = await MultiPartParser(request.headers, stream(), max_files=4, max_fields=20).parse()
    except (MultiPartException, ValueError) as error:  # older versions of starlette pass the parser's errors on
        raise malformed(f"the form cannot be read: {error}") from error
    texts: dict[str, str] = {}
    files: dict[str, Upload] = {}
    try:
        for name, value in form.multi_items():
            if name in texts or name in files:
                raise malformed(f"{_shown(name)} was sent twice (send it once)")
            if isinstance(value, UploadFile):
                files[name] = Upload(value.filename or name, await value.read())
            else:
                texts[name] = value
    finally:
        await form.close()
    return texts, files


class Fields:
    """A request's values, each checked when it is read. A value that is null, or empty, counts as not given.

    In a form every value is text: numbers and flags are read as JSON.
    """

    def __init__(self, values: Mapping[str, Any], known: Sequence[str], *, form: bool = False) -> None:
        if unknown := sorted(values.keys() - set(known)):
            raise malformed(f"unknown: {', '.join(map(_shown, unknown))[:200]} (the fields are {', '.join(known)})")
        self._values = {name: value for name, value in values.items() if value is not None and value != ""}
        self._form = form

    def text(self, name: str) -> str | None:
        value = self._values.get(name)
        if value is not None and not isinstance(value, str):
            raise malformed(f"{name} must be text; got {_shown(value)}")
        return value

    def choice(self, name: str, choices: Sequence[str], default: str) -> str:
        value = self.text(name) or default
        if value not in choices:
            raise bad(f"{name} must be one of {', '.join(choices)}; got {_shown(value)}")
        return value

    def whole(self, name: str, default: int, *, least: int | None = None, most: int) -> int:
        value = self._parsed(name, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise malformed(f"{name} must be a whole number; got {_shown(value)}")
        if value > most or (least is not None and value < least):
            bounds = f"at most {most}" if least is None else f"from {least} to {most}"
            raise bad(f"{name} must be {bounds}; got {_shown(value)}")
        return value

    def number(self, name: str, default: float, *, above: float = -math.inf, most: float = math.inf) -> float:
        return in_bounds(name, self._parsed(name, default), above=above, most=most)

    def optional(self, name: str, kind: Any, *, most: int) -> bool | int | float | str | None:  # noqa: ANN401
        """A value of that type, or None if it was not given. `most` is the largest whole number."""
        if name not in self._values:
            return None
        if get_origin(kind) is Literal:
            return self.choice(name, get_args(kind), get_args(kind)[0])
        if kind is str:
            return self.text(name)
        if kind is int:
            return self.whole(name, 0, most=most)
        if kind is not bool:
            return self.number(name, 0.0)
        value = self._parsed(name, None)
        if not isinstance(value, bool) and not (self._form and value in (0, 1)):
            raise malformed(f"{name} must be true or false; got {_shown(value)}")
        return bool(value)

    def text_or_whole(self, name: str) -> str | int | None:
        """A text or a whole number, or None if it was not given. In a form both are text."""
        value = self._values.get(name)
        if isinstance(value, bool) or not isinstance(value, (str, int, NoneType)):
            raise malformed(f"{name} must be text or a whole number; got {_shown(value)}")
        if (isinstance(value, str) and len(value) > LONGEST) or (isinstance(value, int) and abs(value) > 10**18):
            raise bad(f"{name} is too long: at most {LONGEST} characters; got {_shown(value)}")
        return value

    def rows(self, name: str, default: list[Any], *, most: int) -> list[Any]:
        """A list of 1 to `most` entries, which the caller checks."""
        value = self._values.get(name, default)
        if not isinstance(value, list):
            raise malformed(f"{name} must be a list; got {_shown(value)}")
        if not 1 <= len(value) <= most:
            raise bad(f"{name} must have 1 to {most} entries; got {len(value)}")
        return value

    def _parsed(self, name: str, default: object) -> object:
        value = self._values.get(name, default)
        try:
            return json.loads(value) if self._form and isinstance(value, str) else value
        except (ValueError, RecursionError):
            return value


def in_bounds(name: str, value: object, *, above: float = -math.inf, most: float = math.inf) -> float:
    """A finite number in (above, most]."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise malformed(f"{name} must be a number; got {_shown(value)}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not (abs(number) < math.inf and above < number <= most):
        bounds = [f"above {above:g}"] * (above > -math.inf) + [f"at most {most:g}"] * (most < math.inf)
        raise bad(f"{name} must be finite{''.join(f', {each}' for each in bounds)}; got {_shown(value)}")
    return number


def _shown(value: object) -> str:
    """A value for an error message: short, and in ASCII.

    A text may hold half of a surrogate pair, which cannot be sent, and a whole number more digits than Python writes.
    """
    if isinstance(value, int) and abs(value) > 10**18:
        return "a number of too many digits"
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:80]}..."


def open_upload(upload: Upload, limits: Limits, *, tell: Callable[[str], object] = pictures.unheard) -> Image.Image:
    """The image in a file, grey or RGB, rotated as its EXIF orientation says. `tell` is that of `pictures.decode`.

    The size is read from the file's header: a small file that would fill the memory is refused before it is decoded.
    """
    from PIL import Image

    def check_size(found: tuple[int, int]) -> None:
        width, height = found
        if max(found) > limits.side or width * height > limits.pixels:
            raise too_large(f"{width:,} × {height:,}")

    def too_large(what: str) -> HTTPException:
        most = f"at most {limits.pixels:,} pixels, and {limits.side:,} along a side"
        return HTTPException(413, f"the image is too large: {what} has too many pixels ({most}: make it smaller)")

    try:
        with pictures.without_warnings():
            return pictures.decode(io.BytesIO(upload.content), check_size=check_size, tell=tell)
    except HTTPException:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise too_large("it") from None
    except pictures.NotAnImageError:
        raise HTTPException(415, f"the file cannot be read as an image (send {pictures.KINDS})") from None
    except MemoryError:
        raise HTTPException(503, "the server has too little memory for this image (make it smaller)") from None
    except Exception as error:  # Pillow raises many kinds of errors for damaged files, even SyntaxError
        what = f"the image is damaged or cut short: {type(error).__name__}: {error}"
        raise HTTPException(415, f"{what} (save it again as {pictures.KINDS})") from error


def fit_upload(upload: Upload, card: Card, limits: Limits) -> tuple[np.ndarray, list[str]]:
    """The image as the model sees it, (H, W, C), and a line about each change that may surprise."""
    traits = list[str]()
    picture = open_upload(upload, limits, tell=traits.append)
    fit = pictures.fit_to_model(card.shape, card.header.recipe.crop, picture.size)
    pixels, notes = pictures.fit_image(picture, upload.name, card.shape[0], fit)
    first = [f"{upload.name} is {pictures.TRAITS['frames']}"] if "frames" in traits else []
    return pixels, first + notes


def read_mask(upload: Upload, card: Card, limits: Limits) -> Tensor:
    """The mask (H, W) in a file of the model's size: white is known, black is hidden."""
    picture, (_, height, width) = open_upload(upload, limits), card.shape
    if picture.size != (width, height):
        found = f"{picture.width} × {picture.height}"
        raise bad(f"the mask is {found}, but must have the model's size, {width} × {height}")
    known = np.asarray(picture.convert("L")) > 127
    if known.all():
        raise bad("the mask hides nothing (paint black what the model shall fill in)")
    return from_numpy(known)
