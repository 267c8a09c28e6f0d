"""The curves of a report: losses over training, and at the end by noise level."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scorefield.paper.output import new_figure
from scorefield.files import new_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PICTURE = "losses.png"
FEW = 10
"""Points are drawn as such where they are fewer."""


def panels_of(report: dict[str, Any]) -> dict[str, Callable[[Axes, dict[str, Any]], None]]:
    """What there is to draw, in words: losses over training and, if that is more than their last point, at the end."""
    rows, final = _by_level(report)[1], report.get("numbers", {}).get("loss_per_level", [])
    panels: dict[str, Callable[[Axes, dict[str, Any]], None]] = {}
    if rows:
        panels["over training"] = _over_iterations
    if len(final) > 1 or (final and not rows):
        panels["at the end"] = _at_the_end
    return panels


def draw_curves(report: dict[str, Any], folder: Path) -> Path:
    """folder/losses.png: the losses by level over the iterations, and those of the model reported on."""
    panels = panels_of(report).values()
    figure = new_figure(5.5 * len(panels), 4)
    for axes, draw in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        draw(axes, report)
    with new_file(folder / PICTURE) as file:
        figure.savefig(file, format="png", metadata={"Software": None})
    return folder / PICTURE


def _by_level(report: dict[str, Any]) -> tuple[str, list[list[Any]]]:
    """What was measured, and rows (step, loss at level 1, 2, ...): held-out losses, or else training losses.

    Training losses are always those of the raw weights.
    """
    training, levels = report.get("training", {}), len(report["model"]["sigmas"])
    weights = report["model"]["weights"]
    held_out = f"{'ema_' if weights == 'ema' else ''}held_out_", f"held-out loss, σ² ℓ(σ), {weights} weights"
    for log, prefix, what in (("held_out", *held_out), ("log", "loss_", "training loss, σ² ℓ(σ)")):
        table = training.get(log, {"columns": [], "rows": []})
        wanted = [f"{prefix}{k}" for k in range(1, levels + 1)]
        if table["rows"] and set(wanted) <= set(table["columns"]):
            places = [0, *(table["columns"].index(name) for name in wanted)]
            return what, [[row[place] for place in places] for row in table["rows"]]
    return "", []


def _over_iterations(axes: Axes, report: dict[str, Any]) -> None:
    from matplotlib import colormaps

    what, rows = _by_level(report)
    sigmas = report["model"]["sigmas"]
    for k, sigma in enumerate(sigmas, 1):
        points = [(row[0], row[k]) for row in rows if row[k] is not None]
        colour = colormaps["viridis"](0.95 * (k - 1) / max(1, len(sigmas) - 1))
        if points:
            marker = "o" if len(points) < FEW else ""
            axes.plot(*zip(*points, strict=True), color=colour, lw=1, marker=marker, ms=3, label=f"σ = {sigma:.3g}")
    axes.set(xlabel="iterations", title=what)
    _log_scale(axes)
    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)


def _at_the_end(axes: Axes, report: dict[str, Any]) -> None:
    """Against a score that is 0 everywhere, whose loss is half the number of pixels at every level."""
    sigmas, numbers = report["model"]["sigmas"], report["numbers"]
    axes.plot(sigmas, numbers["loss_per_level"], marker="o", color="tab:blue", lw=1)
    axes.axhline(prod(report["model"]["shape"]) / 2, color="0.6", lw=1, ls="--", label="a score of 0")
    axes.legend(fontsize=7)
    title = f"σ² ℓ(σ) at step {report['model']['step']:,}, {numbers['loss_n']:,} held-out images"
    axes.set(xscale="log", xlabel="σ", title=title)
    _log_scale(axes)


def _log_scale(axes: Axes) -> None:
    """Upwards, labelled 10, 20, 50 and not by powers."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
