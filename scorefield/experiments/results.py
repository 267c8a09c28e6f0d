"""The results page: what the paper shows on the left, what ours are on the right, made of reports alone."""

from __future__ import annotations

import json
import os
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Any

from scorefield.data.named import SETS
from scorefield.experiments import tables
from scorefield.experiments.curves import PICTURE, draw_curves, panels_of
from scorefield.experiments.paper import DATA_SETS, FIGURES, NOT_THERE, TITLES, DataSet, Exhibit
from scorefield.experiments.tables import Reports
from scorefield.files import from_here, new_file
from scorefield.progress import duration
from scorefield.recipes import RECIPES
from scorefield.shipped import FOLDERS, shipped_models

HEAD = "# Results\n\nMade by `scorefield results`"
"""How the page begins."""
WIDTH = 440
"""Of the pictures, in pixels."""
REMARKS = "remarks.md"
"""Beside a report, what a person has to say of how it came about; it stands on the page, above the commands."""
NO_MATTER = ("checkpoint_every", "evaluate_every", "log_every", "previews", "preview_steps")
"""Settings of a recipe that do not change what is learned."""


def read_reports(folder: Path) -> Reports:
    """All of folder/NAME/report.json, with the remarks beside them."""
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder} (scorefield report MODEL --out {folder}/NAME makes one)")
    found: Reports = {}
    for path in sorted(folder.glob("*/report.json")):
        try:
            report = json.loads(path.read_text(encoding="utf-8"))
            _ = report["model"]["sigmas"]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path} is no report: {error} (make it anew with scorefield report)") from error
        if (remarks := path.with_name(REMARKS)).is_file():
            report["remarks"] = remarks.read_text(encoding="utf-8").strip()
        found[path.parent.name] = report
    return found


def make_page(folder: Path, out: Path) -> list[Path]:
    """Draws the curves beside each report, and writes the page. Returns the files made."""
    reports = read_reports(folder)
    if not reports and not any((folder / "figures").glob("fig*.json")):
        raise FileNotFoundError(f"no reports in {folder} (scorefield report MODEL --out {folder}/NAME makes one)")
    if out.exists() and not out.read_text(encoding="utf-8", errors="replace").startswith(HEAD):
        raise FileExistsError(f"{out} was not made by scorefield results (name another page with --out)")
    made = [draw_curves(each, folder / name) for name, each in reports.items() if panels_of(each)]
    text = page(reports, folder, out)
    with new_file(out) as file:
        file.write(text.encode())
    return [*made, out]


def page(reports: Reports, folder: Path, out: Path) -> str:
    """The page's text, with links to the pictures as seen from where it lies."""
    place = Path(os.path.relpath(folder, out.parent)).as_posix()
    known = {data_set.name for data_set in DATA_SETS}
    others = sorted({name.partition("-")[0] for name in reports} - known)
    sets = [*DATA_SETS, *(DataSet(name, name) for name in others)]
    head = (
        f"{HEAD} of the JSON files in the folders of [{place}]({place}), and of the remarks beside them, not by hand. "
        "On the left what [the paper](https://arxiv.org/abs/1907.05600) shows, on the right what this code makes of "
        "the same. No sample was chosen: they are the first ones of their seed.\n"
    )
    shown = seen_from_here(folder)
    sections = (section(each, reports, place, shown) for each in sets)
    return "\n".join([head, *figures(folder, place, shown), *sections])


def seen_from_here(folder: Path) -> str:
    """As commands on the page name it, from where this one was called; of a folder elsewhere only the end of its name,
    as pages are published."""
    if not folder.is_absolute():
        return folder.as_posix()
    whole = folder.resolve()
    return from_here(whole) or "/".join(whole.parts[-2:])


def figures(folder: Path, place: str, shown: str) -> list[str]:
    """The figures that are not about image models, in folder/figures."""
    rows = []
    for figure in FIGURES:
        command = f"scorefield figure {figure.name} --out {shown}/figures"
        numbers = _figure_numbers(folder / "figures" / f"{figure.name}.json")
        ours = f"not made yet: `{command}`"
        if numbers is not None and not numbers["quick"]:
            image = f'<img src="{place}/figures/{figure.name}.png" width="{WIDTH}">'
            by = f"`{command}`" + (f": {duration(numbers['seconds'])}" if "seconds" in numbers else "")
            by += f" on {numbers['machine']}" if "machine" in numbers else ""
            ours = f"{image}<br>{tables.figure_caption(figure.name, numbers)}<br><sub>{by}</sub>"
        rows.append([f"**{figure.where}**: {figure.shows}", ours])
    return ["## Why noise\n", tables.table(["the paper", "ours"], rows)]


def _figure_numbers(path: Path) -> dict[str, Any] | None:
    try:
        numbers: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        _ = numbers["quick"]
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is no figure's: {error} (make it anew with scorefield figure)") from error
    return numbers


def section(data_set: DataSet, reports: Reports, place: str, folder: str) -> str:
    """One data set: how its models were made, pictures, numbers, losses. `place`: the folder as seen from the page."""
    mine = reports_of(data_set, reports)
    wanted = (f"{data_set.name}{each}" for each in data_set.reports)
    missing = [name for name in wanted if name in RECIPES and name not in mine]
    parts = [f"## {data_set.title}\n"]
    if mine:
        parts += [_made(name, title_of(data_set, name), report) for name, report in mine.items()]
    if missing:
        parts.append(_not_measured(data_set, missing, folder))
    if mine:
        titles = {name: title_of(data_set, name) for name in mine}
        parts += ["### Pictures\n", _pictures(data_set, mine, place)]
        parts += ["### Numbers\n", tables.numbers(data_set, mine, titles)]
        parts += [
            f"{titles[name]}, not measured yet: `{_command(report, 'numbers')}`\n"
            for name, report in mine.items()
            if "numbers" not in report
        ]
        parts += [tables.robustness(mine, titles), tables.losses(mine, titles), _curves(mine, titles, place)]
    return "\n".join(part for part in parts if part)


def reports_of(data_set: DataSet, reports: Reports) -> Reports:
    """Its reports: the paper's models first, then any others whose folder begins with the data set's name."""
    first = [f"{data_set.name}{each}" for each in data_set.reports]
    more = [name for name in reports if name.partition("-")[0] == data_set.name and name not in first]
    return {name: reports[name] for name in [*first, *more] if name in reports}


def title_of(data_set: DataSet, name: str) -> str:
    return TITLES.get(name.removeprefix(data_set.name), name)


def _made(name: str, title: str, report: dict[str, Any]) -> str:
    """The commands that made a model and its report, with what they took."""
    model, sampler, seconds = report["model"], report["sampler"], report["seconds"]
    sigmas = model["sigmas"]
    levels = f"{len(sigmas)} noise levels, σ = {sigmas[0]:g} … {sigmas[-1]:g}"
    levels = levels if len(sigmas) > 1 else f"one noise level, σ = {sigmas[0]:g}"
    calls = sampler["steps"] * len(sigmas)
    machines = sorted({_machine(report, part) for part in seconds if part in report})
    took = f"# on {' and '.join(machines) or 'no machine yet'}: {duration(sum(seconds.values()))} in all"
    if drawn := report.get("sampling", {}).get("images"):
        took += f", {duration(seconds['sampling'])} of it for {drawn:,} samples of {calls:,} network calls each"
    return (
        f"**{title}**: {model['parameters'] / 1e6:.2f} M parameters, {levels}; {_weights(model)} of step "
        f"{model['step']:,}; sampled with T = {sampler['steps']}, ε = {sampler['step_size']:g}.\n\n"
        + (f"{report['remarks']}\n\n" if "remarks" in report else "")
        + f"```sh\n{_trained(name, report)}{report['command']}\n{took}\n```\n"
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


def _not_measured(data_set: DataSet, missing: list[str], folder: str) -> str:
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


def _pictures(data_set: DataSet, mine: Reports, place: str) -> str:
    """A table: a figure of the paper in words, and ours."""
    usual = (each._replace(where=NOT_THERE) for each in DATA_SETS[0].exhibits[:5])
    exhibits = [each for each in data_set.exhibits or usual if _shown(each, mine.get(f"{data_set.name}{each.model}"))]
    rest = [name.removeprefix(data_set.name) for name in mine]
    for model in [each for each in rest if each not in ("", "-baseline")]:
        title = title_of(data_set, f"{data_set.name}{model}")
        exhibits.append(Exhibit(NOT_THERE, f"samples of: {title}", "samples.png", "samples", model))
    rows = ["| the paper | ours |", "|---|---|"]
    for exhibit in exhibits:
        name = f"{data_set.name}{exhibit.model}"
        made = mine[name].get(exhibit.part)
        if made is None:
            ours = f"not measured yet: `{_command(mine[name], exhibit.part)}`"
        else:
            words = tables.caption(exhibit, mine[name])
            by = f"`{_command(mine[name], exhibit.part)}`: {_took(mine[name], exhibit.part)}"
            image = f'<img src="{place}/{name}/{exhibit.picture}" width="{WIDTH}">'
            if data_set.kept_out and exhibit.part == "neighbors":
                image = f"(the picture would show images of {data_set.title}, which its terms keep out)"
            ours = f"{image}<br>{words}<br><sub>{by}</sub>"
        rows.append(f"| **{exhibit.where}**: {exhibit.shows} | {ours} |")
    return "\n".join(rows) + "\n"


def _shown(exhibit: Exhibit, report: dict[str, Any] | None) -> bool:
    """Holes that the paper has not are shown only where they were filled."""
    optional = exhibit.part == "inpainting" and exhibit.where == NOT_THERE
    return report is not None and not (optional and exhibit.part not in report)


def _command(report: dict[str, Any], part: str) -> str:
    return f"{report['command'].partition(' --parts ')[0]} --parts {part}"


def _machine(report: dict[str, Any], part: str) -> str:
    """Where a part was made; the first reports tell it of all parts together."""
    machine: str = report.get("made_on", {}).get(part, report)["machine"]
    return machine


def _took(report: dict[str, Any], part: str) -> str:
    """How long a part took, and where; without the sampling, which parts share."""
    seconds = report["seconds"][part]
    words = duration(seconds) if seconds >= 1 else "under 1 s"
    drawing = report["seconds"].get("sampling", 0.0)
    after = "" if part in ("stages", "inpainting") or drawing < 1 else f", after {duration(drawing)} of sampling"
    others = " for all pictures of this kind" if part in ("neighbors", "inpainting") else ""
    return f"{words} on {_machine(report, part)}{others}{after}"


def _curves(mine: Reports, titles: dict[str, str], place: str) -> str:
    lines = []
    for name, report in mine.items():
        if panels := list(panels_of(report)):
            lines.append(f'<img src="{place}/{name}/{PICTURE}" width="{len(panels) * WIDTH}">\n')
            what = "losses by level" if len(report["model"]["sigmas"]) > 1 else "the loss"
            lines.append(f"*{titles[name]}: {what} {', and '.join(panels)}.*\n")
    return "\n".join(lines)
