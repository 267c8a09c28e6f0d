"""The commands that made the models and reports of the results page, and the time that they took."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import scorefield
from scorefield.evaluation.records import Report
from scorefield.models.pretrained import pretrained_models
from scorefield.models.recipes import RECIPES
from scorefield.paper.exhibits import DataSet
from scorefield.progress import duration

IRRELEVANT = ("checkpoint_every", "evaluate_every", "log_every", "previews", "preview_steps")
"""Settings of a recipe that do not change what is learned."""


def train_command(recipe: Mapping[str, Any], like: str = "") -> str:
    """The command that trains with these settings: the recipe called `like` with options, or else the shortest."""
    options = {}
    for name, known in RECIPES.items():
        usual = asdict(known)
        changed = {key: value for key, value in recipe.items() if usual.get(key, value) != value}
        options[name] = {key: value for key, value in changed.items() if key not in IRRELEVANT}
    name = like if like in options else min(options, key=lambda each: len(options[each]))
    words = ["scorefield", "train", name]
    for key, value in options[name].items():
        flag = key.replace("_", "-")
        words += [f"--{'' if value else 'no-'}{flag}"] if isinstance(value, bool) else [f"--{flag}", str(value)]
    return shlex.join(words)


def model_commands(name: str, report: Report) -> str:
    """The commands that made a model and its report."""
    machines = sorted({each.machine for each in report.made_on.values()})
    cost = f"# on {' and '.join(machines) or 'no machine yet'}: {duration(sum(report.seconds.values()))} in total"
    if report.sampling is not None:
        drawing = duration(report.seconds["sampling"])
        cost += f", {drawing} of it to draw {report.sampling.images:,} samples with {report.calls:,} network calls each"
    return "\n".join([*_training_commands(name, report), report.command, cost])


def _training_commands(name: str, report: Report) -> list[str]:
    """A model selected from a run's checkpoints (`best`) was trained to the end of that run; any other, to its step."""
    model, training = report.model, report.training
    if model.imported_from is not None:
        return [f"# imported from {model.imported_from}"]
    place, base = Path(shlex.split(report.command)[2]), name.removesuffix("-raw")
    run, selected = _run_folder(place, base), place.name == "best"
    recipe = model.recipe if selected else {**model.recipe, "steps": model.step}
    cost = f"# {model.step:,} iterations of {recipe['batch_size']} images"
    if training is not None and training.seconds is not None:
        cost += f" in {duration(training.seconds)}: {training.images_per_second:,.0f} images per second"
    cost += f", on {model.machine}" if model.machine is not None else ""
    lines = [f"{train_command(recipe, like=base)} --out {run}", cost]
    if (pretrained := pretrained_models().get(place.as_posix())) is not None:
        inside = pretrained.relative_to(Path(scorefield.__file__).parents[1]).as_posix()
        lines.append(f"scorefield export {run} --out {inside}")
    elif place.suffix == ".safetensors" and run not in place.parents:
        raw = " --weights raw" if recipe["ema"] and model.weights == "raw" else ""
        lines.append(f"scorefield export {run}{raw} --out {place}")
    return [*lines, f"scorefield select {run}"] if selected else lines


def _run_folder(place: Path, name: str) -> Path:
    """The run folder of the model at that place, which may be on another machine; runs/NAME where it is in none."""
    if place.name == "best":
        return place.parent
    if place.parent.name == "checkpoints":
        return place.parents[1]
    return place if len(place.parts) > 1 and place.suffix != ".safetensors" else Path("runs") / name


def missing_command(data_set: DataSet, name: str, folder: str) -> str:
    """The command that makes a report which is missing."""
    rest = f"-n {data_set.n} --out {folder}/{name}"
    if name in pretrained_models() and name != data_set.name:
        return f"scorefield report {name} {rest}"
    run = f"runs/{name}"
    select, model = ("", run)
    if data_set.selected and name == data_set.name:
        select, model = f"scorefield select {run} && ", f"{run}/best"
    return f"scorefield train {name} --out {run} && {select}scorefield report {model} {rest}"


def part_command(report: Report, part: str) -> str:
    """The command that makes only that part of a report."""
    return f"{report.command.partition(' --parts ')[0]} --parts {part}"
