"""scorefield select."""

from __future__ import annotations

import os
import shutil
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from scorefield.cli.app import app, prepare_folder, say, tracker, write_json
from scorefield.cli.models import Sampler, how_of

if TYPE_CHECKING:
    from scorefield.evaluation import How, Reference


@app.command
def select(
    run: Annotated[Path, tyro.conf.Positional],
    /,
    *,
    data: str | None = None,
    sampler: tyro.conf.OmitArgPrefixes[Sampler] = Sampler(n=1000, batch_size=500),  # noqa: B008
) -> None:
    """Find the checkpoint of a run with the smallest FID, as the paper does, and link it as RUN/best.

    RUN/select.json holds the table, RUN/select.png draws it over training. With so few samples FID is too large, but
    for all checkpoints alike.

    Example: scorefield select runs/cifar10 -n 1000

    Args:
        run: The run's folder.
        data: The images to compare with. Default: what the run was trained on.
    """
    from scorefield.models.checkpoint import load, model_files
    from scorefield.distributed import joined
    from scorefield.evaluation import Pool, measured
    from scorefield.evaluation.subjects import reference_for
    from scorefield.evaluation.inception import load_inception
    from scorefield.metrics import frechet_distance

    if run.is_file():
        raise ValueError(f"{run} is a model file (name the run's folder, which holds many)")
    if not model_files(run):
        raise FileNotFoundError(f"{run} holds no checkpoints (checkpoints/model-STEP.safetensors)")
    sampler.check(least=2)
    prepare_folder(run)
    table: list[dict[str, Any]] = []
    with joined(sampler.device) as group:
        track = tracker(group)
        files = group.all(model_files(run))[0]
        network = group.main_first(partial(load_inception, device=group.device, track=track))
        reference, _ = reference_for(load(files[-1], device=group.device), data, network, group, track=track)
        for file in files:
            model = load(file, weights=sampler.weights, device=group.device)
            pool = Pool(model, how_of(sampler, model))
            try:
                rows = pool.draw(sampler.n, group, batch_size=sampler.batch_size, track=track)
            except FloatingPointError as error:
                if group.main:
                    say(f"step {model.step}: no samples: {error}")
                continue
            found = measured(rows, sampler.n, network, group, track=track, what=f"features of {file.name}")
            if group.main:
                fid = frechet_distance(found.statistics, reference.moments)
                row = {"step": model.step, "fid": fid, "n": found.n, "weights": model.weights, "file": file.name}
                table.append(row)
                say(f"step {model.step}: FID {fid:.3f} (n = {found.n})")
        if group.main and not table:
            raise FloatingPointError(f"no checkpoint of {run} can be sampled (a smaller --step-size may help)")
        if group.main:
            _announce(run, table, reference, pool.how)


def _announce(run: Path, table: list[dict[str, Any]], reference: Reference, how: How) -> None:
    best = min(table, key=lambda row: row["fid"])
    link(run / "best", run / "checkpoints" / best["file"])
    facts = {"name": reference.name, "digest": reference.digest, "n": reference.n}
    chosen = {"best": best, "table": table, "reference": facts, "sampler": asdict(how)}
    write_json(run / "select.json", chosen)
    _draw(run / "select.png", table, best, f"FID against {reference.name}, n = {best['n']}")
    count = "" if reference.n is None else f"{reference.n} images, "
    print(f"{best['weights']} weights against {reference.name} ({count}{reference.digest})")
    print(f"{'step':>8}  {'FID':>9}   n = {best['n']}, {'' if how.denoise else 'not '}denoised")
    for row in table:
        print(f"{row['step']:>8}  {row['fid']:9.3f}{'   best' if row is best else ''}")
    print(f"{run / 'best'} is step {best['step']}; look at {run / 'select.png'}")


def link(name: Path, target: Path) -> None:
    """A link to a file beside or below it; a copy where the system has no links. An old one is replaced."""
    part = name.with_name(name.name + ".part")
    part.unlink(missing_ok=True)
    try:
        part.symlink_to(target.relative_to(name.parent))
    except OSError:
        shutil.copyfile(target, part)
    os.replace(part, name)


def _draw(path: Path, table: list[dict[str, Any]], best: dict[str, Any], title: str) -> None:
    from scorefield.paper.output import new_figure
    from scorefield.files import new_file

    figure = new_figure(6, 4)
    axes = figure.add_subplot()
    axes.plot([row["step"] for row in table], [row["fid"] for row in table], marker="o", color="0.4")
    axes.plot(best["step"], best["fid"], marker="o", markersize=10, color="tab:red")
    axes.set(xlabel="training iterations", ylabel="FID", title=f"{title}: {best['fid']:.2f} at step {best['step']}")
    with new_file(path) as file:
        figure.savefig(file, format="png")
