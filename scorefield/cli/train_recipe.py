"""scorefield train RECIPE: its options, and the training."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import tyro

from scorefield import data
from scorefield.cli.app import say
from scorefield.distributed import joined
from scorefield.training.logs import tensorboard_log, wandb_log
from scorefield.progress import track
from scorefield.models.recipes import RECIPES, Recipe
from scorefield.training import saved_recipe, train


@dataclass(frozen=True)
class Train:
    """Train a model by a recipe, in a run folder.

    Example: scorefield train tiny --data my_images --out runs/mine
    """

    recipe: tyro.conf.OmitArgPrefixes[Recipe] = field(default_factory=Recipe)
    out: Path | None = None
    """The run's folder; runs/RECIPE unless given. One that exists is never overwritten."""
    resume: bool = False
    """Go on with the run in that folder, exactly where it stopped."""
    minutes: float = float("inf")
    """Stop cleanly after so many minutes, with a checkpoint."""
    device: str = "auto"
    """auto (a GPU where there is one), cpu, cuda, cuda:1, ..."""
    tensorboard: bool = False
    """Write TensorBoard events into the run's folder as well."""
    wandb: bool = False
    """Log to Weights & Biases as well."""


def train_command(name: str, arguments: list[str]) -> None:
    """Train by the recipe of that name, with the options of the command line over it; a resumed run keeps its own.

    A run that a signal has stopped ends with 128 + its number, as shells have it: 130 for Ctrl-C, 143 for SIGTERM.
    """
    if name not in RECIPES:
        raise ValueError(f"there is no recipe {name} (choose from {', '.join(RECIPES)})")
    options = _parsed(name, RECIPES[name], arguments)
    out = options.out or Path("runs") / name
    if options.resume:
        options = _parsed(name, saved_recipe(out), arguments)
        if not data.exists(place := options.recipe.data):
            raise FileNotFoundError(f"the run's images, {place}, are not here (say where they are now: --data PLACE)")
    for extra_name, wanted in (("tensorboard", options.tensorboard), ("wandb", options.wandb)):
        if wanted and find_spec(extra_name) is None:
            raise ImportError(f"--{extra_name} needs a package (pip install {extra_name})")
    signals: list[int] = []
    with joined(options.device) as group:
        extra = [partial(tensorboard_log, out / "tensorboard")] if options.tensorboard else []
        extra += [partial(wandb_log, out, asdict(options.recipe))] if options.wandb else []
        saved = train(
            options.recipe,
            out,
            group,
            resume=options.resume,
            minutes=options.minutes,
            extra_logs=extra,
            interrupted=signals.append,
            say=say,
            track=track,
        )
        if group.main:
            print(saved, flush=True)
        group.wait()  # torchrun ends the others as soon as one has failed: not before the main one has spoken
    if signals:
        sys.exit(128 + signals[0])


def _parsed(name: str, recipe: Recipe, arguments: list[str]) -> Train:
    return tyro.cli(
        Train,
        prog=f"scorefield train {name}",
        default=Train(recipe=recipe),
        args=arguments,
    )
