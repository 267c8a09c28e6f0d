"""scorefield train."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, Union

import tyro

from scorefield.cli.app import Device, Flag, arguments, command, plain_help, say
from scorefield.files import check_writable
from scorefield.models.recipes import FIXED, RECIPES, Recipe

UNLIKE = 3
"""A note is given if a run has so many settings more in common with another recipe than with the one named."""


@plain_help
@dataclass(frozen=True)
class _Settings(Recipe):
    """The recipe: all settings that decide what the run computes."""

    def __post_init__(self) -> None:
        """No checks while options are parsed: `Recipe` makes them afterwards, and its errors are printed plainly."""


def _settings(recipe: Recipe) -> _Settings:
    return _Settings(**asdict(recipe))


@plain_help
@dataclass(frozen=True)
class Train:
    """Options of a training run."""

    settings: tyro.conf.OmitArgPrefixes[_Settings] = field(default_factory=_Settings)
    name: tyro.conf.Suppress[str] = ""
    out: Path | None = None
    """The run folder; runs/RECIPE unless given. An existing run is never overwritten."""
    resume: Flag = False
    """Go on with the run in that folder, exactly where it stopped."""
    minutes: float = float("inf")
    """Stop cleanly after this many minutes, with a checkpoint. A recipe whose learning rate ends with a cool-down plans
    a new run for this time, unless --steps is given."""
    device: Device = "auto"
    tensorboard: Flag = False
    """Write TensorBoard events into the run folder as well."""
    wandb: Flag = False
    """Log to Weights & Biases as well."""


if TYPE_CHECKING:
    Choice = Train
else:
    Choice = Union[  # noqa: UP007  # made of a list
        tuple(
            Annotated[
                Train,
                tyro.conf.subcommand(name=name, default=Train(_settings(recipe), name), description=recipe.describe()),
            ]
            for name, recipe in RECIPES.items()
        )
    ]


@command
def train(*, options: tyro.conf.OmitSubcommandPrefixes[tyro.conf.OmitArgPrefixes[Choice]]) -> None:
    """Train a model by a recipe. Weights, logs and samples go into a run folder, which can be resumed.

    scorefield train RECIPE --help shows the recipe's settings; each of them is an option.

    Example: scorefield train mnist --out runs/mnist --minutes 60
    """
    from scorefield import data
    from scorefield.distributed import joined
    from scorefield.progress import track
    from scorefield.training import saved_recipe
    from scorefield.training import train as train_model
    from scorefield.training.folder import check_folder
    from scorefield.training.logs import tensorboard_log, wandb_log

    if not options.minutes > 0:
        raise ValueError(f"--minutes must be positive; got {options.minutes:g}")
    out, told = options.out or Path("runs") / options.name, list[str]()
    if options.resume:  # the options that were given now change the recipe of the run, not the named one
        defaults = Train(_settings(saved_recipe(out)), options.name)
        options = tyro.cli(Train, prog=f"scorefield train {options.name}", default=defaults, args=arguments[2:])
        told = _about(options.name, out)
        if not data.exists(place := options.settings.data):
            raise FileNotFoundError(f"the run's images, {place}, are missing (name their new place: --data PLACE)")
    recipe = Recipe(**asdict(options.settings))
    for package, wanted in (("tensorboard", options.tensorboard), ("wandb", options.wandb)):
        if wanted and find_spec(package) is None:
            raise ImportError(f"--{package} needs a package (pip install {package})")
    signals, minutes = list[int](), options.minutes
    given = {word.split("=")[0].removeprefix("--").replace("-", "_") for word in arguments if word.startswith("--")}
    if options.name == "unet" and not options.resume and "data" not in given:
        raise ValueError(
            "the recipe unet is for images of your own: name them with --data (a folder, or an .npy or .npz file)"
        )
    with joined(options.device) as group:
        for line in told if group.main else ():
            say(line)
        if options.name == "unet" and not options.resume:
            from scorefield.doctor.plan import plan_training

            group.agreed(partial(check_folder, recipe, out, resume=False))
            group.agreed(partial(check_writable, out if out.is_dir() else out.parent, fix="name another folder: --out"))
            recipe, minutes, _ = plan_training(recipe, group, given=given, minutes=minutes, say=say, track=track)
        extra: list[Any] = [partial(tensorboard_log, out / "tensorboard")] if options.tensorboard else []
        extra += [partial(wandb_log, out, asdict(recipe))] if options.wandb else []
        saved = train_model(
            recipe,
            out,
            group,
            resume=options.resume,
            minutes=minutes,
            plan="steps" not in given,
            extra_logs=extra,
            interrupted=signals.append,
            say=say,
            track=track,
        )
        if group.main:
            print(saved, flush=True)
            if words := _next_command(options.name, out, saved, saved_recipe(out), group.world):
                say(f"next: {words}")
        group.wait()  # torchrun ends all processes when one fails: let the main one print first
    if signals:  # 130 for Ctrl-C, 143 for SIGTERM, as in shells
        sys.exit(128 + signals[0])


def check_words(argv: Sequence[str]) -> None:
    """Raise an error if the first word is not a recipe."""
    word = argv[0] if argv else "--help"
    if word in (*RECIPES, "-h", "--help"):
        return
    if word.startswith("-"):
        raise ValueError(f"the first word must be a recipe; got {word} (choose from {', '.join(RECIPES)})")
    near = get_close_matches(word.lower(), RECIPES, n=1, cutoff=0.6)
    question = f"did you mean {near[0]}? " if near else ""
    raise ValueError(f"there is no recipe {word!r} ({question}choose from {', '.join(RECIPES)})")


def _about(name: str, out: Path) -> list[str]:
    """What a run that is resumed is, and a note if it does not look like one of the recipe that was named."""
    from scorefield.progress import plural
    from scorefield.training import saved_recipe

    run = saved_recipe(out)
    told = [f"{out} is a run of {run.network} of width {run.width}, of {plural(run.steps, 'iteration')} on {run.data}"]
    alike = {each: sum(getattr(run, key) == getattr(recipe, key) for key in FIXED) for each, recipe in RECIPES.items()}
    best = max(alike, key=lambda each: alike[each])
    if name in alike and alike[best] - alike[name] >= UNLIKE:
        told.append(f"note: it looks like a run of the recipe {best}, not {name}, and goes on with its own settings")
    return told


def _next_command(name: str, out: Path, saved: Path, recipe: Recipe, processes: int) -> str:
    """What to run next: a finished run is sampled, and one that was stopped is gone on with."""
    if saved.stem == f"model-{recipe.steps:08d}":
        return f"scorefield sample {quote(str(out))} -n 16 --out samples.png"
    return f"scorefield train {name} --resume --out {quote(str(out))}" if processes == 1 else ""
