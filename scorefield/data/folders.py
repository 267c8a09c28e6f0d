"""Folders of image files."""

from __future__ import annotations

import hashlib
import os
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from scorefield.data.cache import Prepared, Row, prepared
from scorefield.data.images import Images, Labels
from scorefield.data.pictures import ENDINGS, Fit, crop_and_resize, decode, without_warnings
from scorefield.data.places import folder_of
from scorefield.progress import Track, plural

T = TypeVar("T")

VERSION = 1
"""Increase this when the same files give other pixels than before, so that old cache entries are not used."""
MOST_THREADS, BLOCK = 8, 8
"""How many threads decode, and how many images a thread takes at a time."""
KINDS_NAMED = 5
"""How many kinds of other files a note names."""


def folder_images(folder: Path, source: str, fit: Fit, *, track: Track[Any]) -> Images:
    """All images in a folder and its subfolders, sorted by name. Names that begin with a dot are ignored, and files of
    other kinds with a note."""
    names, others = _names(folder)
    if not names:
        held = f", but {_kinds(others)}" if others else ""
        raise ValueError(
            f"{folder} holds no images{held} (looked for {' '.join(ENDINGS)}, also in its subfolders: convert images "
            "of other kinds, or name another folder)"
        )
    images = file_images(folder, names, source, fit, track=track)
    if not others:
        return images
    skipped = plural(others.total(), "file")
    note = f"skipped {skipped} in {source}, of kinds that are not read: {_kinds(others)}"
    return replace(images, notes=(note, *images.notes))


def image_names(folder: Path) -> list[str]:
    """The paths of all image files in a folder, in the order of `folder_images`, which leaves unreadable ones out."""
    return _names(folder)[0]


def _kinds(endings: Counter[str]) -> str:
    """Endings of files with their numbers, the most frequent first: "2 .txt, 1 .csv"."""
    kinds = endings.most_common(KINDS_NAMED)
    rest = endings.total() - sum(n for _, n in kinds)
    return ", ".join([f"{n} {kind or 'without an ending'}" for kind, n in kinds] + [f"{rest} more"] * bool(rest))


def file_images(folder: Path, names: Sequence[str], source: str, fit: Fit, *, track: Track[Any]) -> Images:
    """These files of a folder, decoded in parallel, once: the result is cached under their names and content, the crop
    and the size, and found again when the folder was moved or its files were copied."""

    def read(k: int) -> Row:
        try:
            image = decode(folder / names[k])
        except Exception as error:  # Pillow raises many kinds of errors for damaged files, even SyntaxError
            return f"{type(error).__name__}: {error}"
        return Prepared(crop_and_resize(image, str(folder / names[k]), fit), (image.height, image.width))

    key = _content_key(folder, names, fit, track=track)
    rows = _in_order(read, len(names))
    with without_warnings():
        return prepared(key, source, names, rows, fit, *_labels(names), track=track, what=f"decoding {folder}")


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


def _names(folder: Path) -> tuple[list[str], Counter[str]]:
    """The paths of all image files, relative to the folder, with forward slashes; and how many other files there are,
    by their endings."""
    names, others, seen = list[str](), Counter[str](), set[Path]()
    for here, folders, files in os.walk(folder, followlinks=True):
        place = Path(here)
        if place.resolve() in seen:  # a link to a folder above would never end
            folders.clear()
            continue
        seen.add(place.resolve())
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        shown = [name for name in files if not name.startswith(".")]
        wanted = [name for name in shown if name.lower().endswith(ENDINGS)]
        names += [(place / name).relative_to(folder).as_posix() for name in wanted]
        others.update(Path(name).suffix.lower() for name in shown if not name.lower().endswith(ENDINGS))
    return sorted(names), others


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
