"""A check-up of a trained model: its error at each noise level, its averages, its samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from scorefield.data import Images
from scorefield.data.images import Pixels
from scorefield.doctor.advice import SIGHT, largest_sigma
from scorefield.doctor.geometry import measure, some_points
from scorefield.evaluation.features import random_rows
from scorefield.evaluation.neighbors import find_neighbors, in_pixels, measure_memorisation
from scorefield.images import to_float
from scorefield.models.model import Model
from scorefield.noise import SampleNoise, sample_seeds
from scorefield.progress import Track, plural, silent
from scorefield.samplers import ConsistentAnnealed, Sampler
from scorefield.training.levels import log_bins
from scorefield.training.trainer import Batch, held_out_losses, prepare

Kind = Literal["good", "note", "problem"]
MOST_LEVELS = 10
MOST_CALLS = 50
"""Samples are drawn with the model's own sampler if it has at most so many calls."""
NOTHING_LEARNED = 0.95
"""A network has learned nothing at a level if its error is above this share of a trivial one's."""
MOST_WORK, BLOCK = 1e11, 2**20
"""The exact optimum is computed if the numbers in the training images times the images looked at are at most so many;
training images are taken in blocks of so many bytes."""
AT_ONCE = 16
"""How many images go through the network at once."""
ENOUGH = 32
"""With fewer held-out images chance decides how their errors compare with those of training images."""
FINEST = 0.01
"""Below it the dequantisation of training, of 1/256, is not small beside σ, and the exact optimum means little."""


class Finding(NamedTuple):
    """What was found, and what helps."""

    kind: Kind
    what: str
    cure: str = ""


@dataclass(frozen=True)
class Errors:
    """E‖σ s(x̃, σ) + z‖²/D at each noise level, with x̃ = x + σ z: the share of the noise that is not recognised."""

    sigmas: tuple[float, ...]
    n: int
    training: tuple[float, ...]
    """Of training images."""
    held_out: tuple[float, ...] | None
    """Of held-out images."""
    mean: tuple[float, ...]
    """That of always predicting the mean image: tr Cov/(D σ²)."""
    exact: tuple[float | None, ...]
    """The least that is possible on training images: that of E[x | x̃] over the training set."""
    others: dict[str, tuple[float, ...]] = field(default_factory=dict)
    """That of the model file's other weights, on held-out images if there are any, otherwise on training images."""
    impossible: tuple[float, ...] = ()
    """The σ at which errors on training images are below the least possible ones, beyond chance."""

    @property
    def judged(self) -> tuple[float, ...]:
        """The error that says most about the model."""
        return self.held_out or self.training

    @property
    def trivial(self) -> tuple[float, ...]:
        """The better of predicting the mean, and of a score of 0, whose error is 1."""
        return tuple(min(1.0, each) for each in self.mean)

    @property
    def tells(self) -> tuple[bool, ...]:
        """Whether the error at each level says anything about the model. It does not where even the best possible
        network is hardly better than the mean image, nor at a σ below the grey levels of images."""
        return tuple(
            sigma >= FINEST and (trivial >= 0.01 if exact is None else exact <= 0.9 * trivial)
            for sigma, trivial, exact in zip(self.sigmas, self.trivial, self.exact, strict=True)
        )


def measured_levels(model: Model) -> Tensor:
    """The noise levels at which errors are measured, at most MOST_LEVELS of them."""
    accepted = model.accepted
    if not accepted.listed:
        return log_bins(*model.sigma_range)
    kept = np.unique(np.linspace(0, len(accepted.listed) - 1, MOST_LEVELS).round().astype(int))
    return torch.tensor([accepted.listed[k] for k in kept])


def measure_errors(
    model: Model, training: Images, held_out: Images | None, n: int, others: Sequence[Model] = ()
) -> Errors:
    """The errors of the model on n images."""
    sigmas = measured_levels(model)
    known = some(training, n)
    judged = known if held_out is None else some(held_out, n)
    on_training = _errors(model, known, sigmas)
    exact = exact_errors(model, training, known, sigmas)
    points = some_points(training.pixels).flatten(1)
    variance = points.double().var(0, correction=0).mean().item()
    return Errors(
        tuple(sigmas.tolist()),
        len(judged),
        _means(on_training),
        None if held_out is None else _means(_errors(model, judged, sigmas)),
        tuple((variance / sigmas.double().square()).tolist()),
        tuple(None if each is None else each.mean().item() for each in exact),
        {other.weights: _means(_errors(other, judged, sigmas)) for other in others},
        tuple(
            sigma
            for sigma, mine, least in zip(sigmas.tolist(), on_training, exact, strict=True)
            if least is not None and _below(mine, least)
        ),
    )


def _means(errors: Tensor) -> tuple[float, ...]:
    return tuple(errors.mean(1).tolist())


def _below(mine: Tensor, least: Tensor) -> bool:
    """Whether the errors of images are below the least possible ones, by more than three standard errors."""
    apart = least - mine
    return len(apart) > 1 and bool(apart.mean() > 3 * apart.std() / math.sqrt(len(apart)))


def _labels(model: Model, images: Images) -> Tensor | None:
    """The classes of the images, if the model knows them."""
    if not model.labels or images.labels is None or images.classes != model.labels:
        return None
    return torch.tensor(images.labels)


@torch.no_grad()
def _errors(model: Model, images: Images, sigmas: Tensor) -> Tensor:
    """‖σ s + z‖²/D of each image at each noise level, (L, N)."""
    labels = _labels(model, images)
    pixels = torch.tensor(np.asarray(images.pixels), device=model.device)
    losses = held_out_losses(
        model.network,
        Batch(pixels, None if labels is None else labels.to(model.device)),
        sigmas.to(model.device),
        dequantise=model.recipe.dequantise,
        batch_size=AT_ONCE,
    )
    return 2 * losses.cpu().double() / math.prod(model.shape)


@torch.no_grad()
def exact_errors(model: Model, training: Images, images: Images, sigmas: Tensor) -> list[Tensor | None]:
    """‖E[x | x̃] − x‖²/(D σ²) of each image, (N,), at each level, with the same noise as the model's errors. The mean is
    that over the training images, of which `images` are some; over those of the same class, if the model knows classes.

    None where that is too much work, or σ below FINEST.
    """
    flip, n = model.recipe.flip, len(images)
    numbers = [k for k, sigma in enumerate(sigmas.tolist()) if sigma >= FINEST]
    if math.prod(training.pixels.shape) * (1 + flip) * n > MOST_WORK or not numbers:
        return [None] * len(sigmas)
    clean, noisy = list[Tensor](), list[Tensor]()
    for k in numbers:  # as in `held_out_losses`
        noise = SampleNoise(sample_seeds(k, range(n)))
        x = prepare(torch.tensor(np.asarray(images.pixels)), noise, flip=False, dequantise=model.recipe.dequantise)
        clean.append(x.flatten(1))
        noisy.append((x + sigmas[k] * noise.randn_like(x)).flatten(1))
    x, seen = torch.cat(clean), torch.cat(noisy)
    scale = sigmas[numbers].square().repeat_interleave(n)[:, None]
    mine, theirs = _labels(model, images), _labels(model, training)
    highest, total = torch.full((len(seen), 1), -math.inf), torch.zeros(len(seen), 1)
    mean = torch.zeros_like(seen)
    count = max(1, BLOCK // training.pixels[:1].nbytes)
    for start in range(0, len(training), count):  # a softmax over all training images, in blocks
        block = to_float(np.asarray(training.pixels[start : start + count]))
        points = (torch.cat([block, block.flip(3)]) if flip else block).flatten(1)
        logits = (seen @ points.T - points.square().sum(1) / 2) / scale
        if mine is not None and theirs is not None:
            other = mine[:, None] != theirs[start : start + count].repeat(1 + flip)
            logits.masked_fill_(other.repeat(len(numbers), 1), -1e30)
        peak = torch.maximum(highest, logits.max(1, keepdim=True).values)
        weights, before = (logits - peak).exp(), (highest - peak).exp()
        total, mean, highest = total * before + weights.sum(1, keepdim=True), mean * before + weights @ points, peak
    squares = ((mean / total - x).double().square().mean(1) / scale[:, 0]).reshape(len(numbers), n)
    exact = dict(zip(numbers, squares, strict=True))
    return [exact.get(k) for k in range(len(sigmas))]


def judge_range(model: Model, training: Images) -> list[Finding]:
    """Whether the largest noise level of a list is large enough for the images."""
    if not model.accepted.listed or len(training) < 2:
        return []
    geometry, _, _ = measure(some_points(training.pixels))
    largest, usual = model.accepted.listed[0], geometry.usual
    if largest >= usual / SIGHT:
        return []
    return [
        Finding(
            "note",
            f"the largest noise level, {largest:g}, is small beside the distance between images, {usual:.3g} in the "
            "median: chains stay with the kind of image they begin with, so that some kinds are drawn too often",
            f"train with --sigma-max {largest_sigma(geometry):g}, as scorefield doctor of the images advises",
        )
    ]


def judge_errors(errors: Errors) -> list[Finding]:
    """What the errors say."""
    if not all(map(math.isfinite, (*errors.judged, *errors.training))):
        return [
            Finding(
                "problem",
                "errors are not finite at some noise levels: the weights or the scores are broken",
                "take an earlier checkpoint; train with a smaller --learning-rate, --clip 1 or --precision float32",
            )
        ]
    found, judged, untaught = list[Finding](), 0, list[float]()
    for sigma, error, trivial, tells in zip(errors.sigmas, errors.judged, errors.trivial, errors.tells, strict=True):
        if not tells:
            continue
        judged += 1
        if error > NOTHING_LEARNED * trivial:
            untaught.append(sigma)
    if untaught:
        levels = ", ".join(f"{sigma:.3g}" for sigma in untaught)
        found.append(
            Finding(
                "problem" if 3 * len(untaught) > judged else "note",
                f"at σ = {levels} the network has learned nothing: it is no better than always predicting the mean "
                "image, or a score of 0",
                "train longer; if the loss does not fall, a learning rate ten times smaller"
                if len(untaught) == judged
                else "train longer, or draw these σ more often in training",
            )
        )
    elif judged:
        found.append(Finding("good", "the network has learned something at every noise level that could be judged"))
    else:
        found.append(Finding("note", "no noise level could be judged"))
    if errors.impossible:
        levels = ", ".join(f"{sigma:.3g}" for sigma in errors.impossible)
        found.append(
            Finding(
                "problem",
                f"at σ = {levels} the error is below the least that is possible on these training images",
                "they are not the images that the model was trained on: name those with --data",
            )
        )
    if errors.held_out is not None and errors.n >= ENOUGH:
        ratio = _mean_ratio(errors.held_out, errors.training)
        if ratio > 1.15:
            found.append(
                Finding(
                    "problem" if ratio > 1.5 else "note",
                    f"errors on held-out images are {ratio - 1:.0%} larger than on training images: the network learns "
                    "its training images by heart",
                    "add images, train shorter, raise --dropout, or use a smaller --width; scorefield neighbors looks "
                    "for copies",
                )
            )
        else:
            found.append(Finding("good", "held-out images are denoised as well as training images"))
    for name, values in errors.others.items():
        ratio = _mean_ratio(errors.judged, values)
        if name == "raw" and ratio > 1.02:
            found.append(
                Finding(
                    "problem",
                    f"the moving average is {ratio - 1:.0%} worse than the raw weights: it has not caught up with them",
                    "train longer, or use --weights raw until then; a shorter average: --ema 0.99, or --averages 0.03",
                )
            )
    return found


def _mean_ratio(a: Sequence[float], b: Sequence[float]) -> float:
    """The geometric mean of a/b."""
    return math.exp(float(np.mean([math.log(max(x, 1e-9) / max(y, 1e-9)) for x, y in zip(a, b, strict=True)])))


class Appearance(NamedTuple):
    """Statistics by which samples are compared with images, pixels in [0, 1]."""

    contrast: float
    """The standard deviation inside an image, in the mean."""
    extremes: float
    """The share of pixels that are black or white."""
    roughness: float
    """The mean difference between neighbouring pixels."""
    colour: tuple[float, ...]
    """The mean of each channel."""
    scatter: float
    """The standard deviation of the mean colour between images."""


def appearance(pixels: Pixels) -> Appearance:
    x = to_float(np.asarray(pixels)).double()
    across, down = x.diff(dim=3).abs().mean(), x.diff(dim=2).abs().mean()
    return Appearance(
        x.flatten(1).std(1).mean().item(),
        ((x < 2.5 / 255) | (x > 252.5 / 255)).double().mean().item(),
        ((across + down) / 2).item(),
        tuple(x.mean((0, 2, 3)).tolist()),
        x.mean((2, 3)).std(0, correction=0).max().item(),
    )


def quick_sampler(model: Model) -> Sampler:
    """The model's own sampler, if it is quick; otherwise one that is."""
    if (model.sampler.calls or 0) <= MOST_CALLS:
        return model.sampler
    quick: Sampler = ConsistentAnnealed(calls=max(30, len(model.accepted.listed)))
    return quick


def draw_samples(model: Model, n: int, track: Track[Any] = silent) -> Pixels:
    """n samples, as bytes."""
    parts = model.draw(range(n), batch_size=min(n, AT_ONCE), sampler=quick_sampler(model), track=track)
    return np.concatenate([images[:, -1] for _, images in parts])


def judge_samples(samples: Pixels, data: Pixels, *, can_denoise: bool = False) -> list[Finding]:
    """What the samples look like beside images. `can_denoise`: their sampler could end with a denoising step."""
    found, mine, real = list[Finding](), appearance(samples), appearance(data)
    if mine.contrast < 0.6 * real.contrast:
        found.append(
            Finding(
                "problem",
                f"samples are grey: their contrast is {mine.contrast:.2g}, that of the images {real.contrast:.2g}",
                "train longer; if the loss falls as it should, look at the sampler: --sampler, --calls, or a smaller "
                "step size",
            )
        )
    if mine.extremes > real.extremes + 0.25:
        found.append(
            Finding(
                "problem",
                f"samples are saturated: {mine.extremes:.0%} of their pixels are black or white, of the images' "
                f"{real.extremes:.0%}",
                "less --guidance, a smaller step size, or --precision float32",
            )
        )
    if mine.roughness > 1.4 * real.roughness + 0.01:
        found.append(
            Finding(
                "problem",
                f"samples are noisy: neighbouring pixels differ by {mine.roughness:.2g}, in the images by "
                f"{real.roughness:.2g}",
                "--denoise, more steps, or train longer" if can_denoise else "train longer, or more --calls",
            )
        )
    tint = max(abs(a - b) for a, b in zip(mine.colour, real.colour, strict=True))
    if tint > 0.12 + 3 * real.scatter / math.sqrt(len(samples)):
        found.append(
            Finding(
                "note",
                f"the mean colour of {plural(len(samples), 'sample')} is {tint:.2f} away from that of the images",
                "train with --ema 0.999 or --averages 0.05, and sample these weights",
            )
        )
    return found or [Finding("good", "samples have the contrast, the colours and the smoothness of the images")]


def judge_copies(samples: Pixels, training: Images, held_out: Images | None, track: Track[Any] = silent) -> Finding:
    """Whether samples are copies of training images."""
    if len(training) < 3:
        return Finding("note", "with fewer than three training images copies cannot be told from new images")
    mine, others = find_neighbors(samples, training, held_out, in_pixels, track=track)
    report = measure_memorisation(mine, others)
    if report.alarm:
        return Finding(
            "problem",
            f"{len(report.copies)} of {plural(report.n, 'sample')} are copies of training images",
            "add images, train shorter, use a smaller network; scorefield neighbors shows them",
        )
    return Finding("good", f"none of {plural(report.n, 'sample')} is a copy of a training image, as far as these tell")


def some(images: Images, n: int) -> Images:
    """n of the images, or all, drawn at random, always the same."""
    rows = random_rows(n, len(images))
    return images.take(rows, f"{n} at random")
