"""scorefield sample, inpaint."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
import tyro

from scorefield.cli.app import app, check_seed, prepare_file, prepare_folder

if TYPE_CHECKING:
    from torch import Tensor

    from scorefield.checkpoint import Model
    from scorefield.data import pictures
    from scorefield.distributed import Group
    from scorefield.evaluation import How, Rows
    from scorefield.progress import Track
    from scorefield.samplers import State


FRAMES = 60
"""At most so many in a GIF."""


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
    """T, the steps at each noise level. None: the model's own (the paper: 100)."""
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
        if self.n < least or self.batch_size < 1:
            raise ValueError(f"-n must be at least {least}, --batch-size 1; got {self.n} and {self.batch_size}")
        if self.steps is not None and self.steps < 1:
            raise ValueError(f"--steps must be at least 1; got {self.steps}")
        if self.step_size is not None and not 0 < self.step_size < float("inf"):
            raise ValueError(f"--step-size must be a positive number; got {self.step_size}")
        check_seed(self.seed)


def how_of(sampler: Sampler, model: Model) -> How:
    """The sampler's settings; where they are not given, the model's."""
    from scorefield.evaluation import How

    recipe = model.recipe
    steps, step_size = sampler.steps or recipe.sample_steps, sampler.step_size or recipe.step_size
    return How(steps, step_size, sampler.denoise, sampler.seed, sampler.precision)


def sampled(model: Model, sampler: Sampler, group: Group, *, track: Track[object]) -> Rows:
    """The model's samples, which are kept on the disk, and drawn as far as they are missing there."""
    from scorefield.evaluation import Pool

    return Pool(model, how_of(sampler, model)).draw(sampler.n, group, batch_size=sampler.batch_size, track=track)


@app.command
def sample(
    model: Annotated[Path, tyro.conf.Positional],
    /,
    *,
    sampler: tyro.conf.OmitArgPrefixes[Sampler] = Sampler(n=64),  # noqa: B008
    out: Path = Path("samples.png"),
) -> None:
    """Draw samples from a model by annealed Langevin dynamics.

    Example: scorefield sample runs/mine -n 16 --out samples.png

    Args:
        model: A run folder or a model file.
        out: FILE.png for a grid, FILE.gif for the annealing as an animation, FILE.npy for the bytes (N, H, W, C), or a
            folder for one PNG each.
    """
    from scorefield.checkpoint import load
    from scorefield.distributed import joined

    sampler.check()
    if out.suffix.lower() not in (".png", ".gif", ".npy", ""):
        raise ValueError(f"cannot write {out.suffix} files (--out FILE.png, FILE.gif, FILE.npy or a folder)")
    if out.suffix == "" and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise FileExistsError(f"{out} exists already (name a new folder)")
    prepare_file(out) if out.suffix else prepare_folder(out)
    with joined(sampler.device) as group:
        loaded = load(model, weights=sampler.weights, device=group.device)
        parts = group.gather(drawn(loaded, sampler, group, frames=FRAMES if out.suffix.lower() == ".gif" else 1))
        if group.main:
            _write(out, np.concatenate(parts))
            print(out)


def drawn(
    model: Model, sampler: Sampler, group: Group, *, frames: int = 1, known: tuple[Tensor, Tensor] | None = None
) -> np.ndarray:
    """This process's part of the images as bytes (N, frames, H, W, C), the last frame being the end of the sampling."""
    from scorefield.images import to_bytes
    from scorefield.progress import silent, track

    mine = group.share(sampler.n)
    batches = [mine[k : k + sampler.batch_size] for k in range(0, len(mine), sampler.batch_size)]
    how = how_of(sampler, model)
    total = how.steps * len(model.sigmas) + how.denoise
    keep = set(np.linspace(total, 0, frames, endpoint=False).round().astype(int).tolist()) - {0}
    kept: list[list[np.ndarray]] = [[] for _ in batches]
    states = _states(model, how, batches, known)
    for number, state in (track if group.main else silent)(states, "sampling", total * len(batches)):
        if state.step in keep:
            kept[number].append(to_bytes(state.x))
    channels, height, width = model.shape
    empty = np.empty((0, len(keep), height, width, channels), np.uint8)
    return np.concatenate([empty, *(np.stack(each, axis=1) for each in kept)])


def _states(
    model: Model, how: How, batches: list[range], known: tuple[Tensor, Tensor] | None
) -> Iterator[tuple[int, State]]:
    """The states of one batch after the other, with the batch's number."""
    from scorefield.fast import for_sampling
    from scorefield.generate import generate
    from scorefield.noise import sample_seeds

    size = max(map(len, batches), default=1)
    score = for_sampling(model.network, model.shape, size=size, precision=how.precision)
    for number, batch in enumerate(batches):
        states = generate(
            score,
            model.sigmas,
            model.shape,
            sample_seeds(how.seed, batch),
            step_size=how.step_size,
            steps=how.steps,
            denoise=how.denoise,
            known=known,
        )
        for state in states:
            yield number, state


def _write(out: Path, images: np.ndarray) -> None:
    """Images (N, frames, H, W, C) into a file of the kind that its name says, or a folder."""
    from scorefield.images import grid, save_gif, save_npy, save_png, zoom_for

    final = images[:, -1]
    kind = out.suffix.lower()
    if kind == ".png":
        sheet = grid(final)
        save_png(out, sheet, zoom=zoom_for(sheet))
    elif kind == ".gif":
        sheets = [grid(images[:, k]) for k in range(images.shape[1])]
        save_gif(out, sheets, zoom=zoom_for(sheets[0]))
    elif kind == ".npy":
        save_npy(out, final)
    else:
        for k, image in enumerate(final):
            save_png(out / f"{k:05d}.png", image)


@app.command
def inpaint(
    model: Annotated[Path, tyro.conf.Positional],
    /,
    *,
    image: Path,
    mask: str = "left",
    sampler: tyro.conf.OmitArgPrefixes[Sampler] = Sampler(n=8),  # noqa: B008
    out: Path = Path("inpainted.png"),
) -> None:
    """Fill in the hidden part of an image, in several ways.

    The picture shows the image as it was given to the model, the completions, and the original.

    Example: scorefield inpaint runs/mine --image face.jpg --mask left -n 8 --out filled.png

    Args:
        model: A run folder or a model file.
        image: The image; cropped and resized as the model's training images were.
        mask: What is hidden: left, right, top, bottom (that half), center, random (every other pixel), or an image file
            in which black is hidden and white is known, of the image's or of the model's size.
        out: FILE.png for the picture, FILE.npy for the completions' bytes (N, H, W, C).
    """
    from scorefield.checkpoint import load
    from scorefield.data import pictures
    from scorefield.distributed import joined
    from scorefield.images import grid, save_npy, save_png, to_float, zoom_for
    from scorefield.masks import mask_of

    sampler.check()
    if out.suffix.lower() not in (".png", ".npy"):
        raise ValueError(f"cannot write {out.suffix or 'a folder'} (--out FILE.png or FILE.npy)")
    prepare_file(out)
    with joined(sampler.device) as group:
        loaded = load(model, weights=sampler.weights, device=group.device)
        picture = pictures.open_image(image).convert("L" if loaded.shape[0] == 1 else "RGB")
        fit = _fit(loaded, picture.size)
        original = pictures.fitted(picture, str(image), fit)
        known = mask_of(mask, fit, picture.size, seed=sampler.seed)
        y = to_float(original[None])[0].to(group.device)
        parts = group.gather(drawn(loaded, sampler, group, known=(y, known.to(group.device))))
        if group.main:
            completions = np.concatenate(parts)[:, -1]
            occluded = np.where(known.numpy()[..., None], original, np.uint8(128))
            row = np.concatenate([occluded[None], completions, original[None]])
            sheet = grid(row, columns=len(row))
            save_npy(out, completions) if out.suffix.lower() == ".npy" else save_png(
                out, sheet, zoom=zoom_for(sheet, target=900)
            )
            print(out)


def _fit(model: Model, size: tuple[int, int]) -> pictures.Fit:
    """As the training images were fitted; an image that has the model's size already, or none to crop from, is not
    cropped."""
    from scorefield.data import pictures

    _, height, width = model.shape
    crop = model.recipe.crop
    if crop is not None and (size == (width, height) or crop > min(size)):
        crop = None
    return pictures.Fit(crop, (height, width))
