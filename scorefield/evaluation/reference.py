"""The images that samples are compared with: their features, kept on disk, or statistics from a file."""

from __future__ import annotations

import hashlib
import warnings
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from scorefield.data import Images, folder_of
from scorefield.data.named import short_name
from scorefield.distributed import Group
from scorefield.evaluation.features import Extractor, Features, kept_order, measure
from scorefield.metrics import Moments, Statistics
from scorefield.models import checkpoint
from scorefield.progress import Track, silent

MANY = 5000
"""From this number of images on, computing features on a CPU takes long and is done in pieces."""
PIECE = 200
"""Images per piece."""
VERSION = 1
"""Raised whenever the same images would give other features."""


class Gaussian(NamedTuple):
    """A mean (D,) and a covariance (D, D) that were computed elsewhere."""

    mean: Tensor
    covariance: Tensor


@dataclass(frozen=True)
class Reference:
    """What samples are compared with."""

    name: str
    """The name of the source, without a path of this machine."""
    digest: str
    n: int | None
    """Number of images; None if a statistics file does not say."""
    moments: Moments
    kept: Tensor | None
    """Features of some of them, (K, D); None if only their statistics are known."""


def make_reference(images: Images, network: Extractor, group: Group, *, track: Track[object] = silent) -> Reference:
    """The reference that consists of these images."""
    found = cached_features(images, network, group, track=track)
    return Reference(short_name(images.name), images.digest[:12], found.n, found.statistics, found.kept)


def cached_features(images: Images, network: Extractor, group: Group, *, track: Track[object] = silent) -> Features:
    """Statistics and features of these images: from the cache, under the digests of the images and the network, or
    computed by all processes together and added to the cache."""
    key = hashlib.sha256(repr((VERSION, images.digest, network.digest)).encode()).hexdigest()
    path = folder_of("cache") / f"features-{key[:32]}.safetensors"
    found = _read(path) if group.main else None
    if group.any(found is not None):
        found = group.all(found)[0] if group.world > 1 else found
    else:
        if group.device.type == "cpu" and group.world == 1 and len(images) >= MANY:
            found = _measure_in_pieces(images, network, group, path, track)
        else:
            what = f"features of {images.name}"
            found = measure(images.pixels, len(images), network, group, track=track, what=what)
        if group.main:
            _write(path, found, images)
    assert found is not None
    return found


def _measure_in_pieces(images: Images, network: Extractor, group: Group, path: Path, track: Track[Any]) -> Features:
    """The features of images that take hours. What is done is kept on disk, so that an interrupt loses one piece."""
    warnings.warn(
        f"Inception's features of {len(images):,} images take hours without a GPU; finished parts are kept (fewer "
        "images as --data are quicker, and give another FID)",
        stacklevel=3,
    )
    so_far = path.with_name(f"{path.stem}-so-far.safetensors")
    pieces = [range(first, min(first + PIECE, len(images))) for first in range(0, len(images), PIECE)]
    whole = _read(so_far)
    todo = pieces[whole.n // PIECE if whole else 0 :]
    for piece in track(todo, f"features of {images.name} (pieces of {PIECE})", len(todo)):
        found = measure(images.pixels, len(images), network, group, piece=piece)
        if whole is not None:
            whole.statistics.merge(found.statistics)
            found = Features(whole.statistics, torch.cat([whole.kept, found.kept]))
        whole = found
        _write(so_far, whole, images)
    assert whole is not None
    so_far.unlink()
    return Features(whole.statistics, whole.kept[kept_order(len(images), pieces)])


def _write(path: Path, found: Features, images: Images) -> None:
    tensors = {"mean": found.statistics.mean, "scatter": found.statistics.scatter, "kept": found.kept}
    checkpoint.write(path, tensors, {"n": str(found.n), "source": images.name})


def _read(path: Path) -> Features | None:
    try:
        tensors, metadata = checkpoint.read(path)
    except (FileNotFoundError, checkpoint.BrokenCheckpointError):
        return None
    return Features(Statistics(int(metadata["n"]), tensors["mean"], tensors["scatter"]), tensors["kept"])


def is_statistics_file(source: str) -> bool:
    """Whether the source is an .npz file with a mean `mu` instead of images."""
    path = Path(source)
    if path.suffix != ".npz" or not path.is_file():
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            return "mu.npy" in archive.namelist()
    except zipfile.BadZipFile:
        return False


def read_statistics(source: str) -> Reference:
    """The reference in an .npz file with a mean `mu` and a covariance `sigma`, or its upper triangle `cov_triu`."""
    path = Path(source)
    with np.load(path, allow_pickle=False) as arrays:
        mean = torch.tensor(arrays["mu"], dtype=torch.float64)
        if "sigma" in arrays:
            covariance = torch.tensor(arrays["sigma"], dtype=torch.float64)
        elif "cov_triu" in arrays:
            covariance = torch.zeros(len(mean), len(mean), dtype=torch.float64)
            rows, columns = np.triu_indices(len(mean))
            covariance[rows, columns] = torch.tensor(arrays["cov_triu"], dtype=torch.float64)
            covariance[columns, rows] = covariance[rows, columns]
        else:
            raise ValueError(f"{path} has a mean mu, but no covariance (add an array sigma or cov_triu)")
        n = int(arrays["n"]) if "n" in arrays else None
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    return Reference(short_name(source), digest, n, Gaussian(mean, covariance), None)
