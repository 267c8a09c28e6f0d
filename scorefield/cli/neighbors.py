"""scorefield neighbors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from scorefield.cli.app import app, prepare_file, tracker, write_json
from scorefield.cli.models import Sampler, sampled, subject_of

if TYPE_CHECKING:
    from scorefield.data import Images
    from scorefield.evaluation.features import Rows


@app.command
def neighbors(
    what: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL|SOURCE")],
    /,
    *,
    data: str | None = None,
    space: Literal["pixel", "inception"] = "pixel",
    flips: bool = True,
    sampler: tyro.conf.OmitArgPrefixes[Sampler] = Sampler(n=8, batch_size=500),  # noqa: B008
    out: Path = Path("neighbors.png"),
    json_file: Annotated[Path | None, tyro.conf.arg(name="json")] = None,
) -> None:
    """Show the training images next to a model's samples, and tell whether the samples are copies of them.

    The picture has the samples left of a red line and their nearest training images right of it. The report compares
    the samples' distances with those of held-out images, which nobody can have copied.

    Example: scorefield neighbors runs/cifar10 -n 100 --space inception --out neighbors.png

    Args:
        what: A run folder, a model file, a shipped model (mnist-small, model:mnist), or images: mnist, cifar10:test, a
            folder, an .npy or .npz file.
        data: The training images. Default: what the model was trained on.
        space: Distances between pixels, or between Inception's features.
        flips: Take an image and its mirror image for one; --no-flips tells them apart.
        out: FILE.png for the picture, with at most 20 samples in it.
        json_file: Write the report to this file as well.
    """
    from scorefield.distributed import joined
    from scorefield.evaluation import Embed, in_pixels
    from scorefield.evaluation.copies import COLUMNS, check_neighbors, neighbors_of, save_neighbors
    from scorefield.evaluation.subjects import rows_of, training_images
    from scorefield.evaluation.inception import load_inception
    from scorefield.metrics import memorisation

    if out.suffix != ".png":
        raise ValueError(f"cannot write {out.suffix or 'a folder'} (--out FILE.png)")
    sampler.check()
    prepare_file(out)
    if json_file is not None:
        prepare_file(json_file, "--json")
    with joined(sampler.device) as group:
        track = tracker(group)
        model = subject_of(what, sampler, group)
        training, held_out = training_images(model, data, group, track=track)
        if model is None:
            rows = rows_of(what, sampler.n, group, track=track)
        shape = model.shape if model is not None else rows[:1].transpose(0, 3, 1, 2).shape[1:]
        cure = "other --data, or --space inception" if space == "pixel" else "other --data"
        check_neighbors(what, shape if space == "pixel" else None, training, cure)
        if model is not None:
            rows = sampled(model, sampler, group, track=track)
        if not group.main:
            return
        samples = rows[: len(rows)]
        numbers = _numbers_of(rows, what)
        embed: Embed = in_pixels if space == "pixel" else load_inception(device=group.device, track=track)
        found, usual = neighbors_of(samples, training, held_out, embed, flips=flips, device=group.device, track=track)
        report = memorisation(found, usual)
        for copy in report["copies"]:
            copy["sample"] = numbers[copy["sample"]]
        save_neighbors(out, samples, training.pixels, found)
        _tell_memorisation(report, training, held_out, space)
        if json_file is not None:
            facts = {"what": what, "data": training.name, "data_digest": training.digest[:12], "space": space}
            nearest = found.numbers[:, :COLUMNS].tolist()
            write_json(json_file, {**facts, "flips": flips, **report, "samples": numbers, "neighbors": nearest})
        print(out)


def _numbers_of(rows: Rows, what: str) -> list[int]:
    """The numbers that the images at hand have in their source; where they are only some of it, that is told."""
    from scorefield.evaluation.subjects import Chosen

    if not isinstance(rows, Chosen):
        return list(range(len(rows)))
    print(f"{len(rows)} of {len(rows.pixels)} images of {what}, drawn at random (-n for more)")
    numbers: list[int] = rows.numbers.tolist()
    return numbers


def _tell_memorisation(report: dict[str, Any], training: Images, held_out: Images | None, space: str) -> None:
    from scorefield.evaluation.copies import others_are

    whose = others_are(held_out)
    print(f"distance to the nearest of {len(training)} images of {training.name}, in {space} space,")
    print(f"over the median one of {report['held_out_n']} {whose} ({report['held_out_distance']:.4g}):")
    print("  quantile        " + "".join(f"{float(q):8.0%}" for q in report["ratio"]))
    print(f"  {report['n']:5d} samples   " + "".join(f"{v:8.3f}" for v in report["ratio"].values()))
    other = "held out " if held_out is not None else "in training"
    print(f"  {report['held_out_n']:5d} {other} " + "".join(f"{v:8.3f}" for v in report["held_out_ratio"].values()))
    copies = report["copies"]
    by_nature = f"{report['held_out_copies']} of {report['held_out_n']} {whose}"
    print(f"copies: {len(copies)} of {report['n']} samples, {by_nature}")
    for each in copies[:20]:
        print(f"  sample {each['sample']} is training image {each['training_image']}")
    if report["alarm"]:
        print(f"ALARM: samples are copies of training images (by chance: p = {report['chance']:.2g})")
    elif copies:
        print(f"no alarm: too few copies to tell from chance (p = {report['chance']:.2g})")
    else:
        print(f"no sign of memorisation in {report['n']} samples")
