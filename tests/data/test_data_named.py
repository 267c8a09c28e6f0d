"""MNIST, CIFAR-10 and CelebA from their official files."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from image_files import Array, noise, put, resized, stored
from image_files import root as root
from official_files import idx, records
from PIL import Image

from scorefield.data import load

# ---------------------------------------------------------------- MNIST


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


def test_named_sets_are_cropped_and_resized_too(root: Path) -> None:
    (root / "mnist").mkdir(parents=True)
    digits = noise(2, 28, 28)
    (root / "mnist" / "t10k-images-idx3-ubyte").write_bytes(idx(digits))
    expected = [resized(digit[..., None], 32, 32) for digit in digits]
    assert abs(load("mnist:test", image_size=32).pixels - np.stack(expected)).max() <= 1


# ---------------------------------------------------------------- CIFAR-10


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
