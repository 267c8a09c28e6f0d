"""Large files from the network: resumed after a cut, and checked before they get their name."""

from __future__ import annotations

import hashlib
import os
import urllib.request
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import IncompleteRead
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

from scorefield.data.download import NO_NETWORK, PIECE, SECONDS_TO_ANSWER
from scorefield.files import check_writable, writing
from scorefield.progress import Track

TRIES = 3
"""How often in a row a download may be cut without having got further than before."""


class DownloadError(OSError):
    """A file that could not be downloaded."""


def fetch(url: str, target: Path, *, size: int, sha256: str, track: Track[Any]) -> Path:
    """Download a file of this size and checksum to `target`. A process that wants the same file meanwhile waits for it.

    What has arrived is kept beside it as NAME.part. After a cut only the rest is asked for: at once, or by the next
    call, if this one has to give up. A file with another checksum is removed.
    """
    check_writable(target.parent, size=size, fix="set SCOREFIELD_DATA to a folder with enough space")
    part = target.with_name(f"{target.name}.part")
    with _alone(target):
        if target.is_file():  # another process was faster
            return target
        resumed = part.is_file()
        found = _receive(url, part, size, track)
        if found != sha256 and resumed:  # the part may have been of another file
            part.unlink()
            found = _receive(url, part, size, track)
        if found != sha256:
            part.unlink()
            raise DownloadError(
                f"{url} did not give the file expected: its sha256 is {found}, not {sha256} "
                "(it was removed; try again, and if this persists, get the file from elsewhere)"
            )
        os.replace(part, target)
    return target


@contextmanager
def _alone(target: Path) -> Iterator[None]:
    """Inside, only this process downloads this file, where the file system has locks."""
    from filelock import FileLock, Timeout

    lock = FileLock(f"{target}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        warnings.warn(f"another process is downloading {target.name}; waiting for it", stacklevel=2)
        lock.acquire()
    except (OSError, NotImplementedError) as error:  # a file system without locks, or another user's lock
        warnings.warn(f"cannot lock {target}, so other processes may download it too: {error}", stacklevel=2)
    try:
        yield
    finally:
        lock.release()


def _receive(url: str, part: Path, size: int, track: Track[Any]) -> str:
    """Continue `part` until it has its size; returns its checksum."""
    most = failed = 0
    while (have := part.stat().st_size if part.is_file() else 0) < size:
        request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
        try:
            answer = urllib.request.urlopen(request, timeout=SECONDS_TO_ANSWER)
        except HTTPError as error:
            error.close()
            if have and error.code == 416:  # there is no rest: the part is of another file
                part.unlink()
                continue
            raise DownloadError(f"{url} cannot be downloaded: {error}{_kept(have, size)}") from error
        except NO_NETWORK as error:
            why = getattr(error, "reason", error)
            raise DownloadError(f"{url} cannot be downloaded: {why}{_kept(have, size)}") from error
        with answer:
            _append(answer, part, have, size, track)
        have = part.stat().st_size
        failed, most = (0, have) if have > most else (failed + 1, most)
        if failed == TRIES:
            raise DownloadError(f"the download of {url} was cut again and again{_kept(have, size)}")
    digest = hashlib.sha256()
    with part.open("rb") as file:
        while piece := file.read(PIECE):
            digest.update(piece)
    return digest.hexdigest()


def _kept(have: int, size: int) -> str:
    megabytes = f"{have / 1e6:.1f} of {size / 1e6:.1f} MB"
    return f" ({megabytes} are here; give the same command again, and it goes on from there)" if have else ""


def _append(answer: Any, part: Path, have: int, size: int, track: Track[Any]) -> None:  # noqa: ANN401
    """Write what the server sends behind the `have` bytes that are there, or over them if it begins at the first."""
    have = have if getattr(answer, "status", None) == 206 else 0
    length = answer.headers.get("Content-Length", "")
    if length.isdecimal() and int(length) != size - have:
        raise DownloadError(
            f"{answer.url} is not the file expected: it has {have + int(length):,} bytes, not {size:,} (get the file "
            "from elsewhere)"
        )
    pieces = track(_pieces(answer), f"downloading {answer.url} (MiB)", -(-(size - have) // PIECE))
    with writing(part), part.open("ab" if have else "wb") as file:
        for piece in pieces:
            file.write(piece)


def _pieces(answer: Any) -> Iterator[bytes]:  # noqa: ANN401
    """What can be read, to the end or to where the connection is cut."""
    try:
        while piece := answer.read(PIECE):
            yield piece
    except IncompleteRead as cut:
        yield cut.partial
    except NO_NETWORK:
        return
