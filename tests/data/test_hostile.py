"""Folders that hold what nobody expects: each is read, or there is an error that says what is wrong."""

from __future__ import annotations

import os
import resource
import shutil
import socket
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from data.image_files import Array, fill, labels_of, noise, put
from scorefield import data
from scorefield.data import folders, load, pictures


@pytest.fixture
def thirty(folder: Path) -> Path:
    """Thirty images of 4 × 4, so that one that cannot be read is skipped."""
    fill(folder, 30)
    return folder


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # the path of a socket may have no more than 107 characters
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


def a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def a_link_to_itself(path: Path) -> None:
    path.symlink_to(path.name)


def a_web_page(path: Path) -> None:
    path.write_text("\ufeff \n<!DOCTYPE html><title>404</title>", encoding="utf-8")


def a_photo_of_another_kind(path: Path) -> None:
    path.write_bytes(b"\0\0\0\x18ftypheic" + bytes(100))


def an_endless_file(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(10**12)  # it takes no space


def too_many_pixels(path: Path) -> None:
    """A PNG of 30,000 × 30,000 black and white pixels, all of them black."""
    rows, packer = bytes(30_000 // 8 + 1) * 1000, zlib.compressobj(1)
    packed = b"".join(packer.compress(rows) for _ in range(30)) + packer.flush()
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", 30_000, 30_000, 1, 0, 0, 0, 0)), (b"IDAT", packed), (b"IEND", b"")]
    parts = [
        len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big") for kind, data in chunks
    ]
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(parts))


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (a_pipe, "it is a pipe and no file"),
        (a_socket, "it is a socket and no file"),
        (a_device, "it is a device and no file"),
        (a_link_to_itself, "OSError: Too many levels of symbolic links"),
        (Path.touch, "it is empty"),
        (a_web_page, "it holds text, such as a web page, and no image"),
        (a_photo_of_another_kind, "it holds an image or a film of another kind, such as HEIC or AVIF"),
        (an_endless_file, "it has 1,000,000,000,000 bytes, and no image is read that has more than 2,147,483,648"),
    ],
)
def test_what_is_no_image(make: Callable[[Path], None], why: str, thirty: Path) -> None:
    make(thirty / "x.png")
    images = load(str(thirty))
    assert images.notes == (f"skipped 1 of the 31 images in {thirty}, which cannot be read: x.png ({why})",)
    assert np.array_equal(images.pixels, noise(30, 4, 4, 3))
    assert data.sizes(str(thirty)) == {(4, 4): 30}


def test_a_decompression_bomb_takes_no_memory(thirty: Path) -> None:
    """900 million pixels in half a megabyte."""
    too_many_pixels(thirty / "x.png")
    assert (thirty / "x.png").stat().st_size < 600_000
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    (note,) = load(str(thirty)).notes
    assert "x.png (DecompressionBombError: Image size (900000000 pixels) exceeds limit" in note
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kB


def test_more_pixels_than_are_read(thirty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(thirty / "x.png", noise(30, 40))
    monkeypatch.setattr(pictures, "MOST_PIXELS", 1199)
    (note,) = load(str(thirty)).notes
    assert note.endswith("x.png (it has 40 × 30 pixels; at most 1,199 are read)")


def test_a_very_wide_image(folder: Path) -> None:
    """Its middle is used."""
    pixels = noise(20, 30_000)
    put(folder / "a.png", pixels)
    images = load(str(folder), image_size=20)
    assert np.array_equal(images.pixels[0, ..., 0], pixels[:, 14_990:15_010])


def test_large_images_are_decoded_one_at_a_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 16 pixels each there is room for two, and a larger one is alone."""
    fill(folder, 20)
    put(folder / "x.png", noise(8, 8))
    monkeypatch.setattr(folders, "MOST_THREADS", 4)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setattr(folders, "BLOCK", 1)
    monkeypatch.setattr(folders, "AT_ONCE", 32)
    inside, most = list[int](), list[int]()

    def watched(image: Image.Image, name: str, fit: pictures.Fit) -> Array:
        inside.append(image.width * image.height)
        most.append(sum(inside))
        time.sleep(0.005)  # so that the threads meet
        made = pictures.crop_and_resize(image, name, fit)
        inside.remove(image.width * image.height)
        return made

    monkeypatch.setattr(folders, "crop_and_resize", watched)
    assert len(load(str(folder), image_size=4)) == 21
    assert max(most) == 64
    assert sorted(most)[-2] <= 32


def test_links_that_lead_round(thirty: Path) -> None:
    (thirty / "above").symlink_to(thirty)
    (thirty / "a").mkdir()
    (thirty / "a" / "again").symlink_to(thirty / "a")
    (thirty / "self").symlink_to("self")
    assert load(str(thirty)).notes == (f"skipped 1 file in {thirty}, of kinds that are not read: 1 without an ending",)


def test_folders_that_are_nested_deeply_and_widely(folder: Path) -> None:
    """Folders whose path is longer than the system allows are named."""
    put(folder / "a.png", noise(4, 4))
    for k in range(200):
        (folder / f"{k}").mkdir()
        shutil.copy(folder / "a.png", folder / f"{k}" / "a.png")
    here = Path.cwd()
    try:
        os.chdir(folder)
        for _ in range(50):
            Path("d" * 100).mkdir()
            os.chdir("d" * 100)
        shutil.copy(folder / "a.png", "a.png")
    finally:
        os.chdir(here)
    images = load(str(folder))
    assert len(images) == 201
    assert images.notes[0].startswith("skipped 1 folder that cannot be looked into: ddd")
    assert images.notes[0].endswith("ddd (File name too long)")
    assert len(images.notes[0]) < 200


def test_a_folder_that_may_not_be_looked_into(thirty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user who runs the tests may look into any."""
    (thirty / "mine").mkdir()

    def closed(path: Path) -> Any:  # noqa: ANN401
        if Path(path).name == "mine":
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", closed)
    assert load(str(thirty)).notes == ("skipped 1 folder that cannot be looked into: mine (Permission denied)",)
    with pytest.raises(ValueError, match=r"holds no images; 1 folder that cannot be looked into: .*mine \(Permission"):
        load(str(thirty / "mine"))


def test_a_file_that_may_not_be_read(thirty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(path: Path, *options: Any) -> int:  # noqa: ANN401
        if Path(path).name == "007.png":
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, *options)

    opened = os.open
    monkeypatch.setattr(os, "open", closed)
    assert load(str(thirty)).notes[0].endswith("007.png (PermissionError: Permission denied)")


@pytest.mark.parametrize("change", ["grows", "vanishes", "is replaced"])
def test_a_file_that_changes_while_it_is_read(change: str, thirty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is kept of what was read: the next run reads the folder again."""

    def changing(path: Path, **options: Any) -> Image.Image:  # noqa: ANN401
        image = pictures.decode(path, **options)
        if path.name == "007.png":
            if change == "grows":
                with path.open("ab") as file:
                    file.write(b"more")
            elif change == "vanishes":
                path.unlink()
            else:
                put(path, noise(4, 4, 3, seed=9))
                os.utime(path, ns=(1, 1))
        return image

    with monkeypatch.context() as patch:
        patch.setattr(folders, "decode", changing)
        with pytest.raises(ValueError, match=r"007.png was changed or removed while .*try again when nothing writes"):
            load(str(thirty))
    assert len(load(str(thirty))) == (29 if change == "vanishes" else 30)


def test_a_file_that_grows_for_ever_is_read_up_to_its_first_length(
    thirty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its writer is as fast as its reader: 1,000 bytes for each that are read."""
    path = thirty / "007.png"
    path.write_bytes(bytes(2**20 + 5))
    digests = [folders._digest(path)]

    class Growing:
        def __init__(self, file: Any) -> None:  # noqa: ANN401
            self.file = file

        def __enter__(self) -> Growing:
            return self

        def __exit__(self, *reasons: object) -> None:
            self.file.close()

        def fileno(self) -> int:
            return int(self.file.fileno())

        def read(self, n: int) -> bytes:
            assert n > 0
            with path.open("ab") as file:
                file.write(b"more" * 250)
            return bytes(self.file.read(n))

    monkeypatch.setattr(folders, "open_file", lambda path: Growing(pictures.open_file(path)))
    digests.append(folders._digest(path))
    assert digests[0] == digests[1]


def test_names_that_are_not_utf8(folder: Path) -> None:
    """Class names go into model files, which hold UTF-8."""
    for name in (b"caf\xe9/a\xff.png", b"caf\xe8/b.png", b"x/b.png"):
        path = Path(os.fsdecode(os.fsencode(folder) + b"/" + name))
        put(path, noise(4, 4))
    images = load(str(folder))
    assert images.classes == ("caf\\xe8", "caf\\xe9", "x")
    assert labels_of(images) == [0, 1, 2]
    "".join(images.classes).encode()


def test_a_single_image_is_no_folder(folder: Path) -> None:
    path = put(folder / "a.png", noise(4, 4))
    with pytest.raises(ValueError, match=r"a.png' is a single image \(give .*; a folder of images; or"):
        load(str(path))
    os.mkfifo(folder / "b.png")
    with pytest.raises(ValueError, match="is neither a folder nor an array of images"):
        load(str(folder / "b.png"))


def test_damaged_exif_data_do_no_harm(folder: Path) -> None:
    Image.fromarray(noise(8, 6)).save(folder / "a.jpg", exif=b"Exif\0\0garbage")
    assert load(str(folder)).pixels.shape == (1, 8, 6, 1)
    assert data.sizes(str(folder)) == {(8, 6): 1}


def test_training_on_the_oddest_folder_tells_and_works(folder: Path, tmp_path: Path) -> None:
    """As a user calls it, in a process of its own: three images that are the same, in classes with odd names."""
    for name in (b"caf\xe9/a.png", b"b\n/b.png", b"b\n/c.png"):
        put(Path(os.fsdecode(os.fsencode(folder) + b"/" + name)), noise(9, 5, 3))
    words = f"train unet-tiny --data {folder} --image-size None --steps 1 --batch-size 2 --previews 0 --device cpu"
    call = [sys.executable, "-m", "scorefield", *words.split(), "--out", str(tmp_path / "run")]
    done = subprocess.run(call, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    assert "3 images, of which 1 is different, are few for this network" in done.stderr
    assert "scorefield neighbors RUN" in done.stderr
    assert "Traceback" not in done.stderr
