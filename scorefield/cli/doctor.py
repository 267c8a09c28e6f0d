"""scorefield doctor."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from scorefield.cli.app import Device, JsonFile, command, prepare_file, say, say_notes, tracker

if TYPE_CHECKING:
    from scorefield.data import Images
    from scorefield.distributed import Group
    from scorefield.doctor.advice import Advice
    from scorefield.models.model import Model

WIDTH = 100


@command
def doctor(
    source: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="SOURCE")],
    /,
    *,
    data: str | None = None,
    image_size: int | tuple[int, int] | None = None,
    crop: int | None = None,
    n: Annotated[int, tyro.conf.arg(aliases=["-n"])] = 16,
    images: int = 64,
    device: Device = "auto",
    json_file: JsonFile = None,
    out: Path | None = None,
) -> None:
    """Look at images and recommend noise levels, step sizes and a training; or look at a run and say what is wrong.

    Of images: copies, constant ones, classes of very different sizes; distances and variances. From these follow the
    noise levels, their number, T and ε for annealed Langevin dynamics, and the range of noise levels for the U-Net;
    from a quick measurement of this machine's speed, a training. Each recommendation comes with its reason, the paper's
    value, and what would go wrong with that.

    Of a run or a model: the error at each noise level, compared with a trivial one and with the least possible one;
    whether the moving average has caught up; whether samples are grey, saturated, noisy or copies.

    Example: scorefield doctor my_images

    Args:
        source: Images: a folder, an array, mnist, cifar10 or celeba. Or a run folder, a model file, or model:NAME.
        data: For a model: its training images, if they have moved.
        image_size: For images: resize them to this side, or to this height and width, first.
        crop: For images: first crop a centred square of this side.
        n: For a model: number of samples to look at; 0 draws none.
        images: For a model: number of images on which errors are measured.
        out: The picture, FILE.png. Default: doctor.png.
    """
    if n < 0 or images < 1:
        raise ValueError(f"-n must be 0 or more and --images at least 1; got {n} and {images}")
    from scorefield.distributed import joined
    from scorefield.evaluation.sources import resolve_model
    from scorefield.paper.output import new_figure

    picture = out or Path("doctor.png")
    prepare_file(json_file, "--json")
    prepare_file(picture, suffix=".png")
    new_figure(1, 1)  # an error now, if matplotlib is missing
    with joined(device) as group:
        if group.world > 1:
            raise ValueError("doctor needs one process (start it without torchrun)")
        model = resolve_model(source, weights=None, device=group.device)
        if model is None:
            if data is not None:
                raise ValueError(f"--data applies to models; {source} is a source of images (leave it out)")
            numbers = _examine_images(source, image_size, crop, group, picture)
        else:
            if image_size is not None or crop is not None:
                raise ValueError("--image-size and --crop apply to images; the model has its own (leave them out)")
            numbers = _examine_model(source, model, data, n, images, group, picture)
        if group.main and json_file is not None:
            from scorefield.files import write_json

            write_json(json_file, numbers)


def _examine_images(
    source: str, image_size: int | tuple[int, int] | None, crop: int | None, group: Group, picture: Path
) -> dict[str, Any]:
    """Print what is to be said about images, and draw the picture. Returns the numbers."""
    from scorefield import data
    from scorefield.doctor import advice, geometry
    from scorefield.doctor.looks import look
    from scorefield.doctor.speed import measure_speed
    from scorefield.models.build import sized
    from scorefield.models.recipes import RECIPES
    from scorefield.noise import geometric
    from scorefield.paper.doctor_chart import draw_images_under_noise
    from scorefield.training.run import with_image_size

    wanted = replace(RECIPES["unet"], data=source, image_size=image_size, crop=crop)
    wanted = group.main_first(partial(with_image_size, wanted, group.device, say, track=tracker(group)))
    load = partial(data.load, source, image_size=wanted.image_size, crop=crop, track=tracker(group))
    images = group.main_first(load)
    channels, height, width = images.shape
    kinds = f", in {len(images.classes)} classes" if images.classes else ""
    sized(RECIPES["unet"], height, width)  # an error now, if they are too small
    points = geometry.some_points(images.pixels)
    measured, pairs, nearest = geometry.measure(points)
    print(f"{len(images):,} images of {channels} × {height} × {width} from {source}{kinds}")
    say_notes(images.notes, group)
    seen = look(images)
    for warning in (warnings := seen.warnings(_names(source, images))):
        _paragraph(f"! {warning}", 2)
    if not warnings:
        print("  no copies, no empty images" + ", classes of similar sizes" * bool(images.classes))
    print(
        f"  distance between two images: {measured.usual:.3g} in the median, {measured.farthest:.3g} at most; to the "
        f"nearest other: {measured.nearest['0.5']:.3g} in the median; standard deviation of a pixel: "
        f"{(measured.variance / measured.dimension) ** 0.5:.2g}"
    )
    if measured.farthest == 0:
        raise ValueError(f"all images of {source} are the same, so that there is nothing to learn (add others)")

    schedule, usual = advice.langevin_schedule(measured), RECIPES["unet"]
    langevin = advice.langevin_advice(measured)
    _table("Annealed Langevin dynamics, for a network with a list of noise levels", "paper", langevin)
    side = wanted.image_size
    size = "" if side is None else f" --image-size {side if isinstance(side, int) else f'{side[0]} {side[1]}'}"
    size += "" if crop is None else f" --crop {crop}"
    given = f"--data {quote(source)}{size}"
    options = " ".join(f"--{each.setting.replace('_', '-')} {each.value:g}" for each in langevin)
    recipe = "mnist" if channels == 1 else "cifar10"
    _command(f"scorefield train {recipe} {given} --ema 0.999 {options}")

    continuous = advice.continuous_advice(measured, usual)
    _table("The U-Net, for all noise levels", "usual", continuous)
    labels = len(images.classes)
    chosen = advice.advised_recipe(usual, measured, len(images), group.device.type)
    say("measuring the speed of training for some seconds")
    speed = measure_speed(chosen, images.shape, labels, group)
    training = [*advice.network_advice(chosen, usual, images.shape), advice.time_advice(len(images), speed)]
    _table(f"Its training on {speed.machine}, which needs about {speed.memory_gib:.2g} GiB", "usual", training)
    _command(f"scorefield train unet {given}")
    sigmas = geometric(schedule.sigma_max, schedule.sigma_min, schedule.levels).tolist()
    sigma_max = next(each.value for each in continuous if each.setting == "sigma_max")
    title = f"{source}: {len(images):,} images of {channels} × {height} × {width}"
    print(draw_images_under_noise(title, points[:3], measured, (pairs, nearest), sigmas, sigma_max, picture))
    return {
        "source": source,
        "images": asdict(seen) | {"warnings": warnings, "notes": list(images.notes)},
        "geometry": measured._asdict(),
        "annealed_langevin": schedule._asdict() | {"calls": schedule.calls, "advice": [asdict(a) for a in langevin]},
        "all_noise_levels": {"advice": [asdict(each) for each in continuous]},
        "training": {"speed": asdict(speed), "advice": [asdict(each) for each in training]},
    }


def _names(source: str, images: Images) -> Callable[[int], str]:
    """The names of the images by their numbers: those of their files, if they have files."""
    from scorefield.data.folders import find_images

    folder, skipped = Path(source).expanduser(), set(images.skipped)
    names = [name for name in find_images(folder).names if name not in skipped] if folder.is_dir() else []
    return names.__getitem__ if len(names) == len(images) else str


def _examine_model(
    source: str, model: Model, data: str | None, n: int, count: int, group: Group, picture: Path
) -> dict[str, Any]:
    """Print what is to be said about a model, and draw the picture. Returns the numbers."""
    from scorefield.doctor import checkup
    from scorefield.evaluation.sources import load_training_images
    from scorefield.models.model import load
    from scorefield.paper.doctor_chart import draw_checkup

    track = tracker(group)
    training, held_out = load_training_images(model, data, group, track=track)
    if training.shape != model.shape:
        raise ValueError(
            f"the model is for images of {model.shape}, and those of {training.name} have {training.shape} "
            "(name its training images with --data)"
        )
    print(f"{source}: {model.weights} weights after {model.step:,} iterations, {model.parameters:,} parameters")
    others = [load(source, weights=each, device=group.device) for each in model.held if each != model.weights]
    say(f"measuring errors on {count} images at {len(checkup.measured_levels(model))} noise levels")
    errors = checkup.measure_errors(model, training, held_out, count, others)
    findings = [*_unfinished(source, model), *checkup.judge_range(model, training), *checkup.judge_errors(errors)]
    samples = None
    if n:
        sampler = checkup.quick_sampler(model)
        samples = checkup.draw_samples(model, n, track)
        if sampler != model.sampler:
            print(f"  samples are drawn by {type(sampler).__name__} with {sampler.calls} calls, to save time")
        can_denoise = getattr(sampler, "denoise", None) is False
        findings += checkup.judge_samples(samples, checkup.some(training, 256).pixels, can_denoise=can_denoise)
        findings.append(checkup.judge_copies(samples, training, held_out, track))
    print(f"  {'σ':>8} {'error':>8} {'trivial':>11} {'least possible':>15}")
    for k, (sigma, error, trivial, exact) in enumerate(
        zip(errors.sigmas, errors.judged, errors.trivial, errors.exact, strict=True)
    ):
        least = "–" if exact is None else f"{exact:.3g}"
        aside = "" if errors.tells[k] else "   says little"
        print(f"  {sigma:8.3g} {error:8.3g} {trivial:11.3g} {least:>15}{aside}")
    marks = {"good": "✓", "note": "·", "problem": "!"}
    for finding in findings:
        _paragraph(f"{marks[finding.kind]} {finding.what}" + (f": {finding.cure}" if finding.cure else ""), 2)
    print(draw_checkup(f"{source}, {model.weights} weights", errors, samples, picture))
    return {"model": source, "errors": asdict(errors), "findings": [each._asdict() for each in findings]}


def _unfinished(source: str, model: Model) -> Iterable[Any]:
    from scorefield.doctor.checkup import Finding
    from scorefield.training.history import run_of

    run = run_of(Path(source))
    if run is not None and model.step < model.recipe.steps:
        yield Finding(
            "note",
            f"the run has made {model.step:,} of {model.recipe.steps:,} iterations",
            f"scorefield train RECIPE --resume --out {quote(str(run))} goes on with it",
        )


def _table(title: str, usual: str, rows: Sequence[Advice]) -> None:
    """Recommendations, one below the other: setting, value, the usual value; then the reason, and what else."""
    print(f"\n{title}")
    print(f"  {'':<16}{'advised':>10}{usual:>10}")
    for row in rows:
        usual_value = "" if row.usual is None else f"{row.usual:g}"
        print(f"  {row.setting:<16}{row.value:>10g}{usual_value:>10}")
        _paragraph(row.reason[:1].upper() + row.reason[1:] + ".", 6)
        if row.with_usual:
            _paragraph(f"With {usual_value}: {row.with_usual}.", 6)


def _command(words: str) -> None:
    print(f"  → {words}")


def _paragraph(text: str, indent: int) -> None:
    print(textwrap.fill(text, WIDTH, initial_indent=" " * indent, subsequent_indent=" " * (indent + 2 * (indent < 6))))
