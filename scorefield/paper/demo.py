"""The demo: the paper's main argument, digits and completions by the paper's network; then digits of a chosen class and
restorations by a network for all noise levels; and one page that shows it all.

It needs no GPU and no internet, and about half a minute on two cores.
"""

from __future__ import annotations

import base64
import json
import shlex
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jinja2 import Environment, StrictUndefined

from scorefield.data import pictures
from scorefield.data.masks import make_mask
from scorefield.distributed import device_name, pick_device
from scorefield.evaluation import restorations
from scorefield.files import new_file
from scorefield.images import (
    FRAMES,
    gif,
    grid,
    occluded,
    png,
    save_completions,
    save_images,
    save_png,
    to_float,
    zoom_for,
)
from scorefield.models.model import Model, load
from scorefield.models.pretrained import PREFIX, pretrained_models
from scorefield.paper import fig3
from scorefield.posteriors import Measurement
from scorefield.progress import Track, silent
from scorefield.samplers import AnnealedLangevin, ConsistentAnnealed

MODEL = "mnist-small"
CALLS = 30
"""Network calls per image, of consistent annealed sampling: a classifier accepts 91.6 ± 1.2 % of such samples as digits
(docs/measurements/mnist_small_few_calls.json). The model's own sampler is the paper's."""
DIGITS, COMPLETIONS = 16, 8
DIGIT = Path(__file__).with_name("digit.png")
"""Number 4489 of MNIST's test set: a 9 whose right half could also belong to a 3 or an 8. Of the 40 training digits
whose right half is nearest to it, 19 are a 3, 11 a 9 and 7 an 8."""
MASK = "left"
FAST, CLASS, GUIDANCE = "unet-mnist", "7", 0.5
"""The network for all noise levels, the class that it draws, and the guidance: a classifier accepts 99.0 ± 0.2 % of
such digits, 99.7 % of them as the digit that was asked for (docs/results/unet-mnist/digits_guided.json)."""
TASK, NOISE, RESTORED = "superres:4", 0.01, 5
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
    chosen: Part
    restored: Part

    @property
    def files(self) -> list[Path]:
        """All pictures, and the page last."""
        digits, others = self.digits.picture, (self.completions, self.chosen, self.restored)
        return [self.fig3.picture, digits, digits.with_suffix(".gif"), *(part.picture for part in others), self.page]


def make(out: Path, *, seed: int = 0, track: Track[Any] = silent) -> Demo:
    """Write index.html to `out`, and beside it the pictures and the numbers that it shows."""
    for name in (MODEL, FAST):
        if name not in pretrained_models():
            raise OSError(f"this installation lacks a model of the demo, {name} (install scorefield again)")
    model, fast = load(f"{PREFIX}{MODEL}"), load(f"{PREFIX}{FAST}")
    assert isinstance(model.sampler, AnnealedLangevin)  # the page tells how it differs
    sampler = ConsistentAnnealed(calls=CALLS).scheduled(model.accepted)
    start = time.monotonic()
    figure = fig3.make(out, seed=seed, seeds=1, track=track)
    command = _command("figure", "fig3", "--out", out, *_seed(seed))
    argument = Part(figure.picture, figure.numbers, command, time.monotonic() - start)
    digits, frames = _digits(out, model, sampler, seed, track)
    completions, row = _completions(out, model, sampler, seed, track)
    chosen = _chosen(out, fast, seed, track)
    restored = _restored(out, fast, seed, track)
    parts = {"fig3": argument, "digits": digits, "completions": completions, "chosen": chosen, "restored": restored}
    numbers = {name: {**part.numbers, "seconds": part.seconds} for name, part in parts.items()}
    with new_file(out / "demo.json") as file:
        file.write(json.dumps({"seed": seed, **numbers}, indent=2).encode() + b"\n")
    environment = Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, undefined=StrictUndefined
    )
    environment.filters |= {"png": png, "gif": gif, "embed": _embed}
    page = environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        name=MODEL,
        fast_name=FAST,
        model=model,
        fast=fast,
        sampler=sampler,
        usual=model.sampler,
        parts=parts,
        frames=frames,
        row=row,
        seeds=fig3.SEEDS,
        total=time.monotonic() - start,
    )
    with new_file(out / "index.html") as file:
        file.write(page.encode())
    return Demo(out / "index.html", **parts)


def _embed(content: bytes, kind: str = "png") -> str:
    """A picture as an address that holds all of it."""
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def _digits(
    out: Path, model: Model, sampler: ConsistentAnnealed, seed: int, track: Track[Any]
) -> tuple[Part, list[np.ndarray]]:
    """digits.png, digits.gif with the annealing, and the frames of the latter."""
    start, picture = time.monotonic(), out / "digits.png"
    what = f"{DIGITS} digits from noise"
    ((_, images),) = model.draw(
        range(DIGITS), batch_size=DIGITS, seed=seed, sampler=sampler, frames=FRAMES, track=track, what=what
    )
    save_images(picture, images)
    save_images(picture.with_suffix(".gif"), images)
    command = _command("sample", f"{PREFIX}{MODEL}", "-n", DIGITS, *_options(sampler, seed), "--out", picture)
    numbers = {"n": DIGITS, "sampler": sampler.name, "calls": sampler.calls, "levels": len(sampler.sigmas)}
    part = Part(picture, numbers, command, time.monotonic() - start)
    return part, [grid(images[:, k]) for k in range(images.shape[1])]


def _completions(
    out: Path, model: Model, sampler: ConsistentAnnealed, seed: int, track: Track[Any]
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
    subject = ["--image", given, "--mask", MASK, "-n", COMPLETIONS]
    command = _command("inpaint", f"{PREFIX}{MODEL}", *subject, *_options(sampler, seed), "--out", picture)
    numbers = {"n": COMPLETIONS, "mask": MASK, **_spread(images, original, known)}
    part = Part(picture, numbers, command, time.monotonic() - start)
    return part, [occluded(original, known), *images, original]


def _chosen(out: Path, model: Model, seed: int, track: Track[Any]) -> Part:
    """chosen.png: digits of one class."""
    start, picture, what = time.monotonic(), out / "chosen.png", f"{DIGITS} digits of class {CLASS}"
    ((_, images),) = model.draw(
        range(DIGITS), batch_size=DIGITS, seed=seed, label=CLASS, guidance=GUIDANCE, track=track, what=what
    )
    save_images(picture, images)
    words = ["-n", DIGITS, "--label", CLASS, "--guidance", GUIDANCE, *_seed(seed), "--out", picture]
    numbers = {"n": DIGITS, "label": CLASS, "guidance": GUIDANCE, "calls": model.sampler.calls}
    return Part(picture, numbers, _command("sample", f"{PREFIX}{FAST}", *words), time.monotonic() - start)


def _restored(out: Path, model: Model, seed: int, track: Track[Any]) -> Part:
    """restored.png: a digit with few pixels, restorations, their mean and standard deviation, the original."""
    start, picture, given = time.monotonic(), out / "restored.png", out / "digit.png"
    fit = pictures.Fit(size=model.shape[1:])
    operator = restorations.parse_task(TASK, model.shape, fit, seed=seed)
    y, original, _ = restorations.measured_image(
        pictures.open_image(given), str(given), model.shape, TASK, operator, fit, noise=NOISE, seed=seed
    )
    assert original is not None
    sampler, measurement = model.restoration_sampler, Measurement(y, operator, NOISE)
    made = restorations.restore(
        model, measurement, range(RESTORED), RESTORED, sampler=sampler, batch_size=RESTORED, seed=seed, track=track
    )[None]
    sheet = restorations.sheet(y, operator, made, to_float(original[None]))
    save_png(picture, sheet, zoom=zoom_for(sheet, target=900))
    row = restorations.describe(
        TASK,
        measurement,
        made,
        to_float(original[None]),
        method=measurement.method,
        sampler=sampler,
        seed=seed,
        seconds=time.monotonic() - start,
        machine=device_name(pick_device("cpu")),
    )
    words = ["--image", given, "--task", TASK, "--noise", NOISE, "-n", RESTORED, *_seed(seed), "--out", picture]
    numbers = {"n": RESTORED, "task": TASK, "noise": NOISE, "residual": row.residual, "calls": row.calls}
    numbers |= {"psnr": row.psnr, "pixels": y.shape[2:].numel(), "backward_passes": measurement.iterations}
    return Part(picture, numbers, _command("restore", f"{PREFIX}{FAST}", *words), time.monotonic() - start)


def _spread(images: np.ndarray, original: np.ndarray, known: np.ndarray) -> dict[str, float]:
    """Differences in grey levels of 255: of completions from the known pixels, and of hidden pixels from each other."""
    error, deviation = images.astype(float) - original, images.astype(float).std(0)
    return {
        "known_error": float(np.sqrt(np.square(error[:, known]).mean())),
        "hidden_spread": float(deviation[~known].mean()),
    }


def _command(*words: object) -> str:
    return shlex.join(["scorefield", *map(str, words)])


def _seed(seed: int) -> list[object]:
    return ["--seed", seed] if seed else []


def _options(sampler: ConsistentAnnealed, seed: int) -> list[object]:
    return ["--sampler", sampler.name, "--calls", sampler.calls, *_seed(seed)]
