"""Image jobs: samples and completions, by the functions that the command line calls."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial

import numpy as np
from torch import Tensor

from scorefield.models.generate import generate, kept_steps, start_of
from scorefield.images import to_bytes, to_float
from scorefield.noise import sample_seeds
from scorefield.samplers import unstable
from scorefield.web.jobs import Job, Update
from scorefield.web.limits import Limits
from scorefield.web.models import Card, Models
from scorefield.web.requests import Fields

KNOWN = ("n", "seed", "steps", "step_size", "denoise")
"""Fields of a request."""


@dataclass(frozen=True)
class Settings:
    """How to sample."""

    n: int
    seed: int
    steps: int
    step_size: float
    denoise: bool

    @property
    def options(self) -> str:
        """The same for the command line."""
        size = f"-n {self.n} --seed {self.seed} --steps {self.steps} --step-size {self.step_size!r}"
        return f"{size} --denoise" if self.denoise else size


def settings_of(fields: Fields, card: Card, *, n: int, most: int, limits: Limits) -> Settings:
    """What is asked for; where it is not said, n and the model's own."""
    own = card.recipe
    return Settings(
        n=fields.whole("n", n, least=1, most=most),
        seed=fields.whole("seed", 0, least=0, most=2**32 - 1),
        steps=fields.whole("steps", own.sample_steps, least=1, most=max(limits.steps, own.sample_steps)),
        step_size=fields.number("step_size", own.step_size, above=0),
        denoise=fields.flag("denoise"),
    )


def sample_job(models: Models, card: Card, settings: Settings, limits: Limits) -> Job:
    return Job(
        "sample",
        partial(_states, models, card, settings, None, frames_for(card, settings, limits)),
        _total(card, settings),
        {"model": card.name, **asdict(settings)},
        f"scorefield sample {shlex.quote(card.place.given)} {settings.options} --out samples.png",
        warning=unstable(card.sigmas[-1], settings.step_size),
    )


def inpaint_job(
    models: Models,
    card: Card,
    settings: Settings,
    limits: Limits,
    *,
    image: tuple[str, np.ndarray],
    mask: tuple[str, Tensor],
) -> Job:
    """Of the image (H, W, C) and of the mask (H, W), also the names that the command line would have for them."""
    (image_name, original), (mask_name, known) = image, mask
    command = f"scorefield inpaint {shlex.quote(card.place.given)} --image {shlex.quote(image_name)}"
    return Job(
        "inpaint",
        partial(
            _states, models, card, settings, (to_float(original[None])[0], known), frames_for(card, settings, limits)
        ),
        _total(card, settings),
        {"model": card.name, "image": image_name, "mask": mask_name, **asdict(settings)},
        f"{command} --mask {shlex.quote(mask_name)} {settings.options} --out inpainted.png",
        (original, known.numpy()),
        unstable(card.sigmas[-1], settings.step_size),
    )


def _total(card: Card, settings: Settings) -> int:
    return settings.steps * len(card.sigmas) + settings.denoise


def frames_for(card: Card, settings: Settings, limits: Limits) -> int:
    """How many to keep: fewer of large images, but always the first and the last."""
    return max(2, min(limits.frames, limits.job_bytes // 2 // (settings.n * math.prod(card.shape))))


def _states(
    models: Models, card: Card, settings: Settings, known: tuple[Tensor, Tensor] | None, frames: int
) -> Iterator[Update]:
    """The sampler's states, before them the uniform noise that it starts from."""
    model, score = models.score(card, settings.n)
    levels, seeds = model.sigmas.tolist(), sample_seeds(settings.seed, range(settings.n))
    keep = kept_steps(_total(card, settings), frames)
    here = model.sigmas.device
    yield Update(0, levels[0], 1, to_bytes(start_of(seeds, model.shape, here)[0]))
    states = generate(
        score,
        model.sigmas,
        model.shape,
        seeds,
        step_size=settings.step_size,
        steps=settings.steps,
        denoise=settings.denoise,
        known=known and (known[0].to(here), known[1].to(here)),
    )
    for state in states:
        level = min((state.step - 1) // settings.steps, len(levels) - 1)
        sigma = levels[level] if state.step <= settings.steps * len(levels) else 0.0
        yield Update(state.step, sigma, level + 1, to_bytes(state.x) if state.step in keep else None)
