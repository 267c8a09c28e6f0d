"""A report on one model: what its parts are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from scorefield import inception
from scorefield.checkpoint import Model
from scorefield.data import Images
from scorefield.distributed import Group
from scorefield.evaluation import parts
from scorefield.evaluation.features import Extractor, Rows
from scorefield.evaluation.numbers import held_out_loss
from scorefield.evaluation.pool import How, Pool
from scorefield.evaluation.reference import Reference, is_statistics_file
from scorefield.evaluation.search import Embed, in_pixels
from scorefield.evaluation.subjects import reference_for, training_images
from scorefield.progress import Track


@dataclass
class Work:
    """Makes the parts of a report. All processes of the group call the same methods; the main one gets the results."""

    model: Model
    how: How
    n: int
    batch_size: int
    data: str | None
    """What to compare with; None: what the model was trained on."""
    out: Path
    group: Group
    track: Track[Any]
    drawn: dict[str, Rows] = field(default_factory=dict)
    """The samples, `plain` and `denoised`."""

    @cached_property
    def network(self) -> Extractor:
        load = partial(inception.load_inception, device=self.group.device, track=self.track)
        return self.group.main_first(load)

    @cached_property
    def reference(self) -> tuple[Reference, Images | None]:
        return reference_for(self.model, self.data, self.network, self.group, track=self.track)

    @cached_property
    def training(self) -> tuple[Images, Images | None]:
        return training_images(self.model, self.data, self.group, track=self.track)

    def prepare(self, wanted: Sequence[str]) -> None:
        """Open all that these parts need: what is missing must not cost hours of sampling first."""
        if "neighbors" in wanted:
            if self.data is not None and is_statistics_file(self.data):
                raise ValueError(f"{self.data} holds no images to be neighbours (--parts samples stages numbers)")
            _ = self.training, self.network
        if "numbers" in wanted:
            _ = self.reference

    def samples_for(self, wanted: Sequence[str]) -> int:
        """How many samples these parts need."""
        needs = {"samples": parts.SHOWN, "neighbors": parts.COPIES, "numbers": self.n, "digits": self.n}
        return max((min(self.n, needs.get(part, 0)) for part in wanted), default=0)

    def draw(self, n: int) -> int:
        """The first n samples, with and without the last denoising step. Returns how many were not there yet."""
        pool = Pool(self.model, replace(self.how, denoise=True))
        missing = sum(map(len, pool.missing(n)))
        plain, denoised = pool.pair(n, self.group, batch_size=self.batch_size, track=self.track)
        self.drawn = {"plain": plain, "denoised": denoised}
        return missing

    def samples(self) -> dict[str, Any]:
        files = {"samples.png": self.drawn["plain"], "samples_denoised.png": self.drawn["denoised"]}
        return parts.samples_part(files, self.out) if self.group.main else {}

    def stages(self) -> dict[str, Any]:
        return parts.stages_part(self.model, self.how, self.out, track=self.track) if self.group.main else {}

    def neighbors(self) -> dict[str, Any]:
        if not self.group.main:
            return {}
        rows, device = self.drawn["denoised" if self.how.denoise else "plain"], self.group.device
        spaces: dict[str, Embed] = {"neighbors.png": in_pixels, "neighbors_inception.png": self.network}
        return parts.neighbors_part(rows, *self.training, spaces, self.out, device=device, track=self.track)

    def numbers(self) -> dict[str, Any]:
        reference, held_out = self.reference
        size = min(self.batch_size, 256 if self.group.device.type == "cuda" else 32)
        numbers = parts.numbers_part(self.drawn, reference, self.network, self.group, batch_size=size, track=self.track)
        if not self.group.main:
            return {}
        return numbers | (held_out_loss(self.model, held_out) if held_out is not None else {})

    def digits(self) -> dict[str, Any]:
        return parts.digits_part(self.drawn, track=self.track) if self.group.main else {}
