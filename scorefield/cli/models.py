"""scorefield sample, inpaint, info, import."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
import tyro

from scorefield.cli.app import app, say

if TYPE_CHECKING:
    from torch import Tensor

    from scorefield.checkpoint import Model
    from scorefield.distributed import Group
    from scorefield.evaluation import How
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

    def __post_init__(self) -> None:
        if self.n < 0 or self.batch_size < 1:
            raise ValueError(f"-n must not be negative, --batch-size at least 1; got {self.n} and {self.batch_size}")
        if self.steps is not None and self.steps < 1:
            raise ValueError(f"--steps must be at least 1; got {self.steps}")
        if self.step_size is not None and not self.step_size > 0:
            raise ValueError(f"--step-size must be positive; got {self.step_size}")
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"--seed must be a whole number from 0 to 2³² − 1; got {self.seed}")


def how_of(sampler: Sampler, model: Model | None) -> How:
    """The sampler's settings, where they are not given, the model's."""
    from scorefield.evaluation import How
    from scorefield.recipes import Recipe

    recipe = model.recipe if model is not None else Recipe()
    steps, step_size = sampler.steps or recipe.sample_steps, sampler.step_size or recipe.step_size
    return How(steps, step_size, sampler.denoise, sampler.seed)


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

    _at_least_one(sampler.n)
    if out.suffix not in (".png", ".gif", ".npy", ""):
        raise ValueError(f"cannot write {out.suffix} files (--out FILE.png, FILE.gif, FILE.npy or a folder)")
    if out.suffix == "" and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise FileExistsError(f"{out} exists already (name a new folder)")
    out.parent.mkdir(parents=True, exist_ok=True)
    with joined(sampler.device) as group:
        loaded = load(model, weights=sampler.weights, device=group.device)
        parts = group.gather(drawn(loaded, sampler, group, frames=FRAMES if out.suffix == ".gif" else 1))
        if group.main:
            _write(out, np.concatenate(parts))
            print(out)


def _at_least_one(n: int) -> None:
    if n < 1:
        raise ValueError(f"-n must be at least 1; got {n}")


def drawn(
    model: Model, sampler: Sampler, group: Group, *, frames: int = 1, known: tuple[Tensor, Tensor] | None = None
) -> np.ndarray:
    """This process's part of the images as bytes (N, frames, H, W, C), the last frame being the end of the sampling."""
    from scorefield.images import to_bytes
    from scorefield.progress import silent, track

    mine = group.share(sampler.n)
    batches = [mine[k : k + sampler.batch_size] for k in range(0, len(mine), sampler.batch_size)]
    total = (sampler.steps or model.recipe.sample_steps) * len(model.sigmas) + sampler.denoise
    keep = set(np.linspace(total, 0, frames, endpoint=False).round().astype(int).tolist()) - {0}
    kept: list[list[np.ndarray]] = [[] for _ in batches]
    states = _states(model, sampler, batches, known)
    for number, state in (track if group.main else silent)(states, "sampling", total * len(batches)):
        if state.step in keep:
            kept[number].append(to_bytes(state.x))
    channels, height, width = model.shape
    empty = np.empty((0, len(keep), height, width, channels), np.uint8)
    return np.concatenate([empty, *(np.stack(each, axis=1) for each in kept)])


def _states(
    model: Model, sampler: Sampler, batches: list[range], known: tuple[Tensor, Tensor] | None
) -> Iterator[tuple[int, State]]:
    """The states of one batch after the other, with the batch's number."""
    from scorefield.generate import generate
    from scorefield.noise import sample_seeds

    for number, batch in enumerate(batches):
        states = generate(
            model.score,
            model.sigmas,
            model.shape,
            sample_seeds(sampler.seed, batch),
            step_size=sampler.step_size or model.recipe.step_size,
            steps=sampler.steps or model.recipe.sample_steps,
            denoise=sampler.denoise,
            known=known,
        )
        for state in states:
            yield number, state


def _write(out: Path, images: np.ndarray) -> None:
    """Images (N, frames, H, W, C) into a file of the kind that its name says, or a folder."""
    from scorefield.images import grid, save_gif, save_npy, save_png, zoom_for

    final = images[:, -1]
    if out.suffix == ".png":
        sheet = grid(final)
        save_png(out, sheet, zoom=zoom_for(sheet))
    elif out.suffix == ".gif":
        sheets = [grid(images[:, k]) for k in range(images.shape[1])]
        save_gif(out, sheets, zoom=zoom_for(sheets[0]))
    elif out.suffix == ".npy":
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
        image: The image; cropped to the model's aspect ratio and resized to its size.
        mask: What is hidden: left, right, top, bottom (that half), center, random (every other pixel), or an image file
            in which black is hidden and white is known.
        out: FILE.png for the picture, FILE.npy for the completions' bytes (N, H, W, C).
    """
    from scorefield.checkpoint import load
    from scorefield.data import pictures
    from scorefield.distributed import joined
    from scorefield.images import grid, save_npy, save_png, to_float, zoom_for
    from scorefield.masks import mask_of

    _at_least_one(sampler.n)
    if out.suffix not in (".png", ".npy"):
        raise ValueError(f"cannot write {out.suffix or 'a folder'} (--out FILE.png or FILE.npy)")
    out.parent.mkdir(parents=True, exist_ok=True)
    with joined(sampler.device) as group:
        loaded = load(model, weights=sampler.weights, device=group.device)
        channels, height, width = loaded.shape
        picture = pictures.open_image(image).convert("L" if channels == 1 else "RGB")
        original = pictures.fitted(picture, str(image), pictures.Fit(size=(height, width)))
        known = mask_of(mask, height, width, seed=sampler.seed)
        y = to_float(original[None])[0].to(group.device)
        parts = group.gather(drawn(loaded, sampler, group, known=(y, known.to(group.device))))
        if group.main:
            completions = np.concatenate(parts)[:, -1]
            occluded = np.where(known.numpy()[..., None], original, np.uint8(128))
            row = np.concatenate([occluded[None], completions, original[None]])
            sheet = grid(row, columns=len(row))
            save_npy(out, completions) if out.suffix == ".npy" else save_png(
                out, sheet, zoom=zoom_for(sheet, target=900)
            )
            print(out)


@app.command
def info(
    model: Annotated[Path, tyro.conf.Positional], /, *, as_json: Annotated[bool, tyro.conf.arg(name="json")] = False
) -> None:
    """Tell what a model is, what it was trained on, and how to sample it.

    Example: scorefield info runs/mine

    Args:
        model: A run folder or a model file.
        as_json: Print it as JSON, with all of the recipe.
    """
    from scorefield.checkpoint import load

    loaded = load(model)
    parameters = sum(p.numel() for p in loaded.network.parameters())
    channels, height, width = loaded.shape
    if as_json:
        facts = {"shape": loaded.shape, "parameters": parameters, "step": loaded.step, "weights": loaded.held}
        facts |= {"sigmas": loaded.sigmas.tolist(), **loaded.facts, "recipe": asdict(loaded.recipe)}
        print(json.dumps(facts, indent=2))
        return
    recipe, sigmas = loaded.recipe, loaded.sigmas.tolist()
    print(f"{model}: a RefineNet of width {recipe.width}, {parameters / 1e6:.2f} M parameters")
    print(f"  images     {channels} × {height} × {width}, pixels in {loaded.facts.get('data_range', '[0, 1]')}")
    print(f"  levels     {len(sigmas)}, sigma {sigmas[0]:g} ... {sigmas[-1]:g}")
    if loaded.step:
        print(f"  trained    {loaded.step} steps of {recipe.batch_size} by {recipe.objective} score matching")
    print(f"  data       {loaded.facts.get('data', 'unknown')}, {loaded.facts.get('data_images', 'unknown')} images")
    print(f"  weights    {' and '.join(loaded.held)}")
    print(f"  to sample  scorefield sample {model} (T = {recipe.sample_steps}, step size {recipe.step_size:g})")


@app.command(name="import")
def import_(
    checkpoint: Annotated[Path, tyro.conf.Positional],
    /,
    *,
    out: Path | None = None,
    image_size: int | None = None,
    sigma_max: float = 1.0,
    sigma_min: float = 0.01,
) -> None:
    """Turn a checkpoint of the code released with the paper into a model of ours.

    Example: scorefield import logs/cifar10/checkpoint_200000.pth --out cifar10.safetensors

    Args:
        checkpoint: The released code's checkpoint, a .pth file. One that holds code to run is refused.
        out: The model file to write; the checkpoint's name with .safetensors unless given.
        image_size: Height and width of its images, which the file does not tell. Default: 28 for grey, 32 for colour.
        sigma_max: The largest noise level, which the file does not tell either.
        sigma_min: The smallest.
    """
    from scorefield.checkpoint import save_model
    from scorefield.recipes import Recipe
    from scorefield.released import from_released

    if not checkpoint.is_file():
        raise FileNotFoundError(f"no file {checkpoint}")
    out = out or checkpoint.with_suffix(".safetensors")
    if out.exists():
        raise FileExistsError(f"{out} exists already (name another file with --out)")
    network = from_released(checkpoint, sigma_max=sigma_max, sigma_min=sigma_min)
    levels, width = network.norm.gamma.shape
    size = image_size or (28 if network.channels == 1 else 32)
    recipe = Recipe(data=str(checkpoint), width=width, sigma_max=sigma_max, sigma_min=sigma_min, levels=levels)
    facts = {"data": "unknown", "imported_from": checkpoint.name}
    shape = (network.channels, size, size)
    save_model(out, network.state_dict(), None, recipe=recipe, shape=shape, step=0, facts=facts)
    say(f"a model of {network.channels} × {size} × {size} images, {levels} levels")
    print(out)
