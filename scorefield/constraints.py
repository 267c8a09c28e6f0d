"""Constraints: what a sampler imposes on x after each step.

A constraint is a function sigma -> (x -> x): it is called once at each noise level, and what it returns is applied
after every step of that level.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from scorefield.noise import RandnLike, perturb


def known_pixels(
    y: Tensor, mask: Tensor, *, randn_like: RandnLike = torch.randn_like
) -> Callable[[Tensor], Callable[[Tensor], Tensor]]:
    """Algorithm 2:  x ← x ⊙ (1 − m) + (y + σz) ⊙ m,  z drawn once per level. Makes any sampler fill in the rest of y.

    `y` has the samples' shape. `mask` is 1 (or True) where y is known and broadcasts to y; elsewhere y may hold
    anything, even NaN.
    """
    if not y.is_floating_point():
        raise ValueError(f"y must be floating point; got {y.dtype} (for images of 0 ... 255: y.float() / 255)")
    mask = torch.as_tensor(mask)
    try:
        broadcast = torch.broadcast_shapes(mask.shape, y.shape)
    except RuntimeError:
        broadcast = None
    if broadcast != y.shape:
        raise ValueError(
            f"mask must broadcast to y's shape, {tuple(y.shape)}; got {tuple(mask.shape)} "
            "(one mask for all images and channels has shape (H, W))"
        )
    if not ((mask == 0) | (mask == 1)).all():
        raise ValueError("mask must hold only 0 (to fill in) and 1 (known); for one of 0 ... 255 pass mask > 127")
    known = mask.to(y.device).bool()
    if not y.isfinite().masked_fill(~known, True).all():
        raise ValueError("y has NaN or infinite entries where mask says it is known (set mask to 0 there)")

    def at_level(sigma: Tensor) -> Callable[[Tensor], Tensor]:
        noisy = perturb(y, sigma, randn_like=randn_like)

        def constrain(x: Tensor) -> Tensor:
            if x.shape != y.shape:
                raise ValueError(
                    f"y must have the samples' shape, {tuple(x.shape)}; got {tuple(y.shape)} "
                    "(for one image and many completions: y.expand_as(x))"
                )
            return torch.where(known.to(x.device), noisy.to(x), x)

        return constrain

    return at_level
