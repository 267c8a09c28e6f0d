"""Completions of images that the model has never seen, as in the paper's figure 6, and how good they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scorefield.models.checkpoint import Model
from scorefield.data.images import Pixels
from scorefield.data.pictures import Fit
from scorefield.evaluation.pool import How
from scorefield.acceleration.fast import for_sampling
from scorefield.models.generate import generate
from scorefield.images import beside, grid, to_bytes, to_float
from scorefield.data.masks import mask_of
from scorefield.noise import sample_seeds
from scorefield.progress import Track, silent
from scorefield.samplers import State

MASKS = ("left", "center", "blobs", "text", "sparse")
EACH = 8
"""Completions of an image."""


def masks_for(images: Pixels, name: str) -> Tensor:
    """A mask for each image, (N, H, W); those drawn at random are all different."""
    return torch.stack([mask_of(name, Fit(size=images.shape[1:3]), seed=k) for k in range(len(images))])


def complete(
    model: Model, images: Pixels, known: Tensor, how: How, *, batch_size: int, track: Track[Any] = silent, what: str
) -> Tensor:
    """EACH completions of each image (N, H, W, C), known where (N, H, W) says so; as floats (N, EACH, C, H, W).

    Completion number k of all has the seed of sample number k.
    """
    device = model.sigmas.device
    y = to_float(images).repeat_interleave(EACH, 0).to(device)
    mask = known.unsqueeze(1).repeat_interleave(EACH, 0).to(device)
    seeds = sample_seeds(how.seed, range(len(y)))
    size = min(batch_size, len(y))
    score = for_sampling(model.network, model.shape, size=size, precision=how.precision)
    calls = how.steps * len(model.sigmas) + how.denoise
    parts = [slice(k, k + size) for k in range(0, len(y), size)]

    def states() -> Iterator[State]:
        for part in parts:
            yield from generate(
                score,
                model.sigmas,
                model.shape,
                seeds[part],
                step_size=how.step_size,
                steps=how.steps,
                denoise=how.denoise,
                known=(y[part], mask[part]),
            )

    made = [state.x.cpu() for state in track(states(), what, calls * len(parts)) if state.step == calls]
    return torch.cat(made).unflatten(0, (len(images), EACH))


def judged(made: Tensor, images: Pixels, known: Tensor, sigma: float, *, noise: float) -> dict[str, Any]:
    """What can be said in numbers of completions (N, K, C, H, W) of images (N, H, W, C), known (N, H, W).

    `known_error`: root mean square difference to the known pixels, in units of the last level's σ. `distance`: the same
    between two completions of one image, over the hole; `distance_between_images` between the images themselves, where
    there are two. `seam`: how steep the completions are across the hole's border, over how steep the images are there
    with the `noise` that is left on the completions; `inside`: the same within the hole. A seam that shows has the
    former much above the latter.
    """
    y = to_float(images).unsqueeze(1)
    noisy = y + noise * torch.randn(made.shape, generator=torch.Generator().manual_seed(0))
    inside, outside = (each[:, None, None].expand(made.shape) for each in (~known, known))
    first, second = torch.triu_indices(made.shape[1], made.shape[1], 1)
    here = inside[:, first]
    others = y.roll(1, 0)
    return {
        "images": len(images),
        "completions": made.shape[1],
        "hidden": (~known).float().mean().item(),
        "known_error": _root_mean((made - y)[outside]) / sigma,
        "distance": _root_mean((made[:, first] - made[:, second])[here]),
        "distance_between_images": _root_mean((y - others).expand(made.shape)[inside]) if len(y) > 1 else None,
        "seam": (_steepness(made, known, hidden=1) / _steepness(noisy, known, hidden=1)).item(),
        "inside": (_steepness(made, known, hidden=2) / _steepness(noisy, known, hidden=2)).item(),
    }


def _root_mean(x: Tensor) -> float:
    return x.square().mean().sqrt().item()


def _steepness(x: Tensor, known: Tensor, *, hidden: int) -> Tensor:
    """The mean of |x − its neighbour| over all neighbours of which so many are hidden."""
    steps = []
    for dim in (-2, -1):
        size = known.shape[dim] - 1
        pair = 2 - known.narrow(dim, 0, size).int() - known.narrow(dim, 1, size).int()
        change = x.diff(dim=dim).abs()
        steps.append(change[(pair == hidden)[:, None, None].expand_as(change)])
    return torch.cat(steps).mean()


def picture(made: Tensor, images: Pixels, known: Tensor, *, originals: bool) -> Pixels:
    """A row for each image: what is known of it, its completions, and itself where `originals` may be shown."""
    whole = zip(made, images, known.numpy(), strict=True)
    rows = [beside(to_bytes(each), image, mask)[: None if originals else -1] for each, image, mask in whole]
    sheet: Pixels = grid(np.concatenate(rows), columns=len(rows[0]))
    return sheet
