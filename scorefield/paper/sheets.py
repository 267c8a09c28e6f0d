"""Pictures of several models side by side, and Table 1 with rows of ours: how they are drawn."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scorefield.paper.output import new_figure
from scorefield.paper.paper import DATA_SETS, TABLE_1

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GAP, ABOVE = 20, 50
"""Pixels between the pictures, and above them for the titles."""


def titles_of(numbers: list[dict[str, Any]]) -> list[str]:
    """The data sets, as the paper calls them, and the models' names where these say more."""
    known = {each.name: each.title for each in DATA_SETS}
    pairs = [(each["name"], each["model"]["recipe"]["data"]) for each in numbers]
    return [known.get(name) or (f"{known[data]} ({name})" if data in known else name) for name, data in pairs]


def side_by_side(titles: Sequence[str], pictures: Sequence[Path]) -> Figure:
    """PNG files with a title each, pixel by pixel as they are."""
    from matplotlib.image import imread

    sheets = [imread(path) for path in pictures]
    width, height = sum(sheet.shape[1] + GAP for sheet in sheets) + GAP, max(sheet.shape[0] for sheet in sheets)
    figure = new_figure(1, 1)
    figure.set_layout_engine("none")
    figure.set_size_inches(width / figure.dpi, (height + ABOVE + GAP) / figure.dpi)
    left, (across, up) = GAP, (width, height + ABOVE + GAP)
    for title, sheet in zip(titles, sheets, strict=True):
        bottom = GAP + height - sheet.shape[0]
        axes = figure.add_axes((left / across, bottom / up, sheet.shape[1] / across, sheet.shape[0] / up))
        axes.imshow(sheet, interpolation="nearest", cmap="gray", vmin=0, vmax=1, aspect="auto")
        axes.set_axis_off()
        axes.set_title(title, fontsize=10)
        left += sheet.shape[1] + GAP
    return figure


def table_1(numbers: list[dict[str, Any]]) -> Figure:
    """Table 1 with rows of ours below."""
    rows = [(row.model, row.inception, row.fid or "–") for rows in TABLE_1.values() for row in rows]
    starts = {sum(map(len, list(TABLE_1.values())[:k])) + k: title for k, title in enumerate(TABLE_1)}
    for place, title in starts.items():
        rows.insert(place, (title, "", ""))
    rows.append(("ours", "", ""))
    for each in numbers:
        reference = each["numbers"]["reference"]["name"]
        against = "" if reference == "cifar10" else f", against {reference}"
        for kind, more in (("plain", ""), ("denoised", ", denoised")):
            found = each["numbers"][kind]
            score, deviation = found["inception_score"], found.get("inception_score_deviation")
            inception = f"{score:.2f} ± {deviation:.2f}" if score is not None else "not measured"
            rows.append((f"{each['name']}{more}{against}, n = {found['n']:,}", inception, f"{found['fid']:.2f}"))
    figure = new_figure(6, 0.22 * (len(rows) + 1))
    axes = figure.subplots()
    axes.set_axis_off()
    head = ["model", "Inception score", "FID"]
    draw: Any = partial(axes.table, cellLoc="left", colLoc="left", edges="B")
    table = draw(rows, colLabels=head, colWidths=[0.6, 0.25, 0.15], bbox=(0, 0, 1, 1))
    table.auto_set_font_size(False)
    table.set_fontsize(9)
    for (row, _), cell in table.get_celld().items():
        cell.set(linewidth=0.4, edgecolor="0.7")
        if row == 0 or not rows[row - 1][2]:
            cell.set_text_props(weight="bold")
    return figure
