"""Files from the network, which are checked before they are written."""

from __future__ import annotations

import hashlib
import http.client
import urllib.request
from collections.abc import Iterator
from typing import Any, BinaryIO

from scorefield.progress import Track

SECONDS_TO_ANSWER = 20.0
PIECE = 2**20
NO_NETWORK = (OSError, http.client.HTTPException)
"""What `download` raises where a file cannot be had: no network, no such address, no answer in time."""


def download(url: str, *, track: Track[Any]) -> bytes:
    """The content of this address. It is held in memory (the largest here is 170 MB) until somebody has checked it."""
    with urllib.request.urlopen(url, timeout=SECONDS_TO_ANSWER) as answer:
        pieces = -(-int(answer.headers.get("Content-Length") or 0) // PIECE)
        return b"".join(track(_pieces(answer), f"downloading {url} (MiB)", pieces))


def _pieces(answer: BinaryIO) -> Iterator[bytes]:
    while piece := answer.read(PIECE):
        yield piece


def check(content: bytes, url: str, algorithm: str, expected: str) -> bytes:
    """The content, if it has this digest."""
    found = hashlib.new(algorithm, content, usedforsecurity=False).hexdigest()
    if found != expected:
        raise ValueError(
            f"{url} did not give the file expected: its {algorithm} is {found}, not {expected} "
            "(try again; if it stays so, get the file from elsewhere)"
        )
    return content
