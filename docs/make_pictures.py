"""The five pictures of docs/idea.md, in docs/figures.

python docs/make_pictures.py            (about 20 s on two cores)
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from matplotlib import pyplot as plt
from matplotlib.colors import LinearSegmentedColormap
from PIL import Image
from torch import Tensor

import scorefield as sf
from scorefield.samplers import State

FIGURES = Path(__file__).parent / "figures"
INK, RUST, BLUE, PAPER = "#2b2926", "#b5401f", "#2f6690", "#ffffff"
WARM = LinearSegmentedColormap.from_list("warm", [PAPER, "#f6dfd2", "#e5a488", "#c9633f"])
DATA = sf.GaussianMixture([[-5.0, -5.0], [5.0, 5.0]], 0.0, [1, 4])
"""The paper's two modes; the noise makes their width."""
LINE = sf.GaussianMixture([[-3.0], [2.0]], 0.25, [1, 2])
"""Two modes on a line."""

mpl.rcParams.update(
    {
        "font.size": 12,
        "axes.titlesize": 13,
        "text.color": INK,
        "axes.edgecolor": "#c8c2ba",
        "axes.labelcolor": INK,
        "axes.titlecolor": INK,
        "xtick.color": INK,
        "ytick.color": INK,
        "figure.facecolor": PAPER,
        "savefig.facecolor": PAPER,
    }
)


def save(figure: Any, name: str) -> None:  # noqa: ANN401
    figure.savefig(FIGURES / f"{name}.png", dpi=120, bbox_inches="tight", pad_inches=0.12)
    plt.close(figure)


def square(axes: Any, size: float) -> None:  # noqa: ANN401
    axes.set(xlim=(-size, size), ylim=(-size, size), aspect="equal", xticks=[], yticks=[])


def field(axes: Any, data: sf.GaussianMixture, sigma: float, size: float, arrows: int) -> None:  # noqa: ANN401
    """The density with noise σ in colour, and its score as arrows of compressed length."""
    fine, coarse = torch.linspace(-size, size, 240), torch.linspace(-0.9 * size, 0.9 * size, arrows)
    grid = torch.cartesian_prod(fine, fine)
    density = data.log_prob(grid, sigma).exp().reshape(240, 240).T
    axes.imshow(density, extent=(-size, size, -size, size), origin="lower", cmap=WARM, interpolation="bilinear")
    points = torch.cartesian_prod(coarse, coarse)
    score = data.score(points, torch.tensor(sigma))
    norm = score.norm(dim=1, keepdim=True)
    arrow = score / norm * (norm / norm.median()).clamp(max=3) ** 0.5
    axes.quiver(*points.T, *arrow.T, color=INK, alpha=0.75, scale=30, width=0.0035, headwidth=4, pivot="mid")
    square(axes, size)


def score() -> None:
    """1: a density and its score."""
    spots = sf.GaussianMixture([[-2.2, -1.4], [2.3, -0.8], [0.2, 2.3]], 0.8, [2, 3, 2])
    figure, axes = plt.subplots(figsize=(5.2, 5.2))
    field(axes, spots, 0.1, 4.5, 17)
    axes.set_title("colour: the density q(x)      arrows: the score ∇ log q(x)")
    save(figure, "idea-1-score")


def noise() -> None:
    """2: the same data with more and more noise."""
    angle = torch.linspace(0.5, 4.2, 24)
    curve = torch.stack([angle * (1.5 * angle).cos(), angle * (1.5 * angle).sin()], 1)
    data = sf.GaussianMixture(curve, 0.05, torch.ones(len(curve)))
    figure, row = plt.subplots(1, 4, figsize=(13, 3.6))
    for axes, sigma in zip(row, (0.15, 0.5, 1.3, 3.5), strict=True):
        field(axes, data, sigma, 6.5, 13)
        axes.set_title(f"σ = {sigma:g}")
    figure.tight_layout(w_pad=1.0)
    save(figure, "idea-2-noise")


def annealing() -> None:
    """3: exact samples, plain and annealed Langevin dynamics from the same start (Figure 3 of the paper)."""
    torch.manual_seed(0)
    start, sigmas = 16 * torch.rand(1280, 2) - 8, sf.geometric(20.0, 1.0, 10)
    clouds = {
        "exact": DATA.sample(1280, 1.0),
        "Langevin dynamics, σ = 1": sf.last(sf.langevin(DATA.score, start, 1.0, step_size=0.1, steps=1000)),
        "annealed, σ from 20 to 1": sf.last(sf.annealed_langevin(DATA.score, start, sigmas, step_size=0.1, steps=100)),
    }
    figure, row = plt.subplots(1, 3, figsize=(11.5, 4.1))
    for axes, (title, x) in zip(row, clouds.items(), strict=True):
        upper = x.sum(1) > 0
        for part, colour, place, side in ((upper, RUST, (0.5, 0.73), "right"), (~upper, BLUE, (0.46, 0.21), "left")):
            axes.scatter(*x[part].T, s=6, color=colour, alpha=0.45, linewidths=0)
            share = f"{part.float().mean():.0%}"
            axes.text(*place, share, color=colour, ha=side, transform=axes.transAxes, fontsize=15, weight="bold")
        axes.set_title(title)
        square(axes, 9.5)
    figure.tight_layout(w_pad=1.0)
    save(figure, "idea-3-annealing")


def samplers() -> None:
    """4: paths of single samples from noise to data, for annealed Langevin dynamics and the probability flow."""
    torch.manual_seed(1)
    start = 6 * torch.linspace(-1.5, 1.5, 14)[:, None]
    ladder, smooth = sf.geometric(6.0, 0.1, 10), sf.geometric(6.0, 0.1, 60)
    langevin = list(sf.annealed_langevin(LINE.score, start[::3], ladder, step_size=0.004, steps=30))
    flow = list(sf.heun(LINE.score, start, smooth))
    figure, row = plt.subplots(1, 2, figsize=(12, 4.2), sharey=True)
    for axes, states, title in (
        (row[0], langevin, "annealed Langevin dynamics: five samples"),
        (row[1], flow, "the probability flow: smooth, so few calls are enough"),
    ):
        paths(axes, states)
        axes.set_title(title)
    row[0].set_ylabel("x")
    figure.tight_layout(w_pad=1.5)
    save(figure, "idea-4-samplers")


def paths(axes: Any, states: list[State]) -> None:  # noqa: ANN401
    """The states' x against σ, on the density of x at each σ."""
    heights, sigmas = torch.linspace(-12, 12, 400), sf.geometric(6.0, 0.1, 200)
    density = torch.stack([LINE.log_prob(heights[:, None], float(sigma)).exp() for sigma in sigmas], 1)
    axes.pcolormesh(sigmas, heights, (density / density.amax(0)) ** 0.7, cmap=WARM, shading="nearest", rasterized=True)
    x: Tensor = torch.stack([state.x[:, 0] for state in states])
    levels = torch.stack([torch.as_tensor(state.sigma).float() for state in states])
    if len(set(levels.tolist())) < len(states):  # several steps at a level: spread them to the next one
        levels = sf.geometric(6.0, 0.1, len(states))
    ends = x[-1] > 0
    for k in range(x.shape[1]):
        axes.plot(levels, x[:, k], color=RUST if ends[k] else BLUE, lw=1.1, alpha=0.85)
    axes.set(xscale="log", xlim=(6, 0.1), ylim=(-11, 11), xlabel="noise level σ, from noise to data")
    axes.set_xticks([5, 2, 1, 0.5, 0.2, 0.1], ["5", "2", "1", "0.5", "0.2", "0.1"])
    axes.set_yticks([-10, -5, 0, 5, 10])
    axes.minorticks_off()


def posteriors() -> None:
    """5: what the hidden half of a digit may be, by the pretrained mnist-small."""
    with Image.open(Path(sf.__file__ or "").parent / "paper" / "digit.png") as file:
        digit = torch.tensor(np.asarray(file.convert("L").resize((28, 28)))[None] / np.float32(255))
    mask = torch.ones(28, 28)
    mask[:, :14] = 0
    model = sf.load("mnist-small")
    x = model.inpaint(digit, mask, n=24, sampler=sf.ConsistentAnnealed(calls=30))
    known = torch.where(mask.bool(), digit, torch.tensor(float("nan")))
    tiles = [("known", known), *((f"{k + 1}", x[k]) for k in range(6)), ("mean of 24", x.mean(0)), ("spread", x.std(0))]
    figure, row = plt.subplots(1, len(tiles), figsize=(13, 1.9))
    for axes, (title, image) in zip(row, tiles, strict=True):
        colours = mpl.colormaps["gray"].with_extremes(bad="#d9d2c7")
        axes.imshow(image[0], cmap=WARM if title == "spread" else colours, vmin=0, vmax=0.5 if title == "spread" else 1)
        axes.set(xticks=[], yticks=[])
        axes.set_title(title, color=RUST if title == "spread" else INK)
    figure.tight_layout(w_pad=0.4)
    save(figure, "idea-5-posteriors")


def main() -> None:
    for make in (score, noise, annealing, samplers, posteriors):
        make()
        print(f"{make.__name__}: {(make.__doc__ or '').split(':')[0]}")


if __name__ == "__main__":
    main()
