"""Prepared images on the disk: decoded once, then memory-mapped by every run that wants them.

An entry is KEY.npy, an array of uint8 (N, H, W, C), and KEY.json, which says what it is. The JSON file is written last:
an entry without it is not one.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from scorefield.data.images import Images, Pixels, digest_of
from scorefield.data.places import folder_of
from scorefield.files import new_file
from scorefield.progress import Track

Row = Pixels | str
"""The pixels of an image, (H, W, C), or in words why it cannot be read."""
Entry = tuple[Pixels, dict[str, Any]]
"""The pixels, memory-mapped, and the note beside them."""

MOST_BROKEN = 0.01
"""The share of unreadable images above which something is wrong with all of them."""
NAMED = 10
"""How many unreadable images a message names."""
HEADER = 128
"""Bytes before the pixels in an .npy file: enough for every shape, so they can be filled in at the end."""


class Broken(NamedTuple):
    """An image that cannot be read."""

    name: str
    why: str


def prepared(
    key: str, source: str, names: Sequence[str], rows: Iterable[Row], *, track: Track[Any], what: str
) -> Images:
    """The images of this key from the cache; where it has none, the rows, one for each name, fill it first."""
    entry = folder_of("cache") / key
    pixels, note = _open(entry) or _made(entry, source, names, track(rows, what, len(names)))
    if broken := [Broken(*each) for each in note["broken"]]:
        warnings.warn(f"skipped {_said(broken, len(names), source)}; see {entry}.json", stacklevel=5)
    return Images(pixels, source, note["digest"])


def _open(entry: Path) -> Entry | None:
    """Pixels and note of an entry that is there and whole."""
    try:
        note = json.loads(entry.with_suffix(".json").read_text(encoding="utf-8"))
        pixels = np.load(entry.with_suffix(".npy"), mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return (pixels, note) if list(pixels.shape) == note.get("shape") else None


def _made(entry: Path, source: str, names: Sequence[str], rows: Iterable[Row]) -> Entry:
    try:
        _make(entry, source, names, rows)
    except OSError as error:
        if found := _open(entry):  # another process was faster, and this system does not replace files in use
            return found
        raise OSError(
            f"cannot write prepared images into {entry.parent}: {os.strerror(error.errno) if error.errno else error} "
            "(set SCOREFIELD_DATA to a folder with room that you may write to)"
        ) from error
    if found := _open(entry):
        return found
    raise OSError(f"{entry}.npy was changed while it was written (delete it and try again)")


def _make(entry: Path, source: str, names: Sequence[str], rows: Iterable[Row]) -> None:
    with new_file(entry.with_suffix(".npy")) as file:
        shape, broken = _fill(file, names, rows)
        if len(broken) > MOST_BROKEN * len(names):
            raise ValueError(f"cannot use {_said(broken, len(names), source)} (repair or remove them)")
        file.flush()
        digest = digest_of(np.memmap(file, dtype=np.uint8, mode="r", offset=HEADER, shape=shape))
    note = {"source": source, "shape": shape, "digest": digest, "broken": broken}
    with new_file(entry.with_suffix(".json")) as file:
        file.write(json.dumps(note, indent=2).encode())


def _said(broken: Sequence[Broken], n: int, source: str) -> str:
    more = f"; and {len(broken) - NAMED} more" if len(broken) > NAMED else ""
    listed = "; ".join(f"{name} ({why})" for name, why in broken[:NAMED])
    return f"{len(broken)} of the {n} images in {source}, which cannot be read: {listed}{more}"


def _fill(file: BinaryIO, names: Sequence[str], rows: Iterable[Row]) -> tuple[tuple[int, int, int, int], list[Broken]]:
    """Write the rows as an .npy file: of one channel until the first colour comes, and from then on of three."""
    broken: list[Broken] = []
    count, channels, size, first = 0, 1, (0, 0), ""
    file.seek(HEADER)
    for name, row in zip(names, rows, strict=True):
        if isinstance(row, str):
            broken.append(Broken(name, row))
            continue
        height, width, depth = row.shape
        if not first:
            size, first = (height, width), name
        if size != (height, width):
            raise ValueError(
                f"images must have one size; {first} is {size[0]}×{size[1]} and {name} is {height}×{width} "
                "(make them one first; train does it with --image-size N)"
            )
        if depth > channels:
            _widen(file, count, height * width)
            channels = depth
        file.write(np.broadcast_to(row, (height, width, channels)).tobytes())
        count += 1
    shape = (count, *size, channels)
    file.seek(0)
    file.write(_header(shape))
    return shape, broken


def _widen(file: BinaryIO, count: int, area: int) -> None:
    """Repeat grey thrice in the rows written so far; from the last to the first, so that each is read in time."""
    for k in reversed(range(count)):
        file.seek(HEADER + k * area)
        grey = np.frombuffer(file.read(area), np.uint8)
        file.seek(HEADER + k * area * 3)
        file.write(grey.repeat(3).tobytes())
    file.seek(HEADER + count * area * 3)


def _header(shape: tuple[int, ...]) -> bytes:
    """The first bytes of an .npy file of version 1.0: a magic string, the length of the text that follows, the text."""
    text = repr({"descr": "|u1", "fortran_order": False, "shape": tuple(map(int, shape))})
    return b"\x93NUMPY\x01\x00" + (HEADER - 10).to_bytes(2, "little") + text.ljust(HEADER - 11).encode() + b"\n"
