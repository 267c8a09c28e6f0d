"""A report on one model with everything that the paper shows of its own models: pictures, and report.json."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from scorefield import distributed, samplers, version
from scorefield.data import Images
from scorefield.data.images import Pixels
from scorefield.data.named import short_name
from scorefield.distributed import Group
from scorefield.evaluation import PARTS, USUAL_PARTS, inception, records
from scorefield.evaluation.completions import MASKS, complete, completion_sheet, make_masks, measure_completions
from scorefield.evaluation.digits import judge, load_classifier
from scorefield.evaluation.features import Extractor, Reference, cached_features, is_statistics_file
from scorefield.evaluation.neighbors import (
    Embed,
    check_neighbors,
    describe_others,
    find_neighbors,
    in_pixels,
    measure_memorisation,
    save_neighbors,
)
from scorefield.evaluation.numbers import compare, describe_comparison, held_out_loss, measure_metrics
from scorefield.evaluation.records import ModelRecord, Report, RobustnessCell
from scorefield.evaluation.sample_cache import CachedSamples, SampleCache
from scorefield.evaluation.sources import (
    load_held_out,
    load_reference,
    load_test_images,
    load_training_images,
    may_be_shown,
)
from scorefield.files import write_json
from scorefield.images import grid, save_png, to_bytes, zoom_for
from scorefield.models.export import published
from scorefield.models.model import Model, kept_steps
from scorefield.progress import Track, plural
from scorefield.training.history import TrainingHistory

SHOWN = 100
"""Samples in a picture of samples, 10 × 10."""
STAGE_ROWS, STAGE_COLUMNS = 10, 12
"""Samples in the picture of stages, and states of each."""
COPIES = 1000
"""The most samples that are searched for copies."""
COMPARED = 1000
"""The most samples by which other settings of the sampler are compared."""
COMPLETED = 10
"""The most images that are completed for each mask."""
STEP_SIZES, STEPS = (5e-6, 2e-5, 5e-5), (10, 30, 100)
"""Step sizes ε and numbers of steps T that the part robustness compares."""

SHARED_PARTS = ("numbers", "robustness", "real")
"""Parts on which all processes work. The others are made by the main process alone."""
SAME = ("model", "sampler", "seed", "precision", "label", "guidance", "n", "data")
"""What must not have changed if a report is to be continued."""


def describe_model(model: Model) -> ModelRecord:
    """The record of a model, without paths of this machine."""
    parse: dict[str, Callable[[str], Any]] = {"data": short_name, "data_images": int}
    known = {each.name for each in fields(ModelRecord)} & model.metadata.keys()
    metadata: dict[str, Any] = {name: parse.get(name, str)(model.metadata[name]) for name in known}
    return ModelRecord(
        step=model.step,
        weights=model.weights,
        digest=model.digest[:12],
        parameters=model.parameters,
        shape=model.shape,
        sigmas=model.sigmas,
        recipe=published(model.recipe),
        **metadata,
    )


def has_digits(model: Model) -> bool:
    """Whether the model samples MNIST's digits, for which there is a classifier."""
    return model.recipe.data == "mnist" and model.shape == (1, 28, 28)


@dataclass
class ReportMaker:
    """Makes the parts of a report. All processes of the group call the same methods; the main one gets the results."""

    cache: SampleCache
    """The model, its sampler, the seed and the precision."""
    n: int
    batch_size: int
    data: str | None
    """The images to compare with. None: those that the model was trained on."""
    out: Path
    """Folder for the pictures."""
    group: Group
    track: Track[Any]
    drawn: dict[str, CachedSamples] = field(default_factory=dict)
    """The samples, `plain` and `denoised`."""

    @property
    def model(self) -> Model:
        return self.cache.model

    @property
    def denoises(self) -> bool | None:
        """Whether the sampler ends with a denoising step; None if it has no such setting."""
        return getattr(self.cache.sampler, "denoise", None)

    @property
    def settings(self) -> dict[str, Any]:
        """How to sample, for `Model.states`."""
        return self.cache.settings

    @cached_property
    def network(self) -> Extractor:
        load = partial(inception.load_inception, device=self.group.device, track=self.track)
        return self.group.main_first(load)

    @cached_property
    def reference(self) -> tuple[Reference, Images | None]:
        return load_reference(self.model, self.data, self.network, self.group, track=self.track)

    @cached_property
    def training(self) -> tuple[Images, Images | None]:
        return load_training_images(self.model, self.data, self.group, track=self.track)

    @cached_property
    def test(self) -> Images:
        """All test images of the data set."""
        return load_test_images(self.model, self.data, self.group, track=self.track)

    @cached_property
    def unseen(self) -> Images:
        """The images to complete: those held out of the images to compare with, or all of these if the model was not
        trained on them. If there are no images to compare with, those held out of the model's own data."""
        if is_statistics_file(self.data):
            held_out = load_held_out(self.model, self.data, self.group, track=self.track)
        else:
            given, held_out = self.training
            known = self.model.metadata.get("data_digest", given.digest)
            if held_out is None and self.data is not None and known != given.digest:
                held_out = given
        if held_out is None or not len(held_out):
            raise ValueError(
                "there are no held-out images to complete (use a data set with test images, such as --data mnist, or "
                "leave out the part inpainting)"
            )
        if held_out.shape != self.model.shape:
            raise ValueError(
                f"{held_out.name} has images of {held_out.shape}, but the model's are {self.model.shape} (use other "
                "--data, or leave out the part inpainting)"
            )
        return held_out

    def images_to_complete(self, masks: int) -> list[Pixels]:
        """The images for each of the masks: the first ones. If they may not be shown as a whole, each mask gets others,
        because the known parts under several masks would show an image as a whole."""
        images, each = self.unseen.pixels, min(COMPLETED, self.n)
        if may_be_shown(self.unseen.name):
            return [images[:each]] * masks
        each = min(each, len(images) // masks)
        if not each:
            are = f"{plural(len(images), 'image')} {'is' if len(images) == 1 else 'are'}"
            raise ValueError(
                f"{are} too few for {masks} masks, each of which needs its own (leave out the part inpainting)"
            )
        return [images[k * each : (k + 1) * each] for k in range(masks)]

    def prepare(self, wanted: Sequence[str]) -> None:
        """Open everything that these parts need, so that nothing missing is noticed only after hours of sampling."""
        if "neighbors" in wanted:
            fix = "--parts samples stages numbers, or other --data"
            if is_statistics_file(self.data):
                raise ValueError(f"{self.data} holds no images to search for neighbours ({fix})")
            check_neighbors("the model", self.model.shape, self.training[0], fix)
            _ = self.network
        if "robustness" in wanted:
            self._with_steps(STEP_SIZES[0], STEPS[0])
        if set(SHARED_PARTS) & set(wanted):
            _ = self.network
            if not is_statistics_file(self.data):
                _ = self.training  # their features are computed after the pictures: without a GPU that takes hours
        if "inpainting" in wanted:
            self.images_to_complete(len(MASKS))
        if "real" in wanted:
            _ = self.test

    def samples_for(self, wanted: Sequence[str]) -> int:
        """How many samples these parts need."""
        needs = {"samples": SHOWN, "neighbors": COPIES, "numbers": self.n, "digits": self.n}
        return max((min(self.n, needs.get(part, 0)) for part in wanted), default=0)

    def draw(self, n: int) -> int:
        """Draw the first n samples, without and with the last denoising step. Returns how many were not cached."""
        caches = [self.cache.with_denoising(denoise) for denoise in (False, True)]
        missing = {chunk for cache in caches for chunk in cache.missing(n)}
        plain, denoised = self.cache.pair(n, self.group, batch_size=self.batch_size, track=self.track)
        self.drawn = {"plain": plain, "denoised": denoised}
        return sum(map(len, missing))

    def make(self, part: str) -> Any:  # noqa: ANN401
        """The record of a part, made by the method of that name; None in all processes but the main one."""
        return getattr(self, part)() if part in SHARED_PARTS or self.group.main else None

    def _save(self, name: str, sheet: Pixels) -> None:
        save_png(self.out / name, sheet, zoom=zoom_for(sheet, target=900))

    def samples(self) -> records.Samples:
        """Uncurated samples, without and with the last denoising step."""
        files = {"samples.png": self.drawn["plain"], "samples_denoised.png": self.drawn["denoised"]}
        for name, rows in files.items():
            self._save(name, grid(rows[:SHOWN], columns=min(10, len(rows))))
        return records.Samples(files=tuple(files), shown=min(SHOWN, *map(len, files.values())))

    def stages(self) -> records.Stages:
        """The first samples on their way from noise, a row each."""
        rows, updates = min(STAGE_ROWS, self.n), self.cache.sampler.updates
        keep = kept_steps(updates, STAGE_COLUMNS)
        states = self.model.states(range(rows), **self.settings)
        shown = [
            (to_bytes(state.x), state.sigma.item() if state.step else None)
            for state in self.track(states, "stages of the sampling", updates + 1)
            if state.step in keep
        ]
        images = np.stack([image for image, _ in shown], axis=1)
        self._save("stages.png", grid(images.reshape(-1, *images.shape[2:]), columns=len(keep)))
        sigmas = tuple(sigma for _, sigma in shown)
        return records.Stages(files=("stages.png",), rows=rows, steps=tuple(sorted(keep)), sigmas=sigmas)

    def neighbors(self) -> records.NeighborsPart:
        """Samples beside the nearest training images, and whether they are copies, in two spaces."""
        rows, (training, held_out) = self.drawn["denoised" if self.denoises else "plain"], self.training
        samples = rows[: min(COPIES, len(rows))]
        spaces: dict[str, Embed] = {"neighbors": in_pixels, "neighbors_inception": self.network}
        found = {}
        for name, embed in spaces.items():
            device = self.group.device
            mine, usual = find_neighbors(samples, training, held_out, embed, device=device, track=self.track)
            save_neighbors(self.out / f"{name}.png", samples, training.pixels, mine)
            found[name] = measure_memorisation(mine, usual)
        return records.NeighborsPart(
            files=tuple(f"{name}.png" for name in spaces),
            others=describe_others(held_out),
            data=short_name(training.name),
            data_digest=training.digest[:12],
            **found,
        )

    def _measure(self, rows: CachedSamples, what: str) -> records.Metrics | None:
        what = f"features, {what}"
        return measure_metrics(rows, self.reference[0], self.network, self.group, track=self.track, what=what)

    def numbers(self) -> records.Numbers | None:
        """FID and the other metrics of the samples, without and with the last denoising step, and the objective."""
        reference, held_out = self.reference
        rows = self.drawn["plain"]
        plain = self._measure(rows, "plain")
        denoised = plain if self.drawn["denoised"] is rows else self._measure(self.drawn["denoised"], "denoised")
        if plain is None or denoised is None:
            return None
        comparison = describe_comparison(rows, reference, self.network)
        loss = held_out_loss(self.model, held_out) if held_out is not None else {}
        return records.Numbers(plain=plain, denoised=denoised, **comparison, **loss)

    def real(self) -> records.RealMetrics | None:
        """FID and the other metrics of the test images, to which a perfect model would come close with as many samples.
        The Inception score is missing, because it is not in the cache of features."""
        features = cached_features(self.test, self.network, self.group, track=self.track)
        reference = self.reference[0]
        if not self.group.main:
            return None
        metrics = compare(replace(features, classes=None), reference, device=self.group.device)
        name, digest = short_name(self.test.name), self.test.digest[:12]
        return records.RealMetrics(name=name, digest=digest, **vars(metrics))

    def inpainting(self, masks: Sequence[str] = MASKS) -> records.Inpainting:
        """Held-out images, completed under masks of several shapes."""
        sigma = self.model.sigma_range[0]
        noise = sigma if self.denoises is False else 0.0  # what the sampler leaves on the images
        found: dict[str, records.Completion] = {}
        for name, images in zip(masks, self.images_to_complete(len(masks)), strict=True):
            known, what = make_masks(images, name), f"completing, {name}"
            made = complete(
                self.model, images, known, **self.settings, batch_size=self.batch_size, track=self.track, what=what
            )
            originals = may_be_shown(self.unseen.name)
            self._save(f"inpainting_{name}.png", completion_sheet(made, images, known, originals=originals))
            found[name] = measure_completions(made, images, known, sigma, noise=noise)
        return records.Inpainting(files=tuple(f"inpainting_{name}.png" for name in masks), masks=found)

    def _with_steps(self, step_size: float, steps: int) -> SampleCache:
        return self.cache.with_sampler(samplers.changed(self.cache.sampler, {"step_size": step_size, "steps": steps}))

    def robustness(self) -> records.Robustness | None:
        """FID and the other metrics for other step sizes and numbers of steps."""
        n, cells = min(self.n, COMPARED), []
        for step_size, steps in product(STEP_SIZES, STEPS):
            cell, cache = RobustnessCell(step_size=step_size, steps=steps), self._with_steps(step_size, steps)
            try:
                rows = cache.draw(n, self.group, batch_size=self.batch_size, track=self.track)
            except FloatingPointError as error:
                cells.append(replace(cell, diverged=str(error)))
                continue
            if (metrics := self._measure(rows, f"ε = {step_size:g}, T = {steps}")) is not None:
                names = ("n", "fid", "kid", "kid_standard_error", "precision", "recall")
                cells.append(replace(cell, **{name: getattr(metrics, name) for name in names}))
        return records.Robustness(n=n, cells=tuple(cells)) if self.group.main else None

    def digits(self) -> records.Digits:
        """The verdict of a classifier of digits on the samples, and the test of that classifier."""
        classifier = load_classifier()
        verdicts = {kind: judge(rows[: len(rows)], classifier) for kind, rows in self.drawn.items()}
        return records.Digits(**verdicts, test=classifier.test)


class ReportFile:
    """report.json, which is written after every part. Parts that it holds are not made again; the report of another
    model or with other settings is not changed."""

    def __init__(self, maker: ReportMaker, *, command: str, training: TrainingHistory | None) -> None:
        """`command`: the command line without --parts. `training`: the history of the model's training."""
        self.path, self.group = maker.out / "report.json", maker.group
        self.machine = records.Machine(
            machine=distributed.device_name(self.group.device),
            processes=self.group.world,
            scorefield=version.__version__,
            torch=torch.__version__,
        )
        data, cache = maker.data, maker.cache
        if data is not None and short_name(data) != data:  # a path, whose digest tells whether it is the same one later
            data = f"{short_name(data)} ({hashlib.sha256(data.encode()).hexdigest()[:12]})"
        empty = Report(
            command=command,
            n=maker.n,
            data=data,
            model=describe_model(maker.model),
            sampler=samplers.to_dict(cache.sampler),
            seed=cache.seed,
            precision=cache.precision,
            label=None if cache.label is None else str(cache.label),
            guidance=cache.guidance or None,
            calls=cache.sampler.calls,
            training=training,
            seconds={},
            made_on={},
        )
        self.report = self._continued(empty)
        self.command = self.report.command

    def _continued(self, report: Report) -> Report:
        """The report with the parts that its file holds already."""
        try:
            before = records.read_report(self.path)
        except FileNotFoundError:
            return report
        except ValueError as error:
            raise FileExistsError(f"{error}; it cannot be continued (name another --out, or delete it)") from None
        if changed := [name for name in SAME if getattr(before, name) != getattr(report, name)]:
            if not any(getattr(before, part) is not None for part in PARTS):
                return report  # there is nothing to lose
            raise FileExistsError(f"{self.path} has another {', '.join(changed)} (name another --out, or delete it)")
        if report.training is not None or before.training is None:
            return replace(before, command=report.command, training=report.training)
        return replace(before, command=before.command.partition(" --parts ")[0])  # an earlier call named the run

    def has(self, part: str) -> bool:
        """Whether that part is made and its pictures are there. All processes get the same answer."""
        made = getattr(self.report, part)
        here = made is not None and all((self.path.parent / name).exists() for name in getattr(made, "files", ()))
        return bool(self.group.all(here)[0])

    def add(self, part: str, work: Callable[[], Any]) -> None:
        """Do the work for a part, and write the file with what it returns, unless that is None."""
        began = time.monotonic()
        made = work()
        if not self.group.main:
            return
        report, seconds = self.report, time.monotonic() - began
        if made is not None:
            report = replace(report, **{part: made}, made_on=report.made_on | {part: self.machine})
        if part in ("preparing", "sampling"):  # which every call does
            seconds += report.seconds.get(part, 0.0)
        held = tuple(each for each in PARTS if getattr(report, each) is not None)
        command = self.command + (f" --parts {' '.join(held)}" if held and held != USUAL_PARTS else "")
        self.report = replace(report, seconds=report.seconds | {part: round(seconds, 2)}, command=command)
        write_json(self.path, records.to_json(self.report))


def make_report(maker: ReportMaker, file: ReportFile, parts: Sequence[str], *, say: Callable[[str], None]) -> None:
    """Make these parts, except those that the file holds already."""
    wanted = [*parts, *(["digits"] if "numbers" in parts and has_digits(maker.model) else [])]
    todo = [part for part in wanted if not file.has(part)]
    for part in wanted:
        if part not in todo and maker.group.main:
            say(f"{part}: already in {file.path}")
    file.add("preparing", partial(maker.prepare, todo))
    if "training" in vars(maker) and maker.group.main:  # the images that were just opened
        for note in maker.training[0].notes:
            say(f"note: {note}")

    def draw() -> records.Sampling | None:
        before = file.report.sampling.images if file.report.sampling is not None else 0
        drawn = maker.draw(n)
        return records.Sampling(images=before + drawn) if drawn else None

    if n := maker.samples_for(todo):
        file.add("sampling", draw)
    for part in todo:
        file.add(part, partial(maker.make, part))
