"""Distances and variances of images, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from scorefield.doctor.geometry import measure, some_points


def test_geometry_of_three_points_by_hand() -> None:
    """Grey 1 × 2 pixels: (0, 0), (0, 1) and (1, 1) have distances 1, 1 and √2."""
    points = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 1.0]]).reshape(3, 1, 1, 2)
    found, pairs, nearest = measure(points)
    assert pairs.tolist() == pytest.approx([1, 1, math.sqrt(2)])
    assert nearest.tolist() == pytest.approx([1, 1, 1])
    assert found.farthest == pytest.approx(math.sqrt(2), abs=1e-6)
    assert found.variance == pytest.approx(2 * 2 / 9)  # each pixel is 0, 0, 1 or 0, 1, 1
    assert found.off_grey == pytest.approx(0.5)
    assert found.sigma_data == pytest.approx(0.5)
    assert (found.n, found.dimension) == (3, 2)
    assert found.side == pytest.approx(math.sqrt(2))


def test_an_image_is_not_its_own_nearest() -> None:
    found, _, nearest = measure(torch.rand(50, 3, 4, 4))
    assert nearest.min() > 0.1
    assert found.nearest["0"] == pytest.approx(nearest[0].item(), abs=1e-6)


def test_copies_have_no_distance_however_many_images_there_are() -> None:
    once = torch.rand(30, 3, 32, 32)
    found, _, nearest = measure(torch.cat([once, once]))
    assert nearest.max() < 1e-5
    assert found.nearest["0.5"] < 1e-5


def test_some_points_are_images_of_the_set_and_few_of_large_ones() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (3000, 2, 3, 1), dtype=np.uint8)
    points = some_points(pixels)
    assert points.shape == (2000, 1, 2, 3)
    known = {row.tobytes() for row in pixels.reshape(3000, -1)}
    assert all((255 * point).round().byte().numpy().tobytes() in known for point in points.flatten(1))
    large = np.zeros((400, 256, 256, 3), np.uint8)
    assert len(some_points(large)) == 254  # 50 million numbers


def test_one_image_has_no_distances() -> None:
    with pytest.raises(ValueError, match=r"at least two images are needed, .*; got 1"):
        measure(torch.rand(1, 1, 2, 2))
