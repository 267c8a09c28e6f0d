"""The demo: the paper's main argument, digits and completions from a pretrained model, and one page that shows it all.

It needs no GPU and no internet, and about a minute on two cores.
"""

from __future__ import annotations

import base64
import html
import json
import shlex
import time
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

import numpy as np

from scorefield.data import pictures
from scorefield.data.masks import make_mask
from scorefield.files import new_file
from scorefield.images import FRAMES, gif, grid, occluded, png, save_completions, save_images, to_float
from scorefield.models.model import Model, load
from scorefield.models.pretrained import PREFIX, pretrained_models
from scorefield.paper import fig3
from scorefield.progress import Track, silent
from scorefield.samplers import AnnealedLangevin, Sampler

MODEL = "mnist-small"
STEPS = 25
"""T, the number of steps at each noise level: fewer and larger steps than the paper's 100, to save time."""
DIGITS, COMPLETIONS = 16, 8
DIGIT = Path(__file__).with_name("digit.png")
"""Number 4489 of MNIST's test set: a 9 whose right half could also belong to a 3 or an 8. Of the 40 training digits
whose right half is nearest to it, 19 are a 3, 11 a 9 and 7 an 8."""
MASK = "left"
TEMPLATE = Path(__file__).with_name("demo.html")


class Part(NamedTuple):
    """A part of the demo: its picture, its numbers, the command that makes it again, and the seconds that it took."""

    picture: Path
    numbers: dict[str, Any]
    command: str
    seconds: float


@dataclass(frozen=True)
class Demo:
    """The files of the demo."""

    page: Path
    fig3: Part
    digits: Part
    completions: Part

    @property
    def files(self) -> list[Path]:
        """All pictures, and the page last."""
        digits = self.digits.picture
        return [self.fig3.picture, digits, digits.with_suffix(".gif"), self.completions.picture, self.page]


def make(out: Path, *, seed: int = 0, track: Track[Any] = silent) -> Demo:
    """Write index.html to `out`, and beside it the pictures and the numbers that it shows."""
    if MODEL not in pretrained_models():
        raise OSError(f"this installation lacks the model of the demo, {MODEL} (install scorefield again)")
    model = load(f"{PREFIX}{MODEL}")
    assert isinstance(model.sampler, AnnealedLangevin)
    sampler = model.sampler.with_steps(STEPS)
    start = time.monotonic()
    argument = _argument(out, seed, track)
    digits, frames = _digits(out, model, sampler, seed, track)
    completions, row = _completions(out, model, sampler, seed, track)
    parts = {"fig3": argument, "digits": digits, "completions": completions}
    numbers = {name: {**part.numbers, "seconds": part.seconds} for name, part in parts.items()}
    with new_file(out / "demo.json") as file:
        file.write(json.dumps({"seed": seed, **numbers}, indent=2).encode() + b"\n")
    words = _words(parts, model, sampler) | {"total": f"{time.monotonic() - start:.0f}"}
    with new_file(out / "index.html") as file:
        file.write(_page(words, argument.picture, frames, row).encode())
    return Demo(out / "index.html", **parts)


def _argument(out: Path, seed: int, track: Track[Any]) -> Part:
    """Figure 3."""
    start = time.monotonic()
    result = fig3.make(out, seed=seed, track=track)
    command = f"scorefield figure fig3 --out {_quoted(out)}{_seed_option(seed)}"
    return Part(result.picture, result.numbers, command, time.monotonic() - start)


def _digits(
    out: Path, model: Model, sampler: AnnealedLangevin, seed: int, track: Track[Any]
) -> tuple[Part, list[np.ndarray]]:
    """digits.png, digits.gif with the annealing, and the frames of the latter."""
    start, picture = time.monotonic(), out / "digits.png"
    what = f"{DIGITS} digits from noise"
    ((_, images),) = model.draw(
        range(DIGITS), batch_size=DIGITS, seed=seed, sampler=sampler, frames=FRAMES, track=track, what=what
    )
    save_images(picture, images)
    save_images(picture.with_suffix(".gif"), images)
    command = f"scorefield sample {PREFIX}{MODEL} -n {DIGITS} {_options(sampler, seed)} --out {_quoted(picture)}"
    numbers = {"n": DIGITS, "steps": sampler.steps, "step_size": sampler.step_size, "levels": len(sampler.sigmas)}
    part = Part(picture, numbers, command, time.monotonic() - start)
    return part, [grid(images[:, k]) for k in range(images.shape[1])]


def _completions(
    out: Path, model: Model, sampler: AnnealedLangevin, seed: int, track: Track[Any]
) -> tuple[Part, list[np.ndarray]]:
    """completions.png, and its images: the known half, the completions, the original."""
    start, picture, given = time.monotonic(), out / "completions.png", out / "digit.png"
    with new_file(given) as file:
        file.write(DIGIT.read_bytes())
    fit = pictures.Fit(size=model.shape[1:])
    original, mask = pictures.crop_and_resize(pictures.open_image(given), str(given), fit), make_mask(MASK, fit)
    y, known, what = to_float(original[None])[0], mask.numpy(), f"{COMPLETIONS} ways to complete a digit"
    ((_, drawn),) = model.draw(
        range(COMPLETIONS), batch_size=COMPLETIONS, seed=seed, sampler=sampler, known=(y, mask), track=track, what=what
    )
    images = drawn[:, -1]
    save_completions(picture, images, original, known)
    subject = f"--image {_quoted(given)} --mask {MASK} -n {COMPLETIONS}"
    command = f"scorefield inpaint {PREFIX}{MODEL} {subject} {_options(sampler, seed)} --out {_quoted(picture)}"
    numbers = {"n": COMPLETIONS, "mask": MASK, **_spread(images, original, known)}
    part = Part(picture, numbers, command, time.monotonic() - start)
    return part, [occluded(original, known), *images, original]


def _spread(images: np.ndarray, original: np.ndarray, known: np.ndarray) -> dict[str, float]:
    """Differences in grey levels of 255: of completions from the known pixels, and of hidden pixels from each other."""
    error = images.astype(float) - original
    deviation = images.astype(float).std(0)
    return {
        "known_error": float(np.sqrt(np.square(error[:, known]).mean())),
        "hidden_spread": float(deviation[~known].mean()),
    }


def _page(words: dict[str, str], fig3_picture: Path, frames: list[np.ndarray], row: list[np.ndarray]) -> str:
    """The page with all pictures in it, in their own size; the browser enlarges them."""
    names = ["given", *(f"completion {k}" for k in range(1, len(row) - 1)), "original"]
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
    escaped = {
        name: _unbroken(word) if name.endswith("_command") else html.escape(word) for name, word in words.items()
    }
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(escaped | embedded)


def _words(parts: dict[str, Part], model: Model, sampler: AnnealedLangevin) -> dict[str, str]:
    """The numbers and commands of this run, for the page."""
    figure, completions = parts["fig3"].numbers, parts["completions"].numbers
    return {
        **{f"share_{method}": f"{value:.1%}" for method, value in figure["heavy_fraction"].items()},
        "samples": f"{figure['n']:,}",
        "digits": str(DIGITS),
        "completions": str(COMPLETIONS),
        "model": MODEL,
        "parameters": f"{model.parameters:,}",
        "trained": f"{model.step:,}",
        "levels": str(len(sampler.sigmas)),
        "calls": f"{sampler.calls:,}",
        "sigma_max": f"{sampler.sigmas[0]:g}",
        "sigma_min": f"{sampler.sigmas[-1]:g}",
        "sampler": _describe(sampler, model.sampler),
        "known_error": f"{completions['known_error']:.1f}",
        "hidden_spread": f"{completions['hidden_spread']:.0f}",
        **{f"{name}_command": part.command for name, part in parts.items()},
        **{f"{name}_seconds": f"{part.seconds:.0f}" for name, part in parts.items()},
    }


def _describe(sampler: AnnealedLangevin, usual: Sampler) -> str:
    """The sampler's settings, and how they differ from the model's default."""
    assert isinstance(usual, AnnealedLangevin)
    if sampler == usual:
        return f"There are T = {sampler.steps} steps at each noise level, with step size ε = {sampler.step_size:g}."
    return (
        f"To save time there are only T = {sampler.steps} steps at each noise level, with step size "
        f"ε = {sampler.step_size:g}. The paper, and the command without these two options, use T = {usual.steps} and "
        f"ε = {usual.step_size:g}: more steps, each smaller in proportion."
    )


def _unbroken(command: str) -> str:
    """A command for the page that is broken only between words, not at the hyphens of its options."""
    return " ".join(f"<span>{html.escape(word)}</span>" for word in command.split(" "))


def _data(content: bytes, kind: str = "png") -> str:
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))


def _options(sampler: AnnealedLangevin, seed: int) -> str:
    """The settings as options of the command line."""
    return f"--steps {sampler.steps} --step-size {sampler.step_size:g}{_seed_option(seed)}"


def _seed_option(seed: int) -> str:
    return f" --seed {seed}" if seed else ""
