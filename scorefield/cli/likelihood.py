"""scorefield likelihood."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from scorefield.cli.app import Device, JsonFile, ModelName, check_seed, command, prepare_file, say_notes, tracker
from scorefield.evaluation.likelihoods import Likelihoods, Measured, write_likelihoods
from scorefield.progress import plural

if TYPE_CHECKING:
    import numpy as np

    from scorefield.data import Images
    from scorefield.distributed import Group
    from scorefield.models.model import Model
    from scorefield.progress import Track

OWN = "data"
"""The label that stands for the classes of the images themselves."""


@dataclass(frozen=True)
class Settings:
    """How likelihoods are measured."""

    n: int
    draws: int
    probes: int | None
    tolerance: float
    seed: int
    batch_size: int
    label: str | None


@command
def likelihood(
    model: ModelName,
    /,
    *,
    data: tuple[str, ...] = (),
    n: Annotated[int, tyro.conf.arg(aliases=["-n"])] = 1000,
    draws: int = 1,
    probes: int | None = None,
    tolerance: float = 1e-4,
    seed: int = 0,
    batch_size: int = 100,
    weights: str | None = None,
    label: Annotated[str | None, tyro.conf.arg(metavar="NAME|NUMBER|none|data")] = None,
    device: Device = "auto",
    json_file: JsonFile = None,
    out: Path | None = None,
) -> None:
    """Measure how likely images are under a model, in bits per dimension: fewer bits, more likely.

    It needs a model for all noise levels, such as those of the recipes unet-mnist and unet-cifar10. With several
    sources of images their likelihoods are compared, in a histogram: is a model surprised by images of another kind?

    Example: scorefield likelihood runs/cifar10 --data cifar10:test mnist:test -n 1000 --out compared.png

    Args:
        data: The images, from one source or several. They are cropped, resized and coloured as the model's are.
            Default: the test images of what the model was trained on.
        n: Number of images of each source, drawn at random; always the same for the same source.
        draws: Number of random draws for each image, over which its bits are averaged.
        probes: Number of random vectors that estimate the trace of the Jacobian in each draw; 0 is the exact trace.
            Default: 1.
        tolerance: Tolerance of the solver. Smaller is more exact and slower.
        seed: Random seed.
        batch_size: Number of images at once.
        weights: Raw weights (raw), their moving average (ema), or another average of the model. Default: ema.
        label: For models with classes: the class of all images, none, or data for the images' own. Default: none, if
            the model can do without a class.
        out: FILE.png for the histogram. Default: likelihood.png if there are several sources, otherwise none.
    """
    check_seed(seed)
    if n < 1 or draws < 1 or batch_size < 1 or (probes is not None and probes < 0):
        raise ValueError(
            "-n, --draws and --batch-size must be at least 1, --probes at least 0; "
            f"got {n}, {draws}, {batch_size} and {probes}"
        )
    if not 0 < tolerance < 1:
        raise ValueError(f"--tolerance must be above 0 and below 1; got {tolerance} (1e-4 is usual)")
    if len(set(data)) < len(data):
        raise ValueError(f"--data names a source twice: {' '.join(data)} (name each once)")
    from scorefield.distributed import device_name, joined
    from scorefield.likelihood import check_levels
    from scorefield.models.model import load
    from scorefield.paper.likelihood_chart import draw_histograms
    from scorefield.paper.output import new_figure

    picture = out or (Path("likelihood.png") if len(data) > 1 else None)
    prepare_file(json_file, "--json")
    prepare_file(picture, suffix=".png")
    if picture is not None:
        new_figure(1, 1)  # an error now, if matplotlib is missing
    settings = Settings(n, draws, probes, tolerance, seed, batch_size, label)
    with joined(device) as group:
        loaded = load(model, weights=weights, device=group.device)
        check_levels(loaded.accepted.listed)
        found = list[Measured]()
        for name in data or (_test_images(loaded),):
            found.append(_measure(loaded, name, settings, group, first=found[0] if found else None))
            if group.main:
                print(_line(found[-1], found[0].data))
        if not group.main:
            return
        about = {
            "model": {"name": model, "step": loaded.step, "weights": loaded.weights, "digest": loaded.digest[:12]},
            "sigma_range": list(loaded.sigma_range),
            "machine": device_name(group.device),
        }
        if json_file is not None:
            write_likelihoods(json_file, Likelihoods(about | asdict(settings), tuple(found)))
        if picture is not None:
            print(draw_histograms(f"likelihood under {model}", {each.data: each.each for each in found}, picture))


def _test_images(model: Model) -> str:
    from scorefield.data import SETS

    if model.recipe.data not in SETS:
        raise ValueError(
            f"{model.recipe.data} has no test images (name images with --data: mnist:test, cifar10:test, a folder, ...)"
        )
    return f"{model.recipe.data}:test"


def _measure(model: Model, source: str, settings: Settings, group: Group, first: Measured | None) -> Measured:
    """Bits per dimension of images of that source. Each process measures some of them; the main one has the result."""
    import numpy as np
    import torch

    from scorefield.acceleration.scaled import convolutions
    from scorefield.acceleration.threads import ALONE, multiplications, pytorch_threads
    from scorefield.images import to_float
    from scorefield.likelihood import Cost, bits_per_dim, standard_error
    from scorefield.noise import SampleNoise, sample_seeds

    track, began = tracker(group), time.perf_counter()
    images, numbers = _load_images(model, source, settings.n, group, track)
    classes = _classes(model, images, settings.label)
    low, high = model.sigma_range
    small = multiplications(model.network, model.shape) < ALONE
    threads = 1 if small else torch.get_num_threads()
    share, size = group.share(len(numbers)), settings.batch_size
    each, calls, products = list[float](), 0, 0
    starts = range(share.start, share.stop, size)
    for start in track(starts, source, len(starts)):
        rows = slice(start, min(start + size, share.stop))
        cost, seeds = Cost(), sample_seeds(settings.seed, numbers[rows].tolist())
        x = to_float(images.pixels[rows]).to(group.device)
        score = model.score
        if classes is not None:
            score = partial(model.score, label=torch.tensor(classes[rows], device=group.device))
        # TF32's rounding errors would be larger than the tolerance
        with convolutions(allow_tf32=False), pytorch_threads(threads):
            found = bits_per_dim(
                score,
                x,
                sigma_min=low,
                sigma_max=high,
                draws=settings.draws,
                noise=SampleNoise(seeds, device=group.device),
                variance=model.recipe.sigma_data**2,
                probes=settings.probes,
                tolerance=settings.tolerance,
                cost=cost,
            )
        each += found.each.tolist()
        calls, products = calls + cost.calls * len(x), products + cost.products * len(x)
    parts = group.all((each, calls, products))
    bits = torch.tensor([value for part in parts for value in part[0]], dtype=torch.float64)
    return Measured(
        data=source,
        n=len(bits),
        bits_per_dim=bits.mean().item(),
        error=standard_error(bits),
        calls=round(sum(part[1] for part in parts) / len(bits), 1),
        products=round(sum(part[2] for part in parts) / len(bits), 1),
        seconds=round(time.perf_counter() - began, 1),
        each=[round(value, 5) for value in bits.tolist()],
        less_likely=None if first is None else float(np.mean(np.asarray(first.each)[:, None] < bits.numpy())),
    )


def _load_images(
    model: Model, source: str, n: int, group: Group, track: Track[Any]
) -> tuple[Images, np.ndarray[Any, Any]]:
    """n images of that source, as the model's are, and their numbers in it."""
    from scorefield import data
    from scorefield.evaluation.features import random_rows
    from scorefield.images import resized_like

    channels, height, width = model.shape
    load = partial(data.load, source, image_size=(height, width), track=track)

    def fitted() -> Images:
        try:
            return load(crop=model.recipe.crop)
        except ValueError:
            if model.recipe.crop is None:
                raise
            return load()  # of another kind, and smaller

    images = group.main_first(fitted)
    numbers = random_rows(n, len(images))
    chosen, notes = images.take(numbers, f"{n} at random"), list(images.notes)
    if images.shape[0] != channels:
        theirs, ours = ("grey" if each == 1 else "in colour" for each in (images.shape[0], channels))
        notes.append(f"the images of {source} are {theirs}, and the model's are {ours}: they are converted")
        chosen = replace(chosen, pixels=resized_like(chosen.pixels, chosen.pixels[:0, ..., :1].repeat(channels, -1)))
    if len(images) < n:
        notes.append(f"{source} has {plural(len(images), 'image')}, fewer than the {n:,} asked for")
    if not model.recipe.dequantise:
        notes.append("the model was not trained on dequantised pixels, which makes them look unlikely at small σ")
    say_notes(notes, group)
    return chosen, numbers


def _classes(model: Model, images: Images, label: str | None) -> list[int] | None:
    """The class of each image, −1 for none; None for a model without classes."""
    from scorefield.models.model import parse_label

    if label is None:
        if not model.labels:
            return None
        label = "none" if model.null_label else OWN
    if label != OWN or OWN in model.labels or not model.labels:
        return model.class_numbers(parse_label(model.labels, label), len(images))
    if images.labels is None or images.classes != model.labels:
        raise ValueError(
            f"the images of {images.name} do not have the model's classes "
            "(give one for all with --label NAME or NUMBER, or --label none)"
        )
    return [int(each) for each in images.labels]


def _line(found: Measured, first: str) -> str:
    compared = (
        f"; less likely than {first} in {found.less_likely:.1%} of pairs" if found.less_likely is not None else ""
    )
    return (
        f"{found.data}: {found.bits_per_dim:.4f} ± {found.error:.4f} bits/dim (n = {found.n:,}), {found.calls:g} calls "
        f"and {found.products:g} vector-Jacobian products per image, {found.seconds:g} s{compared}"
    )
