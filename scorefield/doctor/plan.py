"""A training of the U-Net with the settings that the doctor advises for its images and this machine."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from scorefield.distributed import Group
from scorefield.doctor.advice import Advice, advised_recipe, continuous_advice, network_advice, time_advice
from scorefield.doctor.geometry import measure, some_points
from scorefield.doctor.speed import measure_speed
from scorefield.models.recipes import Recipe
from scorefield.progress import Track, silent
from scorefield.training.folder import Say, say_nothing
from scorefield.training.run import training_images, with_image_size


class TrainingPlan(NamedTuple):
    """A recipe with all that was open, and how long to train."""

    recipe: Recipe
    minutes: float
    advice: tuple[Advice, ...]
    """What was chosen, with the reasons."""


def plan_training(
    recipe: Recipe,
    group: Group,
    *,
    given: Collection[str] = (),
    minutes: float = math.inf,
    say: Say = say_nothing,
    track: Track[object] = silent,
) -> TrainingPlan:
    """Choose the settings of `recipe` that were not `given`. All processes of the group call this together.

    The minutes are chosen if neither they nor the number of iterations were given.
    """
    say = say if group.main else say_nothing
    recipe = group.main_first(partial(with_image_size, recipe, group.device, say, track=track))
    images, _ = group.main_first(partial(training_images, recipe, track=track))
    geometry, _, _ = measure(some_points(images.pixels))
    advised = advised_recipe(recipe, geometry, len(images), group.device.type)
    chosen = replace(advised, **{name: getattr(recipe, name) for name in given if hasattr(recipe, name)})
    if "batch_size" not in given:
        chosen = replace(chosen, batch_size=-(-chosen.batch_size // group.world) * group.world)
    chosen = group.all(chosen)[0]
    advice = [each for each in continuous_advice(geometry, recipe) if each.setting not in given]
    labels = len(images.classes) if recipe.labels else 0
    advice += [each for each in network_advice(chosen, recipe, images.shape) if each.setting not in given]
    if "steps" not in given and minutes == math.inf:
        speed = None
        if group.main:
            say("measuring the speed of training for some seconds")
            alone = replace(chosen, batch_size=chosen.batch_size // group.world)
            speed = measure_speed(alone, images.shape, labels, Group(0, 1, group.device))
            speed = replace(speed, images_per_second=speed.images_per_second * group.world)
        advice.append(time_advice(len(images), next(filter(None, group.all(speed)))))
        minutes = advice[-1].value
    words = ", ".join(f"{each.setting} {each.value:g}" for each in advice)
    say(f"chosen for these images and this machine: {words} (scorefield doctor says why)")
    return TrainingPlan(chosen, minutes, tuple(advice))
