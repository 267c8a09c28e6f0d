"""Masks for inpainting, by name and from files."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from data.image_files import put
from scorefield.data.masks import NAMES, make_mask
from scorefield.data.pictures import Fit

SHARES = {"random": 0.5, "sparse": 0.9, "blobs": 0.4, "text": 0.31, "center": 0.25}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [(28, 28), (32, 32), (64, 48)])
def test_how_much_each_shape_hides(name: str, size: tuple[int, int]) -> None:
    mask = make_mask(name, Fit(size=size), seed=3)
    assert mask.shape == size
    assert mask.dtype == torch.bool
    assert (~mask).float().mean().item() == pytest.approx(SHARES.get(name, 0.5), abs=0.06)


@given(name=st.sampled_from(NAMES), height=st.integers(1, 40), width=st.integers(1, 40), seed=st.integers(0, 2**32 - 1))
def test_masks_of_any_size(name: str, height: int, width: int, seed: int) -> None:
    if min(height, width) < 8:  # where it may hide nothing, which is an error
        with suppress(ValueError):
            assert make_mask(name, Fit(size=(height, width)), seed=seed).shape == (height, width)
        return
    mask = make_mask(name, Fit(size=(height, width)), seed=seed)
    assert mask.shape == (height, width)
    assert not mask.all()


def test_random_shapes_depend_on_the_seed_and_others_do_not() -> None:
    for name in NAMES:
        one, two, other = (make_mask(name, Fit(size=(28, 28)), seed=seed) for seed in (0, 0, 1))
        assert torch.equal(one, two)
        assert torch.equal(one, other) == (name not in ("random", "sparse", "blobs"))


def test_blobs_are_connected_and_random_pixels_are_not() -> None:
    """Of a hidden pixel's right neighbours, nearly all are hidden in a blob, and half at random."""
    for name, low, high in (("blobs", 0.8, 1.0), ("random", 0.4, 0.6)):
        hidden = ~make_mask(name, Fit(size=(64, 64)))
        both = (hidden[:, 1:] & hidden[:, :-1]).sum() / hidden[:, :-1].sum()
        assert low < both < high


def test_the_text_reads_as_it_should() -> None:
    mask = make_mask("text", Fit(size=(6, 23)))
    assert ["".join(".#"[int(not known)] for known in row) for row in mask] == [
        ".......................",
        ".#...#..###..###.#...#.",
        ".##..#.#....#....##..#.",
        ".#.#.#.#.....##..#.#.#.",
        ".#..##.#.......#.#..##.",
        ".#...#..###.###..#...#.",
    ]
    assert torch.equal(make_mask("text", Fit(size=(12, 23))), torch.cat([mask, mask]))


def test_a_mask_from_a_file_is_cropped_only_if_it_has_the_size_of_the_image(tmp_path: Path) -> None:
    """Black is hidden: the left 5 of 12 columns. The centre crop of 8 columns keeps 3 of them."""
    pixels = np.full((8, 12), 255, np.uint8)
    pixels[:, :5] = 0
    path = str(put(tmp_path / "mask.png", pixels))
    same = make_mask(path, Fit(crop=8, size=(8, 8)), (12, 8))
    assert torch.equal(same, torch.arange(8).expand(8, 8) >= 3)
    other = make_mask(path, Fit(crop=8, size=(4, 6)), (24, 16))
    assert torch.equal(other[:, [0, 1, 3, 4, 5]], torch.tensor([False, False, True, True, True]).expand(4, 5))


def test_wrong_masks_are_refused_with_the_fix(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no mask middle \(.*left, right"):
        make_mask("middle", Fit(size=(8, 8)))
    white = put(tmp_path / "white.png", np.full((8, 8), 255, np.uint8))
    with pytest.raises(ValueError, match=r"hides nothing \(paint"):
        make_mask(str(white), Fit(size=(8, 8)))
    (tmp_path / "text.png").write_text("no image")
    with pytest.raises(ValueError, match="cannot be read as an image"):
        make_mask(str(tmp_path / "text.png"), Fit(size=(8, 8)))
