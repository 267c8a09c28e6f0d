"""Folders of image files."""

from __future__ import annotations

import hashlib
import math
import os
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from threading import Condition
from typing import Any, NamedTuple, TypeVar

import numpy as np

from scorefield.data.cache import Prepared, Row, prepared
from scorefield.data.images import Images, Labels
from scorefield.data.pictures import (
    ENDINGS,
    Fit,
    Size,
    crop_and_resize,
    decode,
    open_file,
    reason,
    size_in_file,
    without_warnings,
)
from scorefield.data.places import folder_of
from scorefield.progress import Track, plural

T = TypeVar("T")

VERSION = 1
"""Increase this when the same files give other pixels than before, so that old cache entries are not used."""
MOST_THREADS, BLOCK = 8, 8
"""How many threads decode, and how many images a thread takes at a time."""
AT_ONCE = 2**26
"""About how many pixels are decoded at once, by all threads; a larger image is decoded alone."""
KINDS_NAMED = 5
"""How many kinds of other files, and how many folders, a note names."""


class Found(NamedTuple):
    """What is in a folder and its subfolders."""

    names: list[str]
    """The paths of all image files, relative to the folder, with forward slashes, sorted."""
    others: Counter[str]
    """How many other files there are, by their endings."""
    closed: list[tuple[str, str]]
    """Folders that could not be looked into, each with the reason."""


def folder_images(folder: Path, source: str, fit: Fit, *, track: Track[Any]) -> Images:
    """All images in a folder and its subfolders, sorted by name. Names that begin with a dot are ignored, and files of
    other kinds with a note."""
    found = find_images(folder)
    images = file_images(folder, found.names, source, fit, track=track)
    notes = list[str]()
    if found.others:
        skipped = plural(found.others.total(), "file")
        notes.append(f"skipped {skipped} in {source}, of kinds that are not read: {_kinds(found.others)}")
    if found.closed:
        notes.append(f"skipped {_closed(found.closed)}")
    return replace(images, notes=(*notes, *images.notes)) if notes else images


def find_images(folder: Path) -> Found:
    """What is in a folder; an error if there is no image."""
    names, others, closed = found = _search(folder)
    if not names:
        held = f", but {_kinds(others)}" if others else ""
        held += f"; {_closed(closed)}" if closed else ""
        raise ValueError(
            f"{folder} holds no images{held} (looked for {' '.join(ENDINGS)}, also in its subfolders: convert images "
            "of other kinds, or name another folder)"
        )
    return found


def folder_sizes(folder: Path, *, track: Track[Any]) -> Counter[Size]:
    """How many images in a folder have each size, from the first bytes of each file."""
    names = find_images(folder).names
    with without_warnings():
        sizes = _in_order(lambda k: size_in_file(folder / names[k]), len(names))
        return Counter(size for size in track(sizes, f"measuring {folder}", len(names)) if size is not None)


def _kinds(endings: Counter[str]) -> str:
    """Endings of files with their numbers, the most frequent first: "2 .txt, 1 .csv"."""
    kinds = endings.most_common(KINDS_NAMED)
    rest = endings.total() - sum(n for _, n in kinds)
    return ", ".join([f"{n} {kind or 'without an ending'}" for kind, n in kinds] + [f"{rest} more"] * bool(rest))


def file_images(folder: Path, names: Sequence[str], source: str, fit: Fit, *, track: Track[Any]) -> Images:
    """These files of a folder, decoded in parallel, once: the result is cached under their names and content, the crop
    and the size, and found again when the folder was moved or its files were copied."""

    states, room = [_state(folder / name) for name in names], _Room(AT_ONCE)

    def read(k: int) -> Row:
        path = folder / names[k]
        with ExitStack() as held:
            row = _read_image(path, fit, lambda size: held.enter_context(room.taken(math.prod(size))))
        if _state(path) != states[k]:
            raise ValueError(
                f"{path} was changed or removed while the images were read (try again when nothing writes into "
                f"{folder} any more)"
            )
        return row

    key = _content_key(folder, names, states, fit, track=track)
    rows = _in_order(read, len(names))
    with without_warnings():
        return prepared(key, source, names, rows, fit, *_labels(names), track=track, what=f"decoding {folder}")


def _read_image(path: Path, fit: Fit, check_size: Callable[[tuple[int, int]], None]) -> Row:
    traits = set[str]()
    try:
        image = decode(path, check_size=check_size, tell=traits.add)
    except Exception as error:  # Pillow raises many kinds of errors for damaged files, even SyntaxError
        return reason(error)
    return Prepared(crop_and_resize(image, str(path), fit), (image.height, image.width), frozenset(traits))


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


def _search(folder: Path) -> Found:
    """Folders are known by their numbers on the disk, so that a link to a folder above does not lead round for ever."""
    names, others, closed, seen = list[str](), Counter[str](), list[tuple[str, str]](), set[tuple[int, int]]()
    waiting = [""]
    while waiting:
        here = waiting.pop()
        try:
            state = (folder / here).stat()
            if (state.st_dev, state.st_ino) in seen:
                continue
            seen.add((state.st_dev, state.st_ino))
            with os.scandir(folder / here) as entries:
                shown = [(each.name, _is_folder(each)) for each in entries if not each.name.startswith(".")]
        except OSError as error:  # not allowed, too deep, or just removed
            closed.append((here or str(folder), error.strerror or type(error).__name__))
            continue
        place = f"{here}/" if here else ""
        waiting += sorted((place + name for name, is_folder in shown if is_folder), reverse=True)
        files = [name for name, is_folder in shown if not is_folder]
        names += [place + name for name in files if name.lower().endswith(ENDINGS)]
        others.update(Path(name).suffix.lower() for name in files if not name.lower().endswith(ENDINGS))
    return Found(sorted(names), others, closed)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def _closed(closed: Sequence[tuple[str, str]]) -> str:
    """Folders that could not be looked into: "2 folders that cannot be looked into: a (Permission denied); b ..."."""
    named = "; ".join(f"{_shortened(name)} ({why})" for name, why in closed[:KINDS_NAMED])
    more = f"; and {len(closed) - KINDS_NAMED} more" if len(closed) > KINDS_NAMED else ""
    return f"{plural(len(closed), 'folder')} that cannot be looked into: {named}{more}"


def _shortened(name: str, most: int = 100) -> str:
    return name if len(name) <= most else f"{name[: most // 2]} ... {name[-most // 2 :]}"


def _labels(names: Sequence[str]) -> tuple[Labels | None, tuple[str, ...]]:
    """The labels and class names of these files: the first folder in a file's path is its class. There are none unless
    all files lie in subfolders, and in at least two."""
    classes, labels = np.unique([name.partition("/")[0] for name in names], return_inverse=True)
    if len(classes) < 2 or not all("/" in name for name in names):
        return None, ()
    return labels.astype(np.int64), tuple(map(_printable, classes.tolist()))


def _printable(name: str) -> str:
    """A name as UTF-8 can hold it: bytes of another encoding are written as in \\xe9."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _content_key(
    folder: Path, names: Sequence[str], states: Sequence[tuple[int, int]], fit: Fit, *, track: Track[Any]
) -> str:
    """The key of these images in the cache. The files are not read every time to compute it: a note keeps it as long as
    the folder and the names, sizes and modification times of its files do not change."""
    note = folder_of("keys") / _state_key(folder, names, states, fit)
    try:
        if len(known := note.read_text()) == 64:
            return known
    except (OSError, ValueError):
        pass

    def digest(k: int) -> str:
        try:
            return _digest(folder / names[k])
        except (OSError, ValueError) as error:
            return reason(error)  # found broken later

    key = hashlib.sha256(repr((VERSION, tuple(fit))).encode())
    digests = track(_in_order(digest, len(names)), f"reading {folder}", len(names))
    for name, found in zip(names, digests, strict=True):
        key.update(repr((os.fsencode(name), found)).encode())
    with suppress(OSError):  # without the note, or with half of it, the next run only takes longer
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(key.hexdigest())
    return key.hexdigest()


def _digest(path: Path) -> str:
    """SHA-256 of a file's content, up to the length that it has now: a file that grows would be read without end."""
    digest = hashlib.sha256()
    with open_file(path) as file:
        left = os.fstat(file.fileno()).st_size
        while left and (block := file.read(min(left, 2**20))):
            digest.update(block)
            left -= len(block)
    return digest.hexdigest()


def _state(path: Path) -> tuple[int, int]:
    """A file's length and time of modification; zeros for a dangling link, which is found broken later."""
    try:
        stat = path.stat()
    except OSError:
        return 0, 0
    return stat.st_size, stat.st_mtime_ns


def _state_key(folder: Path, names: Sequence[str], states: Sequence[tuple[int, int]], fit: Fit) -> str:
    key = hashlib.sha256(repr((VERSION, os.fsencode(folder.resolve()), tuple(fit))).encode())
    for name, (size, time) in zip(names, states, strict=True):
        key.update(repr((os.fsencode(name), size, time)).encode())
    return key.hexdigest()


class _Room:
    """Room for so many pixels at once. What needs more than all of it waits until it is alone."""

    def __init__(self, pixels: int) -> None:
        self._most, self._free, self._changed = pixels, pixels, Condition()

    @contextmanager
    def taken(self, pixels: int) -> Iterator[None]:
        pixels = min(pixels, self._most)
        with self._changed:
            self._changed.wait_for(lambda: self._free >= pixels)
            self._free -= pixels
        try:
            yield
        finally:
            with self._changed:
                self._free += pixels
                self._changed.notify_all()
