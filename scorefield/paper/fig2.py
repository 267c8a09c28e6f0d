"""Figure 2: score matching learns the score only where there are data.

A small network learns the score of 1/5 N((−5, −5), I) + 4/5 N((5, 5), I) by sliced score matching. Near the modes it
agrees with the exact score; in the empty regions between and beyond them there was nothing to learn from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from scorefield.distributions import GaussianMixture
from scorefield.networks import MLP
from scorefield.objectives import sliced
from scorefield.paper.output import EXTENT, HEAVY, LIGHT, WEIGHTS, Result, grid, new_figure, save, toy_axes, toy_work
from scorefield.progress import Track, silent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DATA = GaussianMixture([LIGHT, HEAVY], 1.0, WEIGHTS)
NEAR, FAR = 2.0, 4.0
"""Distances to the nearest mode, in standard deviations. Up to NEAR is near; more than FAR, in the picture, is far."""


@dataclass(frozen=True)
class Settings:
    """Appendix B.1."""

    iterations: int = 10_000
    batch_size: int = 128
    learning_rate: float = 1e-3
    width: int = 128
    layers: int = 3


QUICK = Settings(iterations=2_000)


@dataclass(frozen=True)
class Errors:
    """‖s − ∇log p‖ / ‖∇log p‖, with both norms over the points of a fine grid near the modes, or far from them."""

    near: float
    far: float


def relative_errors(network: Callable[[Tensor], Tensor]) -> Errors:
    """The errors of this network."""
    x = grid(65)
    distance = torch.cdist(x, DATA.means).amin(1)
    truth = DATA.score(x, 0.0)
    with torch.no_grad():
        error = network(x) - truth

    def relative(where: Tensor) -> float:
        return (error[where].norm() / truth[where].norm()).item()

    return Errors(near=relative(distance <= NEAR), far=relative(distance > FAR))


def train(settings: Settings, *, seed: int = 0, track: Track[int] = silent) -> tuple[MLP, list[Errors]]:
    """The network after training, and its errors at 50 iterations of the last tenth of training.

    With a constant learning rate the network keeps changing: its error near the modes at a single iteration is a matter
    of luck (0.05 to 0.3), but the median over the last tenth is not.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = MLP(dim=2, width=settings.width, layers=settings.layers)
        optimizer = torch.optim.Adam(network.parameters(), lr=settings.learning_rate)
        errors = []
        n = settings.iterations
        for iteration in track(range(1, n + 1), "fig2: sliced score matching", n):
            x = DATA.sample(settings.batch_size)
            optimizer.zero_grad()
            sliced(network, x, 0.0).mean().backward()
            optimizer.step()
            if iteration > 0.9 * n and iteration % max(1, n // 500) == 0:
                errors.append(relative_errors(network))
    return network, errors


def make(out: Path, *, quick: bool = False, seed: int = 0, track: Track[int] = silent) -> Result:
    """Write fig2.png and fig2.json to `out`."""
    settings = QUICK if quick else Settings()
    with toy_work() as timing:
        network, errors = train(settings, seed=seed, track=track)
    near, far = median(e.near for e in errors), median(e.far for e in errors)
    numbers = {
        "relative_error_near": near,
        "relative_error_far": far,
        "far_over_near": far / near,
        "near": f"within {NEAR:g} standard deviations of a mode",
        "far": f"more than {FAR:g} standard deviations from both modes, within [-{EXTENT:g}, {EXTENT:g}]^2",
        "errors_are": f"medians over {len(errors)} iterations of the last tenth of training",
        "range_near": [min(e.near for e in errors), max(e.near for e in errors)],
        "range_far": [min(e.far for e in errors), max(e.far for e in errors)],
        "network_in_the_picture": asdict(errors[-1]),
        "seed": seed,
        "quick": quick,
        "settings": asdict(settings),
        **timing,
    }
    return save(_draw(network, near, far), numbers, out, "fig2")


def _draw(network: MLP, near: float, far: float) -> Figure:
    from matplotlib.patches import Circle

    figure = new_figure(11, 4)
    panels = figure.subplots(1, 3)
    fine, coarse = grid(161), grid(17)
    density = DATA.log_prob(fine).exp().reshape(161, 161).T.numpy()
    with torch.no_grad():
        fields = [DATA.score(coarse, 0.0), network(coarse)]
        error = (network(fine) - DATA.score(fine, 0.0)).norm(dim=1).reshape(161, 161).T.numpy()
    square = (-EXTENT, EXTENT, -EXTENT, EXTENT)
    titles = ["exact score  ∇ log p(x)", "learned by sliced score matching:  s(x)"]
    for axes, field, title in zip(panels[:2], fields, titles, strict=True):
        axes.imshow(density, origin="lower", extent=square, cmap="Oranges", vmax=density.max() * 1.2)
        axes.quiver(*coarse.T.numpy(), *field.T.numpy(), color="0.15", angles="xy", scale=160, width=0.0035)
        toy_axes(axes, title)
        for x, y in DATA.means.tolist():
            axes.add_patch(Circle((x, y), NEAR, fill=False, color="tab:red", lw=1.2))
    shown = panels[2].imshow(error, origin="lower", extent=square, cmap="magma_r", vmin=0)
    toy_axes(
        panels[2], f"error ‖s − ∇ log p‖ (relative, late in training:\n{near:.2f} near a mode, {far:.2f} far from both)"
    )
    figure.colorbar(shown, ax=panels[2], shrink=0.8)
    return figure
