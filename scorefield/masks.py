"""Masks for inpainting: 1 where the image is known, 0 where it is to be filled in."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from scorefield.data import pictures

NAMES = ("left", "right", "top", "bottom", "center", "random")


def mask_of(name: str, fit: pictures.Fit, image_size: tuple[int, int] | None = None, *, seed: int = 0) -> Tensor:
    """A mask (H, W) of the fitted size, by name or from a file.

    left, right, top, bottom: that half is hidden; center: the middle half of height and width; random: every other
    pixel on average. A file: black is hidden, white is known; if it has the image's size (width, height), it is fitted
    as the image itself is, and otherwise only resized.
    """
    assert fit.size is not None
    height, width = fit.size
    mask = torch.ones(height, width, dtype=torch.bool)
    if name == "left":
        mask[:, : width // 2] = False
    elif name == "right":
        mask[:, width - width // 2 :] = False
    elif name == "top":
        mask[: height // 2] = False
    elif name == "bottom":
        mask[height - height // 2 :] = False
    elif name == "center":
        mask[height // 4 : height - height // 4, width // 4 : width - width // 4] = False
    elif name == "random":
        mask = torch.rand(height, width, generator=torch.Generator().manual_seed(seed)) < 0.5
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
