"""Arrays of images: .npy and .npz files."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from image_files import Array, cache_of, noise, put
from image_files import folder as folder
from image_files import root as root

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


def test_the_digest_is_of_content_and_shape(tmp_path: Path) -> None:
    pixels = noise(6, 4, 4)
    for name, array in (("a", pixels), ("b", pixels), ("c", pixels.reshape(3, 8, 4)), ("d", pixels + 1)):
        np.save(tmp_path / f"{name}.npy", array)
    np.save(tmp_path / "f.npy", np.asfortranarray(pixels))
    a, b, c, d, f = (load(str(tmp_path / f"{name}.npy")).digest for name in "abcdf")
    assert a == b == f == hashlib.sha256(b"(6, 4, 4, 1)" + pixels.tobytes()).hexdigest()
    assert len({a, c, d}) == 3
