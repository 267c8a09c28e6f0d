"""scorefield demo, scorefield figure."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from scorefield.cli.app import Flag, ModelName, command, prepare_folder, say

if TYPE_CHECKING:
    import torch

Name = Literal["fig1", "fig2", "fig3", "fig4", "fig5", "fig6", "table1", "all"]


@command
def demo(*, out: Path = Path("demo"), seed: int = 0) -> None:
    """Show the main points on one page, without a download or a GPU, in half a minute on two cores.

    Makes figure 3, the paper's main argument: plain Langevin dynamics loses the weights of the modes, annealing keeps
    them. Then the paper's network draws digits from noise, and completes half a digit in several ways. A network for
    all noise levels draws digits of a chosen class in ten calls, and restores a digit from 49 pixels.

    Example: scorefield demo --out demo

    Args:
        out: Folder for the page, the pictures and their numbers; made if it is missing.
        seed: Another seed gives other samples.
    """
    from scorefield.paper.demo import make
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


@command
def figure(
    name: Annotated[Name, tyro.conf.Positional],
    /,
    *,
    out: Path = Path("figures"),
    models: tuple[ModelName, ...] = (),
    data: str | None = None,
    quick: Flag = False,
    seed: int = 0,
) -> None:
    """Make a figure or the table of the paper: NAME.png, and NAME.json with its numbers.

    fig1: the loss of sliced score matching on CIFAR-10, without and with a little noise (12 minutes on an H200; days
    on a CPU).

    fig2: the score learned by sliced score matching, against the exact one (about a minute).

    fig3: samples of a mixture, exact, by Langevin and by annealed Langevin dynamics (half a minute).

    fig4: intermediate samples. fig5: uncurated samples, 10 × 10. fig6: held-out images completed. table1: FID and
    Inception score of 50,000 samples. These show pretrained models or --models and take minutes on a GPU (table1: 45).
    Without a GPU, fig4 and fig5 use the small MNIST model and take about 2 and 15 minutes on two cores.

    Example: scorefield figure fig3 --out figures

    Args:
        name: The figure. all makes every figure; without a GPU only those that take minutes: fig2, fig3 and fig4.
        out: Folder for the pictures and their numbers; made if it is missing.
        models: Run folders, model files or names of pretrained models, for fig4, fig5, fig6 and table1.
        data: The images to complete in fig6 (the test images of a named data set, otherwise held-out images) and to
            compare with in table1. Default: each model's own.
        quick: A smaller version: under 20 seconds for fig2 to fig5 on two cores, 6 minutes for fig6 of cifar10, the
            first steps of a small network for fig1, 1,000 samples for table1.
        seed: Another seed gives other samples and initial weights.
    """
    from scorefield.distributed import pick_device
    from scorefield.models.pretrained import find
    from scorefield.paper import FIGURES
    from scorefield.paper.image_figures import KINDS
    from scorefield.paper.image_figures import make as make_of_models
    from scorefield.progress import track

    if (models or data) and name not in (*KINDS, "all"):
        raise ValueError(f"{name} shows no models (--models and --data apply to {', '.join(KINDS)})")
    for model in models:
        find(model)
    prepare_folder(out, seed)
    device = pick_device("auto")
    names = [name] if name != "all" else _all(device, own_models=bool(models), quick=quick)
    if "table1" in names and device.type == "cpu" and models:
        say("table1 takes days without a GPU (with --quick, hours)")
    for each in names:
        make = FIGURES.get(each) or partial(make_of_models, each, models=models, data=data, device=device)
        print(make(out, quick=quick, seed=seed, track=track).picture)


def _all(device: torch.device, *, own_models: bool, quick: bool) -> list[str]:
    """The figures that `all` makes here; prints those left out."""
    from scorefield.paper import FIGURES
    from scorefield.paper.image_figures import KINDS, models_for

    wanted = [*FIGURES, *(kind for kind in KINDS if own_models or models_for(kind, device))]
    if device.type == "cpu":
        wanted = [each for each in ("fig3", "fig2", "fig4", *(["fig5"] if quick else [])) if each in wanted]
    if left := sorted({*FIGURES, *KINDS} - set(wanted)):
        why = "there is no pretrained model" if device.type == "cuda" else "they take long without a GPU"
        say(f"left out: {', '.join(left)} ({why}; named alone, each is made where it can be)")
    return wanted
