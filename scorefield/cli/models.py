"""scorefield sample, inpaint."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
import tyro

from scorefield.cli.app import ModelName, app, check_seed, prepare_file, prepare_folder, say, tracker

if TYPE_CHECKING:
    from torch import Tensor

    from scorefield.models.checkpoint import Model
    from scorefield.distributed import Group
    from scorefield.evaluation import How, Rows
    from scorefield.progress import Track


MOST = 10_000_000
"""Samples at once."""


@dataclass(frozen=True)
class Sampler:
    """How to sample."""

    n: Annotated[int, tyro.conf.arg(aliases=["-n"])]
    """How many."""
    seed: int = 0
    """Another seed gives other images. Image k of a seed is the same for any n, batch size and number of processes."""
    batch_size: int = 64
    """How many at once."""
    steps: int | None = None
    """T, the steps at each noise level. None: the model's own (the paper: 100). With fewer, let T ε stay as it is: a
    quarter of the steps, each four times as long."""
    step_size: float | None = None
    """ε, the step size at the last level, as in x + ε/2 s + √ε z. None: the model's own (the paper: 2e-5)."""
    denoise: bool = False
    """End with one more step, x + σ² s. The paper does not, and it changes the images."""
    weights: Literal["raw", "ema"] | None = None
    """The raw weights or their moving average. None: the average where the model has it."""
    device: str = "auto"
    """auto (a GPU where there is one), cpu, cuda, cuda:1, ..."""
    precision: Literal["auto", "float32"] = "auto"
    """Of the network's arithmetic; auto: float16 by fast kernels on GPUs. The image itself is float32."""

    def check(self, *, least: int = 1) -> None:
        """A wrong value is an error with its cure. `least`: how many samples at least."""
        if not least <= self.n <= MOST or self.batch_size < 1:
            bounds = f"-n must be from {least} to {MOST:,}, --batch-size at least 1"
            raise ValueError(f"{bounds}; got {self.n} and {self.batch_size}")
        if self.steps is not None and self.steps < 1:
            raise ValueError(f"--steps must be at least 1; got {self.steps}")
        if self.step_size is not None and not 0 < self.step_size < float("inf"):
            raise ValueError(f"--step-size must be a positive number; got {self.step_size}")
        check_seed(self.seed)


def subject_of(what: str, sampler: Sampler, group: Group) -> Model | None:
    """The model that is meant, or None where the name means images, of which the sampler's options would be idle.

    mnist is the data set, and model:mnist the model: that is told.
    """
    from scorefield.evaluation.subjects import model_of
    from scorefield.models.pretrained import PREFIX, shipped_models

    model = model_of(what, weights=sampler.weights, device=group.device)
    if model is None:
        names = ("steps", "step_size", "denoise", "weights")
        idle = [f"--{name.replace('_', '-')}" for name in names if getattr(sampler, name) not in (None, False)]
        other = f"the model of that name is {PREFIX}{what}" if what in shipped_models() else ""
        if idle:
            raise ValueError(f"{', '.join(idle)}: for models, and {what} is images" + (f" ({other})" if other else ""))
        if other and group.main:
            say(f"note: {what} is the data set; {other}")
    return model


def how_of(sampler: Sampler, model: Model) -> How:
    """The sampler's settings; where they are not given, the model's."""
    from scorefield.evaluation import How

    recipe = model.recipe
    steps, step_size = sampler.steps or recipe.sample_steps, sampler.step_size or recipe.step_size
    return How(steps, step_size, sampler.denoise, sampler.seed, sampler.precision)


def note_if_short(how: How, model: Model, group: Group) -> None:
    """Says so where the dynamics go less than half as far at each level, T ε, as the model's own: noise would be left.

    Above 2σ² a step would bring noise of its own.
    """
    own, here = model.recipe.sample_steps * model.recipe.step_size, how.steps * how.step_size
    if group.main and here < own / 2:
        longer = own / how.steps
        cure = f"--step-size {longer:.2g}" if longer < 2.01 * model.sigmas[-1].item() ** 2 else "more --steps"
        say(f"note: T ε = {here:.2g} is {here / own:.0%} of the model's own: images may stay noise ({cure})")


def sampled(model: Model, sampler: Sampler, group: Group, *, track: Track[object]) -> Rows:
    """The model's samples, which are kept on the disk, and drawn as far as they are missing there."""
    from scorefield.evaluation import Pool, at_once

    size, how = at_once(sampler.batch_size, group), how_of(sampler, model)
    note_if_short(how, model, group)
    return Pool(model, how).draw(sampler.n, group, batch_size=size, track=track)


@app.command
def sample(
    model: ModelName,
    /,
    *,
    sampler: tyro.conf.OmitArgPrefixes[Sampler] = Sampler(n=64),  # noqa: B008
    out: Path = Path("samples.png"),
) -> None:
    """Draw samples from a model by annealed Langevin dynamics.

    Example: scorefield sample runs/mine -n 16 --out samples.png

    Args:
        model: A run folder, a model file, or the name of a shipped model: mnist-small, say.
        out: FILE.png for a grid, FILE.gif for the annealing as an animation, FILE.npy for the bytes (N, H, W, C), or a
            folder for one PNG each.
    """
    from scorefield.models.checkpoint import load
    from scorefield.distributed import joined
    from scorefield.images import FRAMES, save_folder, save_images

    sampler.check()
    if out.suffix.lower() not in (".png", ".gif", ".npy", ""):
        raise ValueError(f"cannot write {out.suffix} files (--out FILE.png, FILE.gif, FILE.npy or a folder)")
    if out.suffix == "" and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise FileExistsError(f"{out} exists already (name a new folder)")
    prepare_file(out) if out.suffix else prepare_folder(out)
    with joined(sampler.device) as group:
        loaded = load(model, weights=sampler.weights, device=group.device)
        batches = _batches(loaded, sampler, group, frames=FRAMES if out.suffix.lower() == ".gif" else 1)
        if out.suffix:
            images = _gathered(batches, group)
            if group.main:
                save_images(out, images)
        else:  # what is done is there, whatever happens to the rest
            for numbers, done in batches:
                save_folder(out, done[:, -1], first=numbers.start)
            group.wait()
        if group.main:
            print(out)


def _batches(
    model: Model, sampler: Sampler, group: Group, *, frames: int = 1, known: tuple[Tensor, Tensor] | None = None
) -> Iterator[tuple[range, np.ndarray]]:
    """This process's part of the images, batch by batch: their numbers, and bytes (N, frames, H, W, C)."""
    from scorefield.acceleration.fast import for_sampling
    from scorefield.models.generate import drawn_batches

    mine, how = group.share(sampler.n), how_of(sampler, model)
    note_if_short(how, model, group)
    size = max(1, min(len(mine), sampler.batch_size))
    score = for_sampling(model.network, model.shape, size=size, precision=how.precision)
    return drawn_batches(
        score,
        model.sigmas,
        model.shape,
        mine,
        seed=how.seed,
        step_size=how.step_size,
        steps=how.steps,
        denoise=how.denoise,
        batch_size=sampler.batch_size,
        known=known,
        frames=frames,
        track=tracker(group),
    )


def _gathered(batches: Iterator[tuple[range, np.ndarray]], group: Group) -> np.ndarray:
    """The images of all processes (N, frames, H, W, C), for the main one; for the others none."""
    parts = group.gather([images for _, images in batches])
    return np.concatenate([images for part in parts for images in part] or [np.empty(0, np.uint8)])


def _note_if_odd(size: tuple[int, int], crop: int | None, known: Tensor) -> None:
    """Says so where an image of that width and height is enlarged, and where nothing of it is used."""
    width, height = (crop, crop) if crop is not None else size
    if height < known.shape[0] or width < known.shape[1]:
        wanted = f"{known.shape[0]} × {known.shape[1]}"
        say(f"note: what is taken of the image is {height} × {width}, and is enlarged to the model's {wanted}")
    if not known.any():
        say("note: the mask hides the whole image, of which nothing is used")


@app.command
def inpaint(
    model: ModelName,
    /,
    *,
    image: Path,
    mask: str = "left",
    crop: int | None = None,
    sampler: tyro.conf.OmitArgPrefixes[Sampler] = Sampler(n=8),  # noqa: B008
    out: Path = Path("inpainted.png"),
) -> None:
    """Fill in the hidden part of an image, in several ways.

    The picture shows the image as it was given to the model, the completions, and the original.

    Example: scorefield inpaint runs/mine --image face.jpg --mask left -n 8 --out filled.png

    Args:
        model: A run folder, a model file, or the name of a shipped model: mnist-small, say.
        image: The image; cropped and resized as the model's training images were.
        mask: What is hidden: left, right, top, bottom (that half), center, random (every other pixel), sparse (nine of
            ten), blobs, text, or an image file in which black is hidden and white is known; one of the image's size is
            cropped as the image is, any other is resized to the model's.
        crop: The side of the middle square that is taken of the image first. None: as the model's training took it (the
            shipped celeba had its faces cropped before: --crop 140 does the same to CelebA's own).
        out: FILE.png for the picture, FILE.npy for the completions' bytes (N, H, W, C).
    """
    from scorefield.models.checkpoint import load
    from scorefield.data import pictures
    from scorefield.distributed import joined
    from scorefield.images import save_completions, to_float
    from scorefield.data.masks import mask_of

    sampler.check()
    if out.suffix.lower() not in (".png", ".npy"):
        raise ValueError(f"cannot write {out.suffix or 'a folder'} (--out FILE.png or FILE.npy)")
    if out.resolve() in (image.resolve(), Path(mask).resolve()):
        raise ValueError(f"{out} would be replaced by its own completions (name another file with --out)")
    prepare_file(out)
    with joined(sampler.device) as group:
        loaded = load(model, weights=sampler.weights, device=group.device)
        picture = pictures.open_image(image).convert("L" if loaded.shape[0] == 1 else "RGB")
        if crop is None:
            fit = pictures.fit_for(loaded.shape, loaded.recipe.crop, picture.size)
        else:
            fit = pictures.fit_of(loaded.shape[1:], crop)
        original = pictures.fitted(picture, str(image), fit)
        known = mask_of(mask, fit, picture.size, seed=sampler.seed)
        if group.main:
            _note_if_odd(picture.size, fit.crop, known)
        y = to_float(original[None])[0].to(group.device)
        batches = _batches(loaded, sampler, group, known=(y, known.to(group.device)))
        images = _gathered(batches, group)
        if group.main:
            save_completions(out, images[:, -1], original, known.numpy())
            print(out)
