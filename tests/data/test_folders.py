"""Folders of image files: their order, their labels, broken files among them, and what a user is told about them."""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from data.image_files import GREYS, cache_of, fill, forbidden, labels_of, noise, put
from scorefield.data import Images, folders, load, pictures, split
from scorefield.data.cache import most_broken

# ---------------------------------------------------------------- folders


def test_a_folder_is_searched_through_and_sorted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order is that of the names, whichever thread is ready first. Hidden files are ignored."""
    order = ["B.PNG", "a.png", "b/1.png", "b/c/2.Jpeg", "b/c/3.webp", "c.gif", "d.TIF", "e.tiff"]
    order += [f"x{k:02}.bmp" for k in range(40)]
    for k, name in enumerate(order):
        put(folder / name, np.full((4, 4, 3), k, np.uint8))
    (folder / ".b").mkdir()
    (folder / "._a.png").write_text("left by a Mac")
    (folder / ".b" / "hidden.png").write_text("no image")
    (folder / "b" / "loop").symlink_to(folder)

    def slow(path: Path, **options: Any) -> Image.Image:  # noqa: ANN401
        time.sleep(random.random() / 200)
        return pictures.decode(path, **options)

    monkeypatch.setattr(folders, "decode", slow)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(folders, "BLOCK", 1)
    images = load(str(folder))
    assert images.pixels[:, 0, 0, 0].tolist() == list(range(len(order)))
    assert (images.name, images.notes) == (str(folder), ())


def test_files_of_other_kinds_are_counted(folder: Path) -> None:
    fill(folder, 2)
    (folder / "notes.txt").write_text("no image")
    assert note_of(load(str(folder))) == f"skipped 1 file in {folder}, of kinds that are not read: 1 .txt"
    (folder / "b").mkdir()
    names = ["b/README", "b/x.TXT", *(f"{k}.heic" for k in range(3)), "a.json", "a.csv", "a.xml", "a.npy", ".c.txt"]
    for name in names:
        (folder / name).touch()
    note = note_of(load(str(folder)))
    assert re.fullmatch(rf"skipped 10 files in {folder}, .*: 3 \.heic, 2 \.txt, (1 [^,]+, ){{3}}2 more", note)


def note_of(images: Images) -> str:
    """The one note about these images."""
    (note,) = images.notes
    return note


def test_grey_among_colours_is_repeated(folder: Path) -> None:
    greys, colours = noise(3, 4, 4), noise(2, 4, 4, 3)
    for name, pixels in zip(["a", "b", "d"], greys, strict=True):
        put(folder / f"{name}.png", pixels)
    assert load(str(folder)).shape == (1, 4, 4)
    for name, pixels in zip(["c", "e"], colours, strict=True):
        put(folder / f"{name}.png", pixels)
    three = greys[..., None].repeat(3, -1)
    assert np.array_equal(load(str(folder)).pixels, [three[0], three[1], colours[0], three[2], colours[1]])
    put(folder / "f.png", greys[0])  # the last one does not decide
    assert np.array_equal(load(str(folder)).pixels[-2:], [colours[1], three[0]])


def test_images_of_different_sizes_need_a_size(folder: Path) -> None:
    put(folder / "a.png", noise(4, 5))
    put(folder / "b.png", noise(4, 5))
    put(folder / "c.png", noise(6, 5))
    with pytest.raises(ValueError, match=r"a.png is 4×5 and c.png is 6×5 .*--image-size"):
        load(str(folder))
    put(folder / "d.png", noise(5, 5))
    images = load(str(folder), image_size=4)
    assert images.pixels.shape == (4, 4, 4, 1)
    ends = "from 4 × 5 ... 6 × 5 pixels (height × width)"
    assert note_of(images) == f"the images of {folder} are cropped to the middle and resized to 4 × 4, {ends}"
    images = load(str(folder), crop=3)
    assert images.pixels.shape == (4, 3, 3, 1)
    assert note_of(images) == f"the images of {folder} are cropped to the middle 3 × 3, {ends}"


def test_an_empty_folder(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"holds no images \(looked for .jpg .jpeg .png .webp .bmp .gif .tif .tiff, "):
        load(str(folder))
    (folder / "a.heic").touch()
    with pytest.raises(ValueError, match=r"holds no images, but 1 .heic \(looked for .*convert images of other kinds"):
        load(str(folder))


def test_few_images_are_in_memory_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for k in range(60):
        put(folder / f"{k:02}.png", GREYS)
    monkeypatch.setattr(folders, "MOST_THREADS", 2)
    monkeypatch.setattr(folders, "BLOCK", 2)
    decoded, most = [], 0

    def counted(path: Path, **options: Any) -> Image.Image:  # noqa: ANN401
        decoded.append(path)
        return pictures.decode(path, **options)

    def track(items: Iterable[Any], what: str, total: int) -> Iterator[Any]:
        nonlocal most
        for written, item in enumerate(items):
            most = max(most, len(decoded) - written)
            yield item

    monkeypatch.setattr(folders, "decode", counted)
    assert len(load(str(folder), track=track)) == 60
    assert 1 <= most <= 2 * 2 * 2 + 2


# ---------------------------------------------------------------- labels


def test_subfolders_are_classes(folder: Path) -> None:
    order = ["cats/1.png", "cats/young/2.png", "dogs/0.png", "dogs/old/grey/3.png", "wolves/4.png"]
    for k, name in enumerate(order):
        put(folder / name, np.full((6, 6, 3), k, np.uint8))
    (folder / "empty").mkdir()
    (folder / "notes.txt").write_text("not an image")
    (folder / ".hidden").mkdir()
    put(folder / ".hidden" / "5.png", GREYS)
    for size in (None, 3, 3):  # the last one from the cache
        images = load(str(folder), image_size=size, crop=size)
        assert images.pixels[:, 0, 0, 0].tolist() == [0, 1, 2, 3, 4]
        assert images.classes == ("cats", "dogs", "wolves")
        assert labels_of(images) == [0, 0, 1, 1, 2]


@pytest.mark.parametrize("names", [["a.png", "b.png"], ["a/1.png", "a/2.png"], ["a/x/1.png", "a/y/2.png"],
                                   ["a/1.png", "b/2.png", "c.png"]])  # fmt: skip
def test_other_folders_have_no_labels(folder: Path, names: list[str]) -> None:
    for name in names:
        put(folder / name, GREYS)
    images = load(str(folder))
    assert (len(images), images.labels, images.classes) == (len(names), None, ())


def test_a_copied_folder_keeps_its_labels_and_a_renamed_class_its_order(folder: Path, tmp_path: Path) -> None:
    for k, name in enumerate(["a/1.png", "b/2.png", "b/3.png"]):
        put(folder / name, np.full((4, 4), k, np.uint8))
    first = load(str(folder))
    folder.rename(tmp_path / "moved")
    assert labels_of(load(str(tmp_path / "moved"))) == labels_of(first) == [0, 1, 1]
    (tmp_path / "moved" / "a").rename(tmp_path / "moved" / "c")
    images = load(str(tmp_path / "moved"))
    assert images.pixels[:, 0, 0, 0].tolist() == [1, 2, 0]
    assert (images.classes, labels_of(images)) == (("b", "c"), [0, 0, 1])


# ---------------------------------------------------------------- broken images


def damage(folder: Path, k: int, kind: str) -> None:
    path = folder / f"{k:03}.png"
    content = {
        "truncated": path.read_bytes()[:-30],
        "text": b"not an image at all",
        "empty": b"",
        "garbled": path.read_bytes()[:33] + bytes(30),
    }
    path.write_bytes(content[kind])


@pytest.fixture(scope="module")
def two_hundred(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("two_hundred")
    fill(folder, 200)
    return folder


@pytest.fixture
def many(two_hundred: Path, folder: Path) -> Path:
    for path in two_hundred.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    return folder


@pytest.mark.parametrize("kind", ["truncated", "text", "empty", "garbled"])
def test_a_broken_image_among_many_is_skipped(many: Path, kind: str) -> None:
    damage(many, 7, kind)
    images = load(str(many))
    assert re.match(rf"skipped 1 of the 200 images in {many}, which cannot be read: 007.png \(", note_of(images))
    assert np.array_equal(images.pixels, np.delete(noise(200, 4, 4, 3), 7, 0))


@pytest.mark.parametrize(
    ("n", "most"),
    [(1, 0), (9, 0), (10, 1), (19, 1), (20, 2), (49, 4), (50, 5), (100, 5), (599, 5), (600, 6), (60_000, 600)],
)
def test_how_many_are_skipped_at_most(n: int, most: int) -> None:
    """One in a hundred; or up to five if they are one in ten at most."""
    assert most_broken(n) == most


def test_a_few_are_skipped_with_a_note_each_time(many: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for k, kind in ((0, "text"), (7, "text"), (8, "empty"), (9, "garbled"), (199, "empty")):
        damage(many, k, kind)
    first = note_of(load(str(many)))
    assert re.match(r"skipped 5 of the 200 .*000.png \(.*007.png \(.*008.png \(.*009.png \(.*199.png \([^)]*\)$", first)
    monkeypatch.setattr(folders, "decode", forbidden)
    images = load(str(many))
    assert (len(images), note_of(images)) == (195, first)


def test_more_than_a_few_are_an_error(many: Path, root: Path) -> None:
    for k in (1, 2, 3, 5, 8, 13):
        damage(many, k, "text")
    message = r"6 of the 200 images in .*001.png .*008.png .*; and 1 more \(at most 5 .*: repair or remove them\)"
    with pytest.raises(ValueError, match=message) as error:
        load(str(many))
    assert "013.png" not in str(error.value)
    assert cache_of(root) == []


def test_skipped_images_of_many_are_named_in_a_file(folder: Path, root: Path) -> None:
    pixels = fill(folder, 601)
    for k in range(6):
        damage(folder, 100 * k, "empty")
    images = load(str(folder))
    (file,) = (root / "cache").glob("*.json")
    assert re.search(rf"400.png \([^)]*\); and 1 more \({file} names all\)$", note_of(images))
    assert "500.png" in file.read_text()
    assert np.array_equal(images.pixels, np.delete(pixels, [0, 100, 200, 300, 400, 500], 0))


def test_one_broken_image_of_few_is_an_error(folder: Path) -> None:
    fill(folder, 3)
    damage(folder, 1, "truncated")
    with pytest.raises(
        ValueError, match=r"1 of the 3 images .*001.png \(OSError: .*truncated.*\(repair or remove them\)"
    ):
        load(str(folder))


def test_a_dangling_link_is_broken(many: Path) -> None:
    (many / "004.png").unlink()
    (many / "004.png").symlink_to(many / "gone")
    assert re.match(r"skipped 1 of the 200 .*004.png \(FileNotFoundError", note_of(load(str(many))))


def test_a_decompression_bomb_is_broken(many: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(many / "004.png", np.zeros((50, 50), np.uint8))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    images = load(str(many))
    assert re.match(r"skipped 1 of the 200 .*004.png \(DecompressionBombError", note_of(images))
    assert len(images) == 199


def test_the_labels_of_broken_images_are_skipped_too(folder: Path) -> None:
    """Image k has the value k everywhere and belongs to class k // 67; also when it comes from the cache."""
    for k in range(200):
        put(folder / "abc"[k // 67] / f"{k:03}.png", np.full((4, 4), k, np.uint8))
    for name in ("a/005.png", "b/067.png"):
        (folder / name).write_bytes(b"broken")
    for _ in range(2):
        images = load(str(folder))
        assert note_of(images).startswith("skipped 2 of the 200")
        numbers = images.pixels[:, 0, 0, 0].tolist()
        assert numbers == [k for k in range(200) if k not in (5, 67)]
        assert labels_of(images) == [k // 67 for k in numbers]
        for part in split(images, 20):
            assert labels_of(part) == [k // 67 for k in part.pixels[:, 0, 0, 0].tolist()]
