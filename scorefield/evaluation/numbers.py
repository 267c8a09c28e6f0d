"""The numbers by which models are compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from scorefield.models.checkpoint import Model
from scorefield.data import Images
from scorefield.data.named import name_alone
from scorefield.distributed import Group
from scorefield.evaluation.features import Extractor, Measured, Rows, measured
from scorefield.evaluation.reference import Reference
from scorefield.evaluation.inception import PORT, URL
from scorefield.metrics import frechet_distance, kernel_distance, precision_recall
from scorefield.progress import Track, silent
from scorefield.training.steps import measure

PLACE = "$SCOREFIELD_DATA/inception"
"""Of Inception's weights, for people on any machine."""


def numbers_of(
    rows: Mapping[str, Rows],
    reference: Reference,
    network: Extractor,
    group: Group,
    *,
    batch_size: int,
    track: Track[Any] = silent,
) -> dict[str, Any]:
    """What `compared` says of each kind, {kind: samples}, and what must stand beside every number.

    All processes work on it, and the main one gets it.
    """
    size = min(batch_size, 256 if group.device.type == "cuda" else 32)
    numbers: dict[str, Any] = {}
    for kind, each in rows.items():
        found = measured(each, len(each), network, group, batch_size=size, track=track, what=f"features, {kind}")
        if group.main:
            numbers[kind] = compared(found, reference, device=group.device)
    return numbers | _facts(next(iter(rows.values())), reference, network) if group.main else {}


def _facts(rows: Rows, reference: Reference, network: Extractor) -> dict[str, Any]:
    _, height, width, channels = rows[:1].shape
    notes = [f"{height} × {width} pixels were resized to 299 × 299 as TensorFlow 1 did"]
    if channels == 1:
        notes.append("grey images were given to Inception as three equal channels")
    if network.classes is None:
        notes.append(f"no Inception score: these weights lack the class layer ({PORT} from {URL} in {PLACE} brings it)")
    return {
        "reference": {"name": reference.name, "digest": reference.digest, "n": reference.n},
        "inception": network.digest,
        "preprocessing": notes,
    }


def compared(samples: Measured, reference: Reference, *, device: torch.device | str = "cpu") -> dict[str, Any]:
    """All that one pass over the samples gives, by the metrics' names. What cannot be had is absent; `notes` say why.

    `device`: where to search for neighbours.
    """
    notes = []
    features = len(samples.statistics.mean)
    for n, whose in ((samples.n, "the samples"), (reference.n, f"the reference {reference.name}")):
        if n is not None and n <= features:
            notes.append(
                f"{n} images are too few for the covariance of {features} features of {whose}: FID is too large by "
                "much, and comparable only with values of the same n"
            )
    numbers: dict[str, Any] = {"fid": frechet_distance(samples.statistics, reference.moments), "inception_score": None}
    if reference.kept is None:
        notes.append(f"no KID, precision and recall: {reference.name} holds no images (give images as --data)")
    elif min(len(samples.kept), len(reference.kept)) < 4:
        notes.append("no KID, precision and recall: fewer than 4 images")
    else:
        mine, real = samples.kept.to(device), reference.kept.to(device)
        numbers["kid"], numbers["kid_standard_error"] = kernel_distance(mine, real)
        numbers["precision"], numbers["recall"] = precision_recall(mine, real)
        numbers["kept_n"] = [len(samples.kept), len(reference.kept)]
    if samples.classes is not None:
        numbers["inception_score"], numbers["inception_score_deviation"] = samples.classes.result()
        numbers["inception_score_splits"] = len(samples.classes.count)
    return {**numbers, "n": samples.n, "notes": notes}


def held_out_loss(model: Model, held_out: Images, *, batch_size: int = 64) -> dict[str, Any]:
    """Eq. 6 on held-out images, in total and per level: the mean over the levels of σ² ℓ(σ).

    The noise is always the same, so models with the same levels are compared on the same draws.
    """
    pixels = torch.tensor(held_out.pixels).to(model.sigmas.device)
    each = measure(model.score, pixels, model.sigmas, batch_size=batch_size)
    if not each.isfinite().all():
        raise FloatingPointError("the objective is not finite: the network's scores are not (check the model)")
    return {
        "loss": each.mean().item(),
        "loss_per_level": each.tolist(),
        "loss_n": len(held_out),
        "loss_data": f"{name_alone(held_out.name)} ({held_out.digest[:12]})",
    }
