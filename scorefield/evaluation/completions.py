"""Completions of images that the model has never seen, as in the paper's Figure 6, and how good they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scorefield.data.images import Pixels
from scorefield.data.masks import make_mask
from scorefield.data.pictures import Fit
from scorefield.evaluation.records import Completion
from scorefield.images import beside, grid, to_bytes, to_float
from scorefield.models.model import Model
from scorefield.progress import Track, silent
from scorefield.samplers import Sampler, State

MASKS = ("left", "center", "blobs", "text", "sparse")
EACH = 8
"""Completions per image."""


def make_masks(images: Pixels, name: str) -> Tensor:
    """A mask for each image, (N, H, W). Random masks are all different."""
    return torch.stack([make_mask(name, Fit(size=images.shape[1:3]), seed=k) for k in range(len(images))])


def complete(
    model: Model,
    images: Pixels,
    known: Tensor,
    *,
    sampler: Sampler,
    seed: int,
    precision: str = "auto",
    label: str | int | None = None,
    guidance: float = 0.0,
    batch_size: int,
    track: Track[Any] = silent,
    what: str = "completing",
) -> Tensor:
    """EACH completions of each image (N, H, W, C), which is known where (N, H, W) says so: floats (N, EACH, C, H, W).

    Completion number k of all has the seed of sample number k.
    """
    y, mask = (each.repeat_interleave(EACH, 0) for each in (to_float(images), known.unsqueeze(1)))
    size = min(batch_size, len(y))
    parts = [range(len(y))[first : first + size] for first in range(0, len(y), size)]
    settings: dict[str, Any] = {"seed": seed, "sampler": sampler, "precision": precision, "size": size}
    settings |= {"label": label, "guidance": guidance}

    def states() -> Iterator[State]:
        for part in parts:
            rows = slice(part.start, part.stop)
            run = model.states(part, known=(y[rows], mask[rows]), **settings)
            yield from (state for state in run if state.step)

    total = sampler.updates * len(parts)
    made = [state.x.cpu() for state in track(states(), what, total) if state.step == sampler.updates]
    return torch.cat(made).unflatten(0, (len(images), EACH))


def measure_completions(made: Tensor, images: Pixels, known: Tensor, sigma: float, *, noise: float) -> Completion:
    """Numbers about completions (N, K, C, H, W) of images (N, H, W, C), known where (N, H, W) says so.

    `sigma` is the smallest noise level, the unit of `known_error`. `seam` is how steep the completions are across the
    border of the mask, over how steep the images are there with the `noise` that is left on the completions; `inside`
    is the same within the mask. A visible seam makes the former much larger than the latter.
    """
    y = to_float(images).unsqueeze(1)
    noisy = y + noise * torch.randn(made.shape, generator=torch.Generator().manual_seed(0))
    inside, outside = (each[:, None, None].expand(made.shape) for each in (~known, known))
    first, second = torch.triu_indices(made.shape[1], made.shape[1], 1)
    others = y.roll(1, 0)
    return Completion(
        images=len(images),
        completions=made.shape[1],
        hidden=(~known).float().mean().item(),
        known_error=_root_mean_square((made - y)[outside]) / sigma,
        distance=_root_mean_square((made[:, first] - made[:, second])[inside[:, first]]),
        distance_between_images=_root_mean_square((y - others).expand(made.shape)[inside]) if len(y) > 1 else None,
        seam=(_steepness(made, known, hidden=1) / _steepness(noisy, known, hidden=1)).item(),
        inside=(_steepness(made, known, hidden=2) / _steepness(noisy, known, hidden=2)).item(),
    )


def _root_mean_square(x: Tensor) -> float:
    return x.square().mean().sqrt().item()


def _steepness(x: Tensor, known: Tensor, *, hidden: int) -> Tensor:
    """The mean of |x − neighbour| over all pairs of neighbouring pixels of which `hidden`, 1 or 2, are hidden."""
    steps = []
    for dim in (-2, -1):
        size = known.shape[dim] - 1
        pair = 2 - known.narrow(dim, 0, size).int() - known.narrow(dim, 1, size).int()
        change = x.diff(dim=dim).abs()
        steps.append(change[(pair == hidden)[:, None, None].expand_as(change)])
    return torch.cat(steps).mean()


def completion_sheet(made: Tensor, images: Pixels, known: Tensor, *, originals: bool) -> Pixels:
    """A row for each image: its known part, its completions and, if the `originals` may be shown, the image itself."""
    whole = zip(made, images, known.numpy(), strict=True)
    rows = [beside(to_bytes(each), image, mask)[: None if originals else -1] for each, image, mask in whole]
    sheet: Pixels = grid(np.concatenate(rows), columns=len(rows[0]))
    return sheet
