"""The curves of a report: losses over training, and at the end by noise level."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from scorefield.evaluation.records import Report
from scorefield.files import new_file
from scorefield.paper.output import new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FEW = 10
"""Curves of fewer points have markers."""


def losses_over_training(report: Report) -> tuple[str, dict[str, list[tuple[float, float]]]]:
    """A title and the curves, (step, loss) by noise level: held-out losses of the weights reported on, or else training
    losses, which are always of the raw weights."""
    weights = report.model.weights
    if report.training is not None:
        if curves := report.training.held_out.by_sigma("held_out" if weights == "raw" else f"{weights}_held_out"):
            return f"held-out loss, σ² ℓ(σ), {weights} weights", curves
        if curves := report.training.log.by_sigma("loss"):
            return "training loss, σ² ℓ(σ)", curves
    return "", {}


def panels(report: Report) -> list[str]:
    """What there is to draw, in words. A single level at the end is the last point of its curve over training."""
    over_training = bool(losses_over_training(report)[1])
    at_the_end = 0 if report.numbers is None else len(report.numbers.loss_by_sigma)
    return ["over training"] * over_training + ["at the end"] * (at_the_end > (1 if over_training else 0))


def draw_curves(report: Report, folder: Path) -> Path:
    """Draw folder/losses.png, with what `panels` names."""
    names, path = panels(report), folder / "losses.png"
    figure = new_figure(5.5 * len(names), 4)
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    for axes, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        (_draw_training if name == "over training" else _draw_end)(axes, report)
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))  # labels 10, 20, 50 instead of powers
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
    with new_file(path) as file:
        figure.savefig(file, format="png", metadata={"Software": None})
    return path


def _draw_training(axes: Axes, report: Report) -> None:
    from matplotlib import colormaps

    title, curves = losses_over_training(report)
    for k, (sigma, points) in enumerate(curves.items()):
        if points:
            colour = colormaps["viridis"](0.95 * k / max(1, len(curves) - 1))
            marker = "o" if len(points) < FEW else ""
            axes.plot(*zip(*points, strict=True), color=colour, lw=1, marker=marker, ms=3, label=f"σ = {sigma}")
    axes.set(xlabel="iterations", title=title)
    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)


def _draw_end(axes: Axes, report: Report) -> None:
    """With the loss of a score that is 0 everywhere: half the number of pixels, at every level."""
    assert report.numbers is not None
    levels = report.numbers.loss_by_sigma
    axes.plot([each.sigma for each in levels], [each.loss for each in levels], marker="o", color="tab:blue", lw=1)
    axes.axhline(prod(report.model.shape) / 2, color="0.6", lw=1, ls="--", label="a score of 0")
    axes.legend(fontsize=7)
    title = f"σ² ℓ(σ) at step {report.model.step:,}, {report.numbers.loss_n or 0:,} held-out images"
    axes.set(xscale="log", xlabel="σ", title=title)
