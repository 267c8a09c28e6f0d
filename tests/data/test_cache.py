"""Prepared images on disk: written once, complete or not at all, and found by their content."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from data.image_files import Array, cache_of, fill, forbidden, noise, put
from scorefield.data import folders, load, pictures
from scorefield.data.images import digest_of


def test_a_folder_is_decoded_once(folder: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pixels, told = fill(folder, 20), []

    def track(items: Iterable[Any], what: str, total: int) -> Iterator[Any]:
        told.append((what, total))
        yield from items

    first = load(str(folder), track=track)
    assert told == [(f"reading {folder}", 20), (f"decoding {folder}", 20)]
    monkeypatch.setattr(folders, "decode", forbidden)
    again = load(str(folder))
    assert np.array_equal(again.pixels, pixels)
    assert isinstance(again.pixels, np.memmap)
    assert not again.pixels.flags.writeable
    assert again.digest == first.digest == digest_of(pixels)
    assert cache_of(root) == [".json", ".npy"]
    (entry,) = (root / "cache").glob("*.npy")
    assert np.array_equal(np.load(entry), pixels)  # a plain array to every other program
    note = json.loads(entry.with_suffix(".json").read_text())
    assert (note["source"], note["shape"], note["broken"]) == (str(folder), [20, 4, 4, 3], [])


@pytest.mark.parametrize("change", ["added", "removed", "renamed", "rewritten", "size", "crop"])
def test_whatever_changes_the_images_changes_the_key(folder: Path, root: Path, change: str) -> None:
    pixels = fill(folder, 5)
    before = load(str(folder))
    size, crop = {"size": (2, None), "crop": (None, 2)}.get(change, (None, None))
    if change == "added":
        put(folder / "100.png", new := noise(4, 4, 3, seed=9))
        pixels = np.concatenate([pixels, new[None]])
    elif change == "removed":
        (folder / "002.png").unlink()
        pixels = np.delete(pixels, 2, 0)
    elif change == "renamed":
        (folder / "000.png").rename(folder / "100.png")
        pixels = np.roll(pixels, -1, 0)
    elif change == "rewritten":
        time.sleep(0.02)  # file systems keep time in steps of some milliseconds
        put(folder / "003.png", noise(4, 4, 3, seed=9))
        pixels[3] = noise(4, 4, 3, seed=9)
    after = load(str(folder), image_size=size, crop=crop)
    if size or crop:
        assert after.shape == (3, 2, 2)
    else:
        assert np.array_equal(after.pixels, pixels)
    assert after.digest != before.digest
    assert cache_of(root) == [".json", ".json", ".npy", ".npy"]


def test_the_same_files_elsewhere_are_not_decoded_again(
    folder: Path, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache finds images by their content: it does not matter if they were moved, copied or touched."""
    pixels = fill(folder, 5)
    load(str(folder))

    def forbidden(path: Path, **options: Any) -> None:  # noqa: ANN401
        raise AssertionError("decoded again")

    monkeypatch.setattr(folders, "decode", forbidden)
    folder.rename(tmp_path / "moved")
    assert np.array_equal(load(str(tmp_path / "moved")).pixels, pixels)
    for path in (tmp_path / "moved").iterdir():
        os.utime(path, ns=(0, 0))
    assert np.array_equal(load(str(tmp_path / "moved")).pixels, pixels)
    for note in (root / "keys").iterdir():
        note.write_text("half")  # left by a process that was killed
    assert np.array_equal(load(str(tmp_path / "moved")).pixels, pixels)
    assert cache_of(root) == [".json", ".npy"]


def test_two_folders_alike_in_names_sizes_and_times(tmp_path: Path) -> None:
    for name in ("one", "two"):
        path = put(tmp_path / name / "a.bmp", noise(4, 4, 3, seed=len(name) + ord(name[0])))
        os.utime(path, ns=(0, 0))
    assert load(str(tmp_path / "one")).digest != load(str(tmp_path / "two")).digest


def test_an_interrupted_run_leaves_no_half_cache(folder: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = fill(folder, 20)

    def interrupted(path: Path, **options: Any) -> Image.Image:  # noqa: ANN401
        if path.name == "010.png":
            raise KeyboardInterrupt
        return pictures.decode(path, **options)

    with monkeypatch.context() as patch:
        patch.setattr(folders, "decode", interrupted)
        with pytest.raises(KeyboardInterrupt):
            load(str(folder))
    assert cache_of(root) == []
    assert np.array_equal(load(str(folder)).pixels, pixels)


@pytest.mark.parametrize("moment", [1, 2])
def test_a_full_disk_is_explained(folder: Path, root: Path, monkeypatch: pytest.MonkeyPatch, moment: int) -> None:
    """The disk may be full when the pixels are written, or when the note is."""
    pixels, calls = fill(folder, 3), []

    def full(file: int) -> None:
        calls.append(file)
        if len(calls) == moment:
            raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match=r"No space left on device \(set SCOREFIELD_DATA"):
            load(str(folder))
    assert cache_of(root) == [".npy"] * (moment - 1)  # pixels without a note are not an entry
    assert np.array_equal(load(str(folder)).pixels, pixels)
    assert cache_of(root) == [".json", ".npy"]


def test_what_a_killed_run_left_is_not_used_and_is_removed_after_a_day(folder: Path, root: Path) -> None:
    fill(folder, 3)
    load(str(folder))
    (note,) = (root / "cache").glob("*.json")
    entry = note.with_suffix(".npy")
    note.unlink()
    whole = entry.read_bytes()
    entry.write_bytes(whole[:150])
    old, young = entry.with_name(f"{entry.name}.1.part"), entry.with_name(f"{entry.name}.2.part")
    old.write_bytes(whole[:150])
    young.write_bytes(whole[:150])
    os.utime(old, (0, 0))
    load(str(folder))
    assert entry.read_bytes() == whole
    assert note.exists()
    assert young.exists()
    assert not old.exists()


@pytest.mark.parametrize("damage", ["npy", "json"])
def test_a_damaged_entry_is_written_again(folder: Path, root: Path, damage: str) -> None:
    pixels = fill(folder, 3)
    load(str(folder))
    (path,) = (root / "cache").glob(f"*.{damage}")
    path.write_bytes(path.read_bytes()[:-10])
    assert np.array_equal(load(str(folder)).pixels, pixels)


@pytest.mark.parametrize(
    ("pixels", "note"),
    [
        (noise(3, 4, 4, 3).view(np.int8), {}),
        (noise(3, 4, 4, 3).astype(np.uint16), {}),
        (noise(3, 4, 3, 4), {}),
        (noise(3, 4, 4), {"shape": [3, 4, 4]}),
        (noise(2, 4, 4, 3), {"shape": [2, 4, 4, 3]}),
        (noise(2, 4, 4, 3), {"shape": [2, 4, 4, 3], "broken": [["other.png", "why"]]}),
        (None, {"broken": [["000.png", "why"]]}),
        (None, {"broken": ["ab"]}),
        (None, {"broken": 3}),
        (None, {"digest": None}),
        (None, {"digest": ...}),
        (None, {"change": 3}),
        (None, {"change": ...}),  # as older versions wrote it
        (None, {"shape": "3443"}),
    ],
)
def test_an_entry_that_does_not_fit_is_written_again(
    folder: Path, root: Path, pixels: Array | None, note: dict[str, object]
) -> None:
    """Its array, what its note says, and the names of the images must go together; ... is what the note lacks."""
    expected = fill(folder, 3)
    first = load(str(folder))
    (path,) = (root / "cache").glob("*.json")
    whole = path.read_text()
    changed = json.loads(whole) | note
    path.write_text(json.dumps({key: value for key, value in changed.items() if value is not ...}))
    if pixels is not None:
        np.save(path.with_suffix(".npy"), pixels)
    again = load(str(folder))
    assert np.array_equal(again.pixels, expected)
    assert again.pixels.dtype == np.uint8
    assert (again.digest, again.notes) == (first.digest, ())
    assert path.read_text() == whole


def test_two_processes_at_once(folder: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both find no entry and decode; the barrier makes each wait until the other has begun too."""
    pixels, both = fill(folder, 20), threading.Barrier(2, timeout=60)

    def together(path: Path, **options: Any) -> Image.Image:  # noqa: ANN401
        if path.name == "000.png":
            both.wait()
        return pictures.decode(path, **options)

    monkeypatch.setattr(folders, "decode", together)
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(load, [str(folder)] * 2))
    for images in results:
        assert np.array_equal(images.pixels, pixels)
    assert cache_of(root) == [".json", ".npy"]


def test_a_folder_that_may_not_be_written_to(folder: Path, root: Path) -> None:
    fill(folder, 2)
    root.mkdir()
    (root / "cache").write_text("a file where the folder should be")
    with pytest.raises(OSError, match=r"cannot write prepared images into .*\(set SCOREFIELD_DATA"):
        load(str(folder))
