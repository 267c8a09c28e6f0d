"""Pictures of several models side by side, and Table 1 with rows for our models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scorefield.evaluation.records import ModelRecord, Numbers
from scorefield.paper.exhibits import DATA_SETS, TABLE_1
from scorefield.paper.output import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GAP, ABOVE = 20, 50
"""Pixels between the pictures, and above them for the titles."""


def titles_of(models: Sequence[tuple[str, ModelRecord]]) -> list[str]:
    """The data sets as the paper calls them, with the models' names where these say more."""
    known = {each.name: each.title for each in DATA_SETS}
    pairs = [(name, model.recipe["data"]) for name, model in models]
    return [known.get(name) or (f"{known[data]} ({name})" if data in known else name) for name, data in pairs]


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
    for title, sheet in zip(titles, sheets, strict=True):
        bottom = GAP + height - sheet.shape[0]
        axes = figure.add_axes((left / across, bottom / up, sheet.shape[1] / across, sheet.shape[0] / up))
        axes.imshow(sheet, interpolation="nearest", cmap="gray", vmin=0, vmax=1, aspect="auto")
        axes.set_axis_off()
        axes.set_title(title, fontsize=10)
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
    table = axes.table(
        rows[1:],
        colLabels=rows[0],
        cellLoc="left",
        colLoc="left",
        edges="B",
        colWidths=[0.6, 0.25, 0.15],
        bbox=(0, 0, 1, 1),
    )
    table.auto_set_font_size(False)
    table.set_fontsize(9)
    for (row, _), cell in table.get_celld().items():
        cell.set(linewidth=0.4, edgecolor="0.7")
        if row == 0 or not rows[row][2]:
            cell.set_text_props(weight="bold")
    return figure
