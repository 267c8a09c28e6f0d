"""How much the sampler's settings matter: samples by other step sizes ε and numbers of steps T."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from scorefield.models.checkpoint import Model
from scorefield.distributed import Group
from scorefield.evaluation.features import Extractor
from scorefield.evaluation.numbers import numbers_of
from scorefield.evaluation.pool import How, Pool
from scorefield.evaluation.reference import Reference
from scorefield.progress import Track, silent

STEP_SIZES = (5e-6, 2e-5, 5e-5)
STEPS = (10, 30, 100)
KEPT = ("fid", "kid", "kid_standard_error", "precision", "recall", "n")


def robustness(
    model: Model,
    how: How,
    n: int,
    reference: Reference,
    network: Extractor,
    group: Group,
    *,
    batch_size: int,
    track: Track[Any] = silent,
) -> list[dict[str, Any]]:
    """The metrics of n samples for each ε and T; samples that diverge have none. The main process gets them."""
    found = []
    for step_size in STEP_SIZES:
        for steps in STEPS:
            pool = Pool(model, replace(how, step_size=step_size, steps=steps))
            cell: dict[str, Any] = {"step_size": step_size, "steps": steps}
            try:
                rows = {f"ε = {step_size:g}, T = {steps}": pool.draw(n, group, batch_size=batch_size, track=track)}
            except FloatingPointError as error:
                found.append({**cell, "diverged": str(error)})
                continue
            numbers = numbers_of(rows, reference, network, group, batch_size=batch_size, track=track)
            if group.main:
                (metrics,) = (numbers[kind] for kind in rows)
                found.append({**cell, **{key: metrics[key] for key in KEPT if key in metrics}})
    return found
