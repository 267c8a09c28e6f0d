"""The demo: the paper's main argument, digits and completions from a shipped model, and one page that shows it all.

It needs no GPU and no network, and about a minute on two cores.
"""

from __future__ import annotations

import base64
import html
import json
import shlex
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

import numpy as np

from scorefield.models.checkpoint import Model, load
from scorefield.data import pictures
from scorefield.paper import fig3
from scorefield.paper.output import Result
from scorefield.acceleration.fast import for_sampling
from scorefield.files import new_file
from scorefield.models.generate import drawn
from scorefield.images import FRAMES, gif, grid, occluded, png, save_completions, save_images, to_float
from scorefield.data.masks import mask_of
from scorefield.progress import Track, silent
from scorefield.models.pretrained import PREFIX, shipped_models

MODEL = "mnist-small"
STEPS = 25
"""T, the steps at each noise level: fewer than the paper's 100, and larger in proportion, to save time."""
DIGITS, COMPLETIONS = 16, 8
DIGIT = Path(__file__).with_name("digit.png")
"""Number 4489 of MNIST's test set: a 9 whose right half might as well belong to a 3 or an 8. Of the 40 training digits
whose right half is nearest to it, 19 are a 3, 11 a 9 and 7 an 8."""
MASK = "left"
TEMPLATE = Path(__file__).with_name("demo.html")

Draw = Callable[..., np.ndarray]
"""`drawn` with the model and the settings bound."""


class Part(NamedTuple):
    """A part of the demo: its picture, its numbers, the command that makes it again, and how long it took."""

    picture: Path
    numbers: dict[str, Any]
    command: str
    seconds: float


@dataclass(frozen=True)
class Demo:
    """What the demo made."""

    page: Path
    fig3: Part
    digits: Part
    completions: Part

    @property
    def files(self) -> list[Path]:
        """What there is to look at, the page last."""
        digits = self.digits.picture
        return [self.fig3.picture, digits, digits.with_suffix(".gif"), self.completions.picture, self.page]


@dataclass(frozen=True)
class Settings:
    """How the demo samples its model."""

    steps: int
    step_size: float
    seed: int

    @property
    def options(self) -> str:
        """The same for the command line."""
        return f"--steps {self.steps} --step-size {self.step_size:g}" + _seeded(self.seed)


def make(out: Path, *, seed: int = 0, track: Track[Any] = silent) -> Demo:
    """index.html in `out`, and beside it the pictures and the numbers that it shows."""
    if MODEL not in shipped_models():
        raise OSError(f"this installation is broken: it lacks the demo's model, {MODEL} (install scorefield again)")
    model = load(f"{PREFIX}{MODEL}")
    recipe = model.recipe
    step_size = float(f"{recipe.step_size * recipe.sample_steps / STEPS:g}")  # as the command line would have it
    settings = Settings(STEPS, step_size, seed)
    score = for_sampling(model.network, model.shape, size=DIGITS)
    draw = partial(drawn, score, model.sigmas, model.shape, **asdict(settings), track=track)
    start = time.monotonic()
    argument = _argument(out, seed, track)
    digits, frames = _digits(out, model, settings, draw)
    completions, row = _completions(out, model, settings, draw)
    made = Demo(out / "index.html", argument, digits, completions)
    with new_file(out / "demo.json") as file:
        parts = {"fig3": argument, "digits": digits, "completions": completions}
        numbers = {name: {**part.numbers, "seconds": part.seconds} for name, part in parts.items()}
        file.write(json.dumps({"seed": seed, **numbers}, indent=2).encode() + b"\n")
    with new_file(made.page) as file:
        words = _words(made, model, settings) | {"total": f"{time.monotonic() - start:.0f}"}
        file.write(_page(words, made.fig3.picture, frames, row).encode())
    return made


def _argument(out: Path, seed: int, track: Track[Any]) -> Part:
    """Figure 3."""
    start = time.monotonic()
    result: Result = fig3.make(out, seed=seed, track=track)
    command = f"scorefield figure fig3 --out {_quoted(out)}" + _seeded(seed)
    return Part(result.picture, result.numbers, command, time.monotonic() - start)


def _digits(out: Path, model: Model, settings: Settings, draw: Draw) -> tuple[Part, list[np.ndarray]]:
    """digits.png, and digits.gif with the annealing; and its frames."""
    start, picture = time.monotonic(), out / "digits.png"
    images = draw(range(DIGITS), batch_size=DIGITS, frames=FRAMES, what=f"{DIGITS} digits from noise")
    save_images(picture, images)
    save_images(picture.with_suffix(".gif"), images)
    command = f"scorefield sample {PREFIX}{MODEL} -n {DIGITS} {settings.options} --out {_quoted(picture)}"
    numbers = {"n": DIGITS, "steps": settings.steps, "step_size": settings.step_size, "levels": len(model.sigmas)}
    part = Part(picture, numbers, command, time.monotonic() - start)
    return part, [grid(images[:, k]) for k in range(images.shape[1])]


def _completions(out: Path, model: Model, settings: Settings, draw: Draw) -> tuple[Part, list[np.ndarray]]:
    """completions.png, and its images: as given to the model, the completions, the original."""
    start, picture, given = time.monotonic(), out / "completions.png", out / "digit.png"
    with new_file(given) as file:
        file.write(DIGIT.read_bytes())
    fit = pictures.Fit(size=model.shape[1:])
    original, mask = pictures.fitted(pictures.open_image(given), str(given), fit), mask_of(MASK, fit)
    y, known = to_float(original[None])[0], mask.numpy()
    what = f"{COMPLETIONS} ways to complete a digit"
    images = draw(range(COMPLETIONS), batch_size=COMPLETIONS, known=(y, mask), what=what)[:, -1]
    save_completions(picture, images, original, known)
    command = (
        f"scorefield inpaint {PREFIX}{MODEL} --image {_quoted(given)} --mask {MASK} -n {COMPLETIONS} {settings.options}"
    )
    numbers = {"n": COMPLETIONS, "mask": MASK, **_spread(images, original, known)}
    part = Part(picture, numbers, f"{command} --out {_quoted(picture)}", time.monotonic() - start)
    return part, [occluded(original, known), *images, original]


def _spread(images: np.ndarray, original: np.ndarray, known: np.ndarray) -> dict[str, float]:
    """In grey levels of 255: how far completions are from what is known, and from each other where nothing is."""
    off = images.astype(float) - original
    apart = images.astype(float).std(0)
    return {
        "known_error": float(np.sqrt(np.square(off[:, known]).mean())),
        "hidden_spread": float(apart[~known].mean()),
    }


def _page(words: dict[str, str], fig3_picture: Path, frames: list[np.ndarray], row: list[np.ndarray]) -> str:
    """The page, with all pictures inside: as many pixels as they have, for the browser to enlarge."""
    names = ["given", *(f"way {k}" for k in range(1, len(row) - 1)), "original"]
    figures = (
        f'<figure><img class="pixels" src="{_data(png(image))}" alt="{name}"><figcaption>{name}</figcaption></figure>'
        for name, image in zip(names, row, strict=True)
    )
    embedded = {
        "fig3_picture": _data(fig3_picture.read_bytes()),
        "digits_picture": _data(png(frames[-1])),
        "annealing_picture": _data(gif(frames), "gif"),
        "completion_row": "\n".join(figures),
    }
    escaped = {name: _in_words(word) if "_command" in name else html.escape(word) for name, word in words.items()}
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(escaped | embedded)


def _words(made: Demo, model: Model, settings: Settings) -> dict[str, str]:
    """What the page says of this machine's run."""
    share, spread = made.fig3.numbers["heavy_fraction"], made.completions.numbers
    parts = {"fig3": made.fig3, "digits": made.digits, "completions": made.completions}
    return {
        **{f"share_{method}": f"{value:.1%}" for method, value in share.items()},
        "samples": f"{made.fig3.numbers['n']:,}",
        "digits": str(DIGITS),
        "completions": str(COMPLETIONS),
        "model": MODEL,
        "parameters": f"{sum(p.numel() for p in model.network.parameters()):,}",
        "trained": f"{model.step:,}",
        "levels": str(len(model.sigmas)),
        "calls": f"{settings.steps * len(model.sigmas):,}",
        "sigma_max": f"{model.sigmas[0]:g}",
        "sigma_min": f"{model.sigmas[-1]:g}",
        "hurry": _hurry(model, settings),
        "known_error": f"{spread['known_error']:.1f}",
        "hidden_spread": f"{spread['hidden_spread']:.0f}",
        **{f"{name}_command": part.command for name, part in parts.items()},
        **{f"{name}_seconds": f"{part.seconds:.0f}" for name, part in parts.items()},
    }


def _hurry(model: Model, settings: Settings) -> str:
    """How the sampling differs from the model's own."""
    recipe = model.recipe
    if settings.steps == recipe.sample_steps:
        return f"T = {settings.steps} steps at each level, step size ε = {settings.step_size:g}."
    return (
        f"To save time, T = {settings.steps} steps at each level with a step size of ε = {settings.step_size:g}; "
        f"the paper, and the command without these options, take T = {recipe.sample_steps} and "
        f"ε = {recipe.step_size:g}: as far in all, in smaller steps."
    )


def _in_words(command: str) -> str:
    """A command that breaks between words alone, not at the hyphens of its options."""
    return " ".join(f"<span>{html.escape(word)}</span>" for word in command.split(" "))


def _data(content: bytes, kind: str = "png") -> str:
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))


def _seeded(seed: int) -> str:
    """An option where it is needed."""
    return f" --seed {seed}" if seed else ""
