"""scorefield train."""

from __future__ import annotations

from typing import Annotated, Literal

import tyro

from scorefield.cli.app import app

NAMES = (
    "mnist",
    "mnist-small",
    "cifar10",
    "celeba",
    "mnist-baseline",
    "cifar10-baseline",
    "celeba-baseline",
    "tiny",
)
"""Those of the recipes, which are not imported before they are wanted: PyTorch would come with them."""


@app.command(name="train")
def _train(recipe: Annotated[Literal[NAMES], tyro.conf.Positional], /) -> None:  # type: ignore[valid-type]
    """Train a model by a recipe: weights, logs and samples go to a run folder, which can be resumed.

    scorefield train RECIPE --help shows the recipe's settings, each of them an option.

    Example: scorefield train mnist --out runs/mnist --minutes 60

    Args:
        recipe: The paper's settings for a data set (-baseline: its single-noise baseline), or tiny, for a first try.
    """
    from scorefield.cli.train_recipe import train_command

    train_command(recipe, [])
