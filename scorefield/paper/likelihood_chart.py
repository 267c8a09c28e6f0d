"""The chart of likelihoods: a histogram of bits per dimension for each set of images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from scorefield.files import new_file
from scorefield.paper.output import new_figure

MOST_BINS = 60


def draw_histograms(title: str, bits: Mapping[str, Sequence[float]], path: Path) -> Path:
    """Draw the bits per dimension of the images of each source as a PNG file."""
    figure = new_figure(7.2, 3.2)
    axes = figure.subplots()
    everything = np.concatenate([np.asarray(each) for each in bits.values()])
    low, high = np.quantile(everything, [0.002, 0.998])  # a few far away would flatten all others
    edges = np.linspace(low, high, min(MOST_BINS, 15 + len(everything) // 20) + 1)
    for name, each in bits.items():
        axes.hist(
            np.clip(each, low, high), bins=list(edges), density=True, alpha=0.6, label=f"{name}, n = {len(each):,}"
        )
        axes.axvline(float(np.mean(each)), color="0.3", lw=0.8, ls="--")
    axes.set(xlabel="bits per dimension (left: more likely; dashed: the mean)", yticks=[])
    axes.set_title(title, fontsize=10)
    axes.legend(fontsize=8, frameon=False)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    with new_file(path) as file:
        figure.savefig(file, format="png", metadata={"Software": None})
    return path
