"""The two parts of a set of images, for training and for checking, and batches of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from image_files import Array
from image_files import root as root

from scorefield.data import Images, batch, load, split
from scorefield.data.images import digest_of


def numbered(n: int) -> Images:
    """Image k has the value k everywhere."""
    pixels = np.broadcast_to(np.arange(n, dtype=np.uint8)[:, None, None, None], (n, 2, 2, 1)).copy()
    return Images(pixels, "numbered", digest_of(pixels))


def numbers(pixels: Array) -> list[int]:
    assert (pixels == pixels[:, :1, :1, :1]).all()
    return pixels[:, 0, 0, 0].tolist()


# ---------------------------------------------------------------- split


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
