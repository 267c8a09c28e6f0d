"""scorefield demo, scorefield figure."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import tyro

from scorefield.cli.app import app, prepare_folder, say

Name = Literal["fig1", "fig2", "fig3", "all"]


@app.command
def demo(*, out: Path = Path("demo"), seed: int = 0) -> None:
    """Everything at a glance, on one page: no download, no GPU, about a minute on two cores.

    Makes figure 3, the paper's main argument: plain Langevin dynamics loses the weights of the modes, annealing keeps
    them. Then a shipped model draws digits from noise, and completes half a digit in several ways.

    Example: scorefield demo --out demo

    Args:
        out: Folder for the page, the pictures and their numbers; made if it is missing.
        seed: Another seed gives other samples.
    """
    from scorefield.experiments.demo import make
    from scorefield.progress import track

    prepare_folder(out, seed)
    made = make(out, seed=seed, track=track)
    share = made.fig3.numbers["heavy_fraction"]
    print(f"share of samples in the mode that holds {4 / 5:.0%} of the data")
    print(f"  exact sampling              {share['exact']:6.1%}")
    print(f"  Langevin dynamics           {share['langevin']:6.1%}   stuck where they started")
    print(f"  annealed Langevin dynamics  {share['annealed']:6.1%}   noise joins the modes, then fades")
    *pictures, page = made.files
    for picture in pictures:
        print(picture)
    print(f"look at {page}")


@app.command
def figure(
    name: Annotated[Name, tyro.conf.Positional],
    /,
    *,
    out: Path = Path("figures"),
    quick: bool = False,
    seed: int = 0,
) -> None:
    """Make a figure of the paper again: NAME.png, and NAME.json with its numbers.

    fig1: the loss of sliced score matching on CIFAR-10, without and with a little noise (minutes on a GPU; days on a
    CPU, where all leaves it out).

    fig2: the score as sliced score matching learns it, against the truth (about a minute).

    fig3: samples of a mixture, exact, by Langevin and by annealed Langevin dynamics (seconds).

    Example: scorefield figure fig3 --out figures

    Args:
        name: Which figure; all makes each of them.
        out: Folder for the pictures and their numbers; made if it is missing.
        quick: Smaller than in the paper, under 20 seconds each; of fig1, only a small network's first steps.
        seed: Another seed gives other samples and initial weights.
    """
    from scorefield.distributed import pick_device
    from scorefield.experiments import FIGURES
    from scorefield.progress import track

    prepare_folder(out, seed)
    names = [name] if name != "all" else list(FIGURES)
    if name == "all" and pick_device("auto").type == "cpu":
        names.remove("fig1")
        say("fig1 is left out: without a GPU it takes days (scorefield figure fig1 makes it nevertheless)")
    for each in names:
        result = FIGURES[each](out, quick=quick, seed=seed, track=track)
        print(result.picture)
