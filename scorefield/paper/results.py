"""The results page: what the paper shows beside what our reports hold.

The text and the tables are in results.template.md. Here are the loader, and `page`, which is a function of the records
alone.
"""

from __future__ import annotations

import math
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, StrictUndefined, UndefinedError

import scorefield
from scorefield.evaluation.digits import share_error
from scorefield.evaluation.frontier import Frontier, read_frontier
from scorefield.evaluation.likelihoods import Likelihoods, read_likelihoods
from scorefield.evaluation.records import Report, read_report
from scorefield.files import from_here, new_file, parse_json
from scorefield.models.pretrained import pretrained_models
from scorefield.models.recipes import RECIPES, Recipe
from scorefield.paper import FIGURES
from scorefield.paper.beyond import ABOUT, PREFIX, PUBLISHED, Beyond, load_beyond
from scorefield.paper.curves import draw_curves, panels
from scorefield.paper.exhibits import COMPLETIONS, DATA_SETS, EXHIBITS, HIDDEN, TABLE_1, TITLES, DataSet, Exhibit
from scorefield.paper.fig1 import amount, words_of
from scorefield.paper.frontier_chart import draw_frontier
from scorefield.paper.likelihood_chart import draw_histograms
from scorefield.progress import duration

HEAD = "# Results\n\nMade by `scorefield results`"
"""How a page begins that may be replaced."""
NOT_DIGITS = {"averaged": "averages of two digits", "composed": "digits composed of two"}
"""Words for some kinds of images that are not digits."""
IRRELEVANT = ("checkpoint_every", "evaluate_every", "log_every", "previews", "preview_steps")
"""Settings of a recipe that do not change what is learned."""


# ---------------------------------------------------------------- loading and writing


@dataclass(frozen=True)
class Results:
    """Everything that the page is made from."""

    reports: dict[str, Report]
    """By the names of their folders."""
    remarks: dict[str, str]
    """What a person wrote about a model, by the same names; about inpainting, under that name."""
    figures: dict[str, tuple[str, str]]
    """The figures that are not about image models, as far as they were made: their numbers, and what they cost."""
    frontiers: dict[str, Frontier]
    """Quality against network calls, by the names of the models, as far as it was measured."""
    likelihoods: dict[str, Likelihoods]
    """Bits per dimension, likewise."""
    beyond: tuple[Beyond, ...]
    """Networks for all noise levels."""
    links: str
    """The folder of the reports as links on the page name it,"""
    folder: str
    """and as commands name it."""


def load(folder: Path, out: Path) -> Results:
    """The reports, remarks and figures in a folder, for a page at `out`."""
    cure = f"(scorefield report MODEL --out {folder}/NAME makes one)"
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder} {cure}")
    reports = {path.parent.name: read_report(path) for path in sorted(folder.glob("*/report.json"))}
    found = {name: _figure(folder / "figures" / f"{name}.json") for name in FIGURES}
    figures = {name: figure for name, figure in found.items() if figure is not None}
    beyond = tuple(load_beyond(path.parent) for path in sorted(folder.glob(f"{PREFIX}*/{ABOUT}")))
    if not reports and not figures and not beyond:
        raise FileNotFoundError(f"there are no reports in {folder} {cure}")
    remarks = {name: _text(folder / name / "remarks.md") for name in reports}
    remarks["inpainting"] = _text(folder / "inpainting.md")
    measured = out.parent / "measurements"
    found_at = {name: measured / f"frontier_{name}.json" for name in reports}
    frontiers = {name: read_frontier(path) for name, path in found_at.items() if path.exists()}
    found_at = {name: measured / f"likelihood_{name}.json" for name in reports}
    likelihoods = {name: read_likelihoods(path) for name, path in found_at.items() if path.exists()}
    links, shown, whole = Path(os.path.relpath(folder, out.parent)).as_posix(), folder.as_posix(), folder.resolve()
    if folder.is_absolute():  # pages are published, so without the place on this machine
        shown = from_here(whole) or "/".join(whole.parts[-2:])
    return Results(reports, remarks, figures, frontiers, likelihoods, beyond, links, shown)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip() if path.is_file() else ""
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a text file: {error} (write it in UTF-8)") from error


def _figure(path: Path) -> tuple[str, str] | None:
    """None if the figure was not made, or only its quick version, which is smaller than the paper's."""
    if not path.exists():
        return None
    try:
        numbers = parse_json(path.read_text(encoding="utf-8"))
        if numbers["quick"]:
            return None
        cost = f": {duration(numbers['seconds'])}" if "seconds" in numbers else ""
        cost += f" on {numbers['machine']}" if "machine" in numbers else ""
        return _figure_numbers(path.stem, numbers), cost
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"{path} is not a figure's file: {error!r} (make it again with scorefield figure)") from error


def _figure_numbers(name: str, numbers: dict[str, Any]) -> str:
    if name == "fig2":
        near, far = numbers["relative_error_near"], numbers["relative_error_far"]
        return f"relative error {near:.2f} {numbers['near']}, {far:.2f} {numbers['far']}"
    if name == "fig3":
        shares = [
            f"{key} {each['mean']:.3f} ± {each['standard_error']:.3f} ({each['least']:.3f} to {each['most']:.3f})"
            for key, each in numbers["spread"].items()
        ]
        seeds, n = numbers["seeds"], numbers["n"]
        return (
            f"share of the samples in the mode of weight 0.8, mean ± standard error (range) of {seeds} seeds with "
            f"{n:,} samples each: {', '.join(shares)}"
        )
    ends = []
    for sigma, spread in numbers["spread"].items():
        words = f"σ = {sigma}, {words_of(spread)}"
        if "not_finite_from" not in spread:
            wander = "–" if spread["wander"] is None else amount(spread["wander"])
            words += f", median {amount(spread['quantiles']['50'])}, means of 100 iterations ± {wander}"
        ends.append(words)
    return f"{'; '.join(ends)}; arithmetic in {numbers['precision']}"


def make_page(folder: Path, out: Path) -> list[Path]:
    """Draw the curves beside each report, and write the page. Returns the files made."""
    results = load(folder, out)
    if out.exists() and not out.read_text(encoding="utf-8", errors="replace").startswith(HEAD):
        raise FileExistsError(f"{out} was not made by scorefield results (name another page with --out)")
    try:
        text = page(results)
    except (LookupError, TypeError, ArithmeticError, UndefinedError) as error:
        raise ValueError(
            f"a report in {folder} cannot be shown: {error!r} (its report.json was changed: make it again with "
            "scorefield report)"
        ) from error
    made = [draw_curves(report, folder / name) for name, report in results.reports.items() if panels(report)]
    frontiers = results.frontiers | {each.name: each.frontier for each in results.beyond if each.frontier}
    made += [draw_frontier(found, folder / name / "frontier.png") for name, found in frontiers.items()]
    all_likelihoods = results.likelihoods | {each.name: each.likelihood for each in results.beyond if each.likelihood}
    for name, likelihoods in all_likelihoods.items():
        bits = {each.data: each.each for each in likelihoods.sources}
        made.append(draw_histograms(f"likelihood under {name}", bits, folder / name / "likelihood.png"))
    with new_file(out) as file:
        file.write(text.encode())
    return [*made, out]


def missing_pictures(out: Path) -> list[str]:
    """Pictures that the page shows and that do not exist."""
    shown = re.findall(r'src="([^"]+)"', out.read_text(encoding="utf-8"))
    return [picture for picture in shown if not (out.parent / picture).exists()]


# ---------------------------------------------------------------- commands


def train_command(recipe: Mapping[str, Any], like: str = "") -> str:
    """The command that trains with these settings: the recipe called `like` with options, or else the shortest."""
    options = {}
    whole = asdict(Recipe(**recipe))
    whole = {**{key: whole[key] for key in recipe}, **whole}  # in the recipe's order
    for name, known in RECIPES.items():
        usual = asdict(known)
        changed = {key: value for key, value in whole.items() if usual[key] != value}
        options[name] = {key: value for key, value in changed.items() if key not in IRRELEVANT}
    name = like if like in options else min(options, key=lambda each: len(options[each]))
    words = ["scorefield", "train", name]
    for key, value in options[name].items():
        flag = key.replace("_", "-")
        if isinstance(value, bool):
            words += [f"--{'' if value else 'no-'}{flag}"]
        else:
            words += [f"--{flag}", *map(str, value if isinstance(value, tuple) else [value])]
    return shlex.join(words)


def training_commands(name: str, report: Report) -> list[str]:
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
    checkout, pretrained = Path(scorefield.__file__).parents[1], pretrained_models().get(place.as_posix())
    if pretrained is not None and pretrained.is_relative_to(checkout):
        inside = pretrained.relative_to(checkout).as_posix()
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


# ---------------------------------------------------------------- the page


def number(value: float | None, spec: str, rest: str = "") -> str:
    """The number in that format, and the rest; only a dash for what was not measured or is not finite."""
    return "–" if value is None or not math.isfinite(value) else f"{value:{spec}}{rest}"


def with_error(loss: float | None, standard_error: float | None) -> str:
    """A loss, with its standard error where that is known."""
    return number(loss, ".2f", "" if standard_error is None else f" ± {standard_error:.2f}")


def table(text: str) -> str:
    """A Markdown table without the rows that hold only their name and dashes; nothing if no row is left."""
    head, rule, *rows = text.strip().splitlines()
    rows = [row for row in rows if any(cell != "–" for cell in row.strip("| ").split(" | ")[1:])]
    return "\n".join([head, rule, *rows, ""]) if rows else ""


class Model(NamedTuple):
    """A report with the title and the remarks that the page gives it."""

    name: str
    title: str
    report: Report
    remarks: str


class Section:
    """What the page says about one data set: the paper's models first, then other reports with its name in front."""

    def __init__(self, data_set: DataSet, results: Results) -> None:
        self.data_set = data_set
        wanted = [f"{data_set.name}{each}" for each in data_set.models]
        others = [name for name in results.reports if name.partition("-")[0] == data_set.name and name not in wanted]
        self.missing = [name for name in wanted if name in RECIPES and name not in results.reports]
        self.reports = {name: results.reports[name] for name in [*wanted, *others] if name in results.reports}
        self.models = [
            Model(name, TITLES.get(name.removeprefix(data_set.name), name), report, results.remarks[name])
            for name, report in self.reports.items()
        ]
        models = {model.name.removeprefix(data_set.name): model.title for model in self.models}
        more = [Exhibit("samples.png", f"samples of: {title}", model=model) for model, title in models.items()]
        shown = {exhibit.model for exhibit in EXHIBITS}
        self.exhibits = [*EXHIBITS, *(exhibit for exhibit in more if exhibit.model not in shown)]

        self.measured = [model for model in self.models if model.report.numbers is not None]
        numbers = [each.numbers for each in self.reports.values() if each.numbers is not None]
        references = {each.reference for each in numbers}
        counts = {each: number(each.n, ",") for each in references}
        self.references = sorted(f"images of {each.name} ({each.digest}), n = {n}" for each, n in counts.items())
        self.preprocessing = sorted({note for each in numbers for note in each.preprocessing})
        self.real = next((each.real for each in self.reports.values() if each.real and len(references) == 1), None)
        self.digits = next((each.digits for each in self.reports.values() if each.digits is not None), None)
        self.losses = {
            model.title: {
                f"{each.sigma:.3g}": with_error(each.loss, each.standard_error) for each in found.loss_by_sigma
            }
            for model, found in zip(self.measured, numbers, strict=True)
            if found.loss_by_sigma
        }
        levels = [level for each in numbers for level in each.loss_by_sigma]
        self.one_level_each = any(level.standard_error is None for level in levels)
        self.levels = sorted({sigma for each in self.losses.values() for sigma in each}, key=float, reverse=True)

    def rejected(self) -> list[tuple[float, str]]:
        """The kinds of images that are no digits, with the share that the classifier rejects, the smallest first."""
        assert self.digits is not None
        shares = self.digits.test.rejected | self.digits.test.rejected_unseen
        return [(share, NOT_DIGITS.get(kind, kind)) for share, kind in sorted((v, k) for k, v in shares.items())]


def page(results: Results) -> str:
    """The page's text."""
    others = {name.partition("-")[0] for name in results.reports} - {each.name for each in DATA_SETS}
    sections = [Section(each, results) for each in (*DATA_SETS, *(DataSet(name) for name in sorted(others)))]
    completed = [
        (f"{section.data_set.title}, {HIDDEN.get(mask, mask)}", completion)
        for section in sections
        if (report := section.reports.get(section.data_set.name)) is not None and report.inpainting is not None
        for mask, completion in report.inpainting.masks.items()
    ]
    text = _TEMPLATE.render(
        sections=sections,
        completion_rows=completed,
        figures=results.figures,
        frontiers=results.frontiers,
        likelihoods=results.likelihoods,
        beyond_the_paper=results.beyond,
        published=PUBLISHED,
        remarks=results.remarks["inpainting"],
        links=results.links,
        folder=results.folder,
        pretrained=pretrained_models(),
    )
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


_jinja = Environment(trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
_jinja.filters |= {"number": number, "with_error": with_error, "table": table}
_jinja.globals |= {"completions": COMPLETIONS, "paper_table_1": TABLE_1}
_jinja.globals |= {each.__name__: each for each in (duration, panels, train_command, training_commands, share_error)}
_TEMPLATE = _jinja.from_string(Path(__file__).with_name("results.template.md").read_text(encoding="utf-8"))
