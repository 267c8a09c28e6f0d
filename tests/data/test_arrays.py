"""Arrays of images: .npy and .npz files."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data.image_files import Array, cache_of, labels_of, noise, put
from scorefield.data import load


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
    [(["x"], "x"), (["others", "images"], "images"), (["arr_0", "arr_1"], "arr_0"), (["arr_0", "images"], "images")],
)
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_an_archive_of_arrays(tmp_path: Path, names: list[str], taken: str, save: Callable[..., None]) -> None:
    arrays = {name: noise(3, 4, 5, 3, seed=k) for k, name in enumerate(names)}
    save(tmp_path / "a.npz", **arrays)
    assert np.array_equal(load(str(tmp_path / "a.npz")).pixels, arrays[taken])


def test_an_archive_without_an_array_of_images(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", train=noise(3, 4, 4), test=noise(3, 4, 4))
    with pytest.raises(ValueError, match=r"holds train, test, and no array named 'images' \(write .*images=images"):
        load(str(tmp_path / "a.npz"))
    np.savez(tmp_path / "b.npz")
    with pytest.raises(ValueError, match="holds nothing"):
        load(str(tmp_path / "b.npz"))


@pytest.mark.parametrize(
    ("array", "fix"),
    [
        (np.zeros((3, 4, 4)), r"float64 of shape \(3, 4, 4\) .*array \* 255\).round\(\).astype\(np.uint8\)"),
        (np.zeros((3, 4, 4), np.float16), r"array \* 255\).round"),
        (np.zeros((3, 4, 4), np.int64), r"in 0 ... 255: array.astype\(np.uint8\)"),
        (np.zeros((3, 4, 4), bool), r"array.astype\(np.uint8\) \* 255"),
        (noise(3, 3, 8, 8), r"channels last: array.transpose\(0, 2, 3, 1\)"),
        (noise(3, 1, 8, 8), r"channels last: array.transpose\(0, 2, 3, 1\)"),
        (noise(3, 8, 8, 4), r"alpha channel: array\[..., :3\]"),
        (noise(3, 8, 8, 2), r"array\[..., :1\]"),
        (noise(8, 8), r"array\[None\]"),
        (noise(2, 3, 8, 8, 3), "reshape it"),
        (noise(0, 8, 8, 3), "there is no image in it"),
        (noise(3, 0, 8), "there is no image in it"),
    ],
)
@pytest.mark.parametrize("ending", ["npy", "npz"])
def test_other_arrays_are_refused_with_the_fix(tmp_path: Path, array: Array, fix: str, ending: str) -> None:
    (np.save if ending == "npy" else np.savez)(tmp_path / f"a.{ending}", array)
    with pytest.raises(ValueError, match=fix):
        load(str(tmp_path / f"a.{ending}"))


class Explosive:
    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        return pytest.exit, ("a pickle was opened",)


@pytest.mark.parametrize("ending", ["npy", "npz"])
def test_pickles_are_not_opened(tmp_path: Path, ending: str) -> None:
    array = np.array([Explosive()] * 3, object)
    (np.save if ending == "npy" else np.savez)(tmp_path / f"a.{ending}", array)
    with pytest.raises(ValueError, match=r"cannot read .* as an array: .*\(write uint8 images with np.save"):
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


def test_the_digest_is_of_content_and_shape(tmp_path: Path) -> None:
    pixels = noise(6, 4, 4)
    for name, array in (("a", pixels), ("b", pixels), ("c", pixels.reshape(3, 8, 4)), ("d", pixels + 1)):
        np.save(tmp_path / f"{name}.npy", array)
    np.save(tmp_path / "f.npy", np.asfortranarray(pixels))
    a, b, c, d, f = (load(str(tmp_path / f"{name}.npy")).digest for name in "abcdf")
    assert a == b == f == hashlib.sha256(b"(6, 4, 4, 1)" + pixels.tobytes()).hexdigest()
    assert len({a, c, d}) == 3


# ---------------------------------------------------------------- labels


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.uint64, np.int64])
def test_the_labels_of_an_archive(tmp_path: Path, dtype: type) -> None:
    """Beside images of any name; crop and resize, also from the cache, leave them as they are."""
    pixels = noise(5, 6, 6, 3)
    labels: Array = np.array([2, 0, 2, 255, 1]).astype(dtype)
    archives: list[dict[str, Any]] = [
        {"images": pixels, "other": labels},
        {"x": pixels},
        {"arr_0": pixels, "arr_1": labels},
    ]
    for arrays in archives:
        np.savez(tmp_path / "a.npz", **arrays, labels=labels)
        for size in (None, 4, 4):
            images = load(str(tmp_path / "a.npz"), image_size=size, crop=size)
            assert labels_of(images) == [2, 0, 2, 255, 1]
            assert images.classes == tuple(map(str, range(256)))
    assert np.array_equal(load(str(tmp_path / "a.npz")).pixels, pixels)


def test_the_class_names_of_an_archive(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=noise(3, 4, 4), labels=[1, 0, 1], classes=["cat", "dog", "wolf"])
    images = load(str(tmp_path / "a.npz"))
    assert (labels_of(images), images.classes) == ([1, 0, 1], ("cat", "dog", "wolf"))
    np.savez(tmp_path / "b.npz", images=noise(3, 4, 4), classes=["cat", "dog", "wolf"])
    images = load(str(tmp_path / "b.npz"))
    assert (images.labels, images.classes) == (None, ())


def test_labels_do_not_change_the_digest_or_the_cached_pixels(tmp_path: Path, root: Path) -> None:
    archives: dict[str, dict[str, Any]] = {"a": {}, "b": {"labels": [0, 1, 2]}, "c": {"labels": [2, 1, 0]}}
    for name, arrays in archives.items():
        np.savez(tmp_path / f"{name}.npz", images=noise(3, 4, 4), **arrays)
    found = [load(str(tmp_path / f"{name}.npz"), image_size=2) for name in "abc"]
    assert len({images.digest for images in found}) == 1
    assert [images.labels is None for images in found] == [True, False, False]
    assert (labels_of(found[1]), labels_of(found[2])) == ([0, 1, 2], [2, 1, 0])
    assert cache_of(root) == [".json", ".npy"]


@pytest.mark.parametrize(
    ("labels", "classes", "fix"),
    [
        ([0, 1, 2**16], None, r"in 0 ... 65535, .* \(they are in 0 ... 65536: number the classes from 0"),
        ([0, 1], None, r"labels must be 3 integers .*int64 of shape \(2,\) \(save one label for each image"),
        ([[0, 1, 2]], None, r"int64 of shape \(1, 3\) \(save one label"),
        ([0.0, 1.0, 2.0], None, r"float64 of shape \(3,\) \(number the classes: .*np.unique"),
        ([True, False, True], None, r"bool of shape \(3,\) \(number the classes"),
        (["a", "b", "c"], None, r"\(number the classes"),
        ([0, 1, -1], None, r"\(they are in -1 ... 1: number the classes from 0"),
        ([0, 1, 2**40], None, r"\(they are in 0 ... 1099511627776: number the classes"),
        ([0, 1, 2], ["a", "b"], r"integers in 0 ... 1.*\(they are in 0 ... 2: .*name all of them"),
        ([0, 1, 2], [5, 6, 7], r"\(save the class names as classes=np.array\(names\)"),
        ([0, 1, 2], [["a", "b", "c"]], r"\(save the class names"),
        ([0, 1, 2], "a", r"\(save the class names"),
    ],
)
def test_wrong_labels_are_refused_with_the_fix(
    tmp_path: Path, labels: list[object], classes: list[object] | str | None, fix: str
) -> None:
    arrays: dict[str, Any] = {"labels": np.array(labels)} | ({} if classes is None else {"classes": np.array(classes)})
    np.savez(tmp_path / "a.npz", images=noise(3, 4, 4), **arrays)
    with pytest.raises(ValueError, match=fix):
        load(str(tmp_path / "a.npz"))


def test_the_largest_label(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=noise(2, 4, 4), labels=[0, 2**16 - 1])
    assert len(load(str(tmp_path / "a.npz")).classes) == 2**16


def test_an_archive_of_labels_alone_has_no_images(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", labels=[0, 1])
    with pytest.raises(ValueError, match="holds labels, and no array named 'images'"):
        load(str(tmp_path / "a.npz"))
