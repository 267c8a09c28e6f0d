"""A report on one model, as the paper shows its own: each part makes its pictures and returns its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from scorefield.evaluation import inception
from scorefield.models.checkpoint import Model
from scorefield.data import Images
from scorefield.data.images import Pixels
from scorefield.data.named import name_alone
from scorefield.distributed import Group
from scorefield.evaluation.completions import MASKS, complete, judged, masks_for, picture
from scorefield.evaluation.copies import check_neighbors, neighbors_of, others_are, save_neighbors
from scorefield.evaluation.features import Extractor, Rows
from scorefield.evaluation.numbers import compared, held_out_loss, numbers_of
from scorefield.evaluation.pool import How, Pool
from scorefield.evaluation.reference import Reference, is_statistics_file, kept_on_disk
from scorefield.evaluation.robustness import robustness
from scorefield.evaluation.search import Embed, in_pixels
from scorefield.evaluation.subjects import held_out_images, reference_for, training_images, whole_test_split
from scorefield.evaluation.digits import judge
from scorefield.models.export import published
from scorefield.acceleration.fast import for_sampling
from scorefield.models.generate import generate, kept_steps, start_of
from scorefield.images import grid, save_png, to_bytes, zoom_for
from scorefield.metrics import memorisation
from scorefield.noise import sample_seeds
from scorefield.progress import Track

SHOWN = 100
"""Samples in a picture of samples, 10 × 10."""
STAGE_ROWS, STAGE_COLUMNS = 10, 12
"""Samples whose way is shown, and states of each."""
COPIES = 1000
"""Samples of which it is told whether they are copies, at most."""
COMPARED = 1000
"""Samples by which other settings of the sampler are compared, at most."""
COMPLETED = 10
"""Images that are completed, for each shape of the hole."""
KEPT_OUT = "celeba"
"""Data of such a name have images that are not to be published: beside completions they are not shown as a whole."""


def about(model: Model) -> dict[str, Any]:
    """The model's facts, without the places of this machine."""
    told = {
        name: value
        for name, value in model.facts.items()
        if name.startswith(("data", "imported_from", "machine", "start"))
    }
    return {
        "step": model.step,
        "weights": model.weights,
        "digest": model.digest[:12],
        "parameters": sum(p.numel() for p in model.network.parameters()),
        "shape": list(model.shape),
        "sigmas": model.sigmas.tolist(),
        **told,
        **({"data": name_alone(told["data"])} if "data" in told else {}),
        "recipe": published(model.recipe),
    }


def has_digits(model: Model) -> bool:
    """Whether it makes MNIST's digits, of which there is a judge."""
    return model.recipe.data == "mnist" and model.shape == (1, 28, 28)


@dataclass
class Work:
    """Makes the parts of a report. All processes of the group call the same methods; the main one gets the results."""

    model: Model
    how: How
    n: int
    batch_size: int
    data: str | None
    """What to compare with; None: what the model was trained on."""
    out: Path
    group: Group
    track: Track[Any]
    drawn: dict[str, Rows] = field(default_factory=dict)
    """The samples, `plain` and `denoised`."""

    @cached_property
    def network(self) -> Extractor:
        load = partial(inception.load_inception, device=self.group.device, track=self.track)
        return self.group.main_first(load)

    @cached_property
    def reference(self) -> tuple[Reference, Images | None]:
        return reference_for(self.model, self.data, self.network, self.group, track=self.track)

    @cached_property
    def training(self) -> tuple[Images, Images | None]:
        return training_images(self.model, self.data, self.group, track=self.track)

    @cached_property
    def test(self) -> Images:
        """All test images of the data set."""
        return whole_test_split(self.model, self.data, self.group, track=self.track)

    @cached_property
    def unseen(self) -> Images:
        """Images to complete: held out of those to compare with, or all of these where the model was not trained on
        them; without images to compare with, held out of the model's own."""
        if self.data is not None and is_statistics_file(self.data):
            held_out = held_out_images(self.model, self.data, self.group, track=self.track)
        else:
            given, held_out = self.training
            known = self.model.facts.get("data_digest", given.digest)
            if held_out is None and self.data is not None and known != given.digest:
                held_out = given
        if held_out is None or not len(held_out):
            raise ValueError("no held-out images to complete (--data mnist, say, has some; or do without completions)")
        if held_out.shape != self.model.shape:
            sizes = f"images of {held_out.shape}, and the model's are {self.model.shape}"
            raise ValueError(f"{held_out.name} has {sizes} (other --data, or do without completions)")
        return held_out

    def to_complete(self, holes: int) -> list[Pixels]:
        """For each of so many holes the images that get it: the first ones; or, of images that are not to be shown as a
        whole, each time others, as what several holes leave of one would show it all."""
        images, each = self.unseen.pixels, min(COMPLETED, self.n)
        if not self.kept_out:
            return [images[:each]] * holes
        each = min(each, len(images) // holes)
        if not each:
            raise ValueError(
                f"{len(images)} images are too few for {holes} holes, each in others (do without completions)"
            )
        return [images[k * each : (k + 1) * each] for k in range(holes)]

    @property
    def kept_out(self) -> bool:
        """Whether the images to complete are not to be published."""
        return KEPT_OUT in name_alone(self.unseen.name).lower()

    def prepare(self, wanted: Sequence[str]) -> None:
        """Open all that these parts need: what is missing must not cost hours of sampling first."""
        if "neighbors" in wanted:
            cure = "--parts samples stages numbers, or other --data"
            if self.data is not None and is_statistics_file(self.data):
                raise ValueError(f"{self.data} holds no images to be neighbours ({cure})")
            check_neighbors("the model", self.model.shape, self.training[0], cure)
            _ = self.network
        if {"numbers", "real", "robustness"} & set(wanted):
            _ = self.network
            if self.data is None or not is_statistics_file(self.data):
                _ = self.training  # their features come after the pictures: without a GPU they take hours
        if "inpainting" in wanted:
            self.to_complete(len(MASKS))
        if "real" in wanted:
            _ = self.test

    def samples_for(self, wanted: Sequence[str]) -> int:
        """How many samples these parts need."""
        needs = {"samples": SHOWN, "neighbors": COPIES, "numbers": self.n, "digits": self.n}
        return max((min(self.n, needs.get(part, 0)) for part in wanted), default=0)

    def draw(self, n: int) -> int:
        """The first n samples, with and without the last denoising step. Returns how many were not there yet."""
        pools = [Pool(self.model, replace(self.how, denoise=denoise)) for denoise in (False, True)]
        missing = {chunk for pool in pools for chunk in pool.missing(n)}
        plain, denoised = pools[0].pair(n, self.group, batch_size=self.batch_size, track=self.track)
        self.drawn = {"plain": plain, "denoised": denoised}
        return sum(map(len, missing))

    def make(self, part: str) -> dict[str, Any]:
        """That part; on its numbers all processes work, on the others the main one alone."""
        together = {"numbers": self.numbers, "real": self.real, "robustness": self.robustness}
        if part in together:
            return together[part]()
        alone = {"samples": self.samples, "stages": self.stages, "neighbors": self.neighbors}
        alone |= {"digits": self.digits, "inpainting": self.inpainting}
        return alone[part]() if self.group.main else {}

    def samples(self) -> dict[str, Any]:
        """Uncurated samples, a picture of each kind."""
        files = {"samples.png": self.drawn["plain"], "samples_denoised.png": self.drawn["denoised"]}
        for name, rows in files.items():
            sheet = grid(rows[:SHOWN], columns=min(10, len(rows)))
            save_png(self.out / name, sheet, zoom=zoom_for(sheet, target=900))
        return {"files": list(files), "shown": min(SHOWN, *map(len, files.values()))}

    def stages(self) -> dict[str, Any]:
        """The first samples on their way from uniform noise to the end, a row each."""
        model, how = self.model, self.how
        total = how.steps * len(model.sigmas) + how.denoise
        keep = sorted(kept_steps(total, STAGE_COLUMNS))
        seeds = sample_seeds(how.seed, range(min(STAGE_ROWS, self.n)))
        start, _ = start_of(seeds, model.shape, model.sigmas.device)
        states = generate(
            for_sampling(model.network, model.shape, size=len(seeds), precision=how.precision),
            model.sigmas,
            model.shape,
            seeds,
            step_size=how.step_size,
            steps=how.steps,
            denoise=how.denoise,
        )
        shown: list[Pixels] = [to_bytes(start)]
        sigmas: list[float | None] = [None]
        for state in self.track(states, "stages of the sampling", total):
            if state.step in keep:
                shown.append(to_bytes(state.x))
                sigmas.append(state.sigma.item())
        sheet = grid(np.stack(shown, axis=1).reshape(-1, *shown[0].shape[1:]), columns=len(keep))
        save_png(self.out / "stages.png", sheet, zoom=zoom_for(sheet, target=900))
        return {"files": ["stages.png"], "rows": len(seeds), "steps": keep, "sigmas": sigmas}

    def neighbors(self) -> dict[str, Any]:
        """Samples beside the training images next to them, and whether they are copies, in two spaces."""
        rows, (training, held_out) = self.drawn["denoised" if self.how.denoise else "plain"], self.training
        samples = rows[: min(COPIES, len(rows))]
        spaces: dict[str, Embed] = {"neighbors": in_pixels, "neighbors_inception": self.network}
        made: dict[str, Any] = {"files": [f"{name}.png" for name in spaces], "others": others_are(held_out)}
        made |= {"data": name_alone(training.name), "data_digest": training.digest[:12]}
        for name, embed in spaces.items():
            device = self.group.device
            found, usual = neighbors_of(samples, training, held_out, embed, device=device, track=self.track)
            save_neighbors(self.out / f"{name}.png", samples, training.pixels, found)
            made[name] = memorisation(found, usual)
        return made

    def numbers(self) -> dict[str, Any]:
        """FID and the like of both kinds of samples, and the objective."""
        reference, held_out = self.reference
        size, track = self.batch_size, self.track
        numbers = numbers_of(self.drawn, reference, self.network, self.group, batch_size=size, track=track)
        loss = held_out_loss(self.model, held_out) if self.group.main and held_out is not None else {}
        return numbers | loss

    def real(self) -> dict[str, Any]:
        """FID and the like of test images, to which a perfect model would come close with as many samples. Without the
        Inception score, of which the cache knows nothing."""
        found = kept_on_disk(self.test, self.network, self.group, track=self.track)
        reference = self.reference[0]
        if not self.group.main:
            return {}
        facts = {"name": name_alone(self.test.name), "digest": self.test.digest[:12]}
        return {**facts, **compared(replace(found, classes=None), reference, device=self.group.device)}

    def inpainting(self, holes: Sequence[str] = MASKS) -> dict[str, Any]:
        """Held-out images with holes of several shapes, completed."""
        model, size, chosen = self.model, self.batch_size, self.to_complete(len(holes))
        noise = 0.0 if self.how.denoise else model.sigmas[-1].item()
        made: dict[str, Any] = {"files": [f"inpainting_{name}.png" for name in holes], "masks": {}}
        for name, file, images in zip(holes, made["files"], chosen, strict=True):
            known, what = masks_for(images, name), f"completing, {name}"
            found = complete(model, images, known, self.how, batch_size=size, track=self.track, what=what)
            sheet = picture(found, images, known, originals=not self.kept_out)
            save_png(self.out / file, sheet, zoom=zoom_for(sheet, target=900))
            made["masks"][name] = judged(found, images, known, model.sigmas[-1].item(), noise=noise)
        return made

    def robustness(self) -> dict[str, Any]:
        """FID and the like by step size and number of steps."""
        n, track = min(self.n, COMPARED), self.track
        reference, size = self.reference[0], self.batch_size
        cells = robustness(self.model, self.how, n, reference, self.network, self.group, batch_size=size, track=track)
        return {"n": n, "cells": cells} if self.group.main else {}

    def digits(self) -> dict[str, Any]:
        """What a classifier of digits says of the samples, and what it said of MNIST's test set, as `test`."""
        told = {kind: judge(rows[: len(rows)]) for kind, rows in self.drawn.items()}
        real = [verdict.pop("real") for verdict in told.values()]
        return {**told, "test": real[0]}
