"""A request's body: JSON and form fields, each checked for its type and its bounds."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from scorefield.web.limits import Limits

PATIENCE = 10
"""An upload is read, and thrown away, up to this multiple of the limit before it is cut off: a client that is still
sending would not see the answer."""


def bad(message: str) -> HTTPException:
    """The error for a value that is not possible."""
    return HTTPException(400, message)


def malformed(message: str) -> HTTPException:
    """The error for a field that is missing, unknown or of the wrong type."""
    return HTTPException(422, message)


async def _read_body(request: Request, most: int, fix: str) -> bytes:
    """The request's body. Never more than `most` bytes are kept in memory."""
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size <= most:
            chunks.append(chunk)
        elif size > PATIENCE * most:
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


async def read_form(request: Request, limits: Limits) -> tuple[dict[str, str], dict[str, Upload]]:
    """The fields and the files of a form."""
    if not request.headers.get("content-type", "").startswith("multipart/form-data"):
        raise malformed("the body must be a form with the content type multipart/form-data (see /api)")
    body = await _read_body(request, limits.upload_bytes, "make the image smaller")

    async def stream() -> AsyncGenerator[bytes, None]:
        yield body

    try:
        form = await MultiPartParser(request.headers, stream(), max_files=4, max_fields=20).parse()
    except MultiPartException as error:
        raise malformed(f"the form cannot be read: {error.message}") from error
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
    """A request's values, each checked when it is read. A value that is null, or empty, counts as not given."""

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
        value = self._value(name, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise malformed(f"{name} must be a whole number; got {_shown(value)}")
        if value > most or (least is not None and value < least):
            bounds = f"at most {most}" if least is None else f"from {least} to {most}"
            raise bad(f"{name} must be {bounds}; got {_shown(value)}")
        return value

    def number(self, name: str, default: float, *, above: float = -math.inf, most: float = math.inf) -> float:
        return in_bounds(name, self._value(name, default), above=above, most=most)

    def flag(self, name: str, *, default: bool = False) -> bool:
        value = self._value(name, default)
        if self._form and value in (0, 1):
            return bool(value)
        if not isinstance(value, bool):
            raise malformed(f"{name} must be true or false; got {_shown(value)}")
        return value

    def optional(self, name: str, kind: type, *, most: int) -> bool | int | float | str | None:
        """A value of that type, or None if it was not given. `most` is the largest whole number."""
        if name not in self._values:
            return None
        if kind is bool:
            return self.flag(name)
        if kind is int:
            return self.whole(name, 0, most=most)
        return self.text(name) if kind is str else self.number(name, 0.0)

    def rows(self, name: str, default: list[Any], *, most: int) -> list[Any]:
        """A list of 1 to `most` entries, which the caller checks."""
        value = self._values.get(name, default)
        if not isinstance(value, list):
            raise malformed(f"{name} must be a list; got {_shown(value)}")
        if not 1 <= len(value) <= most:
            raise bad(f"{name} must have 1 to {most} entries; got {len(value)}")
        return value

    def _value(self, name: str, default: object) -> object:
        """The value as it is, or from a form, where every value is text, as JSON if it can be read so."""
        value = self._values.get(name, default)
        if self._form and isinstance(value, str):
            try:
                value = json.loads(value)
            except (ValueError, RecursionError):
                return value
        return value


def in_bounds(name: str, value: object, *, above: float = -math.inf, most: float = math.inf) -> float:
    """A finite number in (above, most]."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise malformed(f"{name} must be a number; got {_shown(value)}")
    if not (abs(value) < math.inf and above < value <= most):
        bounds = [f"above {above:g}"] * (above > -math.inf) + [f"at most {most:g}"] * (most < math.inf)
        raise bad(f"{name} must be finite{''.join(f', {each}' for each in bounds)}; got {_shown(value)}")
    try:
        return float(value)
    except OverflowError:
        raise bad(f"{name} must be finite; got a number of too many digits") from None


def _shown(value: object) -> str:
    """A value for an error message: short, and in ASCII.

    A text may hold half of a surrogate pair, which cannot be sent, and a whole number more digits than Python writes.
    """
    if isinstance(value, int) and abs(value) > 10**18:
        return "a number of too many digits"
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:80]}..."
