"""scorefield interpolate."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from scorefield import samplers
from scorefield.cli.app import Device, ModelName, check_seed, command, prepare_file, say, say_notes
from scorefield.samplers import Sampler

if TYPE_CHECKING:
    from torch import Tensor

    from scorefield.distributed import Group
    from scorefield.models.model import Model
    from scorefield.noise import SampleNoise
    from scorefield.samplers import State
    from scorefield.score import Score

MOST_FRAMES = 256


@command
def interpolate(
    model: ModelName,
    /,
    *,
    seeds: tuple[int, int] | None = None,
    images: tuple[Path, Path] | None = None,
    frames: int = 9,
    label: Annotated[str | None, tyro.conf.arg(metavar="NAME|NUMBER|none")] = None,
    calls: int | None = None,
    tolerance: float = 1e-4,
    weights: str | None = None,
    device: Device = "auto",
    out: Path = Path("interpolation.png"),
) -> None:
    """Make images on the way from one to another: along an arc between the noise that they come from.

    Between seeds the ends are the images of scorefield sample -n 1 --seed S; between images their reconstructions. It
    needs a model for all noise levels, such as those of the recipes unet-mnist and unet-cifar10.

    Example: scorefield interpolate runs/mine --seeds 1 2 --frames 9 --out between.png

    Args:
        seeds: Two random seeds.
        images: Two image files. They are cropped and resized as the model's training images were.
        frames: Number of images, with both ends.
        label: The class of all images, for models with classes, or none for no class. Default: between seeds what
            scorefield sample gives each, with a change half-way; between images none, if the model can do without.
        calls: Between seeds: network calls per image of the sampler. Default: the model's own.
        tolerance: Between images: tolerance of the solver.
        weights: Raw weights (raw), their moving average (ema), or another average of the model. Default: ema.
        out: FILE.png for a row of images, FILE.gif for an animation.
    """
    import torch

    from scorefield.distributed import joined
    from scorefield.images import grid, save_gif, save_png, to_bytes, zoom_for
    from scorefield.likelihood import check_levels
    from scorefield.models.model import load, parse_label

    if (seeds is None) == (images is None):
        raise ValueError("name two ends: --seeds 1 2, or --images A.png B.png (one of these)")
    if not 2 <= frames <= MOST_FRAMES:
        raise ValueError(f"--frames must be from 2 to {MOST_FRAMES}; got {frames}")
    if not 0 < tolerance < 1:
        raise ValueError(f"--tolerance must be above 0 and below 1; got {tolerance} (1e-4 is usual)")
    if out.suffix.lower() not in (".png", ".gif"):
        raise ValueError(f"--out must be a file, FILE.png or FILE.gif; got {out}")
    for seed in seeds or ():
        check_seed(seed)
    if images is not None and out.resolve() in [each.resolve() for each in images]:
        raise ValueError(f"{out} is one of the images (name another file with --out)")
    if images is not None and calls is not None:
        raise ValueError("--calls applies to seeds; images are decoded with --tolerance (leave it out)")
    prepare_file(out)
    with joined(device) as group, torch.no_grad():
        if not group.main:
            return
        loaded = load(model, weights=weights, device=group.device)
        check_levels(loaded.accepted.listed)
        chosen = parse_label(loaded.labels, label)
        if seeds is not None:
            made = _between_seeds(loaded, seeds, frames, chosen, calls)
        else:
            assert images is not None
            made = _between_images(loaded, images, frames, chosen, tolerance, group)
        pixels = to_bytes(made)
        if out.suffix.lower() == ".gif":
            save_gif(out, pixels, zoom=zoom_for(pixels[0]))
        else:
            row = grid(pixels, columns=frames)
            save_png(out, row, zoom=zoom_for(row, target=900))
        print(out)


@dataclass(frozen=True)
class StartedFrom:
    """A sampler that starts from this x instead of from random noise."""

    sampler: Sampler
    x: Tensor

    @property
    def calls(self) -> int | None:
        return self.sampler.calls

    @property
    def updates(self) -> int:
        return self.sampler.updates

    def start(self, noise: SampleNoise, shape: tuple[int, ...]) -> Tensor:
        return self.x

    def __call__(self, score: Score, x: Tensor, **options: Any) -> Iterator[State]:  # noqa: ANN401
        return self.sampler(score, x, **options)


def _between_seeds(
    model: Model, seeds: tuple[int, int], frames: int, label: str | int | None, calls: int | None
) -> Tensor:
    """Samples (N, C, H, W) from start noise between that of sample 0 of each seed."""
    import torch

    from scorefield.likelihood import spherical
    from scorefield.noise import SampleNoise, sample_seeds
    from scorefield.samplers import last

    sampler = _deterministic(model, calls)
    noise = SampleNoise([each for seed in seeds for each in sample_seeds(seed, [0])], device=model.device)
    first, second = sampler.start(noise, model.shape) - 0.5  # samplers start around grey
    x = 0.5 + spherical(first, second, _shares(frames))
    classes = model.class_numbers(label, frames)
    if model.labels and classes is None:
        one, other = noise.choice(len(model.labels)).tolist()
        classes = [one if 2 * k < frames else other for k in range(frames)]
        if one != other:
            names = f"{model.labels[one]} and {model.labels[other]}"
            say(f"note: the ends have the classes {names}, with a change half-way (--label chooses one for all)")
    states = model.states(range(frames), sampler=StartedFrom(sampler, x), label=classes)
    return torch.clamp(last(states), 0, 1)


def _deterministic(model: Model, calls: int | None) -> Sampler:
    """The model's own sampler if it is deterministic, otherwise Heun's."""
    from scorefield.samplers.path_settings import FlowSampler

    own = model.sampler
    fixed = isinstance(own, FlowSampler) and own.resample == 1 and not getattr(own, "churn", 0)
    if not fixed:
        say("note: the model's own sampler is not deterministic, so heun is used")
    chosen: Sampler = samplers.changed(own if fixed else samplers.Heun(), {"calls": calls}, accepted=model.accepted)
    return chosen


def _between_images(
    model: Model, files: tuple[Path, Path], frames: int, label: str | int | None, tolerance: float, group: Group
) -> Tensor:
    """Images (N, C, H, W) from latents between those of two images."""
    import torch

    from scorefield.acceleration.scaled import convolutions
    from scorefield.acceleration.threads import pytorch_threads
    from scorefield.data import pictures
    from scorefield.images import to_float
    from scorefield.likelihood import Cost, decode, encode, spherical

    ends, notes = list[torch.Tensor](), list[str]()
    for file in files:
        picture = pictures.open_image(file)
        fit = pictures.fit_to_model(model.shape, model.recipe.crop, picture.size)
        pixels, changes = pictures.fit_image(picture, str(file), model.shape[0], fit)
        ends.append(to_float(pixels[None])[0])
        notes += changes
    say_notes(notes, group)
    if model.labels and label is None:
        if not model.null_label:
            raise ValueError("the model needs a class (give one with --label)")
        label = "none"
    classes = model.class_numbers(label, frames)
    low, high = model.sigma_range
    cost, fast = Cost(), model.fast_score(frames, "float32")

    def score(x: Tensor, sigma: Tensor) -> Tensor:
        own = None if classes is None else torch.tensor(classes[: len(x)], device=x.device)
        return fast(x, sigma, label=own) if own is not None else fast(x, sigma)

    solve = {"sigma_min": low, "sigma_max": high, "variance": model.recipe.sigma_data**2, "tolerance": tolerance}
    with convolutions(allow_tf32=False), pytorch_threads(1):  # TF32's rounding errors would exceed the tolerance
        x = torch.stack(ends).to(model.device)
        first, second = encode(score, x, **solve, cost=cost) - 0.5
        made = decode(score, 0.5 + spherical(first, second, _shares(frames)), **solve, cost=cost)
    error = 255 * (made[[0, -1]] - x).abs().mean().item()
    say(f"the ends differ from the images by {error:.2g} grey levels in the mean ({cost.calls} network calls)")
    return made.clamp(0, 1)


def _shares(frames: int) -> list[float]:
    return [k / (frames - 1) for k in range(frames)]
