"""scorefield interpolate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from scorefield.cli.app import Device, ModelName, check_seed, command, prepare_file, say, say_notes

if TYPE_CHECKING:
    from torch import Tensor

    from scorefield.distributed import Group
    from scorefield.models.model import Model


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
    from scorefield.evaluation.interpolation import MOST_FRAMES
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


def _between_seeds(
    model: Model, seeds: tuple[int, int], frames: int, label: str | int | None, calls: int | None
) -> Tensor:
    """Samples (N, C, H, W) from start noise between that of sample 0 of each seed."""
    import torch

    from scorefield.evaluation import interpolation
    from scorefield.samplers import last

    if not interpolation.is_deterministic(model.sampler):
        say("note: the model's own sampler is not deterministic, so heun is used")
    sampler = interpolation.deterministic(model.sampler, calls, model.accepted)
    states = interpolation.between_seeds(model, seeds, frames, label=label, sampler=sampler, say=say)
    return torch.clamp(last(states), 0, 1)


def _between_images(
    model: Model, files: tuple[Path, Path], frames: int, label: str | int | None, tolerance: float, group: Group
) -> Tensor:
    """Images (N, C, H, W) from latents between those of two images."""
    import torch

    from scorefield.data import pictures
    from scorefield.evaluation.interpolation import between_images
    from scorefield.images import to_float

    ends, notes = list[torch.Tensor](), list[str]()
    for file in files:
        picture = pictures.open_image(file)
        fit = pictures.fit_to_model(model.shape, model.recipe.crop, picture.size)
        pixels, changes = pictures.fit_image(picture, str(file), model.shape[0], fit)
        ends.append(to_float(pixels[None])[0])
        notes += changes
    say_notes(notes, group)
    first, second = ends
    made, cost = between_images(model, (first, second), frames, label=label, tolerance=tolerance)
    error = 255 * (made[[0, -1]].cpu() - torch.stack(ends)).abs().mean().item()
    say(f"the ends differ from the images by {error:.2g} grey levels in the mean ({cost.calls} network calls)")
    return made.clamp(0, 1)
