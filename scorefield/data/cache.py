"""Prepared images on disk: decoded once, then memory-mapped by every run that needs them.

An entry is KEY.npy, a uint8 array (N, H, W, C), and KEY.json, which describes it. The JSON file is written last: an
entry without it is not complete.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from scorefield.data.images import Images, Labels, Pixels, digest_of
from scorefield.data.npy import map_array
from scorefield.data.pictures import TRAITS, Fit, Size, describe_fit
from scorefield.data.places import folder_of
from scorefield.files import new_file, read_json
from scorefield.progress import Track

NAMED = 5
"""How many unreadable images a message names."""


class Prepared(NamedTuple):
    """An image, cropped and resized."""

    pixels: Pixels
    """(H, W, C)."""
    size: Size
    """What it was before."""
    traits: frozenset[str] = frozenset()
    """Which of TRAITS it had."""


Row = Prepared | str
"""An image, or the reason why it cannot be read."""


class Entry(NamedTuple):
    """What the cache holds of some images."""

    pixels: Pixels
    """(N, H, W, C), memory-mapped."""
    digest: str
    broken: list[tuple[str, str]]
    """The names of the images that cannot be read, each with the reason."""
    change: str
    """How the images were cropped and resized, in words."""
    traits: dict[str, int]
    """How many of the images had each of TRAITS."""


def most_broken(n: int) -> int:
    """How many of n images may be unreadable and are skipped: one in a hundred, or up to five if these are no more than
    one in ten."""
    return max(n // 100, min(5, n // 10))


def prepared(
    key: str,
    source: str,
    names: Sequence[str],
    rows: Iterable[Row],
    fit: Fit,
    labels: Labels | None,
    classes: tuple[str, ...],
    *,
    track: Track[Any],
    what: str,
) -> Images:
    """The images with this key from the cache; if it has none, the rows are written to it first.

    There is one row and one label for each name. The labels of images that cannot be read are dropped.
    """
    place = folder_of("cache") / key
    if not (entry := _open(place, names)):
        _write(place, source, names, track(rows, what, len(names)), fit)
        if not (entry := _open(place, names)):
            raise OSError(f"{place}.npy was changed while it was written (delete it and try again)")
    notes = [f"the images of {source} are {entry.change}"] if entry.change else []
    n = len(entry.pixels)
    for trait, count in entry.traits.items():
        notes.append(f"{TRAITS[trait]}: {'all' if count == n else f'{count:,} of the'} {n:,} images in {source}")
    skipped = tuple(name for name, _ in entry.broken)
    if broken := entry.broken:
        more = f" ({place}.json names all)" if len(broken) > NAMED else ""
        notes.append(f"skipped {_describe(broken, len(names), source)}{more}")
        labels = None if labels is None else labels[~np.isin(names, skipped)]
    return Images(entry.pixels, source, entry.digest, labels, classes, tuple(notes), skipped)


def _traits(note: Mapping[str, Any]) -> dict[str, int]:
    """The traits that a note of the cache counts; those of older versions have none."""
    counts = note.get("traits", {})
    return {trait: int(counts[trait]) for trait in TRAITS if trait in counts}


def _open(place: Path, names: Sequence[str]) -> Entry | None:
    """The entry for these images, if it is complete and whole."""
    try:
        note, pixels = read_json(place.with_suffix(".json")), map_array(place.with_suffix(".npy"))
        broken = [(name, why) for name, why in note["broken"]]
        entry = Entry(pixels, note["digest"], broken, note["change"], _traits(note))
        shape = tuple(note["shape"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    texts = [entry.digest, entry.change, *(text for pair in entry.broken for text in pair)]
    whole = (
        pixels.shape == shape
        and pixels.ndim == 4
        and pixels.dtype == np.uint8
        and all(isinstance(text, str) for text in texts)
        and {name for name, _ in entry.broken} <= set(names)
        and len(pixels) == len(names) - len(entry.broken)
    )
    return entry if whole else None


def _write(place: Path, source: str, names: Sequence[str], rows: Iterable[Row], fit: Fit) -> None:
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=place.parent) as scratch:
            counts = Counter[str]()
            (*shape, channels), broken, sizes = _write_rows(scratch, names, rows, counts)
            if len(broken) > (most := most_broken(len(names))):
                limit = f"at most {most} of {len(names)} may be skipped: " if most else ""
                raise ValueError(f"cannot use {_describe(broken, len(names), source)} ({limit}repair or remove them)")
            pixels = np.memmap(scratch, np.uint8, "r", shape=(*shape, 3))[..., :channels]
            with new_file(place.with_suffix(".npy")) as file:
                np.save(file, pixels)
            note: dict[str, Any] = {
                "source": source,
                "shape": pixels.shape,
                "digest": digest_of(pixels),
                "broken": broken,
            }
            note |= {"change": describe_fit(sizes, fit), "traits": dict(counts)}
        with new_file(place.with_suffix(".json")) as file:
            file.write(json.dumps(note, indent=2).encode())
    except OSError as error:
        # if there is an entry now, another process was faster, and this system does not replace files in use
        if not _open(place, names):
            why = os.strerror(error.errno) if error.errno else error
            raise OSError(
                f"cannot write prepared images into {place.parent}: {why} "
                "(set SCOREFIELD_DATA to a folder with enough space that you may write to)"
            ) from error


def _write_rows(
    scratch: BinaryIO, names: Sequence[str], rows: Iterable[Row], traits: Counter[str]
) -> tuple[tuple[int, int, int, int], list[tuple[str, str]], set[Size]]:
    """Write the rows, all with three channels, and count their traits. Their shape (N, H, W, C), where C is 1 if all of
    them are grey, the names of the unreadable images, each with the reason, and the sizes that the others had."""
    broken, sizes, count, channels, size, first = list[tuple[str, str]](), set[Size](), 0, 1, (0, 0), ""
    for name, row in zip(names, rows, strict=True):
        if isinstance(row, str):
            broken.append((name, row))
            continue
        height, width, depth = row.pixels.shape
        sizes.add(row.size)
        traits.update(row.traits)
        if not first:
            size, first = (height, width), name
        if size != (height, width):
            raise ValueError(
                f"all images must have the same size; {first} is {size[0]}×{size[1]} and {name} is {height}×{width} "
                "(resize them to one size: image_size=N, or --image-size N)"
            )
        channels = max(channels, depth)
        scratch.write(np.broadcast_to(row.pixels, (height, width, 3)).tobytes())
        count += 1
    scratch.flush()
    return (count, *size, channels), broken, sizes


def _describe(broken: Sequence[tuple[str, str]], n: int, source: str) -> str:
    more = f"; and {len(broken) - NAMED} more" if len(broken) > NAMED else ""
    listed = "; ".join(f"{name} ({why})" for name, why in broken[:NAMED])
    return f"{len(broken)} of the {n} images in {source}, which cannot be read: {listed}{more}"
