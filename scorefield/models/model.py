"""A model: a network with all that is needed to use it. Everything in this package draws its samples with it."""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from scorefield import acceleration
from scorefield.acceleration.threads import in_threads, multiplications, pytorch_threads
from scorefield.constraints import known_pixels
from scorefield.files import parse_json
from scorefield.images import to_bytes
from scorefield.models.build import NETWORKS, build_network, build_sampler
from scorefield.models.checkpoint import FIX, BrokenCheckpointError, model_files, newest_whole, read, write
from scorefield.models.pretrained import PREFIX, find, is_pretrained
from scorefield.models.recipes import Recipe
from scorefield.noise import SampleNoise, sample_seeds
from scorefield.posteriors import DIFFERENTIATED, ITERATIONS, Map, Measurement
from scorefield.progress import Track, silent
from scorefield.samplers import (
    Constraint,
    NoiseLevels,
    Sampler,
    State,
    for_restoring,
    from_dict,
    last,
    to_dict,
    unconstrained,
)
from scorefield.score import ConditionalScore, Score, as_sigma, guided
from scorefield.version import __version__

Weights = str
"""raw, ema (their moving average), or another average of the file, such as ema-0.1."""
Label = str | int | Sequence[str | int] | None
"""A class by its name or number, "none" or −1 for no class, a list with one of these for each sample, or None for a
random class each."""
Known = tuple[Tensor, Tensor]
"""An image (C, H, W), or one for each sample, and a mask that is 1 where it is known."""

NO_CLASS, NULL = "none", -1
"""No class, as a user says it and as a network gets it."""
NEEDS = "train it with --label-dropout 0.1; a network of your own must take −1 for none and say so by null_label = True"
"""What a network needs to do without a class."""
KIND = "scorefield model"
BATCH = {"cpu": 64, "cuda": 256}
"""Samples drawn at once unless the caller says otherwise."""
PRECISIONS = ("auto", "float16", "float32")
"""What a network's score may be computed in. float16 is the same as auto: float32 where there are no fused kernels."""


@dataclass(frozen=True, eq=False)
class Model:
    """A network, what is known about it, and how to sample it. Images are floats in [0, 1].

    `load` makes one from a file. `Model(network, shape, sampler)` makes one from any network with
    `forward(x, sigma)`, or `forward(x, sigma, label)` where it has class labels. A network that takes −1 as well, for
    no class, says so by an attribute `null_label = True`.
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
    """Which weights the network has: raw, their moving average (ema), or another average."""
    held: tuple[Weights, ...] = ("raw",)
    """Which weights the file holds."""
    metadata: Mapping[str, str] = field(default_factory=dict, repr=False)
    """What else the file says: the data's name and digest, the machine, the version that wrote it."""
    digest: str = field(default="", repr=False)
    """SHA-256 of the file's content."""
    _fast: dict[tuple[int, int, str], ConditionalScore] = field(default_factory=dict, repr=False, init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sampler", self._sampler(self.sampler))  # with its noise schedule for this network

    @property
    def device(self) -> torch.device:
        """Where the network is."""
        return acceleration.device_of(self.network)

    @property
    def sigmas(self) -> tuple[float, ...]:
        """The noise levels that the network accepts, or those of its default sampler; the largest first."""
        accepted = getattr(self.network, "accepted_sigmas", None)
        return tuple(getattr(self.sampler, "sigmas", ()) if accepted is None else accepted.cpu().tolist())

    @property
    def sigma_range(self) -> tuple[float, float]:
        """The smallest and the largest noise level that the network accepts."""
        return getattr(self.network, "sigma_range", None) or (self.sigmas[-1], self.sigmas[0])

    @property
    def accepted(self) -> NoiseLevels:
        """The noise levels that the network accepts: a list, or a range."""
        low, high = self.sigma_range
        listed = getattr(self.network, "accepted_sigmas", None)
        return NoiseLevels(low, high, () if listed is None else tuple(listed.cpu().tolist()))

    @property
    def null_label(self) -> bool:
        """Whether the network can do without a class: it takes −1, and was trained with labels left out."""
        return bool(self.labels and getattr(self.network, "null_label", False) and self.recipe.label_dropout)

    @property
    def parameters(self) -> int:
        """The number of parameters."""
        return sum(parameter.numel() for parameter in self.network.parameters())

    def score(
        self,
        x: Tensor,
        sigma: Tensor | float,
        label: Tensor | None = None,
        **options: Any,  # noqa: ANN401
    ) -> Tensor:
        """s(x, σ), or s(x, σ | label) with a label for each example, (B,). Options go to the network."""
        return self.network(x, as_sigma(sigma, x), **({} if label is None else {"label": label}), **options)

    def sample(
        self,
        n: int,
        *,
        seed: int = 0,
        label: Label = None,
        guidance: float = 0.0,
        sampler: Sampler | None = None,
        batch_size: int | None = None,
        precision: str = "auto",
    ) -> Tensor:
        """n samples, (n, C, H, W), floats in [0, 1], on the model's device.

        Sample k depends on (seed, k) alone, not on n or the batch size, up to rounding: libraries may sum in another
        order for another batch size. In float32 on a CPU such scores differ by a millionth, and images hardly by a grey
        level in any pixel; in float16 on a GPU by a thousandth, and one pixel in ten by a grey level, few by far more.
        `label` chooses the class of a model that has classes; without it each sample has a random class, and with
        "none" no class. `guidance` is the weight w of `guided`: above 0, samples are more typical of their class and
        less diverse, and each network call costs twice as much. `precision`: "auto" is float16 on GPUs with fused
        kernels, and "float32" elsewhere.
        """
        return self._sample(n, batch_size, label, guidance, seed=seed, sampler=sampler, precision=precision)

    def inpaint(
        self,
        image: Tensor,
        mask: Tensor,
        *,
        n: int,
        seed: int = 0,
        label: Label = None,
        guidance: float = 0.0,
        sampler: Sampler | None = None,
        batch_size: int | None = None,
        precision: str = "auto",
    ) -> Tensor:
        """n completions of an image (C, H, W) in [0, 1] that is known where the mask (H, W) is 1, (n, C, H, W).

        The other arguments are those of `sample`.
        """
        image, mask = torch.as_tensor(image), torch.as_tensor(mask)
        if image.shape != self.shape:
            raise ValueError(f"image must have the model's shape {self.shape}; got {tuple(image.shape)}")
        if not image.is_floating_point():
            raise ValueError(f"image must be floats in [0, 1]; got {image.dtype} (image.float() / 255)")
        if image.nan_to_num().abs().max() > 2:  # noise may take an image a little beyond [0, 1]
            raise ValueError(f"image must be in [0, 1]; it has {image.nan_to_num().abs().max():g} (image / 255)")
        known = image.to(self.device), mask.to(self.device)
        return self._sample(
            n, batch_size, label, guidance, seed=seed, sampler=sampler, known=known, precision=precision
        )

    def restore(
        self,
        y: Tensor,
        operator: Map,
        *,
        noise: float,
        n: int,
        method: str = "mmps",
        iterations: int = ITERATIONS,
        strength: float = 1.0,
        seed: int = 0,
        label: Label = None,
        guidance: float = 0.0,
        sampler: Sampler | None = None,
        batch_size: int | None = None,
        precision: str = "auto",
    ) -> Tensor:
        """n images x that explain the measurement y = A x + noise · z, (n, C, H, W): samples of the posterior.

        `operator` is A, one of `operators` or any linear function; `y` is A of one image. `method`, `iterations` and
        `strength` are those of `posterior`, the other arguments those of `sample`; the default sampler is
        `restoration_sampler`.
        """
        measurement = Measurement(torch.as_tensor(y), operator, noise, method, iterations, strength)
        settings: dict[str, Any] = {"seed": seed, "sampler": sampler, "precision": precision}
        return self._sample(n, batch_size, label, guidance, measurement=measurement, **settings)

    @property
    def restoration_sampler(self) -> Sampler:
        """The default sampler of restorations."""
        return self._sampler(for_restoring(self.sampler, self.accepted))

    def _sample(
        self,
        n: int,
        batch_size: int | None,
        label: Label,
        guidance: float,
        **settings: Any,  # noqa: ANN401
    ) -> Tensor:
        if n < 1 or (batch_size is not None and batch_size < 1):
            raise ValueError(f"n and batch_size must be at least 1; got {n} and {batch_size}")
        batches = self._batches(range(n), batch_size or BATCH.get(self.device.type, 64), label, guidance, **settings)
        return torch.cat([last(states) for _, states in batches]).clamp(0, 1)

    def states(
        self,
        numbers: Sequence[int],
        *,
        seed: int = 0,
        sampler: Sampler | None = None,
        label: Label = None,
        guidance: float = 0.0,
        known: Known | None = None,
        measurement: Measurement | None = None,
        precision: str = "auto",
        size: int | None = None,
    ) -> Iterator[State]:
        """The states of the sampler for the samples with these numbers, as one batch, from step 0 to the end.

        Sample number k depends on (seed, k) alone, up to rounding (see `sample`). `known` is an image to complete, and
        `measurement` one to restore. `size` is the largest batch that will be asked for, for which a fast path may be
        prepared.
        """
        sampler, seeds = self._sampler(sampler, measurement), sample_seeds(seed, numbers)
        classes = self.class_numbers(label, len(seeds))
        self.check_guidance(guidance, label)
        if measurement is not None and measurement.method in DIFFERENTIATED:
            score = acceleration.with_gradients(self.network, precision)
        else:
            score = self.fast_score((2 if guidance else 1) * (size or len(seeds)), precision)
        restored = None if measurement is None else self._restored(score, measurement, guidance, len(seeds))

        def run() -> Iterator[State]:
            noise, bound, label = SampleNoise(seeds, device=self.device), score, dict[str, Tensor]()
            if self.labels:
                drawn = noise.choice(len(self.labels)) if classes is None else torch.tensor(classes, device=self.device)
                bound, label = _labelled(score, drawn, guidance), {"label": drawn}
            if restored is not None:
                bound = partial(restored, **label)
            x = sampler.start(noise, self.shape)
            constraint: Constraint = unconstrained
            if known is not None:
                image, mask = known
                constraint = known_pixels(image.to(x).expand_as(x), mask.to(x.device), randn_like=noise.randn_like)
            return sampler(bound, x, constraint=constraint, randn_like=noise.randn_like)

        return acceleration.run_sampler(run, score)

    def _restored(self, score: ConditionalScore, measurement: Measurement, guidance: float, n: int) -> ConditionalScore:
        """The posterior's score of n images, (x, σ, label) -> ∇ₓ log q_σ(x | y, label).

        Where the network is differentiated on a CPU, threads share the batch of the posterior's score as a whole.
        """
        measurement = self._checked(measurement, n)

        def restored(x: Tensor, sigma: Tensor, *, y: Tensor, label: Tensor | None = None) -> Tensor:
            prior = score if label is None else _labelled(score, label, guidance)
            return replace(measurement, y=y).score(prior, x, sigma)

        given = partial(restored, y=measurement.y)
        if self.device.type != "cpu" or measurement.method not in DIFFERENTIATED:
            return given
        work = multiplications(self.network, self.shape) * (1 + 2 * measurement.iterations)
        return in_threads(given, work=work)

    def _checked(self, measurement: Measurement, n: int) -> Measurement:
        return measurement.checked(torch.zeros(1, *self.shape, device=self.device), n)

    def draw(
        self,
        numbers: Sequence[int],
        *,
        batch_size: int,
        seed: int = 0,
        sampler: Sampler | None = None,
        label: Label = None,
        guidance: float = 0.0,
        known: Known | None = None,
        measurement: Measurement | None = None,
        precision: str = "auto",
        frames: int = 1,
        track: Track[Any] = silent,
        what: str = "sampling",
    ) -> Iterator[tuple[Sequence[int], np.ndarray]]:
        """The samples with these numbers, batch by batch, while `track` shows progress: numbers and images.

        The images are bytes (N, frames, H, W, C): evenly spaced states, the last of which is the sample.
        """
        sampler = self._sampler(sampler, measurement)
        settings: dict[str, Any] = {"seed": seed, "sampler": sampler, "known": known, "precision": precision}
        settings["measurement"] = measurement
        keep, images = kept_steps(sampler.updates, frames + 1) - {0}, list[np.ndarray]()

        def updates() -> Iterator[tuple[Sequence[int], State]]:
            for batch, states in self._batches(numbers, batch_size, label, guidance, **settings):
                step = 0
                for state in states:
                    step = state.step
                    if step:  # step 0 is the start
                        yield batch, state
                if step != sampler.updates:
                    raise ValueError(f"the sampler ended at step {step}, but its `updates` says {sampler.updates}")

        for batch, state in track(updates(), what, sampler.updates * -(-len(numbers) // batch_size)):
            if state.step in keep:
                with pytorch_threads(1):
                    images.append(to_bytes(state.x))
            if state.step == sampler.updates:
                yield batch, np.stack(images, axis=1)
                images = []

    def _batches(
        self,
        numbers: Sequence[int],
        batch_size: int,
        label: Label,
        guidance: float,
        known: Known | None = None,
        measurement: Measurement | None = None,
        **settings: object,
    ) -> Iterator[tuple[Sequence[int], Iterator[State]]]:
        """The numbers in batches, and the states of each. Classes, known images and measurements are cut along."""
        classes, size = self.class_numbers(label, len(numbers)), min(batch_size, len(numbers))
        self.check_guidance(guidance, label)
        measurement = measurement and self._checked(measurement, len(numbers))
        for start in range(0, len(numbers), batch_size):
            rows = slice(start, start + batch_size)
            here = known if known is None or known[0].ndim == 3 else (known[0][rows], known[1][rows])
            settings |= {"label": classes and classes[rows], "guidance": guidance, "known": here}
            settings["measurement"] = measurement and measurement.rows(rows)
            yield numbers[rows], self.states(numbers[rows], size=size, **settings)  # type: ignore[arg-type]

    def fast_score(self, size: int, precision: str = "auto") -> ConditionalScore:
        """The network's score by the fastest way that this device has, for batches of up to `size` images.

        The last one made is kept: on a GPU, a recording takes seconds.
        """
        if precision not in PRECISIONS:
            raise ValueError(f"precision must be one of {', '.join(PRECISIONS)}; got {precision!r}")
        prepared = size if acceleration.has_fused_kernels(self.network) else 0
        key = (prepared, torch.get_num_threads(), precision)
        if key not in self._fast:
            self._fast.clear()
            self._fast[key] = acceleration.for_sampling(self.network, self.shape, size=size, precision=precision)
        return self._fast[key]

    def _sampler(self, sampler: Sampler | None, measurement: Measurement | None = None) -> Sampler:
        """The sampler to use: unless one is given, the model's own, or that of restorations."""
        if isinstance(sampler, (str, type)):
            raise ValueError(
                f"sampler must be an object with settings, such as sf.AnnealedLangevin(model.sigmas); got {sampler!r}"
            )
        sampler = sampler or (self.sampler if measurement is None else self.restoration_sampler)
        return sampler.scheduled(self.accepted) if hasattr(sampler, "scheduled") else sampler

    def class_numbers(self, label: Label, n: int) -> list[int] | None:
        """The class of each of n samples, −1 for none; None for random classes, or for a model without classes."""
        if label is None:
            return None
        each = [label] * n if isinstance(label, (str, int, np.integer)) else list(label)
        chosen = [class_number(self.labels, name) for name in each]
        if len(chosen) != n:
            raise ValueError(f"label must be one class, or one for each of the {n} samples; got {len(chosen)}")
        if NULL in chosen and not self.null_label:
            raise ValueError(f"no class is called {label!r}, and the network cannot do without one ({NEEDS})")
        return chosen

    def drawn_classes(self, numbers: Sequence[int], *, seed: int = 0, label: Label = None) -> list[int] | None:
        """The class with which each of these samples is drawn, −1 for none; None for a model without classes."""
        if not self.labels:
            return None
        given = self.class_numbers(label, len(numbers))
        return SampleNoise(sample_seeds(seed, numbers)).choice(len(self.labels)).tolist() if given is None else given

    def check_guidance(self, guidance: float, label: Label = None) -> None:
        """Raise an error if samples cannot be guided like this."""
        check_guidance(guidance, self.labels, label)
        if guidance and not self.null_label:
            raise ValueError(
                f"guidance compares with no class, which the network does not know; got {guidance} ({NEEDS})"
            )


MOST_GUIDANCE = 1000
"""With far smaller weights images are blocks of black and white already."""


def check_guidance(guidance: float, labels: Sequence[str], label: Label = None) -> None:
    """Raise an error if samples of a model with these classes cannot be guided like this."""
    if not math.isfinite(guidance):
        raise ValueError(f"guidance must be finite; got {guidance} (0 is no guidance)")
    if abs(guidance) > MOST_GUIDANCE:
        raise ValueError(
            f"guidance must be from −{MOST_GUIDANCE} to {MOST_GUIDANCE}; got {guidance:g} (usual ones are 0 to 4)"
        )
    if guidance and not labels:
        raise ValueError(f"guidance is towards a class, and this model has none; got {guidance} (leave it out)")
    if guidance and isinstance(label, (str, int, np.integer)) and class_number(labels, label) == NULL:
        raise ValueError(f"guidance is towards a class; got {guidance} for no class (choose one, or leave it out)")


def _labelled(score: ConditionalScore, label: Tensor, guidance: float) -> Score:
    """The score given these classes, with guidance."""
    return guided(partial(score, label=label), partial(score, label=torch.full_like(label, NULL)), guidance)


def class_number(labels: Sequence[str], label: str | int) -> int:
    """The number of a class, by its name or number; −1 for none."""
    if not labels:
        raise ValueError(f"this model has no class labels; got label={label!r} (leave it out)")
    if isinstance(label, str):
        number = labels.index(label) if label in labels else NULL if label == NO_CLASS else len(labels)
    else:
        number = operator.index(label)
    if not NULL <= number < len(labels):
        name = repr(label) if isinstance(label, str) else number
        raise ValueError(
            f"no class is called {name} (choose from {', '.join(labels)}, or a number below {len(labels)})"
        )
    return number


def parse_label(labels: Sequence[str], text: str | None) -> str | int | None:
    """A class that was given as text: by its name if there is one of that name, or else by its number."""
    if text is None or text in labels or not text.removeprefix("-").isdecimal():
        return text
    return int(text)


def class_name(labels: Sequence[str], number: int) -> str | int:
    """What `class_number` takes for that number: a name, or none (−1 if a class has that name)."""
    return labels[number] if number != NULL else NULL if NO_CLASS in labels else NO_CLASS


def kept_steps(total: int, frames: int) -> set[int]:
    """At most `frames` of the steps 0 ... total, evenly spaced, the first and the last among them."""
    return set(np.linspace(total, 0, min(frames, total + 1)).round().astype(int).tolist())


def save_model(
    path: Path,
    raw: Mapping[str, Tensor],
    averages: Mapping[str, Mapping[str, Tensor]] | None,
    *,
    recipe: Recipe,
    shape: tuple[int, int, int],
    step: int,
    labels: Sequence[str] = (),
    sampler: Sampler | None = None,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write a model file with the raw weights and, if given, moving averages of them: ema, ema-WIDTH."""
    kinds = {"raw": raw, **(averages or {})}
    tensors = {f"{kind}/{name}": value for kind, weights in kinds.items() for name, value in weights.items()}
    header = {
        **(metadata or {}),
        "kind": KIND,
        "version": __version__,
        "recipe": json.dumps(asdict(recipe)),
        "sampler": json.dumps(to_dict(sampler or build_sampler(recipe))),
        "shape": json.dumps(shape),
        "data_range": "[0, 1]",
        "step": str(step),
        "weights": ", ".join(kinds),
    }
    write(path, tensors, header | ({"labels": json.dumps(list(labels))} if labels else {}))


@dataclass(frozen=True)
class Header:
    """What a model file says about its model: the fields of `Model` of the same names."""

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
    known = {"format", "kind", "recipe", "sampler", "sigmas", "shape", "labels", "step", "weights", "sha256"}
    try:
        recipe = recipe_from_json(metadata["recipe"])
        header = Header(
            recipe,
            from_dict(parse_json(metadata["sampler"])) if "sampler" in metadata else build_sampler(recipe),
            tuple(parse_json(metadata["shape"])),
            tuple(parse_json(metadata.get("labels", "[]"))),
            int(metadata["step"]),
            {name: value for name, value in metadata.items() if name not in known},
        )
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    except (KeyError, TypeError) as error:
        raise BrokenCheckpointError(f"{path} is damaged: its metadata cannot be read: {error!r} ({FIX})") from error
    if len(header.shape) != 3 or not all(type(n) is int and n > 0 for n in header.shape):
        raise BrokenCheckpointError(f"{path} is damaged: its images have the shape {metadata['shape'][:80]} ({FIX})")
    if not all(isinstance(label, str) for label in header.labels):
        raise BrokenCheckpointError(f"{path} is damaged: its labels are not all text ({FIX})")
    return header


def load(
    path: Path | str,
    *,
    weights: Weights | None = None,
    device: torch.device | str = "cpu",
    network: nn.Module | None = None,
) -> Model:
    """A model from a file, the newest whole one of a run folder, a pretrained model by its name (`mnist-small`), or one
    of the Hugging Face hub (`hf:OWNER/NAME`).

    `weights`: raw or ema, where the file holds both; by default the moving average, if there is one. `network`: a
    network of your own class, whose weights the file holds.
    """
    path, tensors, metadata = read_model(path)
    header = parse_header(metadata, path)
    held = held_weights(tensors, path)
    chosen = weights or usual_weights(held)
    if header.recipe.averages and chosen == f"ema-{header.recipe.averages[0]:g}":
        chosen = "ema"  # the first of several averages
    if chosen not in held:
        fix = f"choose {' or '.join(held)}, or leave it out"
        raise ValueError(f"{path} holds {' and '.join(held)} weights; got weights={chosen} ({fix})")
    prefix = f"{chosen}/"
    state = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
    check_is_network(network)
    own = network is not None
    if not own and header.recipe.network in NETWORKS:
        _check_claims(header, state, path)
    try:
        if network is None:
            network = build_network(header.recipe, channels=header.shape[0], labels=len(header.labels))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    state = {name: value.float() if value.is_floating_point() else value for name, value in state.items()}
    try:
        network.load_state_dict(state)
    except RuntimeError as error:
        if not own:
            raise BrokenCheckpointError(f"{path} does not hold the weights of its network: {error}") from error
        wanted, given = header.recipe.network, type(network).__name__
        fix = "leave network out" if wanted in NETWORKS else f"pass {wanted} as it was trained"
        first = " ".join(str(error).split())[:200]
        raise ValueError(f"{path} holds weights of {wanted}, which do not fit this {given} ({fix}): {first}") from error
    return Model(
        network.to(device).eval().requires_grad_(False),
        **vars(header),
        weights=chosen,
        held=held,
        digest=metadata["sha256"],
    )


def _check_claims(header: Header, state: Mapping[str, Tensor], path: Path) -> None:
    """Raise an error if the recipe's sizes are beyond all of the file's: no memory is taken for a network that cannot
    be in it."""
    recipe = header.recipe
    claimed = {"width": recipe.width * max((1, *recipe.stages)), "channels": header.shape[0]}
    claimed |= {"levels": recipe.levels} if recipe.network == "refinenet" else {}
    claimed |= {"classes": len(header.labels)} if recipe.network == "unet" else {}
    largest = max((n for value in state.values() for n in value.shape), default=0)
    for name, n in claimed.items():
        if n > largest:
            raise BrokenCheckpointError(
                f"{path} is damaged: it claims {name} {n}, but no side of its tensors is longer than {largest} ({FIX})"
            )
    if sum(recipe.blocks) > len(state):
        raise BrokenCheckpointError(
            f"{path} is damaged: it claims {sum(recipe.blocks)} blocks, but holds {len(state)} tensors ({FIX})"
        )


def check_is_network(network: object) -> None:
    """Raise an error for a class in the place of a network."""
    if network is not None and not isinstance(network, nn.Module):
        name = getattr(network, "__name__", "Network")
        raise ValueError(f"network must be a torch.nn.Module; got {network!r} (pass {name}(...), not the class)")


def read_model(name: Path | str) -> tuple[Path, dict[str, Tensor], dict[str, str]]:
    """The model file that a path or a pretrained model's name means, its tensors and its metadata."""
    path = find(name)
    if not path.is_dir():
        return path, *read(path)
    found = newest_whole(model_files(path), read)
    if found is None:
        other = f"; the pretrained model of that name is {PREFIX}{name}" if is_pretrained(str(name)) else ""
        raise FileNotFoundError(f"{path} holds no whole checkpoint (checkpoints/model-STEP.safetensors{other})")
    return found[0], *found[1]


def held_weights(tensors: Mapping[str, Tensor], path: Path) -> tuple[Weights, ...]:
    """Which weights a model file holds: raw ones, averaged ones, or both."""
    kinds = dict.fromkeys(name.partition("/")[0] for name in tensors if "/" in name)
    held = tuple(sorted((kind for kind in kinds if re.fullmatch(r"raw|ema(-[\d.e-]+)?", kind)), key=_order))
    if not held:
        raise BrokenCheckpointError(f"{path} holds no weights (use another copy of the file)")
    return held


def _order(kind: Weights) -> tuple[bool, str]:
    return kind != "raw", kind


def usual_weights(held: Sequence[Weights]) -> Weights:
    """The weights to use unless others are asked for: the moving average, if there is one."""
    return "ema" if "ema" in held else held[0]


def recipe_from_json(text: str) -> Recipe:
    """The recipe of a file. Fields that this version does not know are an error; missing ones have their defaults."""
    values = parse_json(text)
    if not isinstance(values, dict):
        raise ValueError(f"a recipe is a JSON object of settings; got {str(values)[:80]}")
    unknown = values.keys() - {each.name for each in fields(Recipe)}
    if unknown:
        raise ValueError(f"the recipe has unknown fields {', '.join(sorted(unknown))} (install a newer scorefield)")
    return Recipe(**values)
