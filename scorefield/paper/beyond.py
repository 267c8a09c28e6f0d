"""Networks for all noise levels on the results page: what `scripts/measure_unet.py` found of them.

A folder docs/results/unet-NAME has model.json, which tells what the model is, and a file for each measurement. Every
file of `scorefield evaluate` there is a row of the table, whatever its name.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from scorefield.data import SETS
from scorefield.evaluation.frontier import Frontier, read_frontier
from scorefield.evaluation.likelihoods import Likelihoods, read_likelihoods
from scorefield.files import parse_json

PREFIX, ABOUT = "unet-", "model.json"
"""How the names of these models begin, and the file that a folder must have."""
PICTURES = {
    "samples.png": "the first 100 samples of seed 0",
    "classes.png": "samples of seed 0, a row for each class",
    "interpolation.png": "from the noise of one seed to that of another, along an arc",
    "neighbors_pixel.png": "samples beside the nearest training images, in pixels",
    "neighbors_inception.png": "samples beside the nearest training images, in Inception features",
}
REVEALING = ("neighbors_pixel.png", "neighbors_inception.png")
"""Pictures that show training images."""


class Published(NamedTuple):
    """A published number for CIFAR-10, of 50,000 samples."""

    model: str
    fid: str
    calls: str
    images: str
    used: str


PUBLISHED = (
    Published("NCSN (the paper)", "25.32", "1,000", "25.6 M", "raw weights of a selected checkpoint, not denoised"),
    Published("NCSNv2 (Song & Ermon 2020)", "10.87", "1,160", "–", "average, denoised"),
    Published("SMLD with predictor and corrector (Song et al. 2021)", "3.60", "2,000", "–", "average, denoised"),
    Published("NCSN++, deep, continuous (Song et al. 2021)", "2.20", "2,000", "–", "average, denoised"),
    Published("EDM, unconditional (Karras et al. 2022)", "1.97", "35", "200 M", "average, augmented data"),
    Published("EDM, conditional (Karras et al. 2022)", "1.79", "35", "200 M", "average, augmented data, classes"),
)


@dataclass(frozen=True)
class Row:
    """The metrics of samples that were drawn in one way."""

    words: str
    """How they were drawn."""
    numbers: dict[str, Any]

    @property
    def calls(self) -> int:
        """Network calls per sample, with the second one that guidance needs."""
        return int(self.numbers["calls"]) * int(self.numbers.get("cost_per_call", 1))


@dataclass(frozen=True)
class Beyond:
    """A model for all noise levels, and what was measured of it. What was not is empty."""

    name: str
    about: dict[str, Any]
    """model.json."""
    rows: tuple[Row, ...]
    digits: tuple[Row, ...]
    """The verdicts of the classifier of digits."""
    frontier: Frontier | None
    likelihood: Likelihoods | None
    neighbors: dict[str, dict[str, Any]]
    """The memorisation reports, by space."""
    restorations: tuple[dict[str, Any], ...]
    pictures: dict[str, str]
    """What the pictures show, by file."""

    @property
    def title(self) -> str:
        return f"`{self.name}`"

    @property
    def headline(self) -> Row | None:
        """The row with the lowest FID of those with the most samples, without guidance."""
        plain = [row for row in self.rows if not row.numbers.get("guidance")]
        return min(plain, key=lambda row: (-row.numbers["n"], row.numbers["fid"]), default=None)


def load_beyond(folder: Path) -> Beyond:
    """Everything in a model's folder."""
    about = _read(folder / ABOUT)
    found = {path: _read(path) for path in sorted(folder.glob("*.json")) if path.name != ABOUT}
    try:
        sampled = {path: numbers for path, numbers in found.items() if "model" in numbers}
        rows = [_row(path, numbers, about) for path, numbers in sampled.items() if "fid" in numbers]
        digits = [_row(path, numbers, about) for path, numbers in sampled.items() if "accepted" in numbers]
        publishable = about["data"] not in SETS or SETS[about["data"]].publishable
    except (LookupError, TypeError) as error:
        raise ValueError(f"{folder / ABOUT} cannot be read: {error!r} (measure it again)") from error
    restored = folder / "restorations.json"
    shown = {
        name: words
        for name, words in PICTURES.items()
        if (folder / name).exists() and (publishable or name not in REVEALING)
    }
    trials, bits = folder / "frontier" / "frontier.json", folder / "likelihood.json"
    return Beyond(
        name=folder.name,
        about=about,
        rows=tuple(sorted(rows, key=lambda row: (-row.numbers["n"], row.numbers["fid"]))),
        digits=tuple(sorted(digits, key=lambda row: (bool(row.numbers.get("guidance")), -row.numbers["n"]))),
        frontier=_frontier(trials, folder.name, about) if trials.exists() else None,
        likelihood=_likelihood(bits, folder.name) if bits.exists() else None,
        neighbors={
            space: found[path]
            for space in ("pixel", "inception")
            if (path := folder / f"neighbors_{space}.json") in found
        },
        restorations=tuple(found[restored]["rows"]) if restored in found else (),
        pictures=shown,
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        found = parse_json(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict):
            raise TypeError("it holds no object")
    except (OSError, ValueError, TypeError) as error:
        raise ValueError(f"{path} cannot be read: {error} (measure it again)") from error
    return found


def _frontier(path: Path, name: str, about: dict[str, Any]) -> Frontier:
    """The trials, in which the model's present sampler is marked, which was chosen among them."""
    found = read_frontier(path)
    own = [each.settings for each in found.trials if (each.sampler, each.calls) == (about["sampler"], about["calls"])]
    return replace(found, what=name, usual=own[0] if own else found.usual)


def _likelihood(path: Path, name: str) -> Likelihoods:
    """The likelihoods under a model that is called by this name, not by its place."""
    found = read_likelihoods(path)
    return replace(found, about={**found.about, "model": {**found.about.get("model", {}), "name": name}})


def _row(path: Path, numbers: dict[str, Any], about: dict[str, Any]) -> Row:
    """How samples were drawn, in words, from the record of the command that drew them, the file at `path`."""
    words = []
    if about["classes"]:
        label = numbers.get("label")
        words.append({None: "a random class each", "none": "no class"}.get(label, f"class {label}"))
    if numbers.get("guidance"):
        words.append(f"guidance {numbers['guidance']:g}")
    try:
        weights = numbers["model"]["weights"]
    except (LookupError, TypeError) as error:
        raise ValueError(f"{path} cannot be read: {error!r} (measure it again)") from error
    if weights != about["weights"]:
        words.append(f"`{weights}` weights")
    return Row(", ".join(words) or "samples", numbers)
