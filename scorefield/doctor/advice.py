"""Settings for a set of images, each with its reason, the usual value, and what would go wrong with that."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from scorefield.doctor.geometry import Geometry
from scorefield.doctor.schedules import AnnealingSettings, advised_schedule, overlap, relaxations, rounded
from scorefield.models.build import sized, sized_for_cpu
from scorefield.models.recipes import Recipe

_PAPER = Recipe()
PAPER = AnnealingSettings(_PAPER.sigma_max, _PAPER.sigma_min, _PAPER.levels, _PAPER.sample_steps, _PAPER.step_size)
"""The paper's settings, a recipe's defaults."""
SMALLEST = 0.01
"""Noise that is hardly seen: two and a half grey levels of 255."""
APART = 4.0
"""At the smallest noise level images must be so many times σ apart."""
START_ERROR = 0.06
"""The most by which the start of a sampler for all noise levels, N(½, σ_max²), may differ from noisy images: the
Kullback–Leibler divergence in nats. CIFAR-10 has this with the usual σ_max."""
SIGHT = 4.0
"""A chain sees another mode if it is nearer than so many times σ. Below, it stays where it is."""
USUAL_SIDE = 32
"""The side of the images, in pixels, for which the usual distribution of σ in training was found."""
PASSES, FEWEST, MOST = 25, 200_000, {"cpu": 1_000_000, "cuda": 5_000_000}
"""How many images a training sees: so many passes, but not fewer or more than this."""
ENOUGH, REPEATED = 1_000_000, 500
"""Fewer passes become so many images, if these are at most so many passes: after a million a program
recognised 86 % of the shapes that a small network drew, after 370,000 44 % (docs/measurements/shapes_90_minutes.json
and shapes_20_minutes.json, one training each)."""
LONGEST = 12 * 60
"""Minutes."""


@dataclass(frozen=True)
class Advice:
    """One recommendation."""

    setting: str
    """The recipe's name for it."""
    value: float
    reason: str
    usual: float | None
    """The paper's value, or for networks for all noise levels that of the recipes for 32 × 32 photographs."""
    with_usual: str
    """What would go wrong with the usual value; empty if nothing would."""


@dataclass(frozen=True)
class Speed:
    """What a quick measurement of training told."""

    images_per_second: float
    memory_gib: float
    """What training needs at once."""
    device: str
    """cpu, cuda or mps."""
    machine: str


def smallest_sigma(geometry: Geometry) -> float:
    """σ_L: hardly seen, and small enough that different images do not blur into each other."""
    return rounded(min(SMALLEST, (geometry.nearest["0.5"] or math.inf) / APART), 2)


def largest_sigma(geometry: Geometry) -> float:
    """σ₁ by technique 1 of Song & Ermon (2020): the largest distance between two images."""
    return rounded(max(geometry.farthest, 2 * smallest_sigma(geometry)))


def langevin_schedule(geometry: Geometry) -> AnnealingSettings:
    """Settings for a network with a list of noise levels and annealed Langevin dynamics."""
    return advised_schedule(largest_sigma(geometry), smallest_sigma(geometry), geometry.dimension)


def langevin_advice(geometry: Geometry) -> list[Advice]:
    """The same as recommendations."""
    advised, d = langevin_schedule(geometry), geometry
    eta = {each: each.step_size / each.sigma_min**2 for each in (advised, PAPER)}
    relaxed = {each: relaxations(each.steps, eta[each], each.ratio) for each in (advised, PAPER)}
    shared = {each: overlap(each.ratio, d.dimension) for each in (advised, PAPER)}
    too_small = (
        f"noise of 1 is small beside the distance between images, {d.usual:.3g} in the median: chains stay with "
    )
    too_small += "the kind of image they begin with, so that some kinds are drawn too often and others hardly"
    return [
        Advice(
            "sigma_max",
            advised.sigma_max,
            f"the largest distance between two of {d.n:,} images: noise of this size hides which image it was added "
            "to, so that chains forget their start",
            PAPER.sigma_max,
            too_small if PAPER.sigma_max < d.usual / SIGHT else "",
        ),
        Advice(
            "sigma_min",
            advised.sigma_min,
            "barely visible, and small compared with the distance of an image to the nearest other, "
            + f"{d.nearest['0.5']:.3g} in the median"
            if d.nearest["0.5"]
            else "barely visible (most images have a copy)",
            PAPER.sigma_min,
            "" if advised.sigma_min >= PAPER.sigma_min else "images that differ would be blurred into each other",
        ),
        Advice(
            "levels",
            advised.levels,
            f"the ratio of neighbouring levels is {advised.ratio:.4g}: they share {shared[advised]:.0%} of their "
            f"samples, in {d.dimension:,} dimensions",
            PAPER.levels,
            f"their ratio of {PAPER.ratio:.3g} leaves {shared[PAPER]:.0%} shared, so that each level starts from "
            "samples that it has never seen in training, and needs many steps"
            if shared[PAPER] < shared[advised] / 2
            else "",
        ),
        Advice(
            "sample_steps",
            advised.steps,
            f"chains relax {relaxed[advised]:.0f} times while σ falls by a factor e; about 20 are needed to get the "
            "shares of different kinds of images right",
            PAPER.steps,
            f"{advised.levels} levels of {PAPER.steps} steps would be {advised.levels * PAPER.steps:,} network calls, "
            f"and not {advised.calls:,}",
        ),
        Advice(
            "step_size",
            advised.step_size,
            "the largest with which a level that begins with the right variance ends with one that is right within 6 %",
            PAPER.step_size,
            "" if math.isclose(advised.sigma_min, PAPER.sigma_min) else "it belongs to σ_L = 0.01",
        ),
    ]


def continuous_advice(geometry: Geometry, recipe: Recipe) -> list[Advice]:
    """Recommendations for a network for all noise levels. `recipe` has the usual values."""
    d, side = geometry, geometry.side
    sigma_max = rounded(math.sqrt(d.off_grey / (2 * START_ERROR)), 2)
    error = d.off_grey / (2 * recipe.sigma_max**2)
    log_mean = round(recipe.log_sigma_mean + max(0.0, math.log(side / USUAL_SIDE)), 2)
    return [
        Advice(
            "sigma_max",
            sigma_max,
            f"sampling starts from N(½, σ²), which then differs from noisy images by about {START_ERROR} nats at most",
            recipe.sigma_max,
            f"up to {error:.2g} nats: the colours and the brightness of samples would be off"
            if error > 1.5 * START_ERROR
            else "",
        ),
        Advice("sigma_min", recipe.sigma_min, "a quarter of a grey level: it cannot be seen", recipe.sigma_min, ""),
        Advice(
            "sigma_data",
            rounded(d.sigma_data),
            "the root mean square of pixel − ½, by which the network's input and output get unit size",
            _PAPER.sigma_data,
            "the network's input and output would not have unit size, so that it learns more slowly"
            if not 0.7 < d.sigma_data / _PAPER.sigma_data < 1.4
            else "",
        ),
        Advice(
            "log_sigma_mean",
            log_mean,
            "training draws σ most often near exp(this number) · σ_data"
            + (f"; larger images hide less at the same σ, since neighbouring pixels agree (log({side:.0f}/32) more)"
               if log_mean > recipe.log_sigma_mean else ""),
            recipe.log_sigma_mean,
            "training would look too little at the noise that decides about large shapes"
            if log_mean > recipe.log_sigma_mean + 0.3
            else "",
        ),
    ]  # fmt: skip


def images_to_see(n: int, device: str) -> int:
    """How many images a training should see, counted with repetitions."""
    return min(max(PASSES * n, min(REPEATED * n, ENOUGH), FEWEST), MOST.get(device, MOST["cuda"]))


def advised_recipe(recipe: Recipe, geometry: Geometry, n: int, device: str) -> Recipe:
    """The recipe for all noise levels, with the settings that follow from the images and the device."""
    _, height, width = geometry.shape
    values: dict[str, Any] = {each.setting: each.value for each in continuous_advice(geometry, recipe)}
    if device == "cpu":
        recipe = sized_for_cpu(recipe, height, width)
    recipe = sized(recipe, height, width)
    most = max(8, 2 ** int(math.log2(max(1, n))))
    return replace(recipe, batch_size=min(recipe.batch_size, most), **values)


def network_advice(recipe: Recipe, usual: Recipe, shape: tuple[int, ...]) -> list[Advice]:
    """Recommendations for the size of the network and of its batches."""
    _, height, width = shape
    large = sized(usual, height, width)
    smaller, fewer = recipe.width < large.width, recipe.batch_size < usual.batch_size
    higher = recipe.learning_rate > usual.learning_rate
    return [
        Advice(
            "width",
            recipe.width,
            "small enough for a CPU" if smaller else f"for images of {height} × {width} on a GPU",
            large.width,
            "a CPU would need days" if smaller else "",
        ),
        Advice(
            "batch_size",
            recipe.batch_size,
            "many small updates suit a small network, or few images, better than few large ones"
            if fewer
            else "enough to keep a GPU busy",
            usual.batch_size,
            "too few updates in the same time" if fewer else "",
        ),
        Advice(
            "learning_rate",
            recipe.learning_rate,
            "a small network learns more with a high one in the same time"
            if higher
            else "usual for this network: the relative change of its weights in the first updates",
            usual.learning_rate,
            "the loss would fall more slowly" if higher else "",
        ),
    ]


def time_advice(n: int, speed: Speed) -> Advice:
    """How long to train."""
    see = images_to_see(n, speed.device)
    needed = see / speed.images_per_second / 60
    minutes = max(1, min(LONGEST, math.ceil(needed)))
    seen = min(see, round(minutes * 60 * speed.images_per_second))
    passes = f"{seen / n:,.0f}" if seen >= 10 * n else f"{seen / n:.2g}"
    cut = f"; all {see:,} that are advised would take {needed / 60:.0f} hours" if needed > LONGEST else ""
    return Advice(
        "minutes",
        minutes,
        f"{seen:,} images at {speed.images_per_second:.3g} a second on this machine: {passes} passes through "
        f"{n:,} images{cut}",
        None,
        "",
    )
