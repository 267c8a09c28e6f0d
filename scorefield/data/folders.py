"""Folders of image files."""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from scorefield.data.cache import Row, prepared
from scorefield.data.images import Images, Labels
from scorefield.data.pictures import ENDINGS, Fit, crop_and_resize, decode
from scorefield.data.places import folder_of
from scorefield.progress import Track

T = TypeVar("T")

VERSION = 1
"""Increase this when the same files give other pixels than before, so that old cache entries are not used."""
MOST_THREADS, BLOCK = 8, 8
"""How many threads decode, and how many images a thread takes at a time."""


def folder_images(folder: Path, source: str, fit: Fit, *, track: Track[Any]) -> Images:
    """All images in a folder and its subfolders, sorted by name. Names that begin with a dot are ignored."""
    names = _names(folder)
    if not names:
        raise ValueError(f"{folder} holds no images (looked for {' '.join(ENDINGS)}, also in its subfolders)")
    return file_images(folder, names, source, fit, track=track)


def file_images(folder: Path, names: Sequence[str], source: str, fit: Fit, *, track: Track[Any]) -> Images:
    """These files of a folder, decoded in parallel, once: the result is cached under their names and content, the crop
    and the size, and found again when the folder was moved or its files were copied."""

    def read(k: int) -> Row:
        try:
            image = decode(folder / names[k])
        except Exception as error:  # Pillow raises many kinds of errors for damaged files, even SyntaxError
            return f"{type(error).__name__}: {error}"
        return crop_and_resize(image, str(folder / names[k]), fit)

    key = _content_key(folder, names, fit, track=track)
    rows = _in_order(read, len(names))
    return prepared(key, source, names, rows, *_labels(names), track=track, what=f"decoding {folder}")


def _in_order(read: Callable[[int], T], n: int) -> Iterator[T]:
    """read(0), ..., read(n − 1), computed by threads that are only a little ahead, so that few are in memory at once.

    Threads, since Pillow decodes and resizes without holding Python's lock, and a new process would import torch for
    seconds. Few threads, since the rest of the work holds the lock; and whole blocks, since handing a small image over
    takes as long as decoding it.
    """
    waiting: deque[Future[list[T]]] = deque()
    workers = min(MOST_THREADS, os.cpu_count() or 1)
    with ThreadPoolExecutor(workers) as pool:
        for start in range(0, n, BLOCK):
            waiting.append(pool.submit(lambda block: list(map(read, block)), range(start, min(start + BLOCK, n))))
            if len(waiting) == 2 * workers:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()


def _names(folder: Path) -> list[str]:
    """The paths of all image files, relative to the folder, with forward slashes."""
    names, seen = [], set()
    for here, folders, files in os.walk(folder, followlinks=True):
        place = Path(here)
        if place.resolve() in seen:  # a link to a folder above would never end
            folders.clear()
            continue
        seen.add(place.resolve())
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        wanted = (name for name in files if name.lower().endswith(ENDINGS) and not name.startswith("."))
        names += [(place / name).relative_to(folder).as_posix() for name in wanted]
    return sorted(names)


def _labels(names: Sequence[str]) -> tuple[Labels | None, tuple[str, ...]]:
    """The labels and class names of these files: the first folder in a file's path is its class. There are none unless
    all files lie in subfolders, and in at least two."""
    classes, labels = np.unique([name.partition("/")[0] for name in names], return_inverse=True)
    if len(classes) < 2 or not all("/" in name for name in names):
        return None, ()
    return labels.astype(np.int64), tuple(classes.tolist())


def _content_key(folder: Path, names: Sequence[str], fit: Fit, *, track: Track[Any]) -> str:
    """The key of these images in the cache. The files are not read every time to compute it: a note keeps it as long as
    the folder and the names, sizes and modification times of its files do not change."""
    note = folder_of("keys") / _state_key(folder, names, fit)
    try:
        if len(known := note.read_text()) == 64:
            return known
    except (OSError, ValueError):
        pass

    def digest(k: int) -> str:
        try:
            return hashlib.sha256((folder / names[k]).read_bytes()).hexdigest()
        except OSError:
            return ""  # found broken later

    key = hashlib.sha256(repr((VERSION, tuple(fit))).encode())
    digests = track(_in_order(digest, len(names)), f"reading {folder}", len(names))
    for name, found in zip(names, digests, strict=True):
        key.update(repr((os.fsencode(name), found)).encode())
    with suppress(OSError):  # without the note, or with half of it, the next run only takes longer
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(key.hexdigest())
    return key.hexdigest()


def _state_key(folder: Path, names: Sequence[str], fit: Fit) -> str:
    key = hashlib.sha256(repr((VERSION, os.fsencode(folder.resolve()), tuple(fit))).encode())
    for name in names:
        size, time = 0, 0  # for a dangling link, which is found broken later
        with suppress(OSError):
            stat = (folder / name).stat()
            size, time = stat.st_size, stat.st_mtime_ns
        key.update(repr((os.fsencode(name), size, time)).encode())
    return key.hexdigest()
