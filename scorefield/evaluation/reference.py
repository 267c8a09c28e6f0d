"""The images to compare with, as they are measured, kept on the disk."""

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

from scorefield.models import checkpoint
from scorefield.data import Images, folder_of
from scorefield.data.named import name_alone
from scorefield.distributed import Group
from scorefield.evaluation.features import Extractor, Measured, kept_order, measured
from scorefield.metrics import Moments, Statistics
from scorefield.progress import Track, silent

MANY = 5000
"""Images whose features take long on a CPU,"""
PIECE = 200
"""where they are made in pieces of so many."""
VERSION = 1
"""Raised when the same images would give other features."""


class Gaussian(NamedTuple):
    """Mean (D,) and covariance (D, D) that somebody else computed."""

    mean: Tensor
    covariance: Tensor


@dataclass(frozen=True)
class Reference:
    """What samples are compared with."""

    name: str
    """Without the place where it lies on this machine."""
    digest: str
    n: int | None
    """How many images; None where a statistics file does not tell."""
    moments: Moments
    kept: Tensor | None
    """Features of some of them, (K, D), unless only their statistics are known."""


def reference_of(images: Images, network: Extractor, group: Group, *, track: Track[object] = silent) -> Reference:
    """These images as what to compare with."""
    found = kept_on_disk(images, network, group, track=track)
    return Reference(name_alone(images.name), images.digest[:12], found.n, found.statistics, found.kept)


def kept_on_disk(images: Images, network: Extractor, group: Group, *, track: Track[object] = silent) -> Measured:
    """Statistics and features of these images: from the cache where they lie under the digests of images and network,
    or computed by all processes together and put there."""
    key = hashlib.sha256(repr((VERSION, images.digest, network.digest)).encode()).hexdigest()
    path = folder_of("cache") / f"features-{key[:32]}.safetensors"
    found = _read(path) if group.main else None
    if group.any(found is not None):
        found = group.all(found)[0] if group.world > 1 else found
    else:
        slow = group.device.type == "cpu" and group.world == 1 and len(images) >= MANY
        what = f"features of {images.name}"
        if slow:
            found = _in_pieces(images, network, group, path, track)
        else:
            found = measured(images.pixels, len(images), network, group, track=track, what=what)
        if group.main:
            _write(path, found, images)
    assert found is not None
    return found


def _in_pieces(images: Images, network: Extractor, group: Group, path: Path, track: Track[Any]) -> Measured:
    """Where it takes hours: what is done is kept on the disk, and an interrupt costs a piece at most."""
    warnings.warn(
        f"Inception's features of {len(images):,} images take hours without a GPU; what is done of them is kept (fewer "
        "images as --data are quicker, and give another FID)",
        stacklevel=3,
    )
    so_far = path.with_name(f"{path.stem}-so-far.safetensors")
    pieces = [range(first, min(first + PIECE, len(images))) for first in range(0, len(images), PIECE)]
    whole = _read(so_far)
    todo = pieces[whole.n // PIECE if whole else 0 :]
    for piece in track(todo, f"features of {images.name} (pieces of {PIECE})", len(todo)):
        found = measured(images.pixels, len(images), network, group, piece=piece)
        if whole is not None:
            whole.statistics.merge(found.statistics)
            found = Measured(whole.statistics, torch.cat([whole.kept, found.kept]))
        whole = found
        _write(so_far, whole, images)
    assert whole is not None
    so_far.unlink()
    return Measured(whole.statistics, whole.kept[kept_order(len(images), pieces)])


def _write(path: Path, found: Measured, images: Images) -> None:
    tensors = {"mean": found.statistics.mean, "scatter": found.statistics.scatter, "kept": found.kept}
    checkpoint.write(path, tensors, {"n": str(found.n), "source": images.name})


def _read(path: Path) -> Measured | None:
    try:
        tensors, metadata = checkpoint.read(path)
    except (FileNotFoundError, checkpoint.BrokenCheckpointError):
        return None
    return Measured(Statistics(int(metadata["n"]), tensors["mean"], tensors["scatter"]), tensors["kept"])


def is_statistics_file(source: str) -> bool:
    """Whether it is an .npz with a mean `mu`, not with images."""
    path = Path(source)
    if path.suffix != ".npz" or not path.is_file():
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            return "mu.npy" in archive.namelist()
    except zipfile.BadZipFile:
        return False


def statistics_file(source: str) -> Reference:
    """A reference of which only mean and covariance are known, from an .npz in the widespread form: `mu` and `sigma`,
    or instead of the latter its upper triangle by rows, `cov_triu`."""
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
            raise ValueError(f"{path} has a mean mu, but no covariance (sigma or cov_triu)")
        n = int(arrays["n"]) if "n" in arrays else None
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    return Reference(name_alone(source), digest, n, Gaussian(mean, covariance), None)
