"""The results page: what the paper shows on the left, what ours are on the right, made of reports alone."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scorefield.paper import commands, tables
from scorefield.paper.curves import PICTURE, draw_curves, panels_of
from scorefield.paper.paper import DATA_SETS, FIGURES, NOT_THERE, TITLES, DataSet, Exhibit
from scorefield.paper.tables import Reports
from scorefield.files import from_here, new_file
from scorefield.progress import duration
from scorefield.models.recipes import RECIPES

HEAD = "# Results\n\nMade by `scorefield results`"
"""How the page begins."""
WIDTH = 440
"""Of the pictures, in pixels."""
REMARKS = "remarks.md"
"""Beside a report, what a person has to say of how it came about; it stands on the page, above the commands."""
HOLES_REMARKS = "inpainting.md"
"""In the folder of all reports, the same of completions."""
INPAINTING = (
    "Algorithm 2 of the paper: after every step the known pixels are set to those of the image plus σz, with z drawn "
    "once for each noise level. The images were held out of training. A row has what is known of an image, its "
    "completions, none of them chosen, and, where the data set's terms let it be shown, the image itself.\n"
)
"""What is to be said of all completions."""


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
        if remarks := remarks_in(path.with_name(REMARKS)):
            report["remarks"] = remarks
        found[path.parent.name] = report
    return found


def remarks_in(path: Path) -> str:
    """What a person has written there, if anything."""
    try:
        return path.read_text(encoding="utf-8").strip() if path.is_file() else ""
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no text: {error} (write it in UTF-8)") from error


def make_page(folder: Path, out: Path) -> list[Path]:
    """Draws the curves beside each report, and writes the page. Returns the files made."""
    reports = read_reports(folder)
    if not reports and not any((folder / "figures").glob("fig*.json")):
        raise FileNotFoundError(f"no reports in {folder} (scorefield report MODEL --out {folder}/NAME makes one)")
    if out.exists() and not out.read_text(encoding="utf-8", errors="replace").startswith(HEAD):
        raise FileExistsError(f"{out} was not made by scorefield results (name another page with --out)")
    for name, report in reports.items():
        _check(name, report, folder)
    text = page(reports, folder, out)
    made = [draw_curves(each, folder / name) for name, each in reports.items() if panels_of(each)]
    with new_file(out) as file:
        file.write(text.encode())
    return [*made, out]


def missing_pictures(out: Path) -> list[str]:
    """Those that the page shows and that are not there."""
    shown = re.findall(r'src="([^"]+)"', out.read_text(encoding="utf-8"))
    return [picture for picture in shown if not (out.parent / picture).exists()]


def _check(name: str, report: dict[str, Any], folder: Path) -> None:
    """Whether a page can be made of that report alone."""
    try:
        panels_of(report)
        _sections({name: report}, "", "", "")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"lacks {error}" if isinstance(error, KeyError) else f"is not what it should be: {error}"
        raise ValueError(f"{folder / name / 'report.json'} {what} (make it anew with scorefield report)") from error


def page(reports: Reports, folder: Path, out: Path) -> str:
    """The page's text, with links to the pictures as seen from where it lies."""
    place = Path(os.path.relpath(folder, out.parent)).as_posix()
    head = (
        f"{HEAD} of the JSON files in the folders of [{place}]({place}), and of the remarks beside them, not by hand. "
        "On the left what [the paper](https://arxiv.org/abs/1907.05600) shows, on the right what this code makes of "
        "the same. No sample was chosen: they are the first ones of their seed.\n"
    )
    shown = seen_from_here(folder)
    sections = _sections(reports, place, shown, remarks_in(folder / HOLES_REMARKS))
    return "\n".join([head, *figures(folder, place, shown), *sections])


def _sections(reports: Reports, place: str, shown: str, remarks: str) -> list[str]:
    """Of each data set, and of completions."""
    known = {data_set.name for data_set in DATA_SETS}
    others = sorted({name.partition("-")[0] for name in reports} - known)
    sets = [*DATA_SETS, *(DataSet(name, name) for name in others)]
    return [*(section(each, reports, place, shown) for each in sets), *inpainting(sets, reports, place, remarks)]


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
        parts += [commands.made(name, title_of(data_set, name), report) for name, report in mine.items()]
    if missing:
        parts.append(commands.not_measured(data_set, missing, folder))
    if mine:
        titles = {name: title_of(data_set, name) for name in mine}
        exhibits = [each for each in exhibits_of(data_set, mine) if each.part != "inpainting"]
        parts += ["### Pictures\n", _pictures(data_set, exhibits, mine, place)]
        parts += ["### Numbers\n", tables.numbers(data_set, mine, titles)]
        parts += [
            f"{titles[name]}, not measured yet: `{commands.command_of(report, 'numbers')}`\n"
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


def inpainting(sets: Sequence[DataSet], reports: Reports, place: str, remarks: str) -> list[str]:
    """Completions of all data sets, in numbers and pictures; nothing where none are made nor to be made."""
    pictures, numbers = [], []
    for data_set in sets:
        mine = reports_of(data_set, reports)
        exhibits = [each for each in exhibits_of(data_set, mine) if each.part == "inpainting"]
        if not exhibits:
            continue
        pictures += [f"### {data_set.title}, completed\n", _pictures(data_set, exhibits, mine, place)]
        if "inpainting" in mine[data_set.name]:
            numbers.append((data_set.title, mine[data_set.name]["inpainting"]["masks"]))
    if not numbers:
        return ["## Inpainting\n", *pictures] if pictures else []
    return ["## Inpainting\n", INPAINTING, *([f"{remarks}\n"] if remarks else []), tables.holes(numbers), *pictures]


def exhibits_of(data_set: DataSet, mine: Reports) -> list[Exhibit]:
    """What there is to be shown of these reports."""
    usual = (each._replace(where=NOT_THERE) for each in DATA_SETS[0].exhibits if not each.model)
    exhibits = [each for each in data_set.exhibits or usual if _shown(each, mine.get(f"{data_set.name}{each.model}"))]
    rest = [name.removeprefix(data_set.name) for name in mine]
    for model in [each for each in rest if each not in ("", "-baseline")]:
        title = title_of(data_set, f"{data_set.name}{model}")
        exhibits.append(Exhibit(NOT_THERE, f"samples of: {title}", "samples.png", "samples", model))
    return exhibits


def _pictures(data_set: DataSet, exhibits: Sequence[Exhibit], mine: Reports, place: str) -> str:
    """A table: a figure of the paper in words, and ours."""
    rows = ["| the paper | ours |", "|---|---|"]
    for exhibit in exhibits:
        name = f"{data_set.name}{exhibit.model}"
        made = mine[name].get(exhibit.part)
        if made is None:
            ours = f"not measured yet: `{commands.command_of(mine[name], exhibit.part)}`"
        else:
            words = tables.caption(exhibit, mine[name])
            by = f"`{commands.command_of(mine[name], exhibit.part)}`: {commands.took(mine[name], exhibit.part)}"
            image = f'<img src="{place}/{name}/{exhibit.picture}" width="{WIDTH}">'
            if data_set.kept_out and exhibit.reveals:
                why = "completions come so near that " if exhibit.part == "inpainting" else ""
                image = f"({why}the picture would show images of {data_set.title}, which its terms keep out)"
            ours = f"{image}<br>{words}<br><sub>{by}</sub>"
        rows.append(f"| **{exhibit.where}**: {exhibit.shows} | {ours} |")
    return "\n".join(rows) + "\n"


def _shown(exhibit: Exhibit, report: dict[str, Any] | None) -> bool:
    """Holes that the paper has not are shown only where they were filled."""
    optional = exhibit.part == "inpainting" and exhibit.where == NOT_THERE
    return report is not None and not (optional and exhibit.part not in report)


def _curves(mine: Reports, titles: dict[str, str], place: str) -> str:
    lines = []
    for name, report in mine.items():
        if panels := list(panels_of(report)):
            lines.append(f'<img src="{place}/{name}/{PICTURE}" width="{len(panels) * WIDTH}">\n')
            what = "losses by level" if len(report["model"]["sigmas"]) > 1 else "the loss"
            lines.append(f"*{titles[name]}: {what} {', and '.join(panels)}.*\n")
    return "\n".join(lines)
