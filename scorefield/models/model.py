"""A model: a network with all that is needed to use it, and the one road by which everything here draws samples."""

from __future__ import annotations

import json
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from scorefield import acceleration
from scorefield.constraints import known_pixels
from scorefield.images import to_bytes
from scorefield.models.build import build_network, build_sampler
from scorefield.models.checkpoint import BrokenCheckpointError, model_files, newest_whole, read, write
from scorefield.models.pretrained import PREFIX, find, pretrained_models
from scorefield.models.recipes import Recipe
from scorefield.noise import SampleNoise, sample_seeds
from scorefield.progress import Track, silent
from scorefield.samplers import Constraint, Sampler, State, from_dict, last, to_dict, unconstrained
from scorefield.score import ConditionalScore
from scorefield.version import __version__

Weights = Literal["raw", "ema"]
Label = str | int | Sequence[int] | None
"""A class by its name or number, one number for each sample, or None for a random class each."""
Known = tuple[Tensor, Tensor]
"""An image (C, H, W), or one for each sample, and a mask that is 1 where it is known."""

KIND = "scorefield model"
BATCH = {"cpu": 64, "cuda": 256}
"""Samples drawn at once unless the caller says otherwise."""


@dataclass(frozen=True, eq=False)
class Model:
    """A network, what is known about it, and how to sample it. Images are floats in [0, 1].

    `load` makes one from a file. `Model(network, shape, sampler)` makes one from any network with
    `forward(x, sigma)`, or `forward(x, sigma, label)` where it has class labels.
    """

    network: nn.Module = field(repr=False)
    shape: tuple[int, int, int]
    """(C, H, W) of one image."""
    sampler: Sampler
    """The default sampler."""
    labels: tuple[str, ...] = ()
    """Names of the classes; empty for a model without labels."""
    recipe: Recipe = field(default_factory=Recipe)
    """The recipe of its training."""
    step: int = 0
    """The number of training iterations."""
    weights: Weights = "raw"
    """Which weights the network has: raw, or their moving average (ema)."""
    held: tuple[Weights, ...] = ("raw",)
    """Which weights the file holds."""
    metadata: Mapping[str, str] = field(default_factory=dict, repr=False)
    """What else the file says: the data's name and digest, the machine, the version that wrote it."""
    digest: str = field(default="", repr=False)
    """SHA-256 of the file's content."""
    _fast: dict[tuple[int, str], ConditionalScore] = field(default_factory=dict, repr=False, init=False)

    @property
    def device(self) -> torch.device:
        """Where the network is."""
        return acceleration.device_of(self.network)

    @property
    def sigmas(self) -> tuple[float, ...]:
        """The noise levels that the network accepts, or those of its default sampler; the largest first."""
        accepted = getattr(self.network, "accepted_sigmas", None)
        return tuple(getattr(self.sampler, "sigmas", ()) if accepted is None else accepted.tolist())

    @property
    def sigma_range(self) -> tuple[float, float]:
        """The smallest and the largest noise level that the network accepts."""
        return getattr(self.network, "sigma_range", None) or (self.sigmas[-1], self.sigmas[0])

    @property
    def parameters(self) -> int:
        """The number of parameters."""
        return sum(parameter.numel() for parameter in self.network.parameters())

    def score(self, x: Tensor, sigma: Tensor, label: Tensor | None = None, **options: Any) -> Tensor:  # noqa: ANN401
        """s(x, σ), or s(x, σ | label) with a label for each example, (B,). Options go to the network."""
        return self.network(x, sigma, **({} if label is None else {"label": label}), **options)

    def sample(
        self,
        n: int,
        *,
        seed: int = 0,
        label: Label = None,
        sampler: Sampler | None = None,
        batch_size: int | None = None,
    ) -> Tensor:
        """n samples, (n, C, H, W), floats in [0, 1], on the model's device.

        Sample k depends on (seed, k) alone, not on n or the batch size. `label` chooses the class of a model that has
        classes; without it each sample has a random class.
        """
        return self._sample(n, seed=seed, label=label, sampler=sampler, batch_size=batch_size)

    def inpaint(
        self,
        image: Tensor,
        mask: Tensor,
        *,
        n: int,
        seed: int = 0,
        label: Label = None,
        sampler: Sampler | None = None,
        batch_size: int | None = None,
    ) -> Tensor:
        """n completions of an image (C, H, W) in [0, 1] that is known where the mask (H, W) is 1, (n, C, H, W)."""
        image, mask = torch.as_tensor(image), torch.as_tensor(mask)
        if image.shape != self.shape:
            raise ValueError(f"image must have the model's shape {self.shape}; got {tuple(image.shape)}")
        if not image.is_floating_point():
            raise ValueError(f"image must be floats in [0, 1]; got {image.dtype} (image.float() / 255)")
        known = image.to(self.device), mask.to(self.device)
        return self._sample(n, seed=seed, label=label, sampler=sampler, batch_size=batch_size, known=known)

    def _sample(self, n: int, *, batch_size: int | None, label: Label, **settings: Any) -> Tensor:  # noqa: ANN401
        if n < 1 or (batch_size is not None and batch_size < 1):
            raise ValueError(f"n and batch_size must be at least 1; got {n} and {batch_size}")
        size, classes = min(n, batch_size or BATCH.get(self.device.type, 64)), self._classes(label, n)
        batches = [range(n)[k : k + size] for k in range(0, n, size)]
        each = (self.states(batch, label=_of(classes, batch), size=size, **settings) for batch in batches)
        return torch.cat([last(states) for states in each]).clamp(0, 1)

    def states(
        self,
        numbers: Sequence[int],
        *,
        seed: int = 0,
        sampler: Sampler | None = None,
        label: Label = None,
        known: Known | None = None,
        precision: str = "auto",
        size: int | None = None,
    ) -> Iterator[State]:
        """The states of the sampler for the samples with these numbers, as one batch, from step 0 to the end.

        Sample number k depends on (seed, k) alone. `known` is an image to complete. `size` is the largest batch that
        will be asked for, for which a fast path may be prepared.
        """
        sampler = sampler or self.sampler
        seeds = sample_seeds(seed, numbers)
        noise = SampleNoise(seeds, device=self.device)
        score = self.fast_score(size or len(seeds), precision)
        classes = self._classes(label, len(seeds))
        if self.labels:
            labels = noise.choice(len(self.labels)) if classes is None else torch.tensor(classes, device=self.device)
            score = partial(score, label=labels)
        x = sampler.start(noise, self.shape)
        constraint: Constraint = unconstrained
        if known is not None:
            image, mask = known
            constraint = known_pixels(image.to(x).expand_as(x), mask.to(x.device), randn_like=noise.randn_like)
        return sampler(score, x, constraint=constraint, randn_like=noise.randn_like)

    def draw(
        self,
        numbers: Sequence[int],
        *,
        batch_size: int,
        seed: int = 0,
        sampler: Sampler | None = None,
        label: Label = None,
        known: Known | None = None,
        precision: str = "auto",
        frames: int = 1,
        track: Track[Any] = silent,
        what: str = "sampling",
    ) -> Iterator[tuple[Sequence[int], np.ndarray]]:
        """The samples with these numbers, batch by batch, while `track` shows progress: numbers and images.

        The images are bytes (N, frames, H, W, C): evenly spaced states, the last of which is the sample.
        """
        sampler = sampler or self.sampler
        batches = [numbers[k : k + batch_size] for k in range(0, len(numbers), batch_size)]
        size, keep = min(batch_size, len(numbers)), kept_steps(sampler.updates, frames + 1) - {0}
        classes, images = self._classes(label, len(numbers)), list[np.ndarray]()

        def states() -> Iterator[tuple[int, State]]:
            for k, batch in enumerate(batches):
                rows, step = range(k * batch_size, k * batch_size + len(batch)), 0
                for state in self.states(
                    batch,
                    seed=seed,
                    sampler=sampler,
                    label=_of(classes, rows),
                    known=None if known is None else _rows(known, rows),
                    precision=precision,
                    size=size,
                ):
                    step = state.step
                    if step:  # step 0 is the start
                        yield k, state
                if step != sampler.updates:
                    raise ValueError(f"the sampler ended at step {step}, but its `updates` says {sampler.updates}")

        for k, state in track(states(), what, sampler.updates * len(batches)):
            if state.step in keep:
                images.append(to_bytes(state.x))
            if state.step == sampler.updates:
                yield batches[k], np.stack(images, axis=1)
                images = []

    def fast_score(self, size: int, precision: str = "auto") -> ConditionalScore:
        """The network's score by the fastest way that this device has, for batches of up to `size` images.

        The last one made is kept: on a GPU, a recording takes seconds.
        """
        key = (0 if self.device.type == "cpu" else size, precision)
        if key not in self._fast:
            self._fast.clear()
            self._fast[key] = acceleration.for_sampling(self.network, self.shape, size=size, precision=precision)
        return self._fast[key]

    def _classes(self, label: Label, n: int) -> list[int] | None:
        """The class of each of n samples; None for random classes, or for a model without classes."""
        if label is None:
            return None
        if not self.labels:
            raise ValueError(f"this model has no class labels; got label={label!r} (leave it out)")
        if isinstance(label, str):
            chosen = [self.labels.index(label) if label in self.labels else -1] * n
        elif isinstance(label, (int, np.integer)):
            chosen = [int(label)] * n
        else:
            chosen = [operator.index(each) for each in label]
        if not all(0 <= each < len(self.labels) for each in chosen):
            names = ", ".join(self.labels)
            raise ValueError(
                f"no class is called {label!r} (choose from {names}, or a number below {len(self.labels)})"
            )
        if len(chosen) != n:
            raise ValueError(f"label must be one class, or one for each of the {n} samples; got {len(chosen)}")
        return chosen


def kept_steps(total: int, frames: int) -> set[int]:
    """At most so many of the steps 0 ... total, evenly spaced, with the first and the last among them."""
    return set(np.linspace(total, 0, min(frames, total + 1)).round().astype(int).tolist())


def _of(classes: list[int] | None, rows: range) -> list[int] | None:
    """The classes of some of the samples."""
    return None if classes is None else classes[rows.start : rows.stop]


def _rows(known: Known, rows: range) -> Known:
    """The images and masks of some of the samples; a single image belongs to all."""
    image, mask = known
    return (image, mask) if image.ndim == 3 else (image[rows.start : rows.stop], mask[rows.start : rows.stop])


def save_model(
    path: Path,
    raw: Mapping[str, Tensor],
    ema: Mapping[str, Tensor] | None,
    *,
    recipe: Recipe,
    shape: tuple[int, int, int],
    step: int,
    labels: Sequence[str] = (),
    sampler: Sampler | None = None,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write a model file with the raw weights and, if given, the averaged ones."""
    tensors = {f"raw/{name}": value for name, value in raw.items()}
    tensors |= {f"ema/{name}": value for name, value in (ema or {}).items()}
    header = {
        **(metadata or {}),
        "kind": KIND,
        "version": __version__,
        "recipe": json.dumps(asdict(recipe)),
        "sampler": json.dumps(to_dict(sampler or build_sampler(recipe))),
        "shape": json.dumps(shape),
        "data_range": "[0, 1]",
        "step": str(step),
        "weights": "raw, ema" if ema else "raw",
    }
    write(path, tensors, header | ({"labels": json.dumps(list(labels))} if labels else {}))


@dataclass(frozen=True)
class Header:
    """What the metadata of a model file say, without its weights."""

    recipe: Recipe
    sampler: Sampler
    shape: tuple[int, int, int]
    labels: tuple[str, ...]
    step: int
    metadata: dict[str, str]
    """Everything else."""


def parse_header(metadata: Mapping[str, str], path: Path) -> Header:
    """The metadata of a model file. Files of the first edition have no sampler of their own: the recipe tells it."""
    if metadata.get("kind") != KIND:
        raise ValueError(
            f"{path} is not a scorefield model (scorefield import turns a checkpoint of the paper's code into one)"
        )
    recipe = recipe_from_json(metadata["recipe"])
    known = {"format", "kind", "recipe", "sampler", "sigmas", "shape", "labels", "step", "weights", "sha256"}
    return Header(
        recipe,
        from_dict(json.loads(metadata["sampler"])) if "sampler" in metadata else build_sampler(recipe),
        tuple(json.loads(metadata["shape"])),
        tuple(json.loads(metadata.get("labels", "[]"))),
        int(metadata["step"]),
        {name: value for name, value in metadata.items() if name not in known},
    )


def load(
    path: Path | str,
    *,
    weights: Weights | None = None,
    device: torch.device | str = "cpu",
    network: nn.Module | None = None,
) -> Model:
    """A model from a file, the newest whole one of a run folder, or a pretrained model by its name (`mnist-small`).

    `weights`: raw or ema, where the file holds both; by default the moving average, if there is one. `network`: a
    network of your own class, whose weights the file holds.
    """
    path, tensors, metadata = read_model(path)
    header = parse_header(metadata, path)
    held = held_weights(tensors)
    chosen = weights or held[-1]
    if chosen not in held:
        raise ValueError(f"{path} holds {' and '.join(held)} weights; got weights={chosen}")
    try:
        network = build_network(header.recipe, channels=header.shape[0]) if network is None else network
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    prefix = f"{chosen}/"
    state = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
    state = {name: value.float() if value.is_floating_point() else value for name, value in state.items()}
    try:
        network.load_state_dict(state)
    except RuntimeError as error:
        raise BrokenCheckpointError(f"{path} does not hold the weights of this network: {error}") from error
    return Model(
        network.to(device).eval().requires_grad_(False),
        header.shape,
        header.sampler,
        labels=header.labels,
        recipe=header.recipe,
        step=header.step,
        weights=chosen,
        held=held,
        metadata=header.metadata,
        digest=metadata["sha256"],
    )


def read_model(name: Path | str) -> tuple[Path, dict[str, Tensor], dict[str, str]]:
    """The model file that a path or a pretrained model's name means, its tensors and its metadata."""
    path = find(name)
    if not path.is_dir():
        return path, *read(path)
    found = newest_whole(model_files(path), read)
    if found is None:
        other = f"; the pretrained model of that name is {PREFIX}{name}" if str(name) in pretrained_models() else ""
        raise FileNotFoundError(f"{path} holds no whole checkpoint (checkpoints/model-STEP.safetensors{other})")
    return found[0], *found[1]


def held_weights(tensors: Mapping[str, Tensor]) -> tuple[Weights, ...]:
    """Which weights a model file holds: raw ones, averaged ones, or both."""
    kinds: tuple[Weights, ...] = ("raw", "ema")
    return tuple(kind for kind in kinds if any(name.startswith(f"{kind}/") for name in tensors))


def recipe_from_json(text: str) -> Recipe:
    """The recipe of a file. Fields that this version does not know are an error; missing ones have their defaults."""
    values = json.loads(text)
    unknown = values.keys() - {each.name for each in fields(Recipe)}
    if unknown:
        raise ValueError(f"the recipe has unknown fields {', '.join(sorted(unknown))} (install a newer scorefield)")
    return Recipe(**values)
