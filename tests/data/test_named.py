"""MNIST, CIFAR-10 and CelebA from their official files."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from PIL import Image

from data.image_files import Array, labels_of, noise, put, resized, stored
from data.official_files import idx, put_mnist, records
from scorefield.data import SETS, Images, exists, load
from scorefield.data.arrays import array_images
from scorefield.data.named import NamedSet, short_name
from scorefield.data.pictures import Fit
from scorefield.progress import Track

# ---------------------------------------------------------------- the registry


def test_every_data_set_has_its_entry() -> None:
    assert {name: each.parts for name, each in SETS.items()} == {
        "mnist": ("train", "test"),
        "cifar10": ("train", "test"),
        "celeba": ("train", "valid", "test"),
    }
    assert {name: len(each.classes) for name, each in SETS.items()} == {"mnist": 10, "cifar10": 10, "celeba": 0}
    assert [name for name, each in SETS.items() if not each.publishable] == ["celeba"]


def test_a_new_data_set_is_one_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    def load_squares(part: str, fit: Fit, track: Track[Any]) -> Images:
        pixels = noise(3, 8, 8, 1, seed=len(part))
        return array_images(pixels, "squares", fit, np.array([1, 0, 1]), (), track=track)

    monkeypatch.setitem(cast(dict[str, NamedSet], SETS), "squares",
                        NamedSet("squares", "Squares", ("all", "some"), load_squares, ("small", "large")))  # fmt: skip
    assert exists("squares:some")
    images = load("squares:some", image_size=4)
    assert (images.name, images.shape, images.classes) == ("squares:some", (1, 4, 4), ("small", "large"))
    assert labels_of(images) == [1, 0, 1]
    assert np.array_equal(load("squares").pixels, noise(3, 8, 8, 1, seed=3))
    with pytest.raises(ValueError, match=r"squares has no part 'none' .*all, some"):
        load("squares:none")
    with pytest.raises(ValueError, match=r"squares\[:some\]"):
        load("squaers")


def test_a_path_is_shortened_to_its_name() -> None:
    names = {"mnist": "mnist", "mnist:test": "mnist:test", "my_images": "my_images", "~/a/b.npy": "b.npy"}
    names |= {r"C:\Users\me\faces": "faces", "/data/mnist": "./mnist", "a/cifar10:test/": "./cifar10:test"}
    assert {source: short_name(source) for source in names} == names


# ---------------------------------------------------------------- MNIST


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("source", "part"), [("mnist", "train"), ("mnist:train", "train"), ("mnist:test", "test")])
def test_mnist_from_its_official_files(root: Path, source: str, part: str, packed: bool) -> None:
    put_mnist(root, part, digits := noise(5, 28, 28), [3, 0, 9, 9, 1], packed=packed)
    images = load(source)
    assert np.array_equal(images.pixels, digits[..., None])
    assert (images.name, images.shape, len(images)) == (source, (1, 28, 28), 5)
    assert labels_of(images) == [3, 0, 9, 9, 1]
    assert images.classes == ("0", "1", "2", "3", "4", "5", "6", "7", "8", "9")


@pytest.mark.parametrize(
    ("ending", "content", "message"),
    [
        ("", idx(noise(5, 28, 28), 0x801), r"starts with 0x801 \(expected 0x803\) .*delete it"),
        ("", idx(noise(5, 28, 28))[:-1], r"shape \(5, 28, 28\), and has 3935 bytes .*delete it"),
        ("", idx(noise(5, 28, 28)) + b"x", r"shape \(5, 28, 28\), and has 3937 bytes"),
        ("", idx(noise(0, 28, 28)), r"shape \(0, 28, 28\)"),
        ("", b"short", "has 5 bytes .*delete it"),
        (".gz", gzip.compress(idx(noise(5, 28, 28)))[:-20], "is damaged: .*delete it"),
        (".gz", b"not packed", "is damaged: .*delete it"),
    ],
)
def test_damaged_mnist_images_are_refused(root: Path, ending: str, content: bytes, message: str) -> None:
    (root / "mnist").mkdir(parents=True)
    (root / "mnist" / f"train-images-idx3-ubyte{ending}").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        load("mnist")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (idx(np.array([5, 0, 9], np.uint8), 0x803), r"starts with 0x803 \(expected 0x801\) .*delete it"),
        (idx(np.array([5, 0, 9], np.uint8))[:-1], r"shape \(3,\), and has 10 bytes .*delete it"),
        (b"\0\0\x08", "has 3 bytes .*delete it"),
        (idx(np.array([], np.uint8)), r"shape \(0,\)"),
        (idx(np.array([5, 0, 10], np.uint8)), r"should hold 3 labels 0 ... 9, .* has 3 labels 0 ... 10 .*delete it"),
        (idx(np.array([5, 0], np.uint8)), r"should hold 3 labels .* has 2 labels"),
    ],
)
def test_damaged_mnist_labels_are_refused(root: Path, content: bytes, message: str) -> None:
    _, label_file = put_mnist(root, "test", noise(3, 28, 28))
    label_file.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        load("mnist:test")


def test_mnist_without_its_label_file_has_no_labels(root: Path) -> None:
    _, label_file = put_mnist(root, "train", digits := noise(3, 28, 28))
    label_file.unlink()
    images = load("mnist")
    (note,) = images.notes
    assert re.search(r"without their labels: .*train-labels-idx1-ubyte.* cannot be downloaded", note)
    assert np.array_equal(images.pixels[..., 0], digits)
    assert (images.labels, images.classes) == (None, ())


def test_named_sets_are_cropped_and_resized_too(root: Path) -> None:
    put_mnist(root, "test", digits := noise(2, 28, 28), [4, 7])
    expected = [resized(digit[..., None], 32, 32) for digit in digits]
    for _ in range(2):  # the second time from the cache
        images = load("mnist:test", image_size=32)
        assert abs(images.pixels - np.stack(expected)).max() <= 1
        assert (images.name, labels_of(images), len(images.classes)) == ("mnist:test", [4, 7], 10)


# ---------------------------------------------------------------- CIFAR-10


@pytest.mark.parametrize("inside", ["", "cifar-10-batches-bin"])
def test_cifar10_from_its_binary_files(root: Path, inside: str) -> None:
    (place := root / "cifar10" / inside).mkdir(parents=True)
    train, test = noise(10, 32, 32, 3), noise(3, 32, 32, 3, seed=1)
    labels = [6, 9, 9, 4, 1, 1, 2, 7, 8, 3]
    for k in range(5):
        rows = slice(2 * k, 2 * k + 2)
        (place / f"data_batch_{k + 1}.bin").write_bytes(records(train[rows], labels[rows]))
    (place / "test_batch.bin").write_bytes(records(test, [3, 8, 0]))
    images, other = load("cifar10"), load("cifar10:test")
    assert images.shape == (3, 32, 32)
    assert np.array_equal(images.pixels, train)
    assert np.array_equal(other.pixels, test)
    assert (labels_of(images), labels_of(other)) == (labels, [3, 8, 0])
    assert [other.classes[k] for k in labels_of(other)] == ["cat", "ship", "airplane"]


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
    assert (images.name, images.labels, images.classes) == (source, None, ())
    assert abs(images.pixels - np.stack(expected)).max() <= 1  # Pillow rounds after each axis


def test_celeba_otherwise(faces: dict[str, Array]) -> None:
    assert np.array_equal(load("celeba:valid", crop=64, image_size=64).pixels[0], faces["000003.jpg"][77:141, 57:121])
    assert load("celeba:valid", image_size=64).shape == (3, 64, 64)
    expected = resized(faces["000003.jpg"][20:198, :], 32, 32)
    assert abs(load("celeba:valid", crop=178).pixels[0] - expected).max() <= 1


def test_celeba_with_files_missing(faces: dict[str, Array], root: Path) -> None:
    (root / "celeba" / "img_align_celeba" / "000004.jpg").unlink()
    with pytest.raises(
        ValueError, match=r"img_align_celeba lacks 1 of the 2 images that .*partition.txt lists .*000004.jpg .*again"
    ):
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
