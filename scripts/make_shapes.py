"""Draw coloured shapes in five classes, as a folder of small images to train on.

    python scripts/make_shapes.py shapes -n 2000

Each image has one shape on a plain background: a circle, a cross, a square, a star or a triangle, of random size,
place, turn and colours, 40 pixels high and 56 wide. Each class has its own subfolder. Image k depends on the seed and
on k alone. `scripts/judge_shapes.py` says of any image whether it is such a shape, and which.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Array = NDArray[np.float64]

HEIGHT, WIDTH = 40, 56
CLASSES = ("circle", "cross", "square", "star", "triangle")
RADII = (7.0, 16.0)
"""The smallest and the largest distance of a corner from the centre, in pixels."""
FINE = 8
"""A pixel's coverage is the mean over a grid of so many points along each side."""
LEAST_CONTRAST = 0.45
"""The least distance between the colours of shape and background, with channels in [0, 1]."""


def corners(kind: str) -> Array:
    """The corners of a shape around 0, (N, 2), at most 1 away from it; a circle is a polygon with many."""
    if kind == "cross":
        a, b = 1 / np.sqrt(10), 3 / np.sqrt(10)  # arms as long as they are wide
        points = [(a, b), (a, a), (b, a), (b, -a), (a, -a), (a, -b), (-a, -b), (-a, -a), (-b, -a), (-b, a), (-a, a)]
        return np.array([*points, (-a, b)])
    number = {"circle": 64, "square": 4, "triangle": 3, "star": 10}[kind]
    angle = 2 * np.pi * np.arange(number) / number
    radius = np.where(np.arange(number) % 2, 0.45, 1.0) if kind == "star" else np.ones(number)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1)


def symmetry(kind: str) -> float:
    """The smallest angle by which a turned shape is the same again."""
    return 2 * np.pi / {"circle": 64, "cross": 4, "square": 4, "star": 5, "triangle": 3}[kind]


def coverage(
    kind: str,
    x: float,
    y: float,
    radius: float,
    turn: float,
    shape: tuple[int, int] = (HEIGHT, WIDTH),
    fine: int = FINE,
) -> Array:
    """The share of each pixel that a shape covers, (H, W); x, y is its centre."""
    height, width = shape
    points = corners(kind) * radius @ np.array([[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]]) + (x, y)
    rows, columns = ((np.arange(n * fine) + 0.5) / fine for n in (height, width))
    inside = np.zeros((len(rows), len(columns)), bool)
    for (x0, y0), (x1, y1) in zip(points, np.roll(points, -1, 0), strict=True):  # the even-odd rule
        crossed = (y0 <= rows) != (y1 <= rows)
        if crossed.any():
            at = x0 + (rows[crossed] - y0) * (x1 - x0) / (y1 - y0)
            inside[crossed] ^= columns < at[:, None]
    mean: Array = inside.reshape(height, fine, width, fine).mean((1, 3))
    return mean


def draw(seed: int, k: int) -> tuple[NDArray[np.uint8], int]:
    """Image k of a set, (H, W, 3), and its class."""
    rng = np.random.default_rng([seed, k])
    kind = k % len(CLASSES)
    radius = rng.uniform(*RADII)
    x, y = (rng.uniform(radius + 1, n - radius - 1) for n in (WIDTH, HEIGHT))
    while True:
        shape, ground = rng.uniform(0, 1, (2, 3))
        if np.linalg.norm(shape - ground) >= LEAST_CONTRAST:
            break
    covered = coverage(CLASSES[kind], x, y, radius, rng.uniform(0, 2 * np.pi))[..., None]
    return np.round(255 * (covered * shape + (1 - covered) * ground)).astype(np.uint8), kind


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folder", type=Path)
    parser.add_argument("-n", type=int, default=2000, help="the number of images (default: 2000)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for name in CLASSES:
        (options.folder / name).mkdir(parents=True, exist_ok=True)
    for k in range(options.n):
        pixels, kind = draw(options.seed, k)
        Image.fromarray(pixels).save(options.folder / CLASSES[kind] / f"{k:05d}.png")
    print(f"{options.n} images of {HEIGHT} × {WIDTH} pixels in {len(CLASSES)} classes: {options.folder}")


if __name__ == "__main__":
    main()
