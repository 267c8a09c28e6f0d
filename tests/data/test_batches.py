"""Training and held-out images, batches, and the labels that belong to them."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scorefield.data import Batch, Images, batch, load, split
from scorefield.data.images import digest_of


def numbered(n: int) -> Images:
    """Image k has the value k everywhere, and the label 1000 + k."""
    pixels = np.broadcast_to(np.arange(n, dtype=np.uint8)[:, None, None, None], (n, 2, 2, 1)).copy()
    return Images(pixels, "numbered", digest_of(pixels), 1000 + np.arange(n), tuple(map(str, range(1000 + n))))


def numbers(images: Images | Batch) -> list[int]:
    """The numbers of these images, each of which has kept its label."""
    assert (images.pixels == images.pixels[:, :1, :1, :1]).all()
    found = images.pixels[:, 0, 0, 0].tolist()
    assert images.labels is not None
    assert images.labels.dtype == np.int64
    assert images.labels.tolist() == [1000 + k for k in found]
    return found


def unlabelled(images: Images) -> Images:
    return Images(images.pixels, images.name, images.digest)


# ---------------------------------------------------------------- split


@given(n=st.integers(1, 200), held_out=st.integers(0, 199))
def test_a_split_has_every_image_once(n: int, held_out: int) -> None:
    held_out = min(held_out, n - 1)
    train, held = split(numbered(n), held_out)
    assert (len(train), len(held)) == (n - held_out, held_out)
    assert sorted(numbers(train) + numbers(held)) == list(range(n))


def test_a_split_depends_on_the_images_alone() -> None:
    train, held = split(numbered(100), 20)
    again = split(Images(numbered(100).pixels, "another name", numbered(100).digest), 20)
    assert np.array_equal(train.pixels, again[0].pixels)
    assert np.array_equal(held.pixels, again[1].pixels)
    assert (train.digest, held.digest) == (again[0].digest, again[1].digest)
    assert len({train.digest, held.digest, numbered(100).digest, split(numbered(100), 21)[0].digest}) == 4
    other = split(Images(numbered(100).pixels, "numbered", "another digest"), 20)
    assert not np.array_equal(other[1].pixels, held.pixels)
    assert numbers(held) not in (list(range(20)), list(range(80, 100)))


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
    fewer, more = split(train, 30)  # a part can be split again
    assert np.array_equal(np.sort(np.concatenate([fewer.pixels, more.pixels]), axis=0), np.sort(train.pixels, axis=0))


def test_a_part_of_a_memory_map_is_split(tmp_path: Path) -> None:
    """It begins and ends elsewhere than the file."""
    np.save(tmp_path / "a.npy", numbered(100).pixels)
    images = replace(load(str(tmp_path / "a.npy")), labels=1000 + np.arange(100))
    train, held = split(images.take(slice(30, 70), "the middle"), 10)
    assert sorted(numbers(train) + numbers(held)) == list(range(30, 70))
    assert np.array_equal(np.load(tmp_path / "a.npy"), numbered(100).pixels)


@pytest.mark.parametrize("held_out", [10, 11])
def test_something_must_be_left_to_train_on(held_out: int) -> None:
    with pytest.raises(ValueError, match=rf"holding out {held_out} of the 10 images .*\(hold out at most 9\)"):
        split(numbered(10), held_out)
    with pytest.raises(ValueError, match="held_out must be 0 or more"):
        split(numbered(10), -1)


def test_the_split_does_not_depend_on_labels() -> None:
    for one, other in zip(split(numbered(50), 7), split(unlabelled(numbered(50)), 7), strict=True):
        assert np.array_equal(one.pixels, other.pixels)
        assert one.digest == other.digest
        assert other.labels is None
        assert (len(one.classes), other.classes) == (1050, ())


def test_selected_images_keep_their_labels() -> None:
    images = numbered(10)
    assert numbers(images.take(np.array([7, 2]), "two")) == [7, 2]
    assert numbers(images.first(3)) == [0, 1, 2]
    assert numbers(images.first(30)) == list(range(10))
    digests = [images.digest, images.first(3).digest, images.first(4).digest, images.take(slice(3), "some").digest]
    assert len(set(digests)) == 4
    assert images.first(3).digest == hashlib.sha256(f"the first 3 of {images.digest}".encode()).hexdigest()
    with pytest.raises(ValueError, match=r"3 images, but 10 labels \(.*Images.take"):
        replace(images, pixels=images.pixels[:3])


# ---------------------------------------------------------------- batch


@given(n=st.integers(1, 40), size=st.integers(1, 100), epochs=st.integers(1, 4), seed=st.integers(0, 2**40))
def test_every_image_once_in_each_epoch(n: int, size: int, epochs: int, seed: int) -> None:
    images, steps = numbered(n), -(-n * epochs // size)
    stream = [k for step in range(steps) for k in numbers(batch(images, seed=seed, step=step, size=size))]
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
    ranks = [numbers(batch(images, seed=seed, step=step, rank=r, world=world, size=size)) for r in range(world)]
    assert list(chain(*ranks)) == numbers(batch(images, seed=seed, step=step, size=size * world))


def test_a_batch_does_not_depend_on_earlier_batches() -> None:
    images = numbered(30)
    steps = [4, 0, 900, 4, 5]
    first = [numbers(batch(images, seed=1, step=step, size=8)) for step in steps]
    assert first == [numbers(batch(images, seed=1, step=step, size=8)) for step in steps]
    assert first[0] == first[3]


def test_epochs_and_seeds_differ() -> None:
    images = numbered(200)
    passes = {tuple(numbers(batch(images, seed=seed, step=step, size=200))) for seed in range(3) for step in range(3)}
    assert len(passes) == 9


def test_the_order_of_images_never_changes() -> None:
    """A run that is resumed on another machine, with another NumPy, sees the same batches."""
    assert numbers(batch(numbered(8), seed=7, step=0, size=16)) == [0, 5, 2, 3, 4, 7, 6, 1, 2, 0, 3, 5, 6, 4, 7, 1]


def test_a_batch_of_a_memory_map_is_a_writable_array(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", numbered(50).pixels)
    taken, labels = batch(load(str(tmp_path / "a.npy")), seed=3, step=2, size=16)
    assert labels is None
    assert np.array_equal(taken, batch(numbered(50), seed=3, step=2, size=16).pixels)
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
