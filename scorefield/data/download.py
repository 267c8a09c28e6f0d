"""Files from the network, which are checked before they are written."""

from __future__ import annotations

import hashlib
import http.client
import urllib.request
from typing import Any

from scorefield.progress import Track

SECONDS_TO_ANSWER = 20.0
PIECE = 2**20
NO_NETWORK = (OSError, http.client.HTTPException)
"""What `download` raises if there is no network, no such address, or no answer in time."""


def download(url: str, *, track: Track[Any]) -> bytes:
    """The content of this address. It is kept in memory (the largest file here is 170 MB), to be checked first."""
    with urllib.request.urlopen(url, timeout=SECONDS_TO_ANSWER) as answer:
        pieces = -(-int(answer.headers.get("Content-Length") or 0) // PIECE)
        return b"".join(track(iter(lambda: answer.read(PIECE), b""), f"downloading {url} (MiB)", pieces))


def check(content: bytes, url: str, algorithm: str, expected: str) -> bytes:
    """The content, if it has this checksum."""
    found = hashlib.new(algorithm, content, usedforsecurity=False).hexdigest()
    if found != expected:
        raise ValueError(
            f"{url} did not give the file expected: its {algorithm} is {found}, not {expected} "
            "(try again; if this persists, get the file from elsewhere)"
        )
    return content
