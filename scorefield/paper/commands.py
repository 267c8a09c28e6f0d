"""How the models and reports of the results page were made, as commands, and what these took."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Any

from scorefield.data.named import SETS
from scorefield.paper.paper import DataSet
from scorefield.progress import duration
from scorefield.models.recipes import RECIPES
from scorefield.models.pretrained import FOLDERS, shipped_models

NO_MATTER = ("checkpoint_every", "evaluate_every", "log_every", "previews", "preview_steps")
"""Settings of a recipe that do not change what is learned."""


def made(name: str, title: str, report: dict[str, Any]) -> str:
    """The commands that made a model and its report, with what they took."""
    model, sampler, seconds = report["model"], report["sampler"], report["seconds"]
    sigmas = model["sigmas"]
    levels = f"{len(sigmas)} noise levels, σ = {sigmas[0]:g} … {sigmas[-1]:g}"
    levels = levels if len(sigmas) > 1 else f"one noise level, σ = {sigmas[0]:g}"
    calls = sampler["steps"] * len(sigmas)
    machines = sorted({_machine(report, part) for part in seconds if part in report})
    cost = f"# on {' and '.join(machines) or 'no machine yet'}: {duration(sum(seconds.values()))} in all"
    if drawn := report.get("sampling", {}).get("images"):
        cost += f", {duration(seconds['sampling'])} of it for {drawn:,} samples of {calls:,} network calls each"
    return (
        f"**{title}**: {model['parameters'] / 1e6:.2f} M parameters, {levels}; {_weights(model)} of step "
        f"{model['step']:,}; sampled with T = {sampler['steps']}, ε = {sampler['step_size']:g}.\n\n"
        + (f"{report['remarks']}\n\n" if "remarks" in report else "")
        + f"```sh\n{_trained(name, report)}{report['command']}\n{cost}\n```\n"
    )


def _trained(name: str, report: dict[str, Any]) -> str:
    """The command that trained a model, with what it took; one that was selected is of a run to its end."""
    model, training = report["model"], report.get("training", {})
    if "imported_from" in model:
        return f"# imported from {model['imported_from']}\n"
    place, base = Path(shlex.split(report["command"])[2]), name.removesuffix("-raw")
    run, selected = _run_of(place, base), place.name == "best"
    recipe = model["recipe"] if selected else {**model["recipe"], "steps": model["step"]}
    how = f"# {model['step']:,} iterations of {recipe['batch_size']} images"
    if "seconds" in training:
        how += f" in {duration(training['seconds'])}: {training['images_per_second']:,.0f} images per second"
    how += f", on {model['machine']}" if "machine" in model else ""
    if (shipped := shipped_models().get(place.as_posix())) is not None:
        inside = 3 if shipped.parent == FOLDERS[-1] else 2  # of the package, or beside it
        how += f"\nscorefield export {run} --out {'/'.join(shipped.parts[-inside:])}"
    elif place.suffix == ".safetensors" and run not in place.parents:
        which = " --weights raw" if recipe["ema"] and model["weights"] == "raw" else ""
        how += f"\nscorefield export {run}{which} --out {place}"
    select = f"scorefield select {run}\n" if selected else ""
    return f"{train_command(recipe, like=base)} --out {run}\n{how}\n{select}"


def _weights(model: dict[str, Any]) -> str:
    return f"moving average ({model['recipe']['ema']:g}) of the weights" if model["weights"] == "ema" else "raw weights"


def _run_of(place: Path, name: str) -> Path:
    """The run folder of what was reported on, on whatever machine, by its place alone; a model file that lies in none,
    or a shipped model, gets one."""
    if place.name == "best":
        return place.parent
    if place.parent.name == "checkpoints":
        return place.parents[1]
    return place if len(place.parts) > 1 and place.suffix != ".safetensors" else Path("runs") / name


def train_command(recipe: dict[str, Any], like: str = "") -> str:
    """The command that trains by this recipe, as a change of the one called `like`, or else the shortest."""
    options = {}
    for name, known in RECIPES.items():
        usual = asdict(known)
        decisive = {key: value for key, value in recipe.items() if key not in NO_MATTER}
        options[name] = {key: value for key, value in decisive.items() if usual.get(key, value) != value}
    name = like if like in options else min(options, key=lambda each: len(options[each]))
    words = [f"scorefield train {name}"]
    for key, value in options[name].items():
        flag = key.replace("_", "-")
        words.append(
            f"--{'' if value else 'no-'}{flag}" if isinstance(value, bool) else f"--{flag} {shlex.quote(str(value))}"
        )
    return " ".join(words)


def not_measured(data_set: DataSet, missing: list[str], folder: str) -> str:
    """The commands that make those of its reports which are missing."""
    lines = []
    for name in missing:
        if name in shipped_models() and name not in SETS:
            lines.append(f"scorefield report {name} -n {data_set.n} --out {folder}/{name}")
            continue
        run, report = f"runs/{name}", f"scorefield report runs/{name}"
        if data_set.selected and name == data_set.name:
            report = f"scorefield select {run} && {report}/best"
        lines.append(f"scorefield train {name} --out {run} && {report} -n {data_set.n} --out {folder}/{name}")
    return f"Not measured yet: {', '.join(missing)}. These commands do it:\n\n```sh\n" + "\n".join(lines) + "\n```\n"


def command_of(report: dict[str, Any], part: str) -> str:
    """The command that makes that part of a report alone."""
    return f"{report['command'].partition(' --parts ')[0]} --parts {part}"


def _machine(report: dict[str, Any], part: str) -> str:
    """Where a part was made; the first reports tell it of all parts together."""
    machine: str = report.get("made_on", {}).get(part, report)["machine"]
    return machine


def took(report: dict[str, Any], part: str) -> str:
    """How long a part took, and where; without the sampling, which parts share."""
    seconds = report["seconds"][part]
    words = duration(seconds) if seconds >= 1 else "under 1 s"
    drawing = report["seconds"].get("sampling", 0.0)
    after = "" if part in ("stages", "inpainting") or drawing < 1 else f", after {duration(drawing)} of sampling"
    others = " for all pictures of this kind" if part in ("neighbors", "inpainting") else ""
    return f"{words} on {_machine(report, part)}{others}{after}"
