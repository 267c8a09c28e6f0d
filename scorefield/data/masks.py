"""Masks for inpainting: True where the image is known, False where it is hidden and must be filled in."""

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
"""The pattern of the mask `text`, which is repeated over the image."""


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
    """Coarse noise, interpolated: its lowest 40 % are hidden."""
    smooth = F.interpolate(_noise(5, 5, seed)[None, None], (height, width), mode="bicubic", align_corners=True)[0, 0]
    return smooth > smooth.quantile(0.4)


def _text(height: int, width: int, seed: int) -> Tensor:
    """The letters fill the width of the image and are repeated over its height."""
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
"""Functions (height, width, seed) -> mask, by name."""
NAMES = tuple(SHAPES)


def make_mask(name: str, fit: pictures.Fit, image_size: tuple[int, int] | None = None, *, seed: int = 0) -> Tensor:
    """A mask (H, W) of the fitted size, by name or from a file.

    left, right, top, bottom: this half is hidden; center: the middle half of the height and of the width; random: half
    of the pixels; sparse: nine of ten pixels; blobs: some round patches; text: letters all over the image. In a file,
    black is hidden and white is known. If it has the size of the image (width, height), it is cropped and resized as
    the image is, and otherwise only resized.
    """
    assert fit.size is not None
    if name in SHAPES:
        mask = SHAPES[name](*fit.size, seed)
    else:
        path = Path(name)
        if not path.is_file():
            raise FileNotFoundError(f"there is no mask {name} (give an image file, or one of {', '.join(NAMES)})")
        picture = pictures.open_image(path).convert("L")
        pixels = pictures.crop_and_resize(
            picture, name, fit if picture.size == image_size else pictures.Fit(size=fit.size)
        )
        mask = torch.tensor(pixels[..., 0]) > 127
    if mask.all():
        raise ValueError(f"the mask {name} hides nothing (paint what is to be filled in black)")
    return mask
