"""scorefield select."""

from __future__ import annotations

import os
import shutil
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from scorefield.cli.app import command, say, say_notes, tracker
from scorefield.cli.evaluate import describe_sampling, sample_cache, sampled_how
from scorefield.cli.options import Sampling, SamplingOptions, note_guidance
from scorefield.files import check_writable, write_json
from scorefield.progress import plural

if TYPE_CHECKING:
    from scorefield.evaluation.features import Reference
    from scorefield.evaluation.sample_cache import SampleCache


@command
def select(
    run: Annotated[Path, tyro.conf.Positional],
    /,
    *,
    data: str | None = None,
    sampling: SamplingOptions = Sampling(n=1000, batch_size=500),  # noqa: B008
) -> None:
    """Find the checkpoint of a run with the smallest FID, as the paper does, and link it as RUN/best.

    RUN/select.json holds the table, and RUN/select.png shows FID over training. With few samples FID is too large, but
    about equally so for all checkpoints. Damaged checkpoints are left out, with a note.

    Example: scorefield select runs/cifar10 -n 1000

    Args:
        run: The run folder.
        data: The images to compare with. Default: what the run was trained on.
    """
    from scorefield.distributed import joined
    from scorefield.evaluation import inception
    from scorefield.evaluation.features import measure
    from scorefield.evaluation.sample_cache import cached_batch_size
    from scorefield.evaluation.sources import load_reference
    from scorefield.metrics import frechet_distance
    from scorefield.models.checkpoint import BrokenCheckpointError, model_files, newest_whole
    from scorefield.models.model import load
    from scorefield.paper.output import new_figure

    if run.is_file():
        raise ValueError(f"{run} is a model file (name the run folder, which holds many checkpoints)")
    if not model_files(run):
        raise FileNotFoundError(f"{run} holds no checkpoints (checkpoints/model-STEP.safetensors)")
    sampling.check(least=2)
    check_writable(run, fix="make it writable, or copy the run to another place")
    new_figure(1, 1)  # an error now, if matplotlib is missing
    table: list[dict[str, Any]] = []
    with joined(sampling.device) as group:
        track, size = tracker(group), cached_batch_size(sampling.batch_size, group)
        note_guidance(sampling.guidance, group)
        files = group.all(model_files(run))[0]
        open_model = partial(load, weights=sampling.weights, device=group.device)
        newest = newest_whole(files, open_model, skip=lambda message: None)
        if newest is None:
            raise BrokenCheckpointError(f"all checkpoints of {run} are damaged (train it again, or copy them again)")
        network = group.main_first(partial(inception.load_inception, device=group.device, track=track))
        reference, _ = load_reference(newest[1], data, network, group, track=track)
        say_notes(reference.notes, group)
        for file in files:
            try:
                model = open_model(file)
            except BrokenCheckpointError as error:
                if group.main:
                    say(f"note: {error}; it is left out")
                continue
            cache = sample_cache(model, sampling)
            try:
                rows = cache.draw(sampling.n, group, batch_size=size, track=track)
            except FloatingPointError as error:
                if group.main:
                    say(f"step {model.step}: no samples: {error}")
                continue
            found = measure(rows, sampling.n, network, group, track=track, what=f"features of {file.name}")
            if group.main:
                fid = frechet_distance(found.statistics, reference.moments)
                row = {"step": model.step, "fid": fid, "n": found.n, "weights": model.weights, "file": file.name}
                table.append(row)
                say(f"step {model.step}: FID {fid:.3f} (n = {found.n})")
        if group.main and not table:
            raise FloatingPointError(f"no checkpoint of {run} can be sampled (a smaller --step-size may help)")
        if group.main:
            _finish(run, table, reference, cache)


def _finish(run: Path, table: list[dict[str, Any]], reference: Reference, cache: SampleCache) -> None:
    """Link the best checkpoint, write the files, and print the table."""
    best = min(table, key=lambda row: row["fid"])
    link(run / "best", run / "checkpoints" / best["file"])
    about = {"name": reference.name, "digest": reference.digest, "n": reference.n}
    chosen = {"best": best, "table": table, "reference": about, **describe_sampling(cache)}
    write_json(run / "select.json", chosen)
    _draw(run / "select.png", table, best, f"FID against {reference.name}, n = {best['n']}")
    count = "" if reference.n is None else f"{plural(reference.n, 'image')}, "
    print(f"{best['weights']} weights against {reference.name} ({count}{reference.digest})")
    print(f"{'step':>8}  {'FID':>9}   n = {best['n']}{sampled_how(chosen)}")
    for row in table:
        print(f"{row['step']:>8}  {row['fid']:9.3f}{'   best' if row is best else ''}")
    print(f"{run / 'best'} is step {best['step']}; {run / 'select.png'} shows all")


def link(name: Path, target: Path) -> None:
    """A link to a file beside or below it, or a copy if the system has no links. An old one is replaced."""
    part = name.with_name(name.name + ".part")
    part.unlink(missing_ok=True)
    try:
        part.symlink_to(target.relative_to(name.parent))
    except OSError:
        shutil.copyfile(target, part)
    os.replace(part, name)


def _draw(path: Path, table: list[dict[str, Any]], best: dict[str, Any], title: str) -> None:
    from scorefield.files import new_file
    from scorefield.paper.output import new_figure

    figure = new_figure(6, 4)
    axes = figure.add_subplot()
    axes.plot([row["step"] for row in table], [row["fid"] for row in table], marker="o", color="0.4")
    axes.plot(best["step"], best["fid"], marker="o", markersize=10, color="tab:red")
    axes.set(xlabel="training iterations", ylabel="FID", title=f"{title}: {best['fid']:.2f} at step {best['step']}")
    with new_file(path) as file:
        figure.savefig(file, format="png")
