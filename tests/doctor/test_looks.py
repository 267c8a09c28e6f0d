"""What is seen in images: copies, empty ones, classes of different sizes."""

from __future__ import annotations

import numpy as np

from scorefield.data import Images
from scorefield.doctor.looks import Pair, look


def random_images(n: int = 40, side: int = 16) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (n, side, side, 3), dtype=np.uint8)


def images_of(pixels: np.ndarray, labels: list[int] | None = None, classes: tuple[str, ...] = ()) -> Images:
    given = None if labels is None else np.array(labels, np.int64)
    return Images(pixels, "made up", "0" * 64, given, classes)


def test_copies_and_constant_images_are_found_and_nothing_else() -> None:
    pixels = random_images()
    pixels[7] = pixels[3]
    pixels[9] = np.clip(pixels[4].astype(int) + 2, 0, 255)  # a little brighter: the hash stays
    pixels[11] = 200
    pixels[12] = 90
    pixels[12, 0, 0] = 92  # two grey levels are no content
    seen = look(images_of(pixels))
    assert seen.duplicates == (Pair(3, 7),)
    assert seen.near_duplicates == (Pair(4, 9),)
    assert seen.constant == (11, 12)
    words = " ".join(seen.warnings(lambda k: f"{k}.png"))
    assert "1 of 40 images (2.5%) equal another one (3.png and 7.png)" in words
    assert "4.png and 9.png" in words
    assert "2 of 40 images (5.0%) are one colour all over: 11.png, 12.png" in words
    assert "40 images are few" in words


def test_images_with_one_hash_that_differ_are_no_copies() -> None:
    """A ramp from dark to bright has the same hash at every contrast."""
    ramp = np.linspace(0, 1, 16)[None, None, :, None]
    contrast = np.array([40, 120, 250])[:, None, None, None]
    pixels = np.broadcast_to(ramp * contrast, (3, 16, 16, 3)).astype(np.uint8)
    seen = look(images_of(pixels))
    assert not seen.duplicates
    assert not seen.near_duplicates


def test_classes_are_counted_and_compared() -> None:
    labels = [0] * 30 + [1] * 6 + [2] * 4
    seen = look(images_of(random_images(), labels, ("cat", "dog", "owl")))
    assert seen.classes == {"cat": 30, "dog": 6, "owl": 4}
    assert any("owl has 4 and cat 30 images" in words for words in seen.warnings())
    even = look(images_of(random_images(), [0, 1] * 20, ("cat", "dog")))
    assert not any("classes" in words for words in even.warnings())


def test_good_images_have_no_warning() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (2000, 4, 4, 1), dtype=np.uint8)
    assert look(images_of(pixels)).warnings() == []
