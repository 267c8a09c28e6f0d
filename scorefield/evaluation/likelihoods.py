"""What `scorefield likelihood` found, as records and as a file."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from scorefield.files import parse_json, write_json


@dataclass(frozen=True)
class Measured:
    """The likelihoods of the images of one source."""

    data: str
    n: int
    bits_per_dim: float
    error: float
    calls: float
    """Network calls per image, for all draws."""
    products: float
    """Vector-Jacobian products per image, for all draws."""
    seconds: float
    each: list[float]
    """Bits per dimension of each image."""
    less_likely: float | None = None
    """The share of pairs in which the image is less likely than one of the first source."""


@dataclass(frozen=True)
class Likelihoods:
    """The likelihoods of the images of one source or several under a model."""

    about: dict[str, Any]
    """The model, the machine and the settings."""
    sources: tuple[Measured, ...]


def write_likelihoods(path: Path, found: Likelihoods) -> None:
    """Write them with the numbers of the first source at the top."""
    first, *others = [asdict(each) for each in found.sources]
    write_json(path, {**found.about, **first, "compared": others})


def read_likelihoods(path: Path) -> Likelihoods:
    """What `write_likelihoods` wrote."""
    names = [each.name for each in fields(Measured)]
    try:
        values = parse_json(path.read_text(encoding="utf-8"))
        first, others = {name: values.pop(name) for name in names}, values.pop("compared")
        return Likelihoods(values, tuple(Measured(**each) for each in (first, *others)))
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is not a file of scorefield likelihood: {error!r} (make it again)") from error
