"""scorefield neighbors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import tyro

from scorefield.cli.app import app, prepare_file, tracker, write_json
from scorefield.cli.models import Sampler, sampled

if TYPE_CHECKING:
    from scorefield.data import Images
    from scorefield.data.images import Pixels
    from scorefield.distributed import Group
    from scorefield.metrics import Neighbors

COLUMNS = 10
"""Neighbours shown beside each sample."""
NEIGHBOURS = 50
"""Neighbours searched: the farthest of them tells how near is near."""


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
        what: A run folder, a model file, or images: mnist, cifar10:test, a folder, an .npy or .npz file.
        data: The training images. Default: what the model was trained on.
        space: Distances between pixels, or between Inception's features.
        flips: Whether an image and its mirror image are one.
        out: FILE.png for the picture, with at most 20 samples in it.
        json_file: Write the report to this file as well.
    """
    from scorefield.distributed import joined
    from scorefield.evaluation.subjects import model_of, rows_of, training_images
    from scorefield.metrics import memorisation

    if out.suffix != ".png":
        raise ValueError(f"cannot write {out.suffix or 'a folder'} (--out FILE.png)")
    sampler.check()
    prepare_file(out)
    if json_file is not None:
        prepare_file(json_file, "--json")
    with joined(sampler.device) as group:
        track = tracker(group)
        model = model_of(what, weights=sampler.weights, device=group.device)
        training, held_out = training_images(model, data, group, track=track)
        if model is None:
            rows = rows_of(what, sampler.n, group, track=track)
        else:
            rows = sampled(model, sampler, group, track=track)
        if not group.main:
            return
        samples = rows[: len(rows)]
        shape = (samples.shape[3], samples.shape[1], samples.shape[2])
        if space == "pixel" and shape != training.shape:
            raise ValueError(f"{what} has images of {shape}, {training.name} of {training.shape} (--space inception)")
        if len(training) < 3:
            raise ValueError(f"{training.name} has {len(training)} images: too few to be anybody's neighbours")
        found, usual = _found(samples, training, held_out, space, flips, group)
        report = memorisation(found, usual)
        _save_neighbors(out, samples, training.pixels, found)
        _tell_memorisation(report, training, held_out, space)
        if json_file is not None:
            facts = {"what": what, "data": training.name, "data_digest": training.digest[:12], "space": space}
            write_json(json_file, {**facts, "flips": flips, **report, "neighbors": found.numbers[:, :COLUMNS].tolist()})
        print(out)


def _found(
    samples: Pixels, training: Images, held_out: Images | None, space: str, flips: bool, group: Group
) -> tuple[Neighbors, Neighbors]:
    """The neighbours of the samples and of the held-out images; without these, of training images among the others."""
    from scorefield.evaluation import Embed, in_pixels, search
    from scorefield.evaluation.subjects import HELD_OUT
    from scorefield.inception import load_inception
    from scorefield.metrics import Neighbors

    embed: Embed = in_pixels
    if space == "inception":
        embed = load_inception(device=group.device, track=tracker(group))
    if held_out is not None:
        others, skip = np.asarray(held_out.pixels[:HELD_OUT]), 0
    else:
        others, skip = np.asarray(training.pixels[:: max(1, len(training) // HELD_OUT)][:HELD_OUT]), 1
    both = search(
        [samples, others],
        training.pixels,
        embed,
        k=NEIGHBOURS + skip,
        flips=flips,
        device=group.device,
        track=tracker(group),
    )
    n = len(samples)
    mine = Neighbors(both.distances[:n, :NEIGHBOURS], both.numbers[:n, :NEIGHBOURS])
    return mine, Neighbors(both.distances[n:, skip:], both.numbers[n:, skip:])


def _save_neighbors(out: Path, samples: Pixels, training: Pixels, found: Neighbors) -> None:
    """Samples, a red line, and their neighbours."""
    from scorefield.images import grid, resized_like, save_png, zoom_for

    shown = min(20, len(samples))

    def sheet(pixels: Pixels, columns: int) -> Pixels:
        made = grid(pixels, columns=columns)
        return np.repeat(made, 3, axis=2) if made.shape[2] == 1 else made

    left = sheet(samples[:shown], 1)
    numbers = found.numbers[:shown, :COLUMNS].numpy()
    right = sheet(resized_like(training[numbers.reshape(-1)], samples), numbers.shape[1])
    line = np.zeros((len(left), 2, 3), np.uint8) + np.array([220, 20, 20], np.uint8)
    picture = np.concatenate([left, line, right], axis=1)
    save_png(out, picture, zoom=zoom_for(picture, target=1400))


def _tell_memorisation(report: dict[str, Any], training: Images, held_out: Images | None, space: str) -> None:
    whose = "held-out images" if held_out is not None else "training images among the others"
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
        print("no sign of memorisation")
