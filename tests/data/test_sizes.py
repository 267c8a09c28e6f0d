"""The sizes of images that were not decoded, and one size for all of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from data.image_files import noise, put
from scorefield import data
from scorefield.data.pictures import choose_size


def test_sizes_are_read_from_headers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(folder / "a.png", noise(4, 5))
    put(folder / "sub" / "b.jpg", noise(4, 5))
    put(folder / "turned.jpg", noise(8, 6), orientation=6)
    put(folder / "turned.png", noise(8, 6), orientation=8)
    put(folder / "mirrored.jpg", noise(8, 6), orientation=2)
    (folder / "broken.png").write_bytes(b"no image")
    cut = put(folder / "cut.png", noise(50, 60))
    cut.write_bytes(cut.read_bytes()[:100])  # the header is whole
    monkeypatch.setattr(Image.Image, "transpose", None)
    assert data.sizes(str(folder)) == {(4, 5): 2, (6, 8): 2, (8, 6): 1, (50, 60): 1}


def test_sizes_of_arrays_and_of_other_sources(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", noise(7, 4, 5))
    assert data.sizes(str(tmp_path / "a.npy")) == {(4, 5): 7}
    assert data.sizes("cifar10") == data.sizes("cifar10:test") == data.sizes(str(tmp_path / "none")) == {}


@pytest.mark.parametrize(
    ("sizes", "most", "chosen"),
    [
        ({(300, 300): 1}, 64, (64, 64)),
        ({(300, 300): 1}, 32, (32, 32)),
        ({(100, 100): 9, (40, 40): 1}, 64, (64, 64)),  # one in ten is enlarged
        ({(100, 100): 8, (40, 40): 2}, 64, (32, 32)),
        ({(5, 5): 1}, 64, (8, 8)),
        ({(300, 400): 50}, 64, (56, 72)),  # 3 : 4, and about as many pixels
        ({(300, 400): 49, (400, 300): 1}, 64, (56, 72)),
        ({(300, 400): 40, (400, 300): 10}, 64, (64, 64)),
        ({(301, 400): 5, (1200, 1600): 5}, 32, (28, 36)),
        ({(200, 30_000): 5}, 32, (32, 32)),
        ({(218, 178): 5}, 32, (36, 28)),
        ({(60, 70): 5}, 64, (30, 35)),  # half of it
        ({(61, 70): 5}, 64, (28, 36)),  # 56 × 72 would be wider
        ({(40, 56): 5}, 32, (20, 28)),
        ({(40, 56): 5, (40, 57): 1}, 32, (28, 36)),
        ({(36, 40): 5}, 32, (32, 32)),  # half of it would be very small
        ({(80, 100): 5}, 64, (56, 72)),  # half of it would be less than half as many pixels
        ({(100, 100): 5}, 64, (64, 64)),
    ],
)
def test_a_size_for_all(sizes: dict[tuple[int, int], int], most: int, chosen: tuple[int, int]) -> None:
    assert choose_size(sizes, most) == chosen
