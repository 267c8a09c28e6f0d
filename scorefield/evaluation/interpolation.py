"""Images on the way from one to another: along an arc between the noise that they come from."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from scorefield import samplers
from scorefield.acceleration.scaled import convolutions
from scorefield.acceleration.threads import pytorch_threads
from scorefield.likelihood import Cost, decode, encode, spherical
from scorefield.models.model import Model
from scorefield.noise import SampleNoise, sample_seeds
from scorefield.samplers import Heun, NoiseLevels, Sampler, State
from scorefield.samplers.path_settings import FlowSampler
from scorefield.samplers.watched import Wrapped

MOST_FRAMES = 256
Label = str | int | None


class StartedFrom(Wrapped):
    """A sampler that starts from this x instead of from random noise."""

    def __init__(self, sampler: Sampler, x: Tensor) -> None:
        super().__init__(sampler)
        self.x = x

    def start(self, noise: SampleNoise, shape: tuple[int, ...]) -> Tensor:
        return self.x


def is_deterministic(sampler: Sampler) -> bool:
    """Whether the sampler follows the probability flow, so that its start decides on the image."""
    return isinstance(sampler, FlowSampler) and sampler.resample == 1 and not getattr(sampler, "churn", 0)


def deterministic(own: Sampler, calls: int | None, accepted: NoiseLevels | None) -> Sampler:
    """A model's own sampler if it is deterministic, otherwise Heun's, with this number of calls."""
    chosen = own if is_deterministic(own) else Heun()
    made: Sampler = samplers.changed(chosen, {"calls": calls}, accepted=accepted)
    return made


def between_seeds(
    model: Model,
    seeds: tuple[int, int],
    frames: int,
    *,
    label: Label,
    sampler: Sampler,
    watch: Callable[[Sampler], Sampler] = lambda sampler: sampler,
    say: Callable[[str], None] = lambda message: None,
) -> Iterator[State]:
    """The states of samples from start noise between that of sample 0 of each seed. `watch` wraps the sampler."""
    noise = SampleNoise([each for seed in seeds for each in sample_seeds(seed, [0])], device=model.device)
    first, second = sampler.start(noise, model.shape) - 0.5  # samplers start around grey
    x = 0.5 + spherical(first, second, _shares(frames))
    classes = model.class_numbers(label, frames)
    if model.labels and classes is None:
        one, other = noise.choice(len(model.labels)).tolist()
        classes = [one if 2 * k < frames else other for k in range(frames)]
        if one != other:
            names = f"{model.labels[one]} and {model.labels[other]}"
            say(f"note: the ends have the classes {names}, with a change half-way (--label chooses one for all)")
    return model.states(range(frames), sampler=watch(StartedFrom(sampler, x)), label=classes)


def between_images(
    model: Model,
    ends: tuple[Tensor, Tensor],
    frames: int,
    *,
    label: Label,
    tolerance: float,
    on_call: Callable[[], None] = lambda: None,
) -> tuple[Tensor, Cost]:
    """Images (N, C, H, W), in [0, 1] but for rounding, from latents between those of two images; and what it took.

    `on_call` is called before each call of the network.
    """
    if model.labels and label is None:
        if not model.null_label:
            raise ValueError("the model needs a class (give one with --label)")
        label = "none"
    classes = model.class_numbers(label, frames)
    low, high = model.sigma_range
    cost, fast = Cost(), model.fast_score(frames, "float32")

    def score(x: Tensor, sigma: Tensor) -> Tensor:
        on_call()
        own = None if classes is None else torch.tensor(classes[: len(x)], device=x.device)
        return fast(x, sigma, label=own) if own is not None else fast(x, sigma)

    solve = {"sigma_min": low, "sigma_max": high, "variance": model.recipe.sigma_data**2, "tolerance": tolerance}
    with torch.no_grad(), convolutions(allow_tf32=False), pytorch_threads(1):  # TF32 would exceed the tolerance
        x = torch.stack(ends).to(model.device)
        first, second = encode(score, x, **solve, cost=cost) - 0.5
        made = decode(score, 0.5 + spherical(first, second, _shares(frames)), **solve, cost=cost)
    return made, cost


def _shares(frames: int) -> list[float]:
    return [k / (frames - 1) for k in range(frames)]
