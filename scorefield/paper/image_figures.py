"""The paper's figures of image models, 4 to 6, and its Table 1: parts of a report, for several models side by side."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from scorefield import samplers
from scorefield.data.named import SETS, short_name
from scorefield.distributed import Group, device_name
from scorefield.evaluation.records import Numbers, to_json
from scorefield.evaluation.report import SHOWN, ReportMaker, describe_model
from scorefield.evaluation.sample_cache import SampleCache, cached_batch_size
from scorefield.models.model import load
from scorefield.models.pretrained import listed, pretrained_models
from scorefield.paper.exhibits import TABLE_1
from scorefield.paper.output import Result, new_figure, save
from scorefield.progress import Track, silent

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Kind(NamedTuple):
    """Which part of a report a figure is, the data sets whose models the paper shows in it, and the number of
    samples."""

    part: str
    picture: str
    sets: tuple[str, ...]
    n: int = SHOWN
    quick_n: int = 4


KINDS = {
    "fig4": Kind("stages", "stages.png", ("mnist", "celeba", "cifar10")),
    "fig5": Kind("samples", "samples.png", ("mnist", "celeba", "cifar10")),
    "fig6": Kind("inpainting", "inpainting_left.png", ("celeba", "cifar10")),
    "table1": Kind("numbers", "", ("cifar10",), 50_000, 1000),
}
QUICK_STEPS = 10
"""Steps at each noise level in a quick figure."""
GAP, ABOVE = 20, 50
"""Pixels between the pictures, and above them for the titles."""


class Entry(NamedTuple):
    """A model in a figure: its name, and what makes its part."""

    name: str
    maker: ReportMaker


def models_for(name: str, device: torch.device) -> list[str]:
    """The pretrained models that a figure shows. Without a GPU it is only the small one for MNIST."""
    known, small = pretrained_models(), "mnist-small"
    if device.type == "cpu":
        return [small] if "mnist" in KINDS[name].sets and small in known else []
    wanted = [small if each == "mnist" and each not in known else each for each in KINDS[name].sets]
    return [each for each in wanted if each in known]


def make(
    name: str,
    out: Path,
    *,
    models: Sequence[str] = (),
    data: str | None = None,
    quick: bool = False,
    seed: int = 0,
    device: torch.device | None = None,
    track: Track[Any] = silent,
) -> Result:
    """Make NAME.png and NAME.json in `out` for these models, or else for those from `models_for`.

    `data`: the images to complete or to compare with. None: each model's own.
    """
    new_figure(1, 1)  # fails at once if matplotlib is missing
    kind, group = KINDS[name], Group(0, 1, device or torch.device("cpu"))
    names = list(models) or models_for(name, group.device)
    if not names:
        raise _no_models(name)
    began, n, entries = time.monotonic(), kind.quick_n if quick else kind.n, list[Entry]()
    with TemporaryDirectory() as folder:
        for k, each in enumerate(names):
            model, place = load(each, device=group.device), Path(folder) / str(k)
            place.mkdir()
            sampler: Any = model.sampler
            if quick and hasattr(sampler, "with_steps"):
                sampler = sampler.with_steps(min(QUICK_STEPS, sampler.steps))
            cache = SampleCache(model, sampler, seed=seed)
            maker = ReportMaker(cache, n, cached_batch_size(500, group), data, place, group, track)
            entries.append(Entry(short_name(each), maker))
        entries = _prepare(name, entries, kind.part, every=bool(models) or data is not None)
        made = [_make_part(each.maker, kind.part) for each in entries]
        if kind.picture:
            titles = [title(each.name, each.maker.model.recipe.data) for each in entries]
            figure = side_by_side(titles, [each.maker.out / kind.picture for each in entries])
        else:
            figure = table_1([(each.name, part) for each, part in zip(entries, made, strict=True)])
    described = [_describe(each, kind.part, part) for each, part in zip(entries, made, strict=True)]
    seconds = round(time.monotonic() - began, 2)
    about = {"seed": seed, "quick": quick, "machine": device_name(group.device), "seconds": seconds}
    return save(figure, {"models": described, **about}, out, name)


def _no_models(name: str) -> ValueError:
    """The error for a figure of pretrained models that are missing, or too slow without a GPU."""
    kind = KINDS[name]
    there = [each for each in kind.sets if each in pretrained_models()]
    if kind.part == "inpainting":  # needs images of a data set that is known by name
        there = [each for each in there if load(each).recipe.data in SETS]
    if there:
        fix = f"if you want to wait: --models {' '.join(there)}, perhaps with --quick"
        return ValueError(f"{name} of the pretrained models takes hours or days without a GPU ({fix})")
    fix = f"name another model, or a run of your own, with --models; {listed()}"
    return ValueError(f"{name} shows pretrained models of {' and '.join(kind.sets)}, which are missing ({fix})")


def _prepare(figure: str, entries: list[Entry], part: str, *, every: bool) -> list[Entry]:
    """The models whose images are on this machine; these are opened before the first sample is drawn. The others are
    left out with a warning, unless `every` model is wanted or none is left."""
    usable, problems = list[Entry](), dict[str, ValueError | OSError]()
    for entry in entries:
        try:
            entry.maker.prepare([part])
            usable.append(entry)
        except (ValueError, OSError) as error:
            if every:
                raise
            problems[entry.name] = error
    for name, problem in problems.items():
        if not usable:
            raise problem
        warnings.warn(f"{figure} is made without {name}: {problem}", stacklevel=3)
    return usable


def _make_part(maker: ReportMaker, part: str) -> Any:  # noqa: ANN401
    """The record of that part; its picture is in the maker's folder. Figure 6 has only one mask."""
    if n := maker.samples_for([part]):
        maker.draw(n)
    return maker.inpainting(("left",)) if part == "inpainting" else maker.make(part)


def _describe(entry: Entry, part: str, made: Any) -> dict[str, Any]:  # noqa: ANN401
    """A model's numbers, and what they are numbers of, for JSON."""
    cache, n = entry.maker.cache, entry.maker.samples_for([part])
    return {
        "name": entry.name,
        part: {key: value for key, value in to_json(made).items() if key != "files"},
        "sampler": samplers.to_dict(cache.sampler),
        "precision": cache.precision,
        "calls": cache.sampler.calls,
        "model": to_json(describe_model(cache.model)),
        **({"n": n} if n else {}),
    }


def title(name: str, data: str) -> str:
    """The data set as the paper calls it, with the model's name where that says more."""
    if name in SETS:
        return SETS[name].title
    return f"{SETS[data].title} ({name})" if data in SETS else name


def side_by_side(titles: Sequence[str], pictures: Sequence[Path]) -> Figure:
    """PNG files with a title each, pixel by pixel as they are."""
    from matplotlib.image import imread

    sheets = [imread(path) for path in pictures]
    height = max(sheet.shape[0] for sheet in sheets)
    across, up = sum(sheet.shape[1] + GAP for sheet in sheets) + GAP, height + ABOVE + GAP
    figure = new_figure(1, 1)
    figure.set_layout_engine("none")
    figure.set_size_inches(across / figure.dpi, up / figure.dpi)
    left = GAP
    for words, sheet in zip(titles, sheets, strict=True):
        bottom = GAP + height - sheet.shape[0]
        axes = figure.add_axes((left / across, bottom / up, sheet.shape[1] / across, sheet.shape[0] / up))
        axes.imshow(sheet, interpolation="nearest", cmap="gray", vmin=0, vmax=1, aspect="auto")
        axes.set_axis_off()
        axes.set_title(words, fontsize=10)
        left += sheet.shape[1] + GAP
    return figure


def table_1(models: Sequence[tuple[str, Numbers]]) -> Figure:
    """Table 1, and below it the named models."""
    rows = [("model", "Inception score", "FID")]
    for group, scores in TABLE_1.items():
        rows += [(group, "", ""), *((row.model, row.inception_score, row.fid or "–") for row in scores)]
    rows.append(("ours", "", ""))
    for name, numbers in models:
        against = "" if numbers.reference.name == "cifar10" else f", against {numbers.reference.name}"
        for metrics, more in ((numbers.plain, ""), (numbers.denoised, ", denoised")):
            score, deviation = metrics.inception_score, metrics.inception_score_deviation
            inception = "not measured" if score is None or deviation is None else f"{score:.2f} ± {deviation:.2f}"
            rows.append((f"{name}{more}{against}, n = {metrics.n:,}", inception, f"{metrics.fid:.2f}"))
    figure = new_figure(6, 0.22 * len(rows))
    axes: Any = figure.subplots()
    axes.set_axis_off()
    layout = {"cellLoc": "left", "colLoc": "left", "edges": "B", "colWidths": [0.6, 0.25, 0.15], "bbox": (0, 0, 1, 1)}
    table = axes.table(rows[1:], colLabels=rows[0], **layout)
    table.auto_set_font_size(False)
    table.set_fontsize(9)
    for (row, _), cell in table.get_celld().items():
        cell.set(linewidth=0.4, edgecolor="0.7")
        if row == 0 or not rows[row][2]:
            cell.set_text_props(weight="bold")
    return figure
