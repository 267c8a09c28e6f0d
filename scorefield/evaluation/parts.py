"""The parts of a report on one model, as the paper shows its own: each makes its pictures and returns its numbers."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from scorefield import data
from scorefield.checkpoint import Model
from scorefield.data import Images
from scorefield.data.images import Pixels
from scorefield.distributed import Group
from scorefield.evaluation.copies import neighbors_of, save_neighbors
from scorefield.evaluation.features import Extractor, Rows, measured
from scorefield.evaluation.numbers import compared
from scorefield.evaluation.pool import How
from scorefield.evaluation.reference import Reference
from scorefield.evaluation.search import Embed
from scorefield.fast import for_sampling
from scorefield.generate import generate
from scorefield.images import grid, save_png, to_bytes, zoom_for
from scorefield.metrics import memorisation
from scorefield.noise import SampleNoise, sample_seeds
from scorefield.progress import Track, silent

SHOWN = 100
"""Samples in a picture of samples, 10 × 10."""
STAGE_ROWS, STAGE_COLUMNS = 10, 12
"""Samples whose way is shown, and states of each."""
COPIES = 1000
"""Samples of which it is told whether they are copies, at most."""


def about(model: Model) -> dict[str, Any]:
    """The model's facts."""
    return {
        "step": model.step,
        "weights": model.weights,
        "digest": model.digest[:12],
        "parameters": sum(p.numel() for p in model.network.parameters()),
        "shape": list(model.shape),
        "sigmas": model.sigmas.tolist(),
        **{name: value for name, value in model.facts.items() if name.startswith("data")},
        "recipe": asdict(model.recipe),
    }


def samples_part(rows: Mapping[str, Rows], out: Path) -> dict[str, Any]:
    """Uncurated samples, a picture of each kind: {file name: samples}."""
    for name, each in rows.items():
        sheet = grid(each[:SHOWN], columns=10)
        save_png(out / name, sheet, zoom=zoom_for(sheet, target=900))
    return {"files": list(rows), "shown": min(SHOWN, *map(len, rows.values()))}


def stages_part(model: Model, how: How, out: Path, *, track: Track[Any] = silent) -> dict[str, Any]:
    """The first samples on their way from uniform noise to the end, a row each."""
    total = how.steps * len(model.sigmas) + how.denoise
    keep = sorted(set(np.linspace(0, total, STAGE_COLUMNS).round().astype(int).tolist()))
    seeds = sample_seeds(how.seed, range(STAGE_ROWS))
    start = SampleNoise(seeds).rand_like(torch.empty(len(seeds), *model.shape, device=model.sigmas.device))
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
    for state in track(states, "stages of the sampling", total):
        if state.step in keep:
            shown.append(to_bytes(state.x))
            sigmas.append(state.sigma.item())
    sheet = grid(np.stack(shown, axis=1).reshape(-1, *shown[0].shape[1:]), columns=len(keep))
    save_png(out / "stages.png", sheet, zoom=zoom_for(sheet, target=900))
    return {"files": ["stages.png"], "rows": len(seeds), "steps": keep, "sigmas": sigmas}


def neighbors_part(
    rows: Rows,
    training: Images,
    held_out: Images | None,
    spaces: Mapping[str, Embed],
    out: Path,
    *,
    device: torch.device | str = "cpu",
    track: Track[Any] = silent,
) -> dict[str, Any]:
    """Samples beside the training images next to them, and whether they are copies, in each {file name: space}."""
    samples = rows[: min(COPIES, len(rows))]
    made: dict[str, Any] = {"files": list(spaces), "data": training.name, "data_digest": training.digest[:12]}
    for name, embed in spaces.items():
        found, usual = neighbors_of(samples, training, held_out, embed, device=device, track=track)
        save_neighbors(out / name, samples, training.pixels, found)
        made[name.removesuffix(".png")] = memorisation(found, usual)
    return made


def numbers_part(
    rows: Mapping[str, Rows],
    reference: Reference,
    network: Extractor,
    group: Group,
    *,
    batch_size: int,
    track: Track[Any] = silent,
) -> dict[str, Any]:
    """FID and all that one pass over the samples gives, for each kind: {kind: samples}. All processes work on it."""
    numbers = {}
    for kind, each in rows.items():
        what = f"features of {kind} samples"
        found = measured(each, len(each), network, group, batch_size=batch_size, track=track, what=what)
        if group.main:
            numbers[kind] = compared(found, reference, device=group.device)
    return numbers


def digits_part(rows: Mapping[str, Rows], *, track: Track[Any] = silent) -> dict[str, Any]:
    """What a classifier of digits says of the samples, for each kind: {kind: samples}; and of real ones, as `test`."""
    from scorefield.experiments.digits import judge

    real = data.load("mnist:test", track=track).pixels
    return {kind: judge(each[: len(each)]) for kind, each in {**rows, "test": real}.items()}


def has_digits(model: Model) -> bool:
    """Whether it makes MNIST's digits, and there is a classifier to judge them; a warning says where there is none."""
    if model.recipe.data != "mnist" or model.shape != (1, 28, 28):
        return False
    try:
        from scorefield.experiments.digits import judge

        judge(np.zeros((1, 28, 28, 1), np.uint8))
    except (ImportError, FileNotFoundError) as error:
        warnings.warn(f"no verdict on the digits: {error}", stacklevel=2)
        return False
    return True
