"""The results page: what the paper shows beside what our reports hold.

The text is in results.template.md: blocks that begin with a line `%% NAME`, with $placeholders. Here are the loader and
`page`, which is a function of the records alone.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Formatter, Template
from typing import Any

from scorefield.evaluation.digits import share_error
from scorefield.evaluation.records import ClassifierTest, Digits, DigitsVerdict, Metrics, Report, read_report
from scorefield.files import from_here, new_file
from scorefield.models.recipes import RECIPES
from scorefield.paper import exhibits
from scorefield.paper.commands import missing_command, model_commands, part_command
from scorefield.paper.curves import PICTURE, draw_curves, panels
from scorefield.paper.exhibits import NOT_IN_THE_PAPER, DataSet, Exhibit
from scorefield.paper.fig1 import amount, words_of
from scorefield.progress import duration

HEAD = "# Results\n\nMade by `scorefield results`"
"""How a page begins that may be replaced."""
WIDTH = 440
"""Width of the pictures in pixels."""
KINDS = {"plain": "", "denoised": ", denoised"}
"""Samples without and with the last denoising step, and the words for them."""
NOT_DIGITS = {"averaged": "averages of two digits", "composed": "digits composed of two"}
"""Words for some kinds of images that are not digits."""

METRICS = {
    "FID": "{fid:.2f} (n = {n:,}{few})",
    "Inception score": "{inception_score:.2f} ± {inception_score_deviation:.2f} (n = {n:,})",
    "KID": "{kid:.5f} ± {kid_standard_error:.5f} (n = {kept_n[0]:,} and {kept_n[1]:,})",
    "precision": "{precision:.3f} (n = {kept_n[0]:,} and {kept_n[1]:,})",
    "recall": "{recall:.3f} (n = {kept_n[0]:,} and {kept_n[1]:,})",
}
"""Rows of the table of numbers, and their cells, with the fields of `Metrics`."""
VERDICTS = {
    "accepted as digits": "{accepted:.2%} ± {error:.2%} (n = {n:,})",
    "distance of the digits' histogram to uniform": "{distance_to_uniform:.3f}{chance}",
}
"""More rows, with the fields of `DigitsVerdict`."""
COMPLETIONS = {
    "n": "{images}",
    "share": "{hidden:.0%}",
    "known": "{known_error:.2f}",
    "completions": "{distance:.3f}",
    "images": "{distance_between_images:.3f}",
    "border": "{seam:.2f}",
    "inside": "{inside:.2f}",
}
"""Columns of the table of completions, and their cells, with the fields of `Completion`."""
COPIES = (
    "copies, by our criterion: {count} of {n:,} samples, {held_out_copies} of {held_out_n:,} {others}; the median "
    "distance to the nearest training image is {ratio[0.5]:.2f} times that of the {others}"
)
"""Below the pictures of neighbours, with the fields of `Memorisation`."""

_TEMPLATE = Path(__file__).with_name("results.template.md").read_text(encoding="utf-8")
_BLOCKS = dict(re.findall(r"^%% (\w+)\n(.*?)(?=^%% |\Z)", _TEMPLATE, re.DOTALL | re.MULTILINE))


def _fill(block: str, **values: object) -> str:
    """A block of the template with these values; a list of texts becomes paragraphs."""
    texts = {key: "\n\n".join(filter(None, each)) if isinstance(each, list) else each for key, each in values.items()}
    return Template(_BLOCKS[block]).substitute(texts).strip()


class _Cell(Formatter):
    """Fills the fields of a record into a text; a dash stands for what was not measured or is not finite."""

    def __call__(self, text: str, record: object, **more: object) -> str:
        """Only a dash where the record is None, or the field that the text begins with."""
        filled = "–" if record is None else self.vformat(text, (), vars(record) | more)
        return "–" if filled.startswith("–") else filled

    def get_field(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:  # noqa: ANN401
        first = name.partition("[")[0]
        return (None, first) if kwargs[first] is None else super().get_field(name, args, kwargs)

    def format_field(self, value: Any, spec: str) -> str:  # noqa: ANN401
        missing = value is None or (isinstance(value, float) and not math.isfinite(value))
        return "–" if missing else format(value, spec)


_cell = _Cell()


def _metric(label: str, found: Metrics | None) -> str:
    few = found is not None and any("too few" in note for note in found.notes)
    return _cell(METRICS[label], found, few=", too few" if few else "")


def _verdict(label: str, found: DigitsVerdict | ClassifierTest | None) -> str:
    error = share_error(found.accepted, found.n) if found is not None else None
    chance = f" (by chance {found.distance_by_chance:.3f})" if isinstance(found, DigitsVerdict) else ""
    return _cell(VERDICTS[label], found, error=error, chance=chance)


# ---------------------------------------------------------------- loading and writing


@dataclass(frozen=True)
class Results:
    """Everything that the page is made from."""

    reports: dict[str, Report]
    """By the names of their folders."""
    remarks: dict[str, str]
    """What a person wrote about a model, by the same names; about inpainting, under that name."""
    figures: dict[str, str]
    """The figures that are not about image models, as far as they were made: their captions."""
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
    captions = {name: _figure(folder / "figures" / f"{name}.json") for name in exhibits.FIGURES}
    if not reports and not any(captions.values()):
        raise FileNotFoundError(f"there are no reports in {folder} {cure}")
    remarks = {name: _text(folder / name / "remarks.md") for name in reports}
    remarks["inpainting"] = _text(folder / "inpainting.md")
    links, shown, whole = Path(os.path.relpath(folder, out.parent)).as_posix(), folder.as_posix(), folder.resolve()
    if folder.is_absolute():  # pages are published, so without the place on this machine
        shown = from_here(whole) or "/".join(whole.parts[-2:])
    return Results(reports, remarks, {name: text for name, text in captions.items() if text}, links, shown)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip() if path.is_file() else ""
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a text file: {error} (write it in UTF-8)") from error


def _figure(path: Path) -> str:
    """The caption of a figure; nothing if it was not made, or quickly, which is smaller than the paper's."""
    if not path.exists():
        return ""
    try:
        numbers = json.loads(path.read_text(encoding="utf-8"))
        if numbers["quick"]:
            return ""
        time = f": {duration(numbers['seconds'])}" if "seconds" in numbers else ""
        time += f" on {numbers['machine']}" if "machine" in numbers else ""
        return f"{_figure_numbers(path.stem, numbers)}<br><sub>`$command`{time}</sub>"
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is not a figure's file: {error!r} (make it again with scorefield figure)") from error


def _figure_numbers(name: str, numbers: dict[str, Any]) -> str:
    if name == "fig2":
        near, far = numbers["relative_error_near"], numbers["relative_error_far"]
        return f"relative error {near:.2f} {numbers['near']}, {far:.2f} {numbers['far']}"
    if name == "fig3":
        shares = ", ".join(f"{key} {share:.2f}" for key, share in numbers["heavy_fraction"].items())
        return f"share of samples in the mode of weight 0.8: {shares}"
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
    text = page(results)
    made = [draw_curves(report, folder / name) for name, report in results.reports.items() if panels(report)]
    with new_file(out) as file:
        file.write(text.encode())
    return [*made, out]


def missing_pictures(out: Path) -> list[str]:
    """Pictures that the page shows and that do not exist."""
    shown = re.findall(r'src="([^"]+)"', out.read_text(encoding="utf-8"))
    return [picture for picture in shown if not (out.parent / picture).exists()]


# ---------------------------------------------------------------- the page


def page(results: Results) -> str:
    """The page's text."""
    others = {name.partition("-")[0] for name in results.reports} - {each.name for each in exhibits.DATA_SETS}
    sets = [*exhibits.DATA_SETS, *(DataSet(name, name) for name in sorted(others))]
    sections = [_Section(each, results) for each in sets]
    figures = []
    for name, shows in exhibits.FIGURES.items():
        command = f"scorefield figure {name} --out {results.folder}/figures"
        caption = Template(results.figures.get(name, "")).safe_substitute(command=command)
        picture = _picture(f"{results.links}/figures/{name}.png")
        figures.append([shows, f"{picture}<br>{caption}" if caption else f"not made yet: `{command}`"])
    rows = [row for section in sections for row in section.completion_rows()]
    table = _table(["hidden", *COMPLETIONS], rows)
    intro = _fill("completions", remarks=results.remarks["inpainting"], table=table) if rows else ""
    completions = [section.completions() for section in sections]
    text = _fill(
        "page",
        place=results.links,
        figures=_table(["the paper", "ours"], figures),
        data_sets=[section.text() for section in sections],
        inpainting=_fill("inpainting", intro=intro, completions=completions) if any(completions) else "",
    )
    return re.sub(r"\n{3,}", "\n\n", text) + "\n"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Markdown, without rows that hold only their name and dashes."""
    lines = [head, ["---"] * len(head), *(row for row in rows if any(cell != "–" for cell in row[1:]))]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _picture(place: str, width: int = WIDTH) -> str:
    return f'<img src="{place}" width="{width}">'


class _Section:
    """What the page says about one data set: the paper's models first, then other reports with its name in front."""

    def __init__(self, data_set: DataSet, results: Results) -> None:
        self.data_set, self.results = data_set, results
        wanted = [f"{data_set.name}{each}" for each in data_set.models]
        others = [name for name in results.reports if name.partition("-")[0] == data_set.name and name not in wanted]
        self.missing = [name for name in wanted if name in RECIPES and name not in results.reports]
        self.reports = {name: results.reports[name] for name in [*wanted, *others] if name in results.reports}
        self.titles = {name: exhibits.TITLES.get(name.removeprefix(data_set.name), name) for name in self.reports}
        self.numbers = {name: each.numbers for name, each in self.reports.items() if each.numbers is not None}
        references = {each.reference for each in self.numbers.values()}
        self.real = next((each.real for each in self.reports.values() if each.real and len(references) == 1), None)

    def text(self) -> str:
        commands = [missing_command(self.data_set, name, self.results.folder) for name in self.missing]
        missing = _fill("missing", names=", ".join(self.missing), commands="\n".join(commands)) if commands else ""
        models = [self._model(name, report) for name, report in self.reports.items()]
        findings = self._findings() if self.reports else ""
        return _fill("data_set", title=self.data_set.title, models=models, missing=missing, findings=findings)

    def _model(self, name: str, report: Report) -> str:
        model, sigmas, symbols = report.model, report.model.sigmas, {"steps": "T", "step_size": "ε"}
        settings = {key: value for key, value in report.sampler.items() if key not in ("name", "sigmas", "denoise")}
        average = f"moving average ({model.recipe['ema']:g}) of the weights" if model.weights == "ema" else ""
        return _fill(
            "model",
            title=self.titles[name],
            parameters=f"{model.parameters / 1e6:.2f}",
            levels=f"{len(sigmas)} noise levels, σ = {sigmas[0]:g} … {sigmas[-1]:g}"
            if len(sigmas) > 1
            else f"one noise level, σ = {sigmas[0]:g}",
            weights=average or "raw weights",
            step=f"{model.step:,}",
            sampler=f"`{report.sampler['name']}`",
            settings=", ".join(f"{symbols.get(key, key)} = {value}" for key, value in settings.items()),
            remarks=self.results.remarks[name],
            commands=model_commands(name, report),
        )

    # ---------------------------------------------------------------- pictures

    def _pictures(self, wanted: Iterable[Exhibit]) -> str:
        """Of the models that have a report. Completions that the paper does not have are optional."""
        rows = []
        for exhibit in wanted:
            name, where = f"{self.data_set.name}{exhibit.model}", exhibit.where.get(self.data_set.name)
            if (report := self.reports.get(name)) is None:
                continue
            command, caption = f"`{part_command(report, exhibit.part)}`", _caption(exhibit, report)
            if caption is None and exhibit.part == "inpainting" and where is None:
                continue
            picture = _picture(f"{self.results.links}/{name}/{exhibit.picture}")
            if self.data_set.kept_out and exhibit.reveals:
                picture = f"(not shown: the terms of use of {self.data_set.title} do not permit to publish its images"
                picture += ", and these completions come very close)" if exhibit.part == "inpainting" else ")"
            ours = f"{picture}<br>{caption}<br><sub>{command}{_cost(report, exhibit.part)}</sub>"
            ours = ours if caption is not None else f"not measured yet: {command}"
            rows.append([f"**{where or NOT_IN_THE_PAPER}**: {exhibit.shows}", ours])
        return _table(["the paper", "ours"], rows) if rows else ""

    def completions(self) -> str:
        pictures = self._pictures(exhibits.COMPLETIONS)
        return f"### {self.data_set.title}, completed\n\n{pictures}" if pictures else ""

    def completion_rows(self) -> list[list[str]]:
        report = self.reports.get(self.data_set.name)
        masks = {} if report is None or report.inpainting is None else report.inpainting.masks
        names = {mask: f"{self.data_set.title}, {exhibits.HIDDEN.get(mask, mask)}" for mask in masks}
        return [[names[mask], *(_cell(each, made) for each in COMPLETIONS.values())] for mask, made in masks.items()]

    # ---------------------------------------------------------------- numbers

    def _findings(self) -> str:
        others = [(name.removeprefix(self.data_set.name), title) for name, title in self.titles.items()]
        more = [Exhibit("samples.png", f"samples of: {title}", {}, model) for model, title in others]
        more = [each for each in more if each.model not in ("", exhibits.BASELINE)]
        unmeasured = {name: part_command(report, "numbers") for name, report in self.reports.items()}
        return _fill(
            "findings",
            pictures=self._pictures([*exhibits.EXHIBITS, *more]),
            numbers=self._numbers() if self.numbers else "",
            unmeasured=[
                f"{self.titles[name]}, not measured yet: `{command}`"
                for name, command in unmeasured.items()
                if name not in self.numbers
            ],
            table_1=self._table_1() if self.numbers and self.data_set.inception_score else "",
            robustness=[self._robustness(name, report) for name, report in self.reports.items()],
            losses=self._losses(),
            curves=[self._curves(name, report) for name, report in self.reports.items()],
        )

    def _numbers(self) -> str:
        """The metrics: the paper's, then each model's, then those of real images where they were measured."""
        numbers, judged = self.numbers.values(), {name: each.digits for name, each in self.reports.items()}
        digits = next((each for each in judged.values() if each is not None), None)
        rows = []
        for kind, words in KINDS.items():
            real = self.real if kind == "plain" else None
            test = digits.test if digits is not None and kind == "plain" else None
            paper = {"FID": self.data_set.fid, "Inception score": self.data_set.inception_score} if not words else {}
            for label in METRICS:
                cells = [_metric(label, getattr(each, kind)) for each in numbers]
                rows.append([label + words, paper.get(label) or "–", *cells, _metric(label, real)])
            for label in VERDICTS if digits else ():
                cells = [_verdict(label, getattr(judged[name], kind, None)) for name in self.numbers]
                rows.append([label + words, "–", *cells, _verdict(label, test)])
        single = [", its single level" if len(each.loss_by_sigma) == 1 else "" for each in numbers]
        losses = [
            _cell("{loss:.2f} (n = {loss_n:,}{single})", each, single=words)
            for each, words in zip(numbers, single, strict=True)
        ]
        rows.append(["objective, Eq. 6, held-out images", "–", *losses, "–"])
        head = ["", "the paper", *(self.titles[name] for name in self.numbers), "real test images"]
        width = len(head) if self.real or digits else len(head) - 1
        preprocessing = sorted({note for each in numbers for note in each.preprocessing})
        notes = [f"- Preprocessing: {'; '.join(preprocessing)}."] if preprocessing else []
        notes += [_fill("real")] if self.real else []
        notes += [_about_digits(digits)] if digits else []
        references = sorted({_cell("images of {name} ({digest}), n = {n:,}", each.reference) for each in numbers})
        return _fill(
            "numbers",
            remark=self.data_set.remark,
            references="; ".join(references),
            notes="\n".join(notes),
            table=_table(head[:width], [row[:width] for row in rows]),
        )

    def _table_1(self) -> str:
        rows = [
            [f"{row.model} ({group}, the paper)", row.inception_score, row.fid or "–", row.training]
            for group, scores in exhibits.TABLE_1.items()
            for row in scores
        ]
        for name, numbers in self.numbers.items():
            for kind, words in KINDS.items():
                cells = [_metric(label, getattr(numbers, kind)) for label in ("Inception score", "FID")]
                title, training = f"**{self.titles[name]}{words} (unconditional, ours)**", _training(self.reports[name])
                rows.append([title, *cells, training])
        if self.real:
            rows.append(["real test images", *(_metric(label, self.real) for label in ("Inception score", "FID")), "–"])
        return _fill("table_1", table=_table(["model", "Inception score", "FID", "training"], rows))

    def _robustness(self, name: str, report: Report) -> str:
        if report.robustness is None:
            return ""
        cells = {}
        for cell in report.robustness.cells:
            kid = "" if cell.kid is None else f" ({1000 * cell.kid:.1f})"
            cells[cell.step_size, cell.steps] = "diverges" if cell.diverged else _cell("{fid:.1f}{kid}", cell, kid=kid)
        steps = sorted({each for _, each in cells})
        step_sizes = sorted({size for size, _ in cells})
        rows = [[f"ε = {size:g}", *(cells.get((size, each), "–") for each in steps)] for size in step_sizes]
        table = _table(["", *(f"T = {each}" for each in steps)], rows)
        return _fill("robustness", title=self.titles[name], n=f"{report.robustness.n:,}", table=table)

    def _losses(self) -> str:
        losses = {
            self.titles[name]: {f"{each.sigma:.3g}": _cell("{loss:.2f}", each) for each in numbers.loss_by_sigma}
            for name, numbers in self.numbers.items()
            if numbers.loss_by_sigma
        }
        levels = sorted({sigma for each in losses.values() for sigma in each}, key=float, reverse=True)
        rows = [[sigma, *(each.get(sigma, "–") for each in losses.values())] for sigma in levels]
        return _fill("losses", table=_table(["σ", *losses], rows)) if rows else ""

    def _curves(self, name: str, report: Report) -> str:
        what = "losses by level" if len(report.model.sigmas) > 1 else "the loss"
        drawn, place = panels(report), f"{self.results.links}/{name}/{PICTURE}"
        return f"{_picture(place, len(drawn) * WIDTH)}\n\n*{self.titles[name]}: {what} {' and '.join(drawn)}.*" * bool(
            drawn
        )


# ---------------------------------------------------------------- captions


def _about_digits(digits: Digits) -> str:
    """How far the classifier can be trusted: the two kinds of images that it mistakes for digits most often."""
    rejected = digits.test.rejected | digits.test.rejected_unseen
    first, second, third, *_ = sorted((share, kind) for kind, share in rejected.items())
    return _fill(
        "digits",
        accuracy=f"{digits.test.accuracy:.2%}",
        confidence=f"{digits.plain.confidence:g}",
        kinds=len(rejected),
        weakest=" and ".join(f"{share:.0%} of {NOT_DIGITS.get(kind, kind)}" for share, kind in (first, second)),
        others=f"{third[0]:.1%}",
    )


def _training(report: Report) -> str:
    words = f"{report.model.step:,} iterations"
    if report.training is None or report.training.seconds is None:
        return words
    machine = f" on {report.model.machine}" if report.model.machine is not None else ""
    return f"{words}, {duration(report.training.seconds)}{machine}"


def _caption(exhibit: Exhibit, report: Report) -> str | None:
    """The words below a picture of ours; None where it has not been made."""
    name = exhibit.picture.removesuffix(".png")
    if exhibit.part == "samples" and report.samples is not None:
        last = ", with the last denoising step" if name == "samples_denoised" else ""
        return f"the first {report.samples.shown} samples of seed {report.seed}{last}"
    if exhibit.part == "stages" and report.stages is not None:
        return f"after {', '.join(f'{step:,}' for step in report.stages.steps)} steps"
    if exhibit.part == "neighbors" and report.neighbors is not None:
        found = getattr(report.neighbors, name)
        return _cell(COPIES, found, count=len(found.copies), others=report.neighbors.others)
    mask = name.removeprefix("inpainting_")
    if exhibit.part == "inpainting" and report.inpainting is not None and mask in report.inpainting.masks:
        last = "" if report.sampler.get("denoise", True) else ", without the last denoising step"
        return f"{report.inpainting.masks[mask].completions} completions of each image{last}"
    return None


def _cost(report: Report, part: str) -> str:
    """The time that a part took, and its machine. Sampling, which several parts share, is named apart."""
    if part not in report.seconds or part not in report.made_on:
        return ""
    seconds, drawing = report.seconds[part], report.seconds.get("sampling", 0.0)
    time = duration(seconds) if seconds >= 1 else "under 1 s"
    others = " for all pictures of this kind" if part in ("neighbors", "inpainting") else ""
    after = f", after {duration(drawing)} of sampling" if part in ("samples", "neighbors") and drawing >= 1 else ""
    return f": {time} on {report.made_on[part].machine}{others}{after}"
