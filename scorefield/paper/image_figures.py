"""The paper's figures of image models, 4 to 6, and its table: parts of a report, for several models side by side."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch

from scorefield.models.checkpoint import Model, load
from scorefield.data.named import SETS, name_alone
from scorefield.distributed import Group, device_name
from scorefield.evaluation.pool import How, Pool, at_once
from scorefield.evaluation.report import SHOWN, Work, about
from scorefield.paper.output import Result, new_figure, save
from scorefield.paper.sheets import side_by_side, table_1, titles_of
from scorefield.progress import Track, silent
from scorefield.models.pretrained import listed, shipped_models


class Kind(NamedTuple):
    """Which part of a report a figure is, of which data sets' models the paper shows it, and of how many samples."""

    part: str
    picture: str
    sets: tuple[str, ...]
    n: int = SHOWN
    quick_n: int = 4


KINDS = {
    "fig4": Kind("stages", "stages.png", ("mnist", "celeba", "cifar10")),
    "fig5": Kind("samples", "samples.png", ("mnist", "celeba", "cifar10")),
    "fig6": Kind("inpainting", "inpainting_left.png", ("celeba", "cifar10")),
    "table1": Kind("numbers", "", ("cifar10",), 50_000, 1000),
}
QUICK_STEPS = 10
"""At each level, of a quick figure."""


def models_for(name: str, device: torch.device) -> list[str]:
    """The shipped models that a figure shows. Without a GPU it is the small one for MNIST, and no other."""
    known, small = shipped_models(), "mnist-small"
    if device.type == "cpu":
        return [small] if "mnist" in KINDS[name].sets and small in known else []
    wanted = [small if each == "mnist" and each not in known else each for each in KINDS[name].sets]
    return [each for each in wanted if each in known]


def make(
    name: str,
    out: Path,
    *,
    models: Sequence[str] = (),
    data: str | None = None,
    quick: bool = False,
    seed: int = 0,
    device: torch.device | None = None,
    track: Track[Any] = silent,
) -> Result:
    """NAME.png and NAME.json in `out`, of these models, or else of those that `models_for` says.

    `data`: images to complete or to compare with; None: each model's own.
    """
    new_figure(1, 1)  # fails at once where matplotlib is missing
    kind, group = KINDS[name], Group(0, 1, device or torch.device("cpu"))
    names = list(models) or models_for(name, group.device)
    if not names:
        if there := _ready(kind):
            cure = f"to wait for it all the same: --models {' '.join(there)}, with --quick perhaps"
            raise ValueError(f"{name} of the shipped models takes hours or days without a GPU ({cure})")
        what = f"{name} shows shipped models of {' and '.join(kind.sets)}, which are missing"
        raise ValueError(f"{what} (name another model, or a run of yours, with --models; {listed()})")
    began, works = time.monotonic(), list[tuple[str, Work]]()
    with TemporaryDirectory() as folder:
        for k, each in enumerate(names):
            model, place = load(each, device=group.device), Path(folder) / str(k)
            place.mkdir()
            how, n = _how(model, quick=quick, seed=seed), kind.quick_n if quick else kind.n
            works.append((each, Work(model, how, n, at_once(500, group), data, place, group, track)))
        works = _prepared(name, works, kind.part, every=bool(models) or data is not None)
        numbers = [{"name": name_alone(each), **_part(work, kind.part)} for each, work in works]
        pictures = [work.out / kind.picture for _, work in works]
        drawn = side_by_side(titles_of(numbers), pictures) if kind.picture else table_1(numbers)
    seconds = round(time.monotonic() - began, 2)
    facts = {"seed": seed, "quick": quick, "machine": device_name(group.device), "seconds": seconds}
    return save(drawn, {"models": numbers, **facts}, out, name)


def _ready(kind: Kind) -> list[str]:
    """Shipped models that the figure could show; to complete images, those of a data set that can be had by name."""
    there = [each for each in kind.sets if each in shipped_models()]
    return [each for each in there if kind.part != "inpainting" or load(each).recipe.data in SETS]


def _prepared(figure: str, works: list[tuple[str, Work]], part: str, *, every: bool) -> list[tuple[str, Work]]:
    """Those whose images are on this machine, opened before the first sample is drawn. The others are left out with a
    warning, unless `every` one is wanted, or none remains."""
    usable, problems = list[tuple[str, Work]](), dict[str, ValueError | OSError]()
    for name, work in works:
        try:
            work.prepare([part])
        except (ValueError, OSError) as error:
            if every:
                raise
            problems[name] = error
        else:
            usable.append((name, work))
    for name, problem in problems.items():
        if not usable:
            raise problem
        warnings.warn(f"{figure} is made without {name}: {problem}", stacklevel=3)
    return usable


def _how(model: Model, *, quick: bool, seed: int) -> How:
    recipe = model.recipe
    how = How(recipe.sample_steps, recipe.step_size, False, seed)
    if quick:  # T times ε stays the same
        faster = min(QUICK_STEPS, how.steps)
        how = replace(how, steps=faster, step_size=how.step_size * how.steps / faster)
    return Pool(model, how).how


def _part(work: Work, part: str) -> dict[str, Any]:
    """That part's numbers, and what they are of. Its picture goes to the work's folder."""
    needed = work.samples_for([part])
    if needed:
        work.draw(needed)
    told = work.inpainting(("left",)) if part == "inpainting" else work.make(part)
    told.pop("files", None)
    return {part: told, "sampler": asdict(work.how), "model": about(work.model)} | ({"n": needed} if needed else {})
