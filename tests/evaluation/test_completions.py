"""Completions of held-out images: the holes, what is told of them, and their picture."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from scorefield import load
from scorefield.data.pictures import Fit
from scorefield.evaluation import How
from scorefield.evaluation.completions import EACH, MASKS, complete, judged, masks_for, picture
from scorefield.paper.paper import HOLES
from scorefield.models.generate import generate
from scorefield.images import to_float
from scorefield.data.masks import NAMES, mask_of
from scorefield.noise import sample_seeds
from scorefield.samplers import last
from scorefield.web.models import DIGITS

SHARES = {"random": 0.5, "sparse": 0.9, "blobs": 0.4, "text": 0.31, "center": 0.25}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [(28, 28), (32, 32), (64, 48)])
def test_how_much_each_shape_hides(name: str, size: tuple[int, int]) -> None:
    mask = mask_of(name, Fit(size=size), seed=3)
    assert mask.shape == size
    assert mask.dtype == torch.bool
    assert (~mask).float().mean().item() == pytest.approx(SHARES.get(name, 0.5), abs=0.06)


@given(name=st.sampled_from(NAMES), height=st.integers(1, 40), width=st.integers(1, 40), seed=st.integers(0, 2**32 - 1))
def test_masks_of_any_size(name: str, height: int, width: int, seed: int) -> None:
    if min(height, width) < 8:  # where it may hide nothing, which is an error
        with suppress(ValueError):
            assert mask_of(name, Fit(size=(height, width)), seed=seed).shape == (height, width)
        return
    mask = mask_of(name, Fit(size=(height, width)), seed=seed)
    assert mask.shape == (height, width)
    assert not mask.all()


def test_random_shapes_depend_on_the_seed_and_others_do_not() -> None:
    for name in NAMES:
        one, two, other = (mask_of(name, Fit(size=(28, 28)), seed=seed) for seed in (0, 0, 1))
        assert torch.equal(one, two)
        assert torch.equal(one, other) == (name not in ("random", "sparse", "blobs"))


def test_blobs_are_connected_and_random_pixels_are_not() -> None:
    """Of a hidden pixel's right neighbours, nearly all are hidden in a blob, and half at random."""
    for name, low, high in (("blobs", 0.8, 1.0), ("random", 0.4, 0.6)):
        hidden = ~mask_of(name, Fit(size=(64, 64)))
        both = (hidden[:, 1:] & hidden[:, :-1]).sum() / hidden[:, :-1].sum()
        assert low < both < high


def test_the_text_reads_as_it_should() -> None:
    mask = mask_of("text", Fit(size=(6, 23)))
    assert ["".join(".#"[int(not known)] for known in row) for row in mask] == [
        ".......................",
        ".#...#..###..###.#...#.",
        ".##..#.#....#....##..#.",
        ".#.#.#.#.....##..#.#.#.",
        ".#..##.#.......#.#..##.",
        ".#...#..###.###..#...#.",
    ]
    assert torch.equal(mask_of("text", Fit(size=(12, 23))), torch.cat([mask, mask]))


def test_what_is_told_by_hand() -> None:
    """One image of 1 × 4 pixels whose right half is hidden, with two completions."""
    images = np.array([[[[0], [51], [102], [153]]], [[[0], [51], [204], [255]]]], dtype=np.uint8)  # 0, .2, .4, .6; ...
    known = torch.tensor([[[True, True, False, False]]]).expand(2, -1, -1)
    y = to_float(images)
    made = y.unsqueeze(1).repeat(1, 2, 1, 1, 1)
    made[0, 0, ..., 0] += 0.02  # known, off by two of σ = 0.01
    made[0, 1, ..., 2] += 0.2  # completions differ, and the step across the border is 0.4, not 0.2
    told = judged(made, images, known, 0.01, noise=0.0)
    assert (told["images"], told["completions"], told["hidden"]) == (2, 2, 0.5)
    assert told["known_error"] == pytest.approx((2.0**2 / 8) ** 0.5, rel=1e-4)
    assert told["distance"] == pytest.approx((0.2**2 / 4) ** 0.5, rel=1e-4)
    assert told["distance_between_images"] == pytest.approx(0.4, rel=1e-4)
    assert told["seam"] == pytest.approx((0.2 + 0.4 + 0.6 + 0.6) / 4 / ((0.2 + 0.6) / 2), rel=1e-4)
    assert told["inside"] == pytest.approx((0.2 + 0.0 + 0.2 + 0.2) / 4 / 0.2, rel=1e-4)


def test_images_without_edges_have_no_seam_to_compare_with() -> None:
    images = np.full((2, 4, 4, 1), 7, np.uint8)
    known = masks_for(images, "left")
    told = judged(to_float(images).unsqueeze(1).repeat(1, 3, 1, 1, 1), images, known, 0.01, noise=0.0)
    assert np.isnan(told["seam"])
    assert np.isnan(told["inside"])
    assert told["known_error"] == told["distance"] == 0


def test_completions_are_those_of_the_sampler() -> None:
    """In any batch size; each image has its own hole, and what is known stays to within the last level's noise."""
    model = load("mnist-small")
    images = np.random.default_rng(0).integers(0, 256, (2, 28, 28, 1), dtype=np.uint8)
    known, how = masks_for(images, "blobs"), How(2, 2e-5, False, 7)
    assert not torch.equal(known[0], known[1])
    whole, parts = (complete(model, images, known, how, batch_size=size, what="") for size in (16, 5))
    torch.testing.assert_close(whole, parts, rtol=1e-4, atol=1e-4)
    assert whole.shape == (2, EACH, 1, 28, 28)
    seeds = sample_seeds(7, range(EACH, 2 * EACH))
    given = (to_float(images)[1], known[1])
    alone = generate(model.network, model.sigmas, model.shape, seeds, step_size=2e-5, steps=2, known=given)
    torch.testing.assert_close(whole[1], last(alone), rtol=1e-4, atol=1e-4)
    told = judged(whole, images, known, model.sigmas[-1].item(), noise=0.01)
    assert told["known_error"] == pytest.approx(1, abs=0.05)
    assert told["distance"] > 0.05


@pytest.mark.parametrize("originals", [True, False])
def test_the_picture(originals: bool) -> None:
    """A row for each image: grey where it is hidden, the completions, and the original only where it may be shown."""
    images = np.random.default_rng(0).integers(0, 256, (2, 6, 8, 3), dtype=np.uint8)
    known, made = masks_for(images, "left"), torch.rand(2, 3, 3, 6, 8)
    sheet = picture(made, images, known, originals=originals)
    columns = 5 if originals else 4
    assert sheet.shape == (2 * 8 + 2, columns * 10 + 2, 3)
    for row in range(2):
        tiles = [sheet[2 + 8 * row : 8 + 8 * row, 2 + 10 * k : 10 + 10 * k] for k in range(columns)]
        assert (tiles[0][:, :4] == 128).all()
        assert np.array_equal(tiles[0][:, 4:], images[row][:, 4:])
        assert np.array_equal(tiles[2], (made[row, 1].permute(1, 2, 0).numpy() * 255).round().astype(np.uint8))
        assert np.array_equal(tiles[-1], images[row]) == originals


def test_the_shapes_are_those_of_the_page() -> None:
    assert tuple(HOLES) == MASKS
    assert set(MASKS) <= set(NAMES)


@pytest.mark.parametrize("name", MASKS)
def test_images_that_complete_themselves_have_no_seam(name: str) -> None:
    """Not even where the sampler leaves its last noise on them."""
    digits = np.stack([np.asarray(Image.open(file)) for file in sorted(DIGITS.values())])[..., None]
    known = masks_for(digits, name)
    y = to_float(digits).unsqueeze(1).repeat(1, EACH, 1, 1, 1)
    made = y + 0.01 * torch.randn(y.shape, generator=torch.Generator().manual_seed(1))
    told = judged(made, digits, known, 0.01, noise=0.01)
    assert (told["seam"], told["inside"]) == pytest.approx((1, 1), abs=0.02)
    alone = judged(made[:1], digits[:1], known[:1], 0.01, noise=0.01)
    assert alone["distance_between_images"] is None
