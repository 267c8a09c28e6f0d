"""Say of images whether they are shapes as `scripts/make_shapes.py` draws them, and which.

    python scripts/judge_shapes.py RUN -n 256                   # samples of a model that was trained on them
    python scripts/judge_shapes.py --check                      # how good the judge is
    python scripts/judge_shapes.py --check --size 20 28         # on images that are shrunk to this height and width

An image is taken apart into two colours: the background's, which is the median of its border, and the shape's, which is
that of the places that differ most. Each place then has a share of the shape's colour, which is compared with drawn
shapes of the same area around the same centre, of each class and at many turns. It is a recognisable shape if there are
hardly other colours and it overlaps with the nearest drawn shape by more than LEAST_OVERLAP (the sum of the smaller
shares, divided by that of the larger).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parent))
from make_shapes import CLASSES, HEIGHT, WIDTH, Array, corners, coverage, draw, symmetry

LEAST_OVERLAP, LEAST_CONTRAST, MOST_OTHER = 0.82, 0.2, 0.07
"""The least overlap; the least distance of the two colours; and the largest root mean square of what is left when the
image is drawn in these, with channels in [0, 1]."""
LEAST_AREA = 0.0134
"""The least area of a shape, as a share of the image: half that of the smallest one that is drawn."""
TURNS = 12
"""Turns that are compared, for each class."""


class Verdict(NamedTuple):
    """What the judge says of an image."""

    kind: str
    """The nearest class; empty if the image is no recognisable shape."""
    nearest: str
    overlap: float
    other: float
    """The root mean square of what is neither of the two colours."""


@cache
def area(kind: str) -> float:
    """The area of a shape of radius 1."""
    x, y = corners(kind).T
    return float(abs(np.dot(x, np.roll(y, 1)) - np.dot(y, np.roll(x, 1))) / 2)


def judge(pixels: NDArray[np.uint8]) -> Verdict:
    """An image (H, W, 3)."""
    image = pixels.astype(float) / 255
    border = np.concatenate([image[0], image[-1], image[1:-1, 0], image[1:-1, -1]])
    ground = np.median(border, 0)
    distance = np.linalg.norm(image - ground, axis=-1)
    colour = np.median(image[distance >= np.quantile(distance, 0.97)], 0)
    direction = colour - ground
    contrast = float(np.linalg.norm(direction))
    share = np.clip((image - ground) @ direction / max(contrast, 1e-6) ** 2, 0, 1)
    other = float(np.sqrt(np.square(image - ground - share[..., None] * direction).mean()))
    share = np.where(share < 0.15, 0, share)  # noise of the background
    nearest, overlap = best_overlap(share) if share.mean() >= LEAST_AREA else ("", 0.0)
    good = overlap >= LEAST_OVERLAP and contrast >= LEAST_CONTRAST and other <= MOST_OTHER
    return Verdict(nearest if good else "", nearest, overlap, other)


def best_overlap(share: Array) -> tuple[str, float]:
    """The class of the drawn shape with the largest overlap, and the overlap."""
    rows, columns = np.indices(share.shape) + 0.5
    x, y = ((share * each).sum() / share.sum() for each in (columns, rows))
    found = ("", 0.0)
    for kind in CLASSES:
        radius = float(np.sqrt(share.sum() / area(kind)))
        turns = symmetry(kind) * np.arange(TURNS if kind != "circle" else 1) / TURNS
        for turn in turns:
            drawn = coverage(kind, x, y, radius, turn, share.shape, fine=max(3, round(120 / len(share))))
            overlap = float(np.minimum(drawn, share).sum() / np.maximum(drawn, share).sum())
            found = max(found, (kind, overlap), key=lambda each: each[1])
    return found


def blurred(pixels: NDArray[np.uint8], sigma: float) -> NDArray[np.uint8]:
    """The image after a Gaussian blur."""
    from PIL import Image, ImageFilter

    return np.asarray(Image.fromarray(pixels).filter(ImageFilter.GaussianBlur(sigma)))


def not_a_shape(seed: int, k: int) -> NDArray[np.uint8]:
    """Image k of things that are no shapes: by turns a strongly blurred shape, a noisy one, two shapes at once, half of
    one, and a random spot."""
    rng = np.random.default_rng([seed, k, 1])
    pixels, _ = draw(seed, k // 5)
    if k % 5 == 0:
        return blurred(pixels, 5.0)
    if k % 5 == 1:
        return (pixels + rng.normal(0, 60, pixels.shape)).clip(0, 255).astype(np.uint8)
    if k % 5 == 2:
        other, _ = draw(seed, k // 5 + 100_003)
        return np.where(np.arange(56)[:, None] < 28, pixels[:, ::-1], other)
    if k % 5 == 3:
        ground = np.median(pixels[0], 0)
        x = np.abs(pixels - ground).sum((0, 2)) @ np.arange(56) / max(1.0, np.abs(pixels - ground).sum())
        return np.where(np.arange(56)[:, None] < x, pixels, ground).astype(np.uint8)
    field = np.fft.ifft2(np.fft.fft2(rng.normal(size=(40, 56))) * np.exp(-_frequency(40, 56) * 60)).real
    spot = (field > np.quantile(field, 0.85))[..., None]
    return np.where(spot, pixels[20, 28], 255 - pixels[20, 28]).astype(np.uint8)


def _frequency(height: int, width: int) -> Array:
    """The squared frequency of each coefficient of a Fourier transform."""
    squares: Array = np.fft.fftfreq(height)[:, None] ** 2 + np.fft.fftfreq(width) ** 2
    return squares


def resized(pixels: NDArray[np.uint8], size: Sequence[int]) -> NDArray[np.uint8]:
    """The image with another height and width."""
    from PIL import Image

    height, width = size
    return np.asarray(Image.fromarray(pixels).resize((width, height), Image.Resampling.LANCZOS))


def check(n: int, seed: int, size: Sequence[int] = (HEIGHT, WIDTH)) -> dict[str, object]:
    """The share of drawn shapes that get their own class, and of other images that are taken for shapes."""
    shapes = [draw(seed, k) for k in range(n)]
    right = [judge(resized(pixels, size)).kind == CLASSES[kind] for pixels, kind in shapes]
    wrong = [bool(judge(resized(not_a_shape(seed, k), size)).kind) for k in range(n)]
    kinds = ("blurred", "noisy", "two", "half", "spot")
    each = {f"wrong_{name}": float(np.mean(wrong[k::5])) for k, name in enumerate(kinds)}
    found = {"n": n, "size": list(size), "right": float(np.mean(right)), "wrong": float(np.mean(wrong))}
    return {**found, **each}


def main() -> None:
    parser = argparse.ArgumentParser(description="Say of samples whether they are shapes, and which.")
    parser.add_argument("model", nargs="?", help="a run folder or a model file, or an .npy file of images (N, H, W, 3)")
    parser.add_argument("-n", type=int, default=256, help="the number of images (default: 256)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--guidance", type=float, default=0.0, help="the weight of classifier-free guidance")
    parser.add_argument("--check", action="store_true", help="measure the judge itself, on new shapes and on others")
    parser.add_argument("--size", type=int, nargs=2, default=(HEIGHT, WIDTH), help="height and width for --check")
    parser.add_argument("--json", type=Path, help="write the numbers to this file as well")
    options = parser.parse_args()
    if options.check:
        found = check(options.n, options.seed + 1_000_000, options.size)
    elif options.model:
        found = judged(options.model, options.n, options.seed, options.guidance)
    else:
        parser.error("give a model, or --check")
    text = json.dumps(found, indent=2)
    print(text)
    if options.json:
        options.json.write_text(text + "\n")


def judged(model: str, n: int, seed: int, guidance: float = 0.0) -> dict[str, object]:
    """Shares of samples of a model: recognisable shapes; those of the class that was asked for; and samples that are
    nearest to that class, recognisable or not."""
    wanted: list[str] | None = None
    if model.endswith(".npy"):
        images = np.load(model)[:n]
    else:
        import scorefield as sf
        from scorefield.images import to_bytes

        loaded = sf.load(model)
        wanted = [loaded.labels[k % len(loaded.labels)] for k in range(n)] if loaded.labels else None
        images = to_bytes(loaded.sample(n, seed=seed, label=wanted, guidance=guidance))
    verdicts = [judge(np.broadcast_to(pixels, (*pixels.shape[:2], 3))) for pixels in images]
    found: dict[str, object] = {
        "model": model,
        "n": len(verdicts),
        **({"guidance": guidance} if guidance else {}),
        "recognisable": float(np.mean([bool(each.kind) for each in verdicts])),
        "mean_overlap": float(np.mean([each.overlap for each in verdicts])),
        "kinds": {kind: sum(each.kind == kind for each in verdicts) for kind in CLASSES},
    }
    if wanted:
        pairs = list(zip(verdicts, wanted, strict=True))
        found["of_the_class"] = float(np.mean([each.kind == name for each, name in pairs]))
        found["nearest_to_the_class"] = float(np.mean([each.nearest == name for each, name in pairs]))
    return found


if __name__ == "__main__":
    main()
