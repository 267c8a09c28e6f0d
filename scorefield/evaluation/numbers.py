"""The metrics by which models are compared."""

from __future__ import annotations

from typing import Any

import torch

from scorefield.data import Images
from scorefield.data.named import short_name
from scorefield.distributed import Group, float64_device
from scorefield.evaluation.features import Extractor, Features, Reference, Rows, measure
from scorefield.evaluation.inception import PORT, URL
from scorefield.evaluation.records import LevelLoss, Metrics, ReferenceRecord
from scorefield.metrics import frechet_distance, kernel_distance, precision_recall
from scorefield.models.model import BATCH, Model
from scorefield.progress import Track, silent
from scorefield.training.levels import loss_levels, loss_weight
from scorefield.training.trainer import Batch, held_out_losses, mean_losses

PLACE = "$SCOREFIELD_DATA/inception"
"""The folder of Inception's weights, without a path of this machine."""


def measure_metrics(
    rows: Rows,
    reference: Reference,
    network: Extractor,
    group: Group,
    *,
    track: Track[Any] = silent,
    what: str = "features",
) -> Metrics | None:
    """The metrics of all these images. All processes of the group share the work, and the main one gets the result."""
    features = measure(rows, len(rows), network, group, track=track, what=what)
    return compare(features, reference, device=group.device) if group.main else None


def compare(samples: Features, reference: Reference, *, device: torch.device | str = "cpu") -> Metrics:
    """The metrics of the samples against the reference. `device`: where distances between features are computed."""
    notes = []
    features = len(samples.statistics.mean)
    for n, whose in ((samples.n, "the samples"), (reference.n, f"the reference {reference.name}")):
        if n is not None and n <= features:
            notes.append(
                f"{n} images are too few for the covariance of {features} features of {whose}: FID is much too large, "
                "and comparable only with values of the same n"
            )
    found: dict[str, Any] = {}
    if reference.kept is None:
        notes.append(f"no KID, precision and recall: {reference.name} holds no images (give images as --data)")
    elif min(len(samples.kept), len(reference.kept)) < 4:
        notes.append("no KID, precision and recall: there are fewer than 4 images")
    else:
        mine, real = (kept.to(float64_device(device)) for kept in (samples.kept, reference.kept))
        found["kid"], found["kid_standard_error"] = kernel_distance(mine, real)
        found["precision"], found["recall"] = precision_recall(mine, real)
        found["kept_n"] = (len(samples.kept), len(reference.kept))
    score = None
    if samples.classes is not None:
        score, found["inception_score_deviation"] = samples.classes.result()
        found["inception_score_splits"] = len(samples.classes.count)
    fid = frechet_distance(samples.statistics, reference.moments)
    return Metrics(n=samples.n, fid=fid, inception_score=score, **found, notes=tuple(notes))


def describe_comparison(rows: Rows, reference: Reference, network: Extractor) -> dict[str, Any]:
    """What these images were compared with, by which network, and how they were prepared for it: fields of
    `records.Numbers`."""
    _, height, width, channels = rows[:1].shape
    notes = [f"{height} × {width} pixels were resized to 299 × 299 as TensorFlow 1 did"]
    if channels == 1:
        notes.append("grey images were given to Inception as three equal channels")
    if network.classes is None:
        notes.append(
            f"no Inception score: these weights lack the class layer (put {PORT} from {URL} into {PLACE} to get it)"
        )
    about = ReferenceRecord(name=reference.name, digest=reference.digest, n=reference.n)
    return {"reference": about, "inception": network.digest, "preprocessing": tuple(notes)}


def held_out_loss(model: Model, held_out: Images) -> dict[str, Any]:
    """Eq. 6 on held-out images, λ(σ)ℓ(σ) at each noise level and the mean over the levels: fields of `records.Numbers`.

    Every image is measured at every level. The noise is always the same, so that models with the same noise levels are
    compared on the same draws.
    """
    pixels = torch.tensor(held_out.pixels).to(model.device)
    with_labels = bool(model.labels) and held_out.labels is not None
    batch = Batch(pixels, torch.tensor(held_out.labels).to(model.device) if with_labels else None)
    sigmas, shares = torch.tensor(model.sigmas), None
    if getattr(model.network, "sigma_range", None) is not None:
        sigmas, shares = loss_levels(model.recipe, model.network)
    each = held_out_losses(
        model.score,
        batch,
        sigmas.to(model.device),
        dequantise=model.recipe.dequantise,
        batch_size=BATCH.get(model.device.type, 64),
        weight=loss_weight(model.recipe),
    )
    if not each.isfinite().all():
        raise FloatingPointError("the objective is not finite, because the network's scores are not (check the model)")
    found = mean_losses(each, shares)
    levels = zip(sigmas.tolist(), found.by_level, found.errors_by_level, strict=True)
    return {
        "loss": found.mean,
        "loss_standard_error": found.error,
        "loss_by_sigma": tuple(LevelLoss(sigma=s, loss=loss, standard_error=error) for s, loss, error in levels),
        "loss_n": found.n,
        "loss_data": f"{short_name(held_out.name)} ({held_out.digest[:12]})",
    }
