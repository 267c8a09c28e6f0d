"""Features of images, from which all metrics are computed: one pass through a network, and what is kept of it on disk.

A reference is what samples are compared with: the features of images, or statistics from a file.
"""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scorefield.data import Images, folder_of
from scorefield.data.images import Pixels
from scorefield.data.named import short_name
from scorefield.data.npy import names_of, read_arrays
from scorefield.distributed import Group, float64_device
from scorefield.evaluation.inception import GPU_BATCH
from scorefield.metrics import ClassScore, Moments, Statistics
from scorefield.models import checkpoint
from scorefield.progress import Track, silent

KEPT = 10_000
"""The most images whose features are kept for KID, precision and recall, so that memory does not grow with n."""
MANY = 5000
"""From this number of images on, computing features on a CPU takes long and is done in pieces."""
PIECE = 200
"""Images per piece."""
VERSION = 1
"""Raised whenever the same images would give other features."""


class Rows(Protocol):
    """Images as bytes (N, H, W, C) that are read slice by slice: an array, a memory map, or samples on disk."""

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice, /) -> Pixels: ...


class Extractor(Protocol):
    """A network that computes features of images: Inception, or a smaller one in tests."""

    classes: Tensor | None
    digest: str

    def __call__(self, pixels: Tensor) -> Tensor:
        """Bytes (B, H, W, C) -> features (B, D)."""

    def logits(self, features: Tensor) -> Tensor: ...


@dataclass
class Features:
    """What a pass over n images computes."""

    statistics: Statistics
    kept: Tensor
    """Features of up to KEPT images drawn at random, in random order, (K, D) in float32."""
    classes: ClassScore | None = None

    @property
    def n(self) -> int:
        return self.statistics.n


def measure(
    rows: Rows,
    n: int,
    network: Extractor,
    group: Group,
    *,
    batch_size: int = 0,
    piece: range | None = None,
    track: Track[Any] = silent,
    what: str = "features",
) -> Features:
    """The features of the first n images, in one pass that all processes of the group share; each gets the result.

    Except for rounding, it does not depend on the batch size or the number of processes. `piece`: measure only these
    of the n images, in one process.
    """
    mine = group.share(n) if piece is None else piece
    size = batch_size or (GPU_BATCH if group.device.type == "cuda" else 32)
    places, accurate = random_places(n), float64_device(group.device)
    statistics: Statistics | None = None
    classes = ClassScore.empty(n, len(network.classes), device=accurate) if network.classes is not None else None
    kept = []
    starts = range(mine.start, mine.stop, size)
    for start in track(starts, f"{what} (batches of {size})", len(starts)):
        part = range(start, min(start + size, mine.stop))
        found = network(torch.as_tensor(np.array(rows[part.start : part.stop])).to(group.device))
        features = found.to(accurate)
        statistics = statistics or Statistics.empty(features.shape[1], device=accurate)
        statistics.add(features)
        here = places[part.start : part.stop]
        kept.append((here[here < KEPT], features[(here < KEPT).to(features.device)].float().cpu()))
        if classes is not None:
            classes.add(network.logits(found).to(accurate), here)
    if statistics is not None:
        statistics = Statistics(statistics.n, statistics.mean.cpu(), statistics.scatter.cpu())
    if classes is not None:
        classes = ClassScore(classes.n, classes.count.cpu(), classes.total.cpu(), classes.entropy.cpu())
    parts = [part for part in group.all((statistics, kept, classes)) if part[0] is not None]
    whole, _, classes = parts[0]
    for more, _, others in parts[1:]:
        whole.merge(more)
        if classes is not None:
            classes.merge(others)
    order, features = (torch.cat(each) for each in zip(*(pair for part in parts for pair in part[1]), strict=True))
    return Features(whole, features[order.argsort()], classes)


def random_places(n: int) -> Tensor:
    """The places of n images in a random order, which is always the same: image files are sorted by name, and so often
    by class."""
    order = np.argsort(np.random.Philox(np.random.SeedSequence(n)).random_raw(n), kind="stable")
    places = torch.empty(n, dtype=torch.int64)
    places[torch.tensor(order)] = torch.arange(n)
    return places


def random_rows(n: int, of: int) -> NDArray[np.int64]:
    """The numbers of n images drawn at random, or of all if there are fewer; always the same ones, in their order."""
    return np.flatnonzero(random_places(of).numpy() < n)


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
    notes: tuple[str, ...] = ()
    """What a user should know about how the images were read."""


def make_reference(images: Images, network: Extractor, group: Group, *, track: Track[object] = silent) -> Reference:
    """The reference that consists of these images."""
    found = cached_features(images, network, group, track=track)
    name, digest = short_name(images.name), images.digest[:12]
    return Reference(name, digest, found.n, found.statistics, found.kept, images.notes)


def cached_features(images: Images, network: Extractor, group: Group, *, track: Track[object] = silent) -> Features:
    """Statistics and features of these images: from the cache, under the digests of the images and the network, or
    computed by all processes together and added to the cache."""
    key = hashlib.sha256(repr((VERSION, images.digest, network.digest)).encode()).hexdigest()
    path = folder_of("cache") / f"features-{key[:32]}.safetensors"
    found: Features | None = group.all(_read(path) if group.main else None)[0]
    if found is not None:
        return found
    so_far = path.with_name(f"{path.stem}-so-far.safetensors")
    if group.device.type == "cpu" and group.world == 1 and len(images) >= MANY:
        found = _measure_in_pieces(images, network, group, so_far, track)
    else:
        found = measure(images.pixels, len(images), network, group, track=track, what=f"features of {images.name}")
    if group.main:
        _write(path, found, images)
        so_far.unlink(missing_ok=True)
    return found


def _measure_in_pieces(images: Images, network: Extractor, group: Group, so_far: Path, track: Track[Any]) -> Features:
    """The features of images that take hours. What is done is kept in the file `so_far`, so that an interrupt loses
    one piece."""
    warnings.warn(
        f"Inception's features of {len(images):,} images take hours without a GPU; finished parts are kept (fewer "
        "images as --data are quicker, and give another FID)",
        stacklevel=3,
    )
    n = len(images)
    pieces = [range(first, min(first + PIECE, n)) for first in range(0, n, PIECE)]
    whole = _read(so_far)
    todo = [piece for piece in pieces if whole is None or piece.start >= whole.n]
    for piece in track(todo, f"features of {images.name} (pieces of {PIECE})", len(todo)):
        found = measure(images.pixels, n, network, group, piece=piece)
        if whole is not None:
            whole.statistics.merge(found.statistics)
            found = Features(whole.statistics, torch.cat([whole.kept, found.kept]))
        whole = found
        _write(so_far, whole, images)
    assert whole is not None
    parts = random_places(n).split(PIECE)
    places = torch.cat([part[part < KEPT].sort().values for part in parts])  # those of the features kept so far
    return Features(whole.statistics, whole.kept[places.argsort()])


def _write(path: Path, found: Features, images: Images) -> None:
    tensors = {"mean": found.statistics.mean, "scatter": found.statistics.scatter, "kept": found.kept}
    checkpoint.write(path, tensors, {"n": str(found.n), "source": images.name})


def _read(path: Path) -> Features | None:
    try:
        tensors, metadata = checkpoint.read(path)
        return Features(Statistics(int(metadata["n"]), tensors["mean"], tensors["scatter"]), tensors["kept"])
    except (FileNotFoundError, checkpoint.BrokenCheckpointError, KeyError):  # a KeyError: another kind of file
        return None


def is_statistics_file(source: str | None) -> TypeGuard[str]:
    """Whether the source is an .npz file with a mean `mu` instead of images."""
    path = Path(source or "")
    if path.suffix != ".npz" or not path.is_file():
        return False
    try:
        return "mu" in names_of(path)
    except ValueError:
        return False


def read_statistics(source: str) -> Reference:
    """The reference in an .npz file with a mean `mu` and a covariance `sigma`, or its upper triangle `cov_triu`."""
    path = Path(source)
    held = names_of(path)
    if "sigma" not in held and "cov_triu" not in held:
        raise ValueError(f"{path} has a mean mu, but no covariance (add an array sigma or cov_triu)")
    arrays = read_arrays(path, [name for name in ("mu", "sigma", "cov_triu", "n") if name in held])
    dimensions = arrays["mu"].size
    wanted = {"mu": (dimensions,), "sigma": (dimensions, dimensions), "n": ()}
    wanted["cov_triu"] = (dimensions * (dimensions + 1) // 2,)
    for name, array in arrays.items():
        if array.shape != wanted[name] or array.dtype.kind not in "iuf" or not np.isfinite(array).all():
            raise ValueError(
                f"{path} is damaged or no statistics file: {name} is {array.dtype} of shape {array.shape}, and must be "
                f"finite numbers of shape {wanted[name]} (make it again)"
            )
    mean = torch.tensor(arrays["mu"], dtype=torch.float64)
    if "sigma" in arrays:
        covariance = torch.tensor(arrays["sigma"], dtype=torch.float64)
    else:
        covariance = torch.zeros(len(mean), len(mean), dtype=torch.float64)
        rows, columns = np.triu_indices(len(mean))
        covariance[rows, columns] = torch.tensor(arrays["cov_triu"], dtype=torch.float64)
        covariance[columns, rows] = covariance[rows, columns]
    n = int(arrays["n"]) if "n" in arrays else None
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    return Reference(short_name(source), digest, n, Gaussian(mean, covariance), None)
