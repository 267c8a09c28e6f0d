"""scorefield restore."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from scorefield.cli.app import Flag, JsonFile, ModelName, command, prepare_file, say_notes, tracker
from scorefield.cli.options import Sampling, SamplingOptions, note_guidance

if TYPE_CHECKING:
    from torch import Tensor

    from scorefield.distributed import Group
    from scorefield.evaluation.restorations import Restoration
    from scorefield.models.model import Model
    from scorefield.operators import Operator

SHOWN = 10
"""The most images of a data set in the picture."""


@command
def restore(
    model: ModelName,
    /,
    *,
    task: Annotated[str, tyro.conf.arg(metavar="TASK")],
    image: Path | None = None,
    data: str | None = None,
    images: int = 500,
    measured: Flag = False,
    noise: float = 0.01,
    method: Literal["mmps", "dps", "diffpir", "replace"] = "mmps",
    iterations: int = 5,
    strength: float = 1.0,
    fid: Flag = False,
    crop: int | None = None,
    sampling: SamplingOptions = Sampling(n=8),  # noqa: B008
    out: Path = Path("restored.png"),
    json: JsonFile = None,
) -> None:
    """Restore an image from a measurement: fewer pixels, blur, no colours, or hidden parts.

    The image is measured, noise is added, and -n images are drawn that explain the measurement. Networks for all noise
    levels are sampled by heun with churn and 35 calls, unless options say otherwise. The picture shows the
    measurement, the restorations, their mean, their standard deviation (white is its largest), and the original. With
    --data instead of --image, held-out images are restored and the quality is measured.

    Example: scorefield restore mnist-small --image digit.png --task superres:4 -n 8 --out restored.png

    Args:
        task: superres:2, superres:4, ... (every K × K pixels became one), blur:SIGMA (in pixels), gray (colours are
            lost), or inpaint:MASK with left, right, top, bottom, center, random, sparse, blobs, text or an image file
            in which black is hidden.
        image: The image. It is cropped and resized as the model's training images were.
        data: A data set, folder or array such as cifar10:test, of which --images are restored.
        images: How many images of --data, the first ones.
        measured: The image is the measurement itself: small, blurred or grey already.
        noise: Standard deviation of the measurement's noise, for pixels in [0, 1].
        method: mmps (the best error bars), dps, diffpir (the cheapest), or replace for inpaint (Algorithm 2).
        iterations: Backward passes per network call of mmps.
        strength: How strongly dps and diffpir follow the measurement.
        fid: With --data, also the FID of all restorations against the images of --data.
        crop: Side of the centred square that is cropped from the image first. Default: as in training.
        out: FILE.png for the picture.
        json: FILE.json for the numbers. With --data, rows of other tasks and methods in the file stay there.
    """
    import torch

    from scorefield.distributed import device_name, joined
    from scorefield.evaluation import restorations
    from scorefield.images import save_png, zoom_for
    from scorefield.models.model import load
    from scorefield.posteriors import Measurement

    sampling.check()
    if (image is None) == (data is None):
        raise ValueError("name an image with --image, or images with --data (one of the two)")
    if data is not None and (measured or images < 1):
        raise ValueError(f"--measured applies to --image, and --images must be at least 1; got {images}")
    if fid and data is None:
        raise ValueError("--fid applies to --data (one image has no FID)")
    replaced = method == restorations.REPLACE
    if replaced and not task.startswith("inpaint:"):
        raise ValueError(f"--method replace fills in hidden pixels, and knows nothing of {task} (use mmps)")
    prepare_file(out, suffix=".png")
    prepare_file(json, "--json")
    name = "mmps" if replaced else method
    Measurement(torch.zeros(1), torch.nn.Identity(), noise, name, iterations, strength)  # an error now, if any
    with joined(sampling.device) as group:
        loaded = load(model, weights=sampling.weights, device=group.device)
        sampler = sampling.sampler_for(loaded, loaded.restoration_sampler)
        loaded.check_guidance(sampling.guidance, sampling.label_for(loaded))
        note_guidance(sampling.guidance, group)
        if image is not None:
            y, operator, originals = _one(loaded, image, task, crop, noise, sampling.seed, measured, group)
        else:
            assert data is not None
            y, operator, originals = _many(loaded, data, images, task, noise, sampling.seed, group)
        measurement = Measurement(y, operator, noise, name, iterations, strength)
        began = time.perf_counter()
        made = restorations.restore(
            loaded,
            measurement,
            group.share(len(y) * sampling.n),
            sampling.n,
            sampler=sampler,
            batch_size=sampling.batch_size,
            replace_known=replaced,
            seed=sampling.seed,
            label=sampling.label_for(loaded),
            guidance=sampling.guidance,
            precision=sampling.precision,
            track=tracker(group),
        )
        parts = group.gather([made])
        if not group.main:
            return
        seconds = time.perf_counter() - began
        whole = torch.cat([each for part in parts for each in part])
        distance = _fid(whole, data, loaded, group) if fid and data is not None else None
        whole = whole.unflatten(0, (len(y), sampling.n))
        row = restorations.describe(
            task,
            measurement,
            whole,
            originals,
            method=method,
            sampler=sampler,
            seed=sampling.seed,
            seconds=seconds,
            machine=device_name(group.device),
            fid=distance,
        )
        few = slice(SHOWN)
        picture = restorations.sheet(y[few], operator, whole[few], None if originals is None else originals[few])
        save_png(out, picture, zoom=zoom_for(picture, target=900))
        if json is not None:
            _write(json, {"model": model, "digest": loaded.digest[:12], "data": data or str(image)}, row)
        print(_line(row))
        print(out)


def _one(
    model: Model, path: Path, task: str, crop: int | None, noise: float, seed: int, measured: bool, group: Group
) -> tuple[Tensor, Operator, Tensor | None]:
    """The measurement of an image file, the operator, and the original, if it is not the measurement itself."""
    from scorefield.data import pictures
    from scorefield.evaluation.restorations import measured_image, parse_task
    from scorefield.images import to_float

    picture = pictures.open_image(path)
    if crop is None:
        fit = pictures.fit_to_model(model.shape, model.recipe.crop, picture.size)
    else:
        fit = pictures.parse_fit(model.shape[1:], crop)
    operator = parse_task(task, model.shape, fit, picture.size, seed=seed)
    y, original, notes = measured_image(
        picture, str(path), model.shape, task, operator, fit, noise=noise, seed=seed, measured=measured
    )
    say_notes(notes, group)
    return y, operator, None if original is None else to_float(original[None])


def _many(
    model: Model, source: str, n: int, task: str, noise: float, seed: int, group: Group
) -> tuple[Tensor, Operator, Tensor]:
    """The measurements of the first images of a source, the operator, and the images."""
    from scorefield.data.pictures import Fit
    from scorefield.evaluation.restorations import measure, parse_task
    from scorefield.evaluation.sources import load_fitted
    from scorefield.images import to_float

    images = group.main_first(lambda: load_fitted(source, model, tracker(group)))
    if images.shape != model.shape:
        raise ValueError(f"the images of {source} have the shape {images.shape}, the model's {model.shape}")
    say_notes(images.notes, group)
    x = to_float(images.pixels[:n])
    operator = parse_task(task, model.shape, Fit(size=(model.shape[1], model.shape[2])), seed=seed)
    return measure(x, operator, noise, seed), operator, x


def _fid(made: Tensor, source: str, model: Model, group: Group) -> float:
    """FID of these images against all images of the source, by this process alone."""
    from scorefield.distributed import Group
    from scorefield.evaluation import inception
    from scorefield.evaluation.features import make_reference, measure
    from scorefield.evaluation.sources import load_fitted
    from scorefield.images import to_bytes
    from scorefield.metrics import frechet_distance

    track, alone = tracker(group), Group(0, 1, group.device)
    network = inception.load_inception(device=group.device, track=track)
    reference = make_reference(load_fitted(source, model, track), network, alone, track=track)
    rows = to_bytes(made)
    return frechet_distance(measure(rows, len(rows), network, alone, track=track).statistics, reference.moments)


def _write(path: Path, about: dict[str, str], row: Restoration) -> None:
    """Write this row. Those of other tasks, methods and samplers for the same model and images stay."""
    from scorefield.files import read_json, write_json

    def key(values: dict[str, Any]) -> tuple[str, ...]:
        names = ("task", "method", "noise", "iterations", "strength", "images", "n", "sampler")
        return tuple(str(values.get(name)) for name in names)

    new = asdict(row)
    before = read_json(path) if path.is_file() else {}
    same = isinstance(before, dict) and all(before.get(name) == value for name, value in about.items())
    rows = [each for each in before.get("rows", []) if key(each) != key(new)] if same else []
    write_json(path, {**about, "rows": [*rows, new]})


def _line(row: Restoration) -> str:
    found = [f"residual {row.residual:.2f}"]
    found += [] if row.psnr is None else [f"PSNR of the mean {row.psnr:.2f} dB"]
    found += [] if row.fid is None else [f"FID {row.fid:.2f}"]
    cost = f"{row.calls} calls, {row.backward_passes} backward passes, {row.seconds:g} s"
    return f"{row.task} {row.method}: {', '.join(found)}; {cost}"
