"""The chart of quality against network calls: one line for each sampler, both axes logarithmic."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from scorefield.evaluation.frontier import Frontier, Trial
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
WORST = 30.0
"""Values above so many times the best are left out: a sampler that diverges would flatten all others."""


def draw_frontier(frontier: Frontier, path: Path) -> Path:
    """Draw the chart as a PNG file."""
    figure = new_figure(7.2, 4.6)
    axes = figure.subplots()
    shown = visible(frontier)
    names = sorted({trial.sampler for trial in shown}, key=lambda name: [*LABELS, name].index(name))
    from matplotlib import colormaps

    for k, name in enumerate(names):
        points = sorted((trial.calls, trial.value) for trial in shown if trial.sampler == name)
        colour = colormaps["tab10"](k % 10)
        calls, values = zip(*points, strict=True)
        axes.plot(calls, values, color=colour, lw=1.4, marker="o", ms=4, label=LABELS.get(name, name))
    _mark_usual(axes, frontier)
    if frontier.floor is not None:
        axes.axhline(frontier.floor, color="0.6", lw=1, ls="--")
        axes.annotate(
            f"{frontier.n:,} exact samples",
            (0.01, frontier.floor),
            xycoords=("axes fraction", "data"),
            xytext=(0, 3),
            textcoords="offset points",
            fontsize=7,
            color="0.4",
        )
    _scales(axes)
    axes.set(xlabel="network calls per sample", ylabel=f"{METRICS[frontier.metric]}, n = {frontier.n:,}")
    axes.set_title(f"{frontier.what}: quality against cost", fontsize=10)
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    with new_file(path) as file:
        figure.savefig(file, format="png", metadata={"Software": None})
    return path


def visible(frontier: Frontier) -> list[Trial]:
    """The trials that fit into the chart."""
    best = min(trial.value for trial in frontier.trials)
    return [trial for trial in frontier.trials if math.isfinite(trial.value) and trial.value <= WORST * best]


def _mark_usual(axes: Axes, frontier: Frontier) -> None:
    for trial in frontier.trials:
        if trial.settings == frontier.usual and math.isfinite(trial.value):
            label = "the paper's setting" if frontier.what == "toy" else "the model's own setting"
            axes.plot(trial.calls, trial.value, marker="*", ms=15, color="black", ls="", zorder=3, label=label)


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
