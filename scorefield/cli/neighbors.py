"""scorefield neighbors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from scorefield.cli.app import JsonFile, app, prepare_file, tracker
from scorefield.cli.evaluate import Subject, describe_samples, draw_samples, resolve_subject, sample_cache
from scorefield.cli.options import Sampling, SamplingOptions
from scorefield.files import write_json

if TYPE_CHECKING:
    from scorefield.data import Images
    from scorefield.evaluation.features import Rows
    from scorefield.evaluation.records import Memorisation


@app.command
def neighbors(
    what: Subject,
    /,
    *,
    data: str | None = None,
    space: Literal["pixel", "inception"] = "pixel",
    flips: bool = True,
    sampling: SamplingOptions = Sampling(n=8, batch_size=500),  # noqa: B008
    out: Path = Path("neighbors.png"),
    json_file: JsonFile = None,
) -> None:
    """Show the training images nearest to a model's samples, and say whether the samples are copies of them.

    The picture has the samples to the left of a red line and their nearest training images to the right. The samples'
    distances are compared with those of held-out images, which the model cannot have copied.

    Example: scorefield neighbors runs/cifar10 -n 100 --space inception --out neighbors.png

    Args:
        what: A run folder, a model file, a pretrained model (mnist-small, model:mnist), or images: mnist, cifar10:test,
            a folder, an .npy or .npz file.
        data: The training images. Default: what the model was trained on.
        space: Measure distances between pixels or between Inception features.
        flips: Count an image and its mirror image as the same; --no-flips tells them apart.
        out: FILE.png for the picture, which shows at most 20 samples.
        json_file: Write the numbers to this file as well.
    """
    from dataclasses import replace

    from scorefield.distributed import joined
    from scorefield.evaluation import inception
    from scorefield.evaluation.neighbors import (
        COLUMNS,
        Embed,
        check_neighbors,
        find_neighbors,
        in_pixels,
        measure_memorisation,
        save_neighbors,
    )
    from scorefield.evaluation.records import to_json
    from scorefield.evaluation.sources import choose_images, load_training_images

    if out.suffix != ".png":
        raise ValueError(f"cannot write {out.suffix or 'a folder'} (--out FILE.png)")
    sampling.check()
    prepare_file(out)
    if json_file is not None:
        prepare_file(json_file, "--json")
    with joined(sampling.device) as group:
        track = tracker(group)
        model = resolve_subject(what, sampling, group)
        training, held_out = load_training_images(model, data, group, track=track)
        if model is None:
            rows = choose_images(what, sampling.n, group, track=track)
        shape = model.shape if model is not None else rows[:1].transpose(0, 3, 1, 2).shape[1:]
        fix = "other --data, or --space inception" if space == "pixel" else "other --data"
        check_neighbors(what, shape if space == "pixel" else None, training, fix)
        if model is not None:
            rows = draw_samples(model, sampling, group, track=track)
        if not group.main:
            return
        samples = rows[: len(rows)]
        numbers = _numbers_of(rows, what)
        embed: Embed = in_pixels if space == "pixel" else inception.load_inception(device=group.device, track=track)
        found, usual = find_neighbors(samples, training, held_out, embed, flips=flips, device=group.device, track=track)
        result = measure_memorisation(found, usual)
        result = replace(result, copies=tuple(replace(copy, sample=numbers[copy.sample]) for copy in result.copies))
        save_neighbors(out, samples, training.pixels, found)
        _print(result, training, held_out, space)
        if json_file is not None:
            about = {"what": what, "data": training.name, "data_digest": training.digest[:12], "space": space}
            about |= describe_samples(sample_cache(model, sampling)) if model is not None else {}
            nearest = found.numbers[:, :COLUMNS].tolist()
            write_json(
                json_file, {**about, "flips": flips, **to_json(result), "samples": numbers, "neighbors": nearest}
            )
        print(out)


def _numbers_of(rows: Rows, what: str) -> list[int]:
    """The numbers that the images have in their source. Prints a line if they are only some of its images."""
    from scorefield.evaluation.sources import ChosenImages

    if not isinstance(rows, ChosenImages):
        return list(range(len(rows)))
    print(f"{len(rows)} of {len(rows.pixels)} images of {what}, drawn at random (-n for more)")
    numbers: list[int] = rows.numbers.tolist()
    return numbers


def _print(found: Memorisation, training: Images, held_out: Images | None, space: str) -> None:
    from scorefield.evaluation.neighbors import describe_others

    others = describe_others(held_out)
    print(f"distance to the nearest of {len(training)} images of {training.name}, in {space} space,")
    print(f"over the median distance of {found.held_out_n} {others} ({found.held_out_distance:.4g}):")
    print("  quantile        " + "".join(f"{float(q):8.0%}" for q in found.ratio))
    print(f"  {found.n:5d} samples   " + "".join(f"{v:8.3f}" for v in found.ratio.values()))
    other = "held out " if held_out is not None else "in training"
    print(f"  {found.held_out_n:5d} {other} " + "".join(f"{v:8.3f}" for v in found.held_out_ratio.values()))
    print(f"copies: {len(found.copies)} of {found.n} samples, {found.held_out_copies} of {found.held_out_n} {others}")
    for copy in found.copies[:20]:
        print(f"  sample {copy.sample} is training image {copy.training_image}")
    if found.alarm:
        print(f"ALARM: samples are copies of training images (by chance: p = {found.chance:.2g})")
    elif found.copies:
        print(f"no alarm: there may be this many copies by chance (p = {found.chance:.2g})")
    else:
        print(f"no sign of memorisation in {found.n} samples")
