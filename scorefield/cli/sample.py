"""scorefield sample, inpaint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from scorefield.cli.app import ModelName, app, prepare_file, prepare_folder, say, tracker
from scorefield.cli.options import Sampling, SamplingOptions, note_shortfall

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from scorefield.distributed import Group
    from scorefield.models.model import Known, Model


@app.command
def sample(
    model: ModelName,
    /,
    *,
    label: str | None = None,
    sampling: SamplingOptions = Sampling(n=64),  # noqa: B008
    out: Path = Path("samples.png"),
) -> None:
    """Draw samples from a model.

    Example: scorefield sample runs/mine -n 16 --out samples.png

    Args:
        label: The class to sample, by name or number, for models with classes. None: a random class for each sample.
        out: FILE.png for a grid, FILE.gif for an animation of the sampling, FILE.npy for the bytes (N, H, W, C), or a
            folder for one PNG each.
    """
    from scorefield.distributed import joined
    from scorefield.images import FRAMES, save_folder, save_images
    from scorefield.models.model import load

    sampling.check()
    if out.suffix.lower() not in (".png", ".gif", ".npy", ""):
        raise ValueError(f"cannot write {out.suffix} files (--out FILE.png, FILE.gif, FILE.npy or a folder)")
    if out.suffix == "" and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise FileExistsError(f"{out} exists already (name a new folder)")
    prepare_file(out) if out.suffix else prepare_folder(out)
    with joined(sampling.device) as group:
        loaded = load(model, weights=sampling.weights, device=group.device)
        frames = FRAMES if out.suffix.lower() == ".gif" else 1
        batches = _draw(loaded, sampling, group, label=label, frames=frames)
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
    label: str | None = None,
    frames: int = 1,
    known: Known | None = None,
) -> Iterator[tuple[Sequence[int], np.ndarray]]:
    """This process's part of the images, batch by batch: their numbers, and bytes (N, frames, H, W, C)."""
    sampler = sampling.sampler_for(model)
    note_shortfall(sampler, model, group)
    return model.draw(
        group.share(sampling.n),
        batch_size=sampling.batch_size,
        seed=sampling.seed,
        sampler=sampler,
        label=int(label) if label is not None and label.isdecimal() and label not in model.labels else label,
        known=known,
        precision=sampling.precision,
        frames=frames,
        track=tracker(group),
    )


def _gathered(batches: Iterator[tuple[Sequence[int], np.ndarray]], group: Group) -> np.ndarray:
    """The images of all processes (N, frames, H, W, C), for the main one; none for the others."""
    import numpy as np

    parts = group.gather([images for _, images in batches])
    return np.concatenate([images for part in parts for images in part] or [np.empty(0, np.uint8)])


@app.command
def inpaint(
    model: ModelName,
    /,
    *,
    image: Path,
    mask: str = "left",
    crop: int | None = None,
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
        crop: Side of the centred square that is cropped from the image first. None: as in the model's training (the
            training faces of the pretrained celeba were cropped before: --crop 140 does the same to CelebA's own).
        out: FILE.png for the picture, FILE.npy for the completions' bytes (N, H, W, C).
    """
    from scorefield.data import pictures
    from scorefield.data.masks import make_mask
    from scorefield.distributed import joined
    from scorefield.images import save_completions, to_float
    from scorefield.models.model import load

    sampling.check()
    if out.suffix.lower() not in (".png", ".npy"):
        raise ValueError(f"cannot write {out.suffix or 'a folder'} (--out FILE.png or FILE.npy)")
    if out.resolve() in (image.resolve(), Path(mask).resolve()):
        raise ValueError(f"{out} would be replaced by its own completions (name another file with --out)")
    prepare_file(out)
    with joined(sampling.device) as group:
        loaded = load(model, weights=sampling.weights, device=group.device)
        picture = pictures.open_image(image).convert("L" if loaded.shape[0] == 1 else "RGB")
        if crop is None:
            fit = pictures.fit_to_model(loaded.shape, loaded.recipe.crop, picture.size)
        else:
            fit = pictures.parse_fit(loaded.shape[1:], crop)
        original = pictures.crop_and_resize(picture, str(image), fit)
        known = make_mask(mask, fit, picture.size, seed=sampling.seed)
        if group.main:
            _note_odd_image(picture.size, fit.crop, known)
        y = to_float(original[None])[0].to(group.device)
        images = _gathered(_draw(loaded, sampling, group, known=(y, known.to(group.device))), group)
        if group.main:
            save_completions(out, images[:, -1], original, known.numpy())
            print(out)


def _note_odd_image(size: tuple[int, int], crop: int | None, known: Tensor) -> None:
    """Print a note if an image of that width and height is enlarged, or if nothing of it is used."""
    width, height = (crop, crop) if crop is not None else size
    if height < known.shape[0] or width < known.shape[1]:
        wanted = f"{known.shape[0]} × {known.shape[1]}"
        say(f"note: the part of the image that is used is {height} × {width}; it is enlarged to the model's {wanted}")
    if not known.any():
        say("note: the mask hides the whole image, so nothing of it is used")
