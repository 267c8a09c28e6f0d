"""Images as float tensors (N, C, H, W) in [0, 1], as bytes (N, H, W, C), and as files."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from scorefield.files import new_file

if TYPE_CHECKING:  # Pillow is imported where it is used
    from PIL import Image

FRAMES = 60
"""The most frames in a GIF of a sampler's states."""


def to_float(pixels: np.ndarray) -> Tensor:
    """Bytes (N, H, W, C) as floats (N, C, H, W) in [0, 1]."""
    return torch.tensor(pixels).permute(0, 3, 1, 2).float() / 255


def to_bytes(x: Tensor) -> np.ndarray:
    """Floats (N, C, H, W) as bytes (N, H, W, C); values outside [0, 1] are clipped."""
    return (x.detach().float().clamp(0, 1) * 255).round().byte().permute(0, 2, 3, 1).cpu().numpy()


def grid(pixels: np.ndarray, *, columns: int | None = None, gap: int = 2, background: int = 255) -> np.ndarray:
    """Images (N, H, W, C) in a grid as one image (H', W', C), nearly square unless `columns` is given."""
    n, height, width, channels = pixels.shape
    columns = columns or math.ceil(math.sqrt(n))
    rows = -(-n // columns)
    sheet = np.full((rows * (height + gap) + gap, columns * (width + gap) + gap, channels), background, np.uint8)
    for k, image in enumerate(pixels):
        top, left = gap + k // columns * (height + gap), gap + k % columns * (width + gap)
        sheet[top : top + height, left : left + width] = image
    return sheet


def as_picture(pixels: np.ndarray, *, zoom: int = 1) -> Image.Image:
    """One image (H, W, C) for Pillow, its pixels enlarged `zoom` times without blurring."""
    from PIL import Image

    picture = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
    return picture.resize((picture.width * zoom, picture.height * zoom), Image.Resampling.NEAREST)


def resized_like(pixels: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Images (N, H, W, C) in the others' size and colours, to be shown beside them."""
    from PIL import Image

    if pixels.shape[1:] == others.shape[1:]:
        return pixels
    _, height, width, channels = others.shape
    pictures = (as_picture(each).convert("L" if channels == 1 else "RGB") for each in pixels)
    made = np.stack([np.asarray(each.resize((width, height), Image.Resampling.BILINEAR)) for each in pictures])
    return made.reshape(len(pixels), height, width, channels)


def zoom_for(pixels: np.ndarray, *, target: int = 600) -> int:
    """The factor by which to enlarge an image (H, W, C), so that small ones can be seen."""
    return max(1, target // max(pixels.shape[:2]))


def png(pixels: np.ndarray) -> bytes:
    """An image (H, W, C) as the bytes of a PNG file."""
    file = io.BytesIO()
    as_picture(pixels).save(file, format="PNG")
    return file.getvalue()


def save_png(path: Path, pixels: np.ndarray, *, zoom: int = 1) -> None:
    """Write an image (H, W, C); an interrupted write leaves the file as it was."""
    with new_file(path, tidy=False) as file:
        as_picture(pixels, zoom=zoom).save(file, format="PNG")


def save_npy(path: Path, array: np.ndarray) -> None:
    """Write an array; an interrupted write leaves the file as it was."""
    with new_file(path, tidy=False) as file:
        np.save(file, array)


def gif(frames: Iterable[np.ndarray], *, zoom: int = 1, seconds: float = 6.0) -> bytes:
    """Images (H, W, C) as the bytes of a GIF file: an endless animation that pauses on its last frame."""
    first, *others = [as_picture(frame, zoom=zoom) for frame in frames]
    each = max(20, round(1000 * seconds / (len(others) + 1)))
    durations, file = [each] * len(others) + [2000], io.BytesIO()
    first.save(file, format="GIF", save_all=True, append_images=others, duration=durations, loop=0)
    return file.getvalue()


def save_gif(path: Path, frames: Iterable[np.ndarray], *, zoom: int = 1) -> None:
    """Write images (H, W, C) as an animation; an interrupted write leaves the file as it was."""
    with new_file(path) as file:
        file.write(gif(frames, zoom=zoom))


def save_images(path: Path, images: np.ndarray) -> None:
    """Write images (N, frames, H, W, C) in the format of the file's name: a PNG with a grid, a GIF of all frames, an
    .npy; or, for a name without an ending, a folder with one PNG each."""
    final, kind = images[:, -1], path.suffix.lower()
    if kind == ".png":
        sheet = grid(final)
        save_png(path, sheet, zoom=zoom_for(sheet))
    elif kind == ".gif":
        sheets = [grid(images[:, k]) for k in range(images.shape[1])]
        save_gif(path, sheets, zoom=zoom_for(sheets[0]))
    elif kind == ".npy":
        save_npy(path, final)
    else:
        save_folder(path, final)


def save_folder(path: Path, images: np.ndarray, *, first: int = 0) -> None:
    """Write images (N, H, W, C) as one PNG each, numbered from `first` on."""
    for k, image in enumerate(images, first):
        save_png(path / f"{k:05d}.png", image)


def occluded(original: np.ndarray, known: np.ndarray) -> np.ndarray:
    """The image (H, W, C) with grey in place of the pixels that are not known (H, W)."""
    return np.where(known[..., None], original, np.uint8(128))


def beside(completions: np.ndarray, original: np.ndarray, known: np.ndarray) -> np.ndarray:
    """The known part of the image, its completions, and the image itself, (N + 2, H, W, C)."""
    return np.concatenate([occluded(original, known)[None], completions, original[None]])


def completion_row(completions: np.ndarray, original: np.ndarray, known: np.ndarray) -> np.ndarray:
    """The same side by side, as one image."""
    return grid(beside(completions, original, known), columns=len(completions) + 2)


def save_completions(path: Path, completions: np.ndarray, original: np.ndarray, known: np.ndarray) -> None:
    """Write a PNG with a row of images: the known part of the original, the completions, the original; or an .npy with
    the completions."""
    if path.suffix.lower() == ".npy":
        save_npy(path, completions)
        return
    sheet = completion_row(completions, original, known)
    save_png(path, sheet, zoom=zoom_for(sheet, target=900))
