"""Masks for inpainting: 1 where the image is known, 0 where it is to be filled in."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from scorefield.data import pictures

LETTERS = """
.......................
.#...#..###..###.#...#.
.##..#.#....#....##..#.
.#.#.#.#.....##..#.#.#.
.#..##.#.......#.#..##.
.#...#..###.###..#...#.
"""
"""What the mask `text` writes all over the image."""


def _part(where: str, height: int, width: int, seed: int) -> Tensor:
    rows, columns = height // 2, width // 2
    hidden = {
        "left": (slice(None), slice(columns)),
        "right": (slice(None), slice(width - columns, None)),
        "top": (slice(rows), slice(None)),
        "bottom": (slice(height - rows, None), slice(None)),
        "center": (slice(height // 4, height - height // 4), slice(width // 4, width - width // 4)),
    }
    mask = torch.ones(height, width, dtype=torch.bool)
    mask[hidden[where]] = False
    return mask


def _noise(height: int, width: int, seed: int) -> Tensor:
    return torch.rand(height, width, generator=torch.Generator().manual_seed(seed))


def _blobs(height: int, width: int, seed: int) -> Tensor:
    """Coarse noise, made smooth: its lower two fifths are hidden."""
    smooth = F.interpolate(_noise(5, 5, seed)[None, None], (height, width), mode="bicubic", align_corners=True)[0, 0]
    return smooth > smooth.quantile(0.4)


def _text(height: int, width: int, seed: int) -> Tensor:
    """The letters fill the image's width, and are repeated over its height."""
    rows = [[character != "#" for character in line] for line in LETTERS.split()]
    letters = torch.tensor(rows).repeat(-(-height * len(rows[0]) // (width * len(rows))), 1)
    scale = len(rows[0]) / width
    down, across = ((torch.arange(n) + 0.5).mul(scale).long() for n in (height, width))
    return letters[down.clamp(max=len(letters) - 1)][:, across]


SHAPES: dict[str, Callable[[int, int, int], Tensor]] = {
    **{where: partial(_part, where) for where in ("left", "right", "top", "bottom", "center")},
    "random": lambda h, w, seed: _noise(h, w, seed) < 0.5,
    "sparse": lambda h, w, seed: _noise(h, w, seed) < 0.1,
    "blobs": _blobs,
    "text": _text,
}
"""(height, width, seed) -> a mask, by name."""
NAMES = tuple(SHAPES)


def mask_of(name: str, fit: pictures.Fit, image_size: tuple[int, int] | None = None, *, seed: int = 0) -> Tensor:
    """A mask (H, W) of the fitted size, by name or from a file.

    left, right, top, bottom: that half is hidden; center: the middle half of height and width; random: every other
    pixel on average; sparse: nine of ten; blobs: some round patches; text: letters all over the image. A file: black is
    hidden, white is known; if it has the image's size (width, height), it is fitted as the image itself is, and
    otherwise only resized.
    """
    assert fit.size is not None
    if name in SHAPES:
        mask = SHAPES[name](*fit.size, seed)
    else:
        path = Path(name)
        if not path.is_file():
            raise FileNotFoundError(f"no mask {name} (a file, or one of {', '.join(NAMES)})")
        picture = pictures.open_image(path).convert("L")
        pixels = pictures.fitted(picture, name, fit if picture.size == image_size else pictures.Fit(size=fit.size))
        mask = torch.tensor(pixels[..., 0]) > 127
    if mask.all():
        raise ValueError(f"the mask {name} hides nothing (paint black what is to be filled in)")
    return mask
