from __future__ import annotations

import functools
import gzip
import hashlib
import http.server
import io
import json
import os
import random
import socket
import struct
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from scorefield.data import Images, batch, download, folder_of, folders, load, named, pictures, split
from scorefield.data.images import digest_of

Array = NDArray[Any]


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing outside the test's own folder is read or written, and nothing is asked of the network."""
    monkeypatch.setenv("SCOREFIELD_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(named, "MNIST_URL", "http://127.0.0.1:9/")
    monkeypatch.setattr(named, "CIFAR10_URL", "http://127.0.0.1:9/cifar-10-binary.tar.gz")
    return tmp_path / "data"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "images").mkdir()
    return tmp_path / "images"


def noise(*shape: int, seed: int = 0, dtype: type = np.uint8) -> Array:
    return np.random.default_rng(seed).integers(0, np.iinfo(dtype).max, shape, dtype=dtype, endpoint=True)


def put(path: Path, pixels: Array, *, quality: int = 95, orientation: int | None = None) -> Path:
    """A new image file; JPEG alone loses something."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(pixels)
    if orientation is None:
        image.save(path, quality=quality, lossless=True)
    else:
        image.getexif()[0x0112] = orientation
        image.save(path, quality=quality, lossless=True, exif=image.getexif())
    return path


def stored(path: Path) -> tuple[str, Array]:
    """Mode and pixels of an image file as Pillow reads it."""
    with Image.open(path) as image:
        return image.mode, np.asarray(image)


def only(folder: Path, *, image_size: int | tuple[int, int] | None = None, crop: int | None = None) -> Array:
    """The pixels of the one image in a folder."""
    (pixels,) = load(str(folder), image_size=image_size, crop=crop).pixels
    return pixels


def cache_of(root: Path) -> list[str]:
    return sorted(path.suffix for path in (root / "cache").glob("*"))


# ---------------------------------------------------------------- places


def test_data_lie_where_the_variable_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert folder_of("mnist") == tmp_path / "data" / "mnist"
    monkeypatch.setenv("SCOREFIELD_DATA", "~/sets")
    assert folder_of("mnist") == Path.home() / "sets" / "mnist"


@pytest.mark.parametrize(
    ("platform", "variables", "expected"),
    [
        ("linux", {"XDG_CACHE_HOME": "/x"}, "/x"),
        ("linux", {}, "/home/me/.cache"),
        ("darwin", {"XDG_CACHE_HOME": "/x"}, "/home/me/Library/Caches"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local"),
    ],
)
def test_or_else_in_the_users_cache(
    monkeypatch: pytest.MonkeyPatch, platform: str, variables: dict[str, str], expected: str
) -> None:
    for name in ("SCOREFIELD_DATA", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/me")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", platform)
    assert folder_of("inception") == Path(expected) / "scorefield" / "inception"


# ---------------------------------------------------------------- MNIST


def idx(pixels: Array, magic: int = 0x803) -> bytes:
    return struct.pack(">4I", magic, *pixels.shape) + pixels.tobytes()


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("source", "file"), [("mnist", "train"), ("mnist:train", "train"), ("mnist:test", "t10k")])
def test_mnist_from_its_official_files(root: Path, source: str, file: str, packed: bool) -> None:
    (root / "mnist").mkdir(parents=True)
    digits, path = noise(5, 28, 28), root / "mnist" / f"{file}-images-idx3-ubyte"
    if packed:
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(idx(digits)))
    else:
        path.write_bytes(idx(digits))
    images = load(source)
    assert np.array_equal(images.pixels, digits[..., None])
    assert (images.name, images.shape, len(images)) == (source, (1, 28, 28), 5)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("", idx(noise(5, 28, 28), 0x801), "starts with 0x801, not 0x803 .*delete it"),
        ("", idx(noise(5, 28, 28))[:-1], "should hold 5 images of 28×28, but has 3935 bytes .*delete it"),
        ("", idx(noise(5, 28, 28)) + b"x", "should hold 5 images"),
        ("", idx(noise(0, 28, 28)), "should hold 0 images"),
        ("", b"short", "only 5 bytes .*delete it"),
        (".gz", gzip.compress(idx(noise(5, 28, 28)))[:-20], "is damaged: .*delete it"),
        (".gz", b"not packed", "is damaged: .*delete it"),
    ],
)
def test_damaged_mnist_files_are_refused(root: Path, name: str, content: bytes, message: str) -> None:
    (root / "mnist").mkdir(parents=True)
    (root / "mnist" / f"train-images-idx3-ubyte{name}").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        load("mnist")


# ---------------------------------------------------------------- CIFAR-10


def records(pixels: Array) -> bytes:
    """(N, 32, 32, 3) in the binary version: a label, then all of red, all of green, all of blue."""
    return b"".join(bytes([k % 10]) + image.transpose(2, 0, 1).tobytes() for k, image in enumerate(pixels))


@pytest.mark.parametrize("inside", ["", "cifar-10-batches-bin"])
def test_cifar10_from_its_binary_files(root: Path, inside: str) -> None:
    (place := root / "cifar10" / inside).mkdir(parents=True)
    train, test = noise(10, 32, 32, 3), noise(3, 32, 32, 3, seed=1)
    for k in range(5):
        (place / f"data_batch_{k + 1}.bin").write_bytes(records(train[2 * k : 2 * k + 2]))
    (place / "test_batch.bin").write_bytes(records(test))
    assert np.array_equal(load("cifar10").pixels, train)
    assert np.array_equal(load("cifar10:test").pixels, test)
    assert load("cifar10").shape == (3, 32, 32)


@pytest.mark.parametrize("content", [b"", records(noise(2, 32, 32, 3))[:-1], bytes([10]) + bytes(3072), bytes(3074)])
def test_damaged_cifar10_files_are_refused(root: Path, content: bytes) -> None:
    (root / "cifar10").mkdir(parents=True)
    (root / "cifar10" / "test_batch.bin").write_bytes(content)
    with pytest.raises(ValueError, match=rf"its {len(content)} bytes are not records .*delete it"):
        load("cifar10:test")


# ---------------------------------------------------------------- CelebA


def triangle(source: int, target: int) -> Array:
    """Resizing as a matrix: row k weighs the source by a triangle about (k + ½)·scale, as wide as scale either side."""
    scale = source / target
    centres, places = (np.arange(target) + 0.5) * scale, np.arange(source) + 0.5
    weights = np.maximum(0, 1 - abs(places - centres[:, None]) / max(scale, 1))
    return weights / weights.sum(1, keepdims=True)


def resized(pixels: Array, height: int, width: int) -> Array:
    """By the triangle filter along both axes, unrounded."""
    rows, columns = triangle(pixels.shape[0], height), triangle(pixels.shape[1], width)
    return np.einsum("ih,hwc,jw->ijc", rows, pixels.astype(float), columns, optimize=True)


@pytest.fixture
def faces(root: Path) -> dict[str, Array]:
    """Seven faces of CelebA's size: 1, 2, 5, 6 for training, 3 for validation, 4 and 7 for testing."""
    lines, decoded = [], {}
    for k, part in enumerate([0, 0, 1, 2, 0, 0, 2], 1):
        coarse = Image.fromarray(noise(12, 10, 3, seed=k)).resize((178, 218), Image.Resampling.BICUBIC)
        path = put(root / "celeba" / "img_align_celeba" / f"{k:06}.jpg", np.asarray(coarse), quality=95)
        lines.append(f"{path.name} {part}\n")
        decoded[path.name] = stored(path)[1]
    (root / "celeba" / "list_eval_partition.txt").write_text("".join(lines))
    return decoded


@pytest.mark.parametrize(
    ("source", "members"), [("celeba", (1, 2, 5, 6)), ("celeba:valid", (3,)), ("celeba:test", (4, 7))]
)
def test_celeba_as_in_the_paper(faces: dict[str, Array], source: str, members: tuple[int, ...]) -> None:
    images = load(source)
    expected = [resized(faces[f"{k:06}.jpg"][39:179, 19:159], 32, 32) for k in members]
    assert images.shape == (3, 32, 32)
    assert abs(images.pixels - np.stack(expected)).max() <= 1  # Pillow rounds after each axis


def test_celeba_otherwise(faces: dict[str, Array]) -> None:
    assert np.array_equal(load("celeba:valid", crop=64, image_size=64).pixels[0], faces["000003.jpg"][77:141, 57:121])
    assert load("celeba:valid", image_size=64).shape == (3, 64, 64)
    expected = resized(faces["000003.jpg"][20:198, :], 32, 32)
    assert abs(load("celeba:valid", crop=178).pixels[0] - expected).max() <= 1


def test_celeba_with_files_missing(faces: dict[str, Array], root: Path) -> None:
    (root / "celeba" / "img_align_celeba" / "000004.jpg").unlink()
    with pytest.raises(ValueError, match=r"1 of the 2 images of the test part are not in .*000004.jpg .*anew"):
        load("celeba:test")
    assert len(load("celeba:valid")) == 1
    (root / "celeba" / "list_eval_partition.txt").write_text("000001.jpg 0\n")
    with pytest.raises(ValueError, match="lists no images of the valid part"):
        load("celeba:valid")


def test_celeba_is_not_downloaded_but_explained(root: Path) -> None:
    with pytest.raises(FileNotFoundError) as error:
        load("celeba")
    for word in ("mmlab.ie.cuhk.edu.hk", "img_align_celeba.zip", "list_eval_partition.txt", str(root / "celeba")):
        assert word in str(error.value)


# ---------------------------------------------------------------- every kind of image file


GREYS = noise(6, 5)
COLOURS = noise(6, 5, 3)
ALPHA = np.linspace(0, 255, 30).astype(np.uint8).reshape(6, 5)


def over_white(colours: Array, alpha: Array) -> Array:
    a = alpha[..., None] / 255
    return np.floor(colours * a + 255 * (1 - a) + 0.5)


@pytest.mark.parametrize("ending", ["png", "bmp", "webp", "PNG", "Bmp", "WebP"])
def test_rgb(folder: Path, ending: str) -> None:
    put(folder / f"a.{ending}", COLOURS)
    assert np.array_equal(only(folder), COLOURS)


@pytest.mark.parametrize("ending", ["jpg", "jpeg", "JPG", "JPEG"])
def test_jpeg(folder: Path, ending: str) -> None:
    path = put(folder / f"a.{ending}", np.full((16, 16, 3), (200, 100, 50), np.uint8), quality=100)
    assert np.array_equal(only(folder), stored(path)[1])
    assert abs(only(folder) - np.array([200.0, 100, 50])).max() <= 2


@pytest.mark.parametrize("ending", ["png", "bmp"])
def test_grey_has_one_channel(folder: Path, ending: str) -> None:
    put(folder / f"a.{ending}", GREYS)
    assert np.array_equal(only(folder), GREYS[..., None])


@pytest.mark.parametrize("ending", ["png", "bmp"])
def test_one_bit(folder: Path, ending: str) -> None:
    Image.fromarray(GREYS > 127).save(folder / f"a.{ending}")
    assert stored(folder / f"a.{ending}")[0] == "1"
    assert np.array_equal(only(folder), np.where(GREYS > 127, 255, 0)[..., None])


def test_sixteen_bits_are_scaled_not_clipped(folder: Path) -> None:
    values = np.array([[0, 128, 129, 385, 386], [257 * 7, 256, 32767, 65534, 65535]], np.uint16)
    put(folder / "a.png", values)
    assert only(folder)[..., 0].tolist() == [[0, 0, 1, 1, 2], [7, 1, 127, 255, 255]]
    values = noise(50, 50, dtype=np.uint16)
    put(folder / "a.png", values)
    assert np.array_equal(only(folder)[..., 0], np.round(values * (255 / 65535)))


def test_rgba_over_white(folder: Path) -> None:
    put(folder / "a.png", np.dstack([COLOURS, ALPHA]))
    assert np.array_equal(only(folder), over_white(COLOURS, ALPHA))


def test_grey_with_opacity_over_white_stays_grey(folder: Path) -> None:
    put(folder / "a.png", np.dstack([GREYS, ALPHA]))
    assert stored(folder / "a.png")[0] == "LA"
    assert np.array_equal(only(folder), over_white(GREYS[..., None], ALPHA))


def palette_image(colours: Array) -> tuple[Image.Image, Array]:
    """An image of as many colours as rows, and the pixels that it stands for."""
    indices = np.random.default_rng(1).integers(0, len(colours), (6, 5), dtype=np.uint8)
    image = Image.fromarray(indices)
    image.putpalette(colours.tobytes())
    assert image.mode == "P"
    return image, indices


def test_palette(folder: Path) -> None:
    colours = noise(16, 3, seed=2)
    image, indices = palette_image(colours)
    for ending in ("png", "bmp"):
        image.save(folder / f"a.{ending}")
    for pixels in load(str(folder)).pixels:
        assert np.array_equal(pixels, colours[indices])


def test_palette_with_one_transparent_colour(folder: Path) -> None:
    colours = noise(16, 3, seed=2)
    image, indices = palette_image(colours)
    image.save(folder / "a.png", transparency=3)
    assert np.array_equal(only(folder), np.where(indices[..., None] == 3, 255, colours[indices]))


def test_palette_with_an_opacity_for_each_colour(folder: Path) -> None:
    colours, alpha = noise(16, 3, seed=2), noise(16, seed=3)
    image, indices = palette_image(colours)
    image.save(folder / "a.png", transparency=alpha.tobytes())
    assert np.array_equal(only(folder), over_white(colours[indices], alpha[indices]))


def test_palette_of_greys_is_grey(folder: Path) -> None:
    greys = noise(16, 1, seed=2)
    image, indices = palette_image(greys.repeat(3, 1))
    image.save(folder / "a.png")
    assert stored(folder / "a.png")[0] == "P"
    assert np.array_equal(only(folder), greys[indices])


def test_one_transparent_colour_without_a_palette(folder: Path) -> None:
    Image.fromarray(COLOURS).save(folder / "a.png", transparency=tuple(map(int, COLOURS[2, 1])))
    expected = COLOURS.copy()
    expected[(COLOURS[2, 1] == COLOURS).all(-1)] = 255
    assert np.array_equal(only(folder), expected)
    Image.fromarray(GREYS).save(folder / "a.png", transparency=int(GREYS[2, 1]))
    assert np.array_equal(only(folder)[..., 0], np.where(GREYS[2, 1] == GREYS, 255, GREYS))
    deep = noise(6, 5, dtype=np.uint16)
    Image.fromarray(deep).save(folder / "a.png", transparency=int(deep[2, 1]))
    assert np.array_equal(only(folder)[..., 0], np.where(deep == deep[2, 1], 255, np.round(deep / 257)))


def test_cmyk(folder: Path) -> None:
    """Each of red, green, blue is what its ink and black let through:  (1 − ink)(1 − black)."""
    blocks = noise(2, 2, 4, seed=5).repeat(8, 0).repeat(8, 1)
    Image.frombytes("CMYK", (16, 16), blocks.tobytes()).save(folder / "a.jpg", quality=100)
    mode, values = stored(folder / "a.jpg")
    inks = values / 255
    assert mode == "CMYK"
    assert abs(values - blocks.astype(float)).max() <= 4  # the file holds what was meant
    assert abs(only(folder) - 255 * (1 - inks[..., :3]) * (1 - inks[..., 3:])).max() <= 1


ORIENTATIONS: dict[int, Callable[[Array], Array]] = {
    1: lambda image: image,
    2: np.fliplr,
    3: lambda image: np.rot90(image, 2),
    4: np.flipud,
    5: lambda image: image.swapaxes(0, 1),
    6: lambda image: np.rot90(image, -1),  # turned clockwise to be shown
    7: lambda image: np.rot90(image, 2).swapaxes(0, 1),
    8: lambda image: np.rot90(image, 1),
}


@pytest.mark.parametrize("orientation", ORIENTATIONS)
@pytest.mark.parametrize("pixels", [COLOURS, GREYS, noise(6, 5, dtype=np.uint16)], ids=["rgb", "grey", "deep"])
def test_exif_orientation(folder: Path, orientation: int, pixels: Array) -> None:
    put(folder / "a.png", pixels, orientation=orientation)
    expected = ORIENTATIONS[orientation](pixels if pixels.ndim == 3 else pixels[..., None])
    assert np.array_equal(only(folder), np.round(expected / 257) if pixels.dtype == np.uint16 else expected)


def test_exif_orientation_of_a_jpeg(folder: Path) -> None:
    path = put(folder / "a.jpg", COLOURS, orientation=6)
    assert np.array_equal(only(folder), np.rot90(stored(path)[1], -1))


def test_a_gif_in_disguise_and_the_first_of_an_animation(folder: Path) -> None:
    frames = [Image.fromarray(np.full((4, 4), value, np.uint8)) for value in (10, 200)]
    frames[0].save(folder / "a.png", format="GIF", save_all=True, append_images=frames[1:])
    assert (only(folder) == 10).all()


# ---------------------------------------------------------------- folders


def test_a_folder_is_searched_through_and_sorted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever thread is ready first, the order is that of the names; what is no image or hidden is passed over."""
    order = ["B.PNG", "a.png", "b/1.png", "b/c/2.Jpeg", "b/c/3.webp", *(f"x{k:02}.bmp" for k in range(40))]
    for k, name in enumerate(order):
        put(folder / name, np.full((4, 4, 3), k, np.uint8))
    (folder / "notes.txt").write_text("no image")
    (folder / ".b").mkdir()
    (folder / "._a.png").write_text("left by a Mac")
    (folder / ".b" / "hidden.png").write_text("no image")
    (folder / "b" / "loop").symlink_to(folder)

    def slow(path: Path) -> Image.Image:
        time.sleep(random.random() / 200)
        return pictures.decode(path)

    monkeypatch.setattr(folders, "decode", slow)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(folders, "BLOCK", 1)
    images = load(str(folder))
    assert images.pixels[:, 0, 0, 0].tolist() == list(range(len(order)))
    assert images.name == str(folder)


def test_grey_among_colours_is_repeated(folder: Path) -> None:
    greys, colours = noise(3, 4, 4), noise(2, 4, 4, 3)
    for name, pixels in zip(["a", "b", "d"], greys, strict=True):
        put(folder / f"{name}.png", pixels)
    assert load(str(folder)).shape == (1, 4, 4)
    for name, pixels in zip(["c", "e"], colours, strict=True):
        put(folder / f"{name}.png", pixels)
    three = greys[..., None].repeat(3, -1)
    assert np.array_equal(load(str(folder)).pixels, [three[0], three[1], colours[0], three[2], colours[1]])


def test_images_of_different_sizes_need_a_size(folder: Path) -> None:
    put(folder / "a.png", noise(4, 5))
    put(folder / "b.png", noise(4, 5))
    put(folder / "c.png", noise(6, 5))
    with pytest.raises(ValueError, match=r"a.png is 4×5 and c.png is 6×5 .*--image-size"):
        load(str(folder))
    assert load(str(folder), image_size=4).pixels.shape == (3, 4, 4, 1)
    assert load(str(folder), crop=3).pixels.shape == (3, 3, 3, 1)


def test_an_empty_folder(folder: Path) -> None:
    (folder / "a.txt").touch()
    with pytest.raises(ValueError, match=r"holds no images \(looked for .jpg .jpeg .png .webp .bmp"):
        load(str(folder))


def test_few_images_are_in_memory_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for k in range(60):
        put(folder / f"{k:02}.png", GREYS)
    monkeypatch.setattr(folders, "MOST_THREADS", 2)
    monkeypatch.setattr(folders, "BLOCK", 2)
    decoded, most = [], 0

    def counted(path: Path) -> Image.Image:
        decoded.append(path)
        return pictures.decode(path)

    def track(items: Iterable[Any], what: str, total: int) -> Iterator[Any]:
        nonlocal most
        for written, item in enumerate(items):
            most = max(most, len(decoded) - written)
            yield item

    monkeypatch.setattr(folders, "decode", counted)
    assert len(load(str(folder), track=track)) == 60
    assert 1 <= most <= 2 * 2 * 2 + 2


# ---------------------------------------------------------------- crop and resize


@pytest.mark.parametrize("side", [2, 3, 6])
def test_crop_takes_the_centre(folder: Path, side: int) -> None:
    put(folder / "a.png", pixels := noise(6, 9, 3))
    top, left = (6 - side) // 2, (9 - side) // 2
    assert np.array_equal(only(folder, crop=side), pixels[top : top + side, left : left + side])


def test_a_crop_larger_than_an_image(folder: Path) -> None:
    put(folder / "a.png", noise(8, 8))
    put(folder / "b.png", noise(8, 6))
    with pytest.raises(ValueError, match=r"cannot crop 7×7 out of .*b.png, which is 8×6 \(crop at most 6"):
        load(str(folder), crop=7)


@pytest.mark.parametrize(
    ("size", "target", "part"),
    [
        ((8, 8), 4, np.s_[:, :]),
        ((8, 8), (8, 8), np.s_[:, :]),
        ((9, 5), 5, np.s_[2:7, :]),  # of the right size: not blurred
        ((8, 5), 4, np.s_[1:6, :]),
        ((6, 12), (4, 4), np.s_[:, 3:9]),
        ((12, 12), (3, 6), np.s_[3:9, :]),
        ((12, 12), (6, 3), np.s_[:, 3:9]),
        ((4, 8), 8, np.s_[:, 2:6]),  # enlarged
        ((30, 20), (3, 2), np.s_[:, :]),
    ],
)
def test_resizing_keeps_the_aspect_ratio(
    folder: Path, size: tuple[int, int], target: int | tuple[int, int], part: tuple[slice, slice]
) -> None:
    pixels = noise(*size, 3)
    put(folder / "a.png", pixels)
    height, width = (target, target) if isinstance(target, int) else target
    expected = resized(pixels[part], height, width)
    assert abs(only(folder, image_size=target) - expected).max() <= 1
    if pixels[part].shape[:2] == (height, width):
        assert np.array_equal(only(folder, image_size=target), pixels[part])


def test_crop_comes_before_resize(folder: Path) -> None:
    put(folder / "a.png", pixels := noise(20, 16, 3))
    assert abs(only(folder, crop=8, image_size=4) - resized(pixels[6:14, 4:12], 4, 4)).max() <= 1


@pytest.mark.parametrize("wrong", [0, -1, (4,), (4, 4, 3), (4, 0)])
def test_impossible_sizes(folder: Path, wrong: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="image_size must be one positive number, or height and width"):
        load(str(folder), image_size=wrong)
    with pytest.raises(ValueError, match="crop must be positive"):
        load(str(folder), crop=0)


# ---------------------------------------------------------------- the cache


def forbidden(path: Path) -> Image.Image:
    raise AssertionError(f"{path} was decoded")


def fill(folder: Path, n: int) -> Array:
    pixels = noise(n, 4, 4, 3)
    for k, image in enumerate(pixels):
        put(folder / f"{k:03}.png", image)
    return pixels


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
    """The cache knows images by their content: moved, copied, or touched, they are the same."""
    pixels = fill(folder, 5)
    load(str(folder))

    def forbidden(path: Path) -> None:
        raise AssertionError("decoded again")

    monkeypatch.setattr(folders, "decode", forbidden)
    folder.rename(tmp_path / "moved")
    assert np.array_equal(load(str(tmp_path / "moved")).pixels, pixels)
    for path in (tmp_path / "moved").iterdir():
        os.utime(path, ns=(0, 0))
    assert np.array_equal(load(str(tmp_path / "moved")).pixels, pixels)
    for note in (root / "keys").iterdir():
        note.write_text("half")  # of a process that was killed
    assert np.array_equal(load(str(tmp_path / "moved")).pixels, pixels)
    assert cache_of(root) == [".json", ".npy"]


def test_two_folders_alike_in_names_sizes_and_times(tmp_path: Path) -> None:
    for name in ("one", "two"):
        path = put(tmp_path / name / "a.bmp", noise(4, 4, 3, seed=len(name) + ord(name[0])))
        os.utime(path, ns=(0, 0))
    assert load(str(tmp_path / "one")).digest != load(str(tmp_path / "two")).digest


def test_an_interrupted_run_leaves_no_half_cache(folder: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = fill(folder, 20)

    def interrupted(path: Path) -> Image.Image:
        if path.name == "010.png":
            raise KeyboardInterrupt
        return pictures.decode(path)

    with monkeypatch.context() as patch:
        patch.setattr(folders, "decode", interrupted)
        with pytest.raises(KeyboardInterrupt):
            load(str(folder))
    assert cache_of(root) == []
    assert np.array_equal(load(str(folder)).pixels, pixels)


@pytest.mark.parametrize("moment", [1, 2])
def test_a_full_disk_is_explained(folder: Path, root: Path, monkeypatch: pytest.MonkeyPatch, moment: int) -> None:
    """Whether it is found full while the pixels or while the note beside them are written."""
    pixels, calls = fill(folder, 3), []

    def full(file: int) -> None:
        calls.append(file)
        if len(calls) == moment:
            raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match=r"No space left on device \(set SCOREFIELD_DATA"):
            load(str(folder))
    assert cache_of(root) == [".npy"] * (moment - 1)  # pixels without a note are no entry
    assert np.array_equal(load(str(folder)).pixels, pixels)
    assert cache_of(root) == [".json", ".npy"]


def test_what_a_killed_run_left_is_no_entry_and_is_removed_in_time(folder: Path, root: Path) -> None:
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
def test_a_damaged_entry_is_made_anew(folder: Path, root: Path, damage: str) -> None:
    pixels = fill(folder, 3)
    load(str(folder))
    (path,) = (root / "cache").glob(f"*.{damage}")
    path.write_bytes(path.read_bytes()[:-10])
    assert np.array_equal(load(str(folder)).pixels, pixels)


def test_two_processes_at_once(folder: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both find no entry and decode; the barrier holds each until the other has begun too."""
    pixels, both = fill(folder, 20), threading.Barrier(2, timeout=20)

    def together(path: Path) -> Image.Image:
        if path.name == "000.png":
            both.wait()
        return pictures.decode(path)

    monkeypatch.setattr(folders, "decode", together)
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(load, [str(folder)] * 2))
    for images in results:
        assert np.array_equal(images.pixels, pixels)
    assert cache_of(root) == [".json", ".npy"]


def test_a_folder_that_may_not_be_written_to(folder: Path, root: Path) -> None:
    fill(folder, 2)
    root.write_text("a file where the folder should be")
    with pytest.raises(OSError, match=r"cannot write prepared images into .*\(set SCOREFIELD_DATA"):
        load(str(folder))


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
    with pytest.warns(UserWarning, match=r"skipped 1 of the 200 images in .*: 007.png \("):
        images = load(str(many))
    assert np.array_equal(images.pixels, np.delete(noise(200, 4, 4, 3), 7, 0))


def test_up_to_one_percent_are_skipped_and_said_each_time(many: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for k, kind in ((0, "text"), (199, "empty")):
        damage(many, k, kind)
    with pytest.warns(UserWarning, match=r"skipped 2 of the 200 .*000.png .*199.png"):
        load(str(many))
    monkeypatch.setattr(folders, "decode", forbidden)
    with pytest.warns(UserWarning, match=r"skipped 2 of the 200 .*000.png .*199.png"):
        assert len(load(str(many))) == 198


def test_more_than_one_percent_stop(many: Path, root: Path) -> None:
    for k in (3, 5, 8):
        damage(many, k, "text")
    with pytest.raises(ValueError, match=r"3 of the 200 images in .*003.png .*005.png .*008.png .*repair or remove"):
        load(str(many))
    assert cache_of(root) == []


def test_many_broken_images_are_counted_and_some_named(many: Path) -> None:
    for k in range(15):
        damage(many, k, "empty")
    with pytest.raises(ValueError, match=r"15 of the 200 .*009.png .*; and 5 more") as error:
        load(str(many))
    assert "010.png" not in str(error.value)


def test_one_broken_image_of_few_stops(folder: Path) -> None:
    fill(folder, 3)
    damage(folder, 1, "truncated")
    with pytest.raises(ValueError, match=r"1 of the 3 images .*001.png \(OSError: .*truncated"):
        load(str(folder))


def test_a_link_to_nowhere_is_broken(many: Path) -> None:
    (many / "004.png").unlink()
    (many / "004.png").symlink_to(many / "gone")
    with pytest.warns(UserWarning, match=r"skipped 1 of the 200 .*004.png \(FileNotFoundError"):
        load(str(many))


def test_a_decompression_bomb_is_broken(many: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(many / "004.png", np.zeros((50, 50), np.uint8))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    with pytest.warns(UserWarning, match=r"skipped 1 of the 200 .*004.png \(DecompressionBombError"):
        assert len(load(str(many))) == 199


# ---------------------------------------------------------------- arrays


@pytest.mark.parametrize(("shape", "channels"), [((7, 4, 5), 1), ((7, 4, 5, 1), 1), ((7, 4, 5, 3), 3), ((7, 4, 3), 1)])
def test_an_array_is_memory_mapped(tmp_path: Path, shape: tuple[int, ...], channels: int) -> None:
    np.save(tmp_path / "a.npy", pixels := noise(*shape))
    images = load(str(tmp_path / "a.npy"))
    assert np.array_equal(images.pixels, pixels.reshape(*shape[:3], channels))
    assert images.shape == (channels, *shape[1:3])
    assert isinstance(images.pixels, np.memmap)
    assert not images.pixels.flags.writeable


@pytest.mark.parametrize(
    ("names", "taken"),
    [(["x"], "x"), (["labels", "images"], "images"), (["arr_0", "arr_1"], "arr_0"), (["arr_0", "images"], "images")],
)
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_an_archive_of_arrays(tmp_path: Path, names: list[str], taken: str, save: Callable[..., None]) -> None:
    arrays = {name: noise(3, 4, 5, 3, seed=k) for k, name in enumerate(names)}
    save(tmp_path / "a.npz", **arrays)
    assert np.array_equal(load(str(tmp_path / "a.npz")).pixels, arrays[taken])


def test_an_archive_in_which_nothing_says_image(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", train=noise(3, 4, 4), test=noise(3, 4, 4))
    with pytest.raises(ValueError, match=r"holds train, test \(name the array of images 'images'\)"):
        load(str(tmp_path / "a.npz"))
    np.savez(tmp_path / "b.npz")
    with pytest.raises(ValueError, match="holds nothing"):
        load(str(tmp_path / "b.npz"))


@pytest.mark.parametrize(
    ("array", "cure"),
    [
        (np.zeros((3, 4, 4)), r"float64 of shape \(3, 4, 4\) .*array \* 255\).round\(\).astype\(np.uint8\)"),
        (np.zeros((3, 4, 4), np.float16), r"array \* 255\).round"),
        (np.zeros((3, 4, 4), np.int64), r"from 0 to 255: array.astype\(np.uint8\)"),
        (np.zeros((3, 4, 4), bool), r"array.astype\(np.uint8\) \* 255"),
        (noise(3, 3, 8, 8), r"channels last: array.transpose\(0, 2, 3, 1\)"),
        (noise(3, 1, 8, 8), r"channels last: array.transpose\(0, 2, 3, 1\)"),
        (noise(3, 8, 8, 4), r"opacity: array\[..., :3\]"),
        (noise(3, 8, 8, 2), r"array\[..., :1\]"),
        (noise(8, 8), r"array\[None\]"),
        (noise(2, 3, 8, 8, 3), "reshape it"),
        (noise(0, 8, 8, 3), "there is no image in it"),
        (noise(3, 0, 8), "there is no image in it"),
    ],
)
@pytest.mark.parametrize("ending", ["npy", "npz"])
def test_other_arrays_are_refused_with_a_cure(tmp_path: Path, array: Array, cure: str, ending: str) -> None:
    (np.save if ending == "npy" else np.savez)(tmp_path / f"a.{ending}", array)
    with pytest.raises(ValueError, match=cure):
        load(str(tmp_path / f"a.{ending}"))


class Explosive:
    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        return pytest.exit, ("a pickle was opened",)


@pytest.mark.parametrize("ending", ["npy", "npz"])
def test_pickles_are_not_opened(tmp_path: Path, ending: str) -> None:
    array = np.array([Explosive()] * 3, object)
    (np.save if ending == "npy" else np.savez)(tmp_path / f"a.{ending}", array)
    with pytest.raises(ValueError, match=r"cannot read .* as an array: .*\(write it by np.save"):
        load(str(tmp_path / f"a.{ending}"))


@pytest.mark.parametrize("content", [b"", b"no array", b"\x93NUMPY\x01\x00", b"PK\x03\x04 no archive", b"\x80\x04]q."])
@pytest.mark.parametrize("ending", ["npy", "npz"])
def test_files_that_are_no_arrays(tmp_path: Path, content: bytes, ending: str) -> None:
    (tmp_path / f"a.{ending}").write_bytes(content)
    with pytest.raises(ValueError, match=r"cannot read .* as an array"):
        load(str(tmp_path / f"a.{ending}"))


def test_a_truncated_array(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", noise(3, 4, 4))
    (tmp_path / "a.npy").write_bytes((tmp_path / "a.npy").read_bytes()[:-5])
    with pytest.raises(ValueError, match=r"cannot read .* as an array"):
        load(str(tmp_path / "a.npy"))


@pytest.mark.parametrize("channels", [1, 3])
def test_arrays_are_cropped_and_resized_like_files(folder: Path, tmp_path: Path, channels: int, root: Path) -> None:
    pixels = noise(3, 10, 12, channels)
    for k, image in enumerate(pixels):
        put(folder / f"{k}.png", image[..., 0] if channels == 1 else image)
    np.save(tmp_path / "a.npy", pixels)
    one, other = (load(str(source), crop=8, image_size=(4, 6)) for source in (folder, tmp_path / "a.npy"))
    assert other.shape == (channels, 4, 6)
    assert np.array_equal(one.pixels, other.pixels)
    assert one.digest == other.digest  # the same images
    assert load(str(tmp_path / "a.npy"), crop=8, image_size=(4, 6)).digest == other.digest
    assert len(cache_of(root)) == 4
    with pytest.raises(ValueError, match=r"cannot crop 11×11 out of .*a.npy\[0\], which is 10×12"):
        load(str(tmp_path / "a.npy"), crop=11)


def test_named_sets_are_cropped_and_resized_too(root: Path) -> None:
    (root / "mnist").mkdir(parents=True)
    digits = noise(2, 28, 28)
    (root / "mnist" / "t10k-images-idx3-ubyte").write_bytes(idx(digits))
    expected = [resized(digit[..., None], 32, 32) for digit in digits]
    assert abs(load("mnist:test", image_size=32).pixels - np.stack(expected)).max() <= 1


def test_the_digest_is_of_content_and_shape(tmp_path: Path) -> None:
    pixels = noise(6, 4, 4)
    for name, array in (("a", pixels), ("b", pixels), ("c", pixels.reshape(3, 8, 4)), ("d", pixels + 1)):
        np.save(tmp_path / f"{name}.npy", array)
    np.save(tmp_path / "f.npy", np.asfortranarray(pixels))
    a, b, c, d, f = (load(str(tmp_path / f"{name}.npy")).digest for name in "abcdf")
    assert a == b == f == hashlib.sha256(b"(6, 4, 4, 1)" + pixels.tobytes()).hexdigest()
    assert len({a, c, d}) == 3


# ---------------------------------------------------------------- sources that are none


@pytest.mark.parametrize("source", ["mnsit", "/no/such/folder", "missing.npy", "", "imagenet:train"])
def test_what_is_not_there(source: str) -> None:
    with pytest.raises(ValueError, match=r"does not exist .*mnist\[:test\], cifar10\[:test\], celeba\[:valid\|test\]"):
        load(source)


def test_what_is_not_understood(tmp_path: Path) -> None:
    path = put(tmp_path / "single.png", GREYS)
    with pytest.raises(ValueError, match=r"is neither .*a folder of images; or an .npy or .npz file"):
        load(str(path))


@pytest.mark.parametrize("source", ["mnist:valid", "cifar10:", "celeba:training"])
def test_parts_that_a_set_does_not_have(source: str) -> None:
    with pytest.raises(ValueError, match=r"has no part .*choose from train, "):
        load(source)


# ---------------------------------------------------------------- downloads


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """An address, and the folder that is served there."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    (tmp_path / "served").mkdir()
    handler = functools.partial(Quiet, directory=str(tmp_path / "served"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{httpd.server_port}/", tmp_path / "served"
        httpd.shutdown()
        thread.join()


def test_mnist_is_downloaded_once_and_checked(
    server: tuple[str, Path], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (url, served), told, name = server, [], "t10k-images-idx3-ubyte"
    content = idx(digits := noise(1500, 28, 28))
    packed = gzip.compress(content)
    (served / f"{name}.gz").write_bytes(packed)
    monkeypatch.setattr(named, "MNIST_URL", url)
    monkeypatch.setitem(named.MNIST_SHA256, name, hashlib.sha256(content).hexdigest())

    def track(items: Iterable[Any], what: str, total: int) -> Iterator[Any]:
        told.append((what, total))
        yield from items

    assert np.array_equal(load("mnist:test", track=track).pixels[..., 0], digits)
    assert told == [(f"downloading {url}{name}.gz (MiB)", 2)]
    assert [path.name for path in (root / "mnist").iterdir()] == [name]
    (served / f"{name}.gz").unlink()
    assert len(load("mnist:test")) == 1500


@pytest.mark.parametrize(
    "content",
    [gzip.compress(b"something else"), b"<html>", gzip.compress(bytes(99))[:-9], b""],
    ids=["another", "page", "cut", "empty"],
)
def test_a_download_with_another_checksum_is_not_kept(
    server: tuple[str, Path], root: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    url, served = server
    (served / "train-images-idx3-ubyte.gz").write_bytes(content)
    monkeypatch.setattr(named, "MNIST_URL", url)
    with pytest.raises(ValueError, match=r"its sha256 is \w+, not ba891046\w+ \(try again"):
        load("mnist")
    assert not (root / "mnist").exists()


def archive(train: Array, test: Array) -> bytes:
    """CIFAR-10's archive, with a file that tries to get out of it."""
    members = {f"cifar-10-batches-bin/data_batch_{k + 1}.bin": records(train[k : k + 1]) for k in range(5)}
    members |= {"cifar-10-batches-bin/test_batch.bin": records(test), "../evil.bin": b"evil"}
    with tarfile.open(fileobj=(file := io.BytesIO()), mode="w:gz") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return file.getvalue()


def test_cifar10_is_downloaded_and_unpacked(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train, test = noise(5, 32, 32, 3), noise(2, 32, 32, 3, seed=1)
    (tmp_path / "c.tar.gz").write_bytes(packed := archive(train, test))
    monkeypatch.setattr(named, "CIFAR10_URL", (tmp_path / "c.tar.gz").as_uri())
    with pytest.raises(ValueError, match=r"its md5 is \w+, not c32a1d4ab5d03f1284b67883e8d87530"):
        load("cifar10:test")
    monkeypatch.setattr(named, "CIFAR10_MD5", hashlib.md5(packed).hexdigest())
    assert np.array_equal(load("cifar10:test").pixels, test)
    monkeypatch.setattr(named, "CIFAR10_URL", "http://127.0.0.1:9/")
    assert np.array_equal(load("cifar10").pixels, train)
    assert sorted(path.name for path in (root / "cifar10").iterdir()) == sorted(
        [*named.CIFAR10_FILES["train"], "test_batch.bin"]
    )
    assert not list(tmp_path.rglob("evil*"))


@pytest.mark.parametrize(("source", "file"), [("mnist", "train-images-idx3-ubyte"), ("cifar10", "data_batch_5.bin")])
def test_without_a_network_the_message_says_what_to_do(root: Path, source: str, file: str) -> None:
    with pytest.raises(FileNotFoundError) as error:
        load(source)
    for word in (file, str(root / source), "http://127.0.0.1:9/", "refused", "SCOREFIELD_DATA"):
        assert word in str(error.value)
    assert not (root / source).exists()


def test_an_address_that_is_gone(server: tuple[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named, "MNIST_URL", server[0])
    with pytest.raises(FileNotFoundError, match=r"cannot be downloaded: HTTP Error 404"):
        load("mnist")


def test_a_server_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    assert download.SECONDS_TO_ANSWER == 20
    monkeypatch.setattr(download, "SECONDS_TO_ANSWER", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent_server:
        monkeypatch.setattr(named, "MNIST_URL", f"http://127.0.0.1:{silent_server.getsockname()[1]}/")
        with pytest.raises(FileNotFoundError, match="timed out"):
            load("mnist")


# ---------------------------------------------------------------- split


def numbered(n: int) -> Images:
    """Image k has the value k everywhere."""
    pixels = np.broadcast_to(np.arange(n, dtype=np.uint8)[:, None, None, None], (n, 2, 2, 1)).copy()
    return Images(pixels, "numbered", digest_of(pixels))


def numbers(pixels: Array) -> list[int]:
    assert (pixels == pixels[:, :1, :1, :1]).all()
    return pixels[:, 0, 0, 0].tolist()


@given(n=st.integers(1, 200), held_out=st.integers(0, 199))
def test_a_split_loses_nothing_and_doubles_nothing(n: int, held_out: int) -> None:
    held_out = min(held_out, n - 1)
    train, held = split(numbered(n), held_out)
    assert (len(train), len(held)) == (n - held_out, held_out)
    assert sorted(numbers(train.pixels) + numbers(held.pixels)) == list(range(n))


def test_a_split_depends_on_the_images_alone() -> None:
    train, held = split(numbered(100), 20)
    again = split(Images(numbered(100).pixels, "another name", numbered(100).digest), 20)
    assert np.array_equal(train.pixels, again[0].pixels)
    assert np.array_equal(held.pixels, again[1].pixels)
    assert (train.digest, held.digest) == (again[0].digest, again[1].digest)
    assert len({train.digest, held.digest, numbered(100).digest, split(numbered(100), 21)[0].digest}) == 4
    other = split(Images(numbered(100).pixels, "numbered", "another digest"), 20)
    assert numbers(other[1].pixels) != numbers(held.pixels)
    assert numbers(held.pixels) not in (list(range(20)), list(range(80, 100)))


def test_a_split_memory_map_stays_one(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", numbered(100).pixels)
    before = (tmp_path / "a.npy").read_bytes()
    images = load(str(tmp_path / "a.npy"))
    train, held = split(images, 20)
    expected = split(numbered(100), 20)
    assert isinstance(train.pixels, np.memmap)
    assert not train.pixels.flags.writeable
    assert np.array_equal(train.pixels, expected[0].pixels)
    assert np.array_equal(held.pixels, expected[1].pixels)
    assert (tmp_path / "a.npy").read_bytes() == before
    assert np.array_equal(images.pixels, numbered(100).pixels)
    fewer, more = split(train, 30)  # of a part again
    assert sorted(numbers(fewer.pixels) + numbers(more.pixels)) == sorted(numbers(train.pixels))


@pytest.mark.parametrize("held_out", [10, 11])
def test_something_must_be_left_to_train_on(held_out: int) -> None:
    with pytest.raises(ValueError, match=rf"holding out {held_out} of the 10 images .*\(hold out at most 9\)"):
        split(numbered(10), held_out)
    with pytest.raises(ValueError, match="held_out must be 0 or more"):
        split(numbered(10), -1)


# ---------------------------------------------------------------- batch


@given(n=st.integers(1, 40), size=st.integers(1, 100), epochs=st.integers(1, 4), seed=st.integers(0, 2**40))
def test_every_image_once_in_each_epoch(n: int, size: int, epochs: int, seed: int) -> None:
    images, steps = numbered(n), -(-n * epochs // size)
    stream = numbers(np.concatenate([batch(images, seed=seed, step=step, size=size) for step in range(steps)]))
    assert len(stream) == steps * size
    for e in range(epochs):
        assert sorted(stream[e * n : (e + 1) * n]) == list(range(n))


@given(
    n=st.integers(1, 40),
    size=st.integers(1, 30),
    world=st.integers(1, 5),
    step=st.integers(0, 10**9),
    seed=st.integers(0),
)
def test_the_ranks_together_make_the_batch_of_one_process(n: int, size: int, world: int, step: int, seed: int) -> None:
    images = numbered(n)
    ranks = [batch(images, seed=seed, step=step, rank=rank, world=world, size=size) for rank in range(world)]
    assert np.array_equal(np.concatenate(ranks), batch(images, seed=seed, step=step, size=size * world))


def test_batches_do_not_depend_on_those_before() -> None:
    images = numbered(30)
    steps = [4, 0, 900, 4, 5]
    first = [numbers(batch(images, seed=1, step=step, size=8)) for step in steps]
    assert first == [numbers(batch(images, seed=1, step=step, size=8)) for step in steps]
    assert first[0] == first[3]


def test_epochs_and_seeds_differ() -> None:
    images = numbered(200)
    passes = {tuple(numbers(batch(images, seed=seed, step=step, size=200))) for seed in range(3) for step in range(3)}
    assert len(passes) == 9


def test_the_stream_is_fixed_for_good() -> None:
    """So that a run resumes on another machine, under another NumPy, with the batches it would have had."""
    assert numbers(batch(numbered(8), seed=7, step=0, size=16)) == [0, 5, 2, 3, 4, 7, 6, 1, 2, 0, 3, 5, 6, 4, 7, 1]


def test_a_batch_of_a_memory_map_is_a_plain_array_to_write_on(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", numbered(50).pixels)
    taken = batch(load(str(tmp_path / "a.npy")), seed=3, step=2, size=16)
    assert np.array_equal(taken, batch(numbered(50), seed=3, step=2, size=16))
    assert type(taken) is np.ndarray
    assert taken.dtype == np.uint8
    assert taken.flags.writeable
    taken[:] = 0
    assert np.array_equal(load(str(tmp_path / "a.npy")).pixels, numbered(50).pixels)


@pytest.mark.parametrize("wrong", [{"seed": -1}, {"step": -1}, {"size": 0}, {"rank": 1}, {"rank": -1}, {"world": 0}])
def test_impossible_batches(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"must be"):
        batch(numbered(3), **({"seed": 0, "step": 0, "size": 2} | wrong))
    with pytest.raises(ValueError, match="there are no images in this part of numbered"):
        batch(split(numbered(3), 0)[1], seed=0, step=0, size=2)
