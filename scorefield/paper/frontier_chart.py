"""The chart of quality against network calls: one line for each sampler, both axes logarithmic."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from scorefield.evaluation.frontier import Frontier
from scorefield.files import new_file
from scorefield.paper.output import new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LABELS = {
    "annealed_langevin": "annealed Langevin (the paper)",
    "consistent_annealed": "consistent annealed",
    "predictor_corrector": "predictor–corrector",
    "annealed_hmc": "annealed HMC",
    "adams_bashforth": "Adams–Bashforth",
    "dpmpp_2m": "DPM-Solver++(2M)",
    "dpmpp_3m": "DPM-Solver++(3M)",
    "heun": "Heun",
    "euler": "Euler",
    "ancestral": "ancestral",
}
METRICS = {"fid": "FID", "distance": "distance to the exact distribution"}
WORST = 100.0
"""The chart ends at so many times the best value: a sampler that diverges would flatten all others."""


def draw_frontier(frontier: Frontier, path: Path) -> Path:
    """Draw the chart as a PNG file."""
    figure = new_figure(7.2, 4.6)
    axes = figure.subplots()
    from matplotlib import colormaps

    best = min(trial.value for trial in frontier.trials)
    top = WORST * best
    for k, (name, points) in enumerate(lines(frontier).items()):
        calls, values = zip(*points, strict=True)
        label = LABELS.get(name, name) + (" (above the chart)" if min(values) > top else "")
        axes.plot(calls, values, color=colormaps["tab10"](k % 10), lw=1.4, marker="o", ms=4, label=label)
    _mark_usual(axes, frontier)
    if frontier.floor is not None:
        label = f"{frontier.n:,} exact samples (below: chance)"
        axes.axhline(frontier.floor, color="0.6", lw=1, ls="--", label=label)
    _scales(axes)
    if math.isfinite(best):  # not all diverged
        axes.set_ylim(0.8 * best, min(top, axes.get_ylim()[1]))
        axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    axes.set(xlabel="network calls per sample", ylabel=f"{METRICS[frontier.metric]}, n = {frontier.n:,}")
    axes.set_title(f"{frontier.what}: quality against cost", fontsize=10)
    with new_file(path) as file:
        figure.savefig(file, format="png", metadata={"Software": None})
    return path


def lines(frontier: Frontier) -> dict[str, list[tuple[int, float]]]:
    """Calls and values of each sampler, in the order of the legend, without those that diverged."""
    found: dict[str, list[tuple[int, float]]] = {}
    for trial in sorted(frontier.trials, key=lambda each: [*LABELS, each.sampler].index(each.sampler)):
        if math.isfinite(trial.value):
            found.setdefault(trial.sampler, []).append((trial.calls, trial.value))
    return {name: sorted(points) for name, points in found.items()}


def _mark_usual(axes: Axes, frontier: Frontier) -> None:
    own = frontier.own
    if own is not None and math.isfinite(own.value):
        label = "the paper's setting" if frontier.what == "toy" else "the model's own setting"
        label += ", denoised" if frontier.usual.get("denoise") else ""
        axes.plot(own.calls, own.value, marker="*", ms=15, color="black", ls="", zorder=3, label=label)


def _scales(axes: Axes) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axes.set(xscale="log", yscale="log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axis.set_minor_formatter(NullFormatter())
    axes.grid(color="0.93", lw=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
