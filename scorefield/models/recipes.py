"""Recipes: all that decides what a training run computes, as typed values. The paper's settings are the defaults.

This is the only place where a name becomes a function.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from scorefield.networks import RefineNet
from scorefield.noise import geometric
from scorefield.objectives import Objective, denoising, sliced


@dataclass(frozen=True)
class Recipe:
    """One training run. Two runs with equal recipes, on the same data and from the same start, compute the same
    numbers."""

    data: str = "mnist"
    """Images to learn from: mnist, cifar10, celeba, a folder of images, or an .npy/.npz of bytes (N, H, W[, C])."""
    image_size: int | None = None
    """Resize images to this height and width (after cropping). None keeps their size, which must be one for all."""
    crop: int | None = None
    """Cut a square of this side out of the middle of each image first."""
    flip: bool = False
    """Mirror half of the images, at random."""
    dequantise: bool = True
    """Fill the gaps between the 256 grey values: x·255/256 + u/256, u uniform. As the released code does; the paper is
    silent."""
    held_out: int = 512
    """Images kept apart to measure the loss on; of a named data set, from its test split. 0: none."""

    width: int = 64
    """Filters of the network at full resolution; the paper has 64 for MNIST, 128 for CIFAR-10 and CelebA."""
    sigma_max: float = 1.0
    """The largest noise level's standard deviation, for pixels in [0, 1]."""
    sigma_min: float = 0.01
    """The smallest noise level's."""
    levels: int = 10
    """Number of noise levels, in geometric progression."""
    start: str | None = None
    """A model to begin with instead of random weights: a file, a run or a shipped model's name, with the same network
    (channels, width and noise levels); its moving average where it has one. Adam begins anew: --warmup 500 spares it
    large first steps."""

    objective: Literal["denoising", "sliced"] = "denoising"
    """Score matching: denoising (Eq. 5, the paper's choice) or sliced (Eq. 3 on perturbed data, more work)."""
    steps: int = 200_000
    """Training iterations."""
    batch_size: int = 128
    """Images per iteration, over all processes together."""
    learning_rate: float = 1e-3
    """Of Adam."""
    warmup: int = 0
    """Iterations over which the learning rate rises from 0."""
    clip: float = 0.0
    """Largest norm of the gradient; longer ones are shortened to it. 0: no clipping."""
    ema: float = 0.0
    """Decay of a moving average of the weights, 0.999 say, kept beside the raw ones. 0: none, as in the paper."""
    seed: int = 0
    """Of initial weights, batches and noise."""

    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of the network's arithmetic; auto: 16 bit on GPUs (float16 by the fused kernels, bfloat16 where only these do not
    work), float32 elsewhere."""
    compile: bool = False
    """Compile the plain network with torch.compile, which takes minutes, for GPUs on which the fused kernels do not
    work; where they do, they are faster."""
    deterministic: bool = False
    """Only kernels that give the same bits every time, so that resuming is exact on GPUs too: somewhat slower there."""
    micro_batch: int = 0
    """Images that go through the network at once; a batch is cut into such parts. 0: 32 on CPU (to save memory), all on
    GPU."""

    checkpoint_every: int = 5_000
    """Iterations between checkpoints."""
    evaluate_every: int = 1_000
    """Iterations between measurements of the held-out loss."""
    log_every: int = 100
    """Iterations between lines of log.csv."""
    previews: int = 16
    """Samples drawn at each checkpoint. 0: none."""
    preview_steps: int = 0
    """Sampler steps per level for these samples. 0: as sample_steps on GPU, a tenth of it (and larger) on CPU."""

    step_size: float = 2e-5
    """ε of annealed Langevin dynamics, for sampling this model."""
    sample_steps: int = 100
    """T, the sampler's steps per level."""

    def __post_init__(self) -> None:
        positive = ("steps", "batch_size", "levels", "checkpoint_every", "evaluate_every", "log_every", "sample_steps")
        for name in positive:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; got {getattr(self, name)}")
        for name in ("held_out", "warmup", "clip", "micro_batch", "previews", "preview_steps"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name} must be 0 or more; got {getattr(self, name)}")
        if not (self.learning_rate > 0 and self.step_size > 0):
            raise ValueError("learning_rate and step_size must be positive")
        if not 0 <= self.ema < 1:
            raise ValueError(f"ema must be from 0 (none) to just below 1; got {self.ema}")
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed must be a whole number from 0 to 2³² − 1; got {self.seed}")
        geometric(self.sigma_max, self.sigma_min, self.levels)
        if self.sigma_max > 1e4 or self.sigma_min < 1e-5:
            raise ValueError(
                f"sigmas must lie between 0.00001 and 10000, for pixels in [0, 1]; got {self.sigma_max:g} ... "
                f"{self.sigma_min:g}"
            )


def _baseline(recipe: Recipe) -> Recipe:
    """The same network for the smallest noise level alone, sampled by plain Langevin dynamics (appendix B.2)."""
    return replace(recipe, sigma_max=recipe.sigma_min, levels=1, sample_steps=1000)


_MNIST = Recipe(data="mnist", width=64)
_MNIST_SMALL = replace(  # a quarter of the width, which is quick on a CPU
    _MNIST, width=16, steps=25_000, batch_size=512, learning_rate=2e-3, warmup=1000, ema=0.999
)
_CIFAR10 = Recipe(data="cifar10", width=128, flip=True)
_CELEBA = Recipe(data="celeba", width=128, flip=True, crop=140, image_size=32)
_TINY = Recipe(  # for a first try on a CPU: fewer and larger noise levels, which a small network learns in minutes
    image_size=16,
    width=16,
    held_out=24,
    sigma_min=0.05,
    levels=6,
    steps=500,
    batch_size=16,
    learning_rate=4e-3,
    clip=100.0,
    ema=0.98,
    checkpoint_every=250,
    evaluate_every=100,
    log_every=20,
    previews=4,
    step_size=5e-4,
    sample_steps=50,
)

RECIPES = {
    "mnist": _MNIST,
    "mnist-small": _MNIST_SMALL,
    "cifar10": _CIFAR10,
    "celeba": _CELEBA,
    "mnist-baseline": _baseline(_MNIST),
    "cifar10-baseline": _baseline(_CIFAR10),
    "celeba-baseline": _baseline(_CELEBA),
    "tiny": _TINY,
}

OBJECTIVES: dict[str, Objective] = {"denoising": denoising, "sliced": sliced}


def ladder_of(recipe: Recipe) -> Tensor:
    """The recipe's noise levels, (L,)."""
    return geometric(recipe.sigma_max, recipe.sigma_min, recipe.levels)


def network_of(recipe: Recipe, *, channels: int) -> RefineNet:
    """The recipe's network with its initial weights, which depend on the seed alone.

    Channels-last: 1.4 times faster than the other layout on a CPU, and what a GPU's tensor cores want.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        network = RefineNet(channels=channels, width=recipe.width, sigmas=ladder_of(recipe))
    return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
