"""Completions of held-out images: the samples, the numbers about them, and their picture."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from scorefield import load
from scorefield.data.masks import NAMES
from scorefield.evaluation.completions import EACH, MASKS, complete, completion_sheet, make_masks, measure_completions
from scorefield.images import to_float
from scorefield.samplers import AnnealedLangevin, last
from scorefield.web.models import DIGITS


def test_the_numbers_by_hand() -> None:
    """One image of 1 × 4 pixels whose right half is hidden, with two completions."""
    images = np.array([[[[0], [51], [102], [153]]], [[[0], [51], [204], [255]]]], dtype=np.uint8)  # 0, .2, .4, .6; ...
    known = torch.tensor([[[True, True, False, False]]]).expand(2, -1, -1)
    y = to_float(images)
    made = y.unsqueeze(1).repeat(1, 2, 1, 1, 1)
    made[0, 0, ..., 0] += 0.02  # known, off by two of σ = 0.01
    made[0, 1, ..., 2] += 0.2  # completions differ, and the step across the border is 0.4, not 0.2
    found = measure_completions(made, images, known, 0.01, noise=0.0)
    assert (found.images, found.completions, found.hidden) == (2, 2, 0.5)
    assert found.known_error == pytest.approx((2.0**2 / 8) ** 0.5, rel=1e-4)
    assert found.distance == pytest.approx((0.2**2 / 4) ** 0.5, rel=1e-4)
    assert found.distance_between_images == pytest.approx(0.4, rel=1e-4)
    assert found.seam == pytest.approx((0.2 + 0.4 + 0.6 + 0.6) / 4 / ((0.2 + 0.6) / 2), rel=1e-4)
    assert found.inside == pytest.approx((0.2 + 0.0 + 0.2 + 0.2) / 4 / 0.2, rel=1e-4)


def test_images_without_edges_have_no_seam_to_compare_with() -> None:
    images = np.full((2, 4, 4, 1), 7, np.uint8)
    known = make_masks(images, "left")
    found = measure_completions(to_float(images).unsqueeze(1).repeat(1, 3, 1, 1, 1), images, known, 0.01, noise=0.0)
    assert np.isnan(found.seam)
    assert found.inside is not None
    assert np.isnan(found.inside)
    assert found.known_error == found.distance == 0


def test_completions_are_those_of_the_sampler() -> None:
    """In any batch size; each image has its own hole, and what is known stays to within the last level's noise."""
    model = load("mnist-small")
    sampler = AnnealedLangevin(model.sigmas, step_size=2e-5, steps=2)
    images = np.random.default_rng(0).integers(0, 256, (2, 28, 28, 1), dtype=np.uint8)
    known = make_masks(images, "blobs")
    assert not torch.equal(known[0], known[1])
    whole, parts = (complete(model, images, known, sampler=sampler, seed=7, batch_size=size) for size in (16, 5))
    torch.testing.assert_close(whole, parts, rtol=1e-4, atol=1e-4)
    assert whole.shape == (2, EACH, 1, 28, 28)
    given = (to_float(images)[1], known[1])
    alone = model.states(range(EACH, 2 * EACH), seed=7, sampler=sampler, known=given)
    torch.testing.assert_close(whole[1], last(alone), rtol=1e-4, atol=1e-4)
    found = measure_completions(whole, images, known, model.sigmas[-1], noise=0.01)
    assert found.known_error == pytest.approx(1, abs=0.05)
    assert found.distance > 0.05


@pytest.mark.parametrize("originals", [True, False])
def test_the_picture(originals: bool) -> None:
    """A row for each image: grey where it is hidden, the completions, and the original only where it may be shown."""
    images = np.random.default_rng(0).integers(0, 256, (2, 6, 8, 3), dtype=np.uint8)
    known, made = make_masks(images, "left"), torch.rand(2, 3, 3, 6, 8)
    sheet = completion_sheet(made, images, known, originals=originals)
    columns = 5 if originals else 4
    assert sheet.shape == (2 * 8 + 2, columns * 10 + 2, 3)
    for row in range(2):
        tiles = [sheet[2 + 8 * row : 8 + 8 * row, 2 + 10 * k : 10 + 10 * k] for k in range(columns)]
        assert (tiles[0][:, :4] == 128).all()
        assert np.array_equal(tiles[0][:, 4:], images[row][:, 4:])
        assert np.array_equal(tiles[2], (made[row, 1].permute(1, 2, 0).numpy() * 255).round().astype(np.uint8))
        assert np.array_equal(tiles[-1], images[row]) == originals


def test_the_masks_are_known() -> None:
    assert set(MASKS) <= set(NAMES)


@pytest.mark.parametrize("name", MASKS)
def test_images_that_complete_themselves_have_no_seam(name: str) -> None:
    """Not even where the sampler leaves its last noise on them."""
    digits = np.stack([np.asarray(Image.open(file)) for file in sorted(DIGITS.values())])[..., None]
    known = make_masks(digits, name)
    y = to_float(digits).unsqueeze(1).repeat(1, EACH, 1, 1, 1)
    made = y + 0.01 * torch.randn(y.shape, generator=torch.Generator().manual_seed(1))
    found = measure_completions(made, digits, known, 0.01, noise=0.01)
    assert (found.seam, found.inside) == pytest.approx((1, 1), abs=0.02)
    alone = measure_completions(made[:1], digits[:1], known[:1], 0.01, noise=0.01)
    assert alone.distance_between_images is None
