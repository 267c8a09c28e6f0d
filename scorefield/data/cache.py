"""Prepared images on disk: decoded once, then memory-mapped by every run that needs them.

An entry is KEY.npy, a uint8 array (N, H, W, C), and KEY.json, which describes it. The JSON file is written last: an
entry without it is not complete.
"""

from __future__ import annotations

import json
import os
import tempfile
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from scorefield.data.images import Images, Labels, Pixels, digest_of
from scorefield.data.places import folder_of
from scorefield.files import new_file
from scorefield.progress import Track

Row = Pixels | str
"""The pixels of an image, (H, W, C), or the reason why it cannot be read."""

MOST_BROKEN = 0.01
"""It is an error if a larger share of the images cannot be read."""
NAMED = 10
"""How many unreadable images a message names."""


def prepared(
    key: str,
    source: str,
    names: Sequence[str],
    rows: Iterable[Row],
    labels: Labels | None,
    classes: tuple[str, ...],
    *,
    track: Track[Any],
    what: str,
) -> Images:
    """The images with this key from the cache; if it has none, the rows are written to it first.

    There is one row and one label for each name. The labels of images that cannot be read are dropped.
    """
    entry = folder_of("cache") / key
    if not (found := _open(entry)):
        _write(entry, source, names, track(rows, what, len(names)))
        if not (found := _open(entry)):
            raise OSError(f"{entry}.npy was changed while it was written (delete it and try again)")
    pixels, note = found
    if broken := note["broken"]:
        warnings.warn(f"skipped {_describe(broken, len(names), source)}; see {entry}.json", stacklevel=5)
        labels = None if labels is None else labels[~np.isin(names, [name for name, _ in broken])]
    return Images(pixels, source, note["digest"], labels, classes)


def _open(entry: Path) -> tuple[Pixels, dict[str, Any]] | None:
    """The pixels, memory-mapped, and the content of the JSON file, if the entry is complete."""
    try:
        note = json.loads(entry.with_suffix(".json").read_text(encoding="utf-8"))
        pixels = np.load(entry.with_suffix(".npy"), mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return (pixels, note) if list(pixels.shape) == note.get("shape") else None


def _write(entry: Path, source: str, names: Sequence[str], rows: Iterable[Row]) -> None:
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=entry.parent) as scratch:
            (*shape, channels), broken = _write_rows(scratch, names, rows)
            if len(broken) > MOST_BROKEN * len(names):
                raise ValueError(f"cannot use {_describe(broken, len(names), source)} (repair or remove them)")
            pixels = np.memmap(scratch, np.uint8, "r", shape=(*shape, 3))[..., :channels]
            with new_file(entry.with_suffix(".npy")) as file:
                np.save(file, pixels)
            note = {"source": source, "shape": pixels.shape, "digest": digest_of(pixels), "broken": broken}
        with new_file(entry.with_suffix(".json")) as file:
            file.write(json.dumps(note, indent=2).encode())
    except OSError as error:
        if not _open(entry):  # otherwise another process was faster, and this system does not replace files in use
            why = os.strerror(error.errno) if error.errno else error
            raise OSError(
                f"cannot write prepared images into {entry.parent}: {why} "
                "(set SCOREFIELD_DATA to a folder with enough space that you may write to)"
            ) from error


def _write_rows(
    scratch: BinaryIO, names: Sequence[str], rows: Iterable[Row]
) -> tuple[tuple[int, int, int, int], list[tuple[str, str]]]:
    """Write the rows, all with three channels. Their shape (N, H, W, C), where C is 1 if all of them are grey, and the
    names of the unreadable images, each with the reason."""
    broken, count, channels, size, first = [], 0, 1, (0, 0), ""
    for name, row in zip(names, rows, strict=True):
        if isinstance(row, str):
            broken.append((name, row))
            continue
        height, width, depth = row.shape
        if not first:
            size, first = (height, width), name
        if size != (height, width):
            raise ValueError(
                f"all images must have the same size; {first} is {size[0]}×{size[1]} and {name} is {height}×{width} "
                "(resize them first; train does it with --image-size N)"
            )
        channels = max(channels, depth)
        scratch.write(np.broadcast_to(row, (height, width, 3)).tobytes())
        count += 1
    scratch.flush()
    return (count, *size, channels), broken


def _describe(broken: Sequence[tuple[str, str]], n: int, source: str) -> str:
    more = f"; and {len(broken) - NAMED} more" if len(broken) > NAMED else ""
    listed = "; ".join(f"{name} ({why})" for name, why in broken[:NAMED])
    return f"{len(broken)} of the {n} images in {source}, which cannot be read: {listed}{more}"
