"""scorefield sample, inpaint."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from scorefield.cli.app import ModelName, command, prepare_file, prepare_folder, say_notes, tracker
from scorefield.cli.options import Sampling, SamplingOptions, note_guidance, note_shortfall

if TYPE_CHECKING:
    import numpy as np

    from scorefield.distributed import Group
    from scorefield.models.model import Model


@command
def sample(
    model: ModelName,
    /,
    *,
    sampling: SamplingOptions = Sampling(n=64),  # noqa: B008
    out: Path = Path("samples.png"),
) -> None:
    """Draw samples from a model.

    Example: scorefield sample runs/mine -n 16 --out samples.png

    Args:
        out: FILE.png for a grid, FILE.gif for an animation of the sampling, FILE.npy for the bytes (N, H, W, C), or a
            folder for one PNG each.
    """
    from scorefield.distributed import joined
    from scorefield.images import FRAMES, save_folder, save_images
    from scorefield.models.model import load

    sampling.check()
    if out.suffix.lower() not in (".png", ".gif", ".npy", ""):
        raise ValueError(f"--out must be FILE.png, FILE.gif, FILE.npy or a folder; got {out}")
    if out.suffix == "" and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise FileExistsError(f"{out} exists already (name a new folder)")
    prepare_file(out) if out.suffix else prepare_folder(out)
    with joined(sampling.device) as group:
        loaded = load(model, weights=sampling.weights, device=group.device)
        if out.suffix.lower() == ".npy":
            prepare_folder(out.parent, size=sampling.n * math.prod(loaded.shape))
        frames = FRAMES if out.suffix.lower() == ".gif" else 1
        batches = _draw(loaded, sampling, group, frames=frames)
        if out.suffix:
            images = _gathered(batches, group)
            if group.main:
                save_images(out, images)
        else:  # images that are done are kept, whatever happens to the rest
            for numbers, done in batches:
                save_folder(out, done[:, -1], first=numbers[0])
            group.wait()
        if group.main:
            print(out)


def _draw(
    model: Model,
    sampling: Sampling,
    group: Group,
    *,
    frames: int = 1,
    **condition: Any,  # noqa: ANN401
) -> Iterator[tuple[Sequence[int], np.ndarray]]:
    """This process's part of the images, batch by batch: their numbers, and bytes (N, frames, H, W, C). `condition`:
    what is known or measured of them."""
    sampler = sampling.sampler_for(model, model.restoration_sampler if "measurement" in condition else None)
    note_shortfall(sampler, model, group)
    model.check_guidance(sampling.guidance, sampling.label_for(model))
    note_guidance(sampling.guidance, group)
    return model.draw(
        group.share(sampling.n),
        batch_size=sampling.batch_size,
        seed=sampling.seed,
        sampler=sampler,
        label=sampling.label_for(model),
        guidance=sampling.guidance,
        **condition,
        precision=sampling.precision,
        frames=frames,
        track=tracker(group),
    )


def _gathered(batches: Iterator[tuple[Sequence[int], np.ndarray]], group: Group) -> np.ndarray:
    """The images of all processes (N, frames, H, W, C), for the main one; none for the others."""
    import numpy as np

    parts = group.gather([images for _, images in batches])
    return np.concatenate([images for part in parts for images in part] or [np.empty(0, np.uint8)])


@command
def inpaint(
    model: ModelName,
    /,
    *,
    image: Path,
    mask: str = "left",
    crop: int | None = None,
    method: Literal["replace", "mmps", "dps", "diffpir"] = "replace",
    sampling: SamplingOptions = Sampling(n=8),  # noqa: B008
    out: Path = Path("inpainted.png"),
) -> None:
    """Fill in the hidden part of an image in several ways.

    The picture shows the image with its hidden part grey, the completions, and the original.

    Example: scorefield inpaint runs/mine --image face.jpg --mask left -n 8 --out filled.png

    Args:
        image: The image. It is cropped and resized as the model's training images were.
        mask: The hidden part: left, right, top, bottom (that half), center, random (every other pixel), sparse (nine of
            ten pixels), blobs, text, or an image file in which black is hidden and white is known. A file of the
            image's size is cropped as the image is; any other is resized to the model's size.
        crop: Side of the centred square that is cropped from the image first. Default: as in training (the
            training faces of the pretrained celeba were cropped before: --crop 140 does the same to CelebA's own).
        method: How the known pixels are used: replace overwrites them in every step (Algorithm 2 of the paper); the
            others sample the posterior, for known pixels with noise of 0.01 (see scorefield restore).
        out: FILE.png for the picture, FILE.npy for the completions' bytes (N, H, W, C).
    """
    from scorefield.data import pictures
    from scorefield.data.masks import make_mask
    from scorefield.distributed import joined
    from scorefield.images import save_completions, to_float
    from scorefield.models.model import load
    from scorefield.operators import Mask
    from scorefield.posteriors import NOISE, Measurement

    sampling.check()
    if out.suffix.lower() not in (".png", ".npy"):
        raise ValueError(f"--out must be a file, FILE.png or FILE.npy; got {out}")
    if not image.exists():
        raise FileNotFoundError(f"there is no image {image} (name a file with --image)")
    if out.resolve() in (image.resolve(), Path(mask).resolve()):
        raise ValueError(f"{out} would be replaced by its own completions (name another file with --out)")
    prepare_file(out)
    with joined(sampling.device) as group:
        loaded = load(model, weights=sampling.weights, device=group.device)
        picture = pictures.open_image(image)
        if crop is None:
            fit = pictures.fit_to_model(loaded.shape, loaded.recipe.crop, picture.size)
        else:
            fit = pictures.parse_fit(loaded.shape[1:], crop)
        original, notes = pictures.fit_image(picture, str(image), loaded.shape[0], fit)
        known = make_mask(mask, fit, picture.size, seed=sampling.seed)
        if not known.any():
            notes.append("the mask hides the whole image, so nothing of it is used")
        say_notes(notes, group)
        y = to_float(original[None])[0].to(group.device)
        if method == "replace":
            condition: dict[str, Any] = {"known": (y, known.to(group.device))}
        else:
            condition = {"measurement": Measurement(y, Mask(known), NOISE, method)}
        images = _gathered(_draw(loaded, sampling, group, **condition), group)
        if group.main:
            save_completions(out, images[:, -1], original, known.numpy())
            print(out)
