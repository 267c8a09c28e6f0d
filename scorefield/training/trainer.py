"""The trainer: `step(batch, n)` is update number n, a pure function of (seed, n) and the state before it.

The batch, the noise levels, the noise and the flips of update n depend on (seed, n) alone. So a resumed run goes on as
if it had never stopped, and P processes compute what one would with the joined batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from scorefield.acceleration.graphs import recorded, warm_up
from scorefield.noise import SampleNoise, as_schedule, level_at, log_normal_at, sample_seeds
from scorefield.objectives import denoising, uncertain, weighted
from scorefield.score import ConditionalScore, Score

TOO_MANY = 0.5
"""The share of the last ten or so updates that may be skipped because their gradients were not finite."""


class Batch(NamedTuple):
    """A process's part of a training batch, on its device."""

    pixels: Tensor
    """Bytes (B, H, W, C)."""
    labels: Tensor | None = None
    """Classes (B,), where the network has them."""

    def part(self, rows: slice) -> Batch:
        """Some of the examples, with their labels."""
        return Batch(self.pixels[rows], None if self.labels is None else self.labels[rows])


class Losses(NamedTuple):
    """The losses λ(σ)ℓ(σ) of an update's examples, and their σ; both (B,), on the device."""

    values: Tensor
    sigmas: Tensor


Loss = Callable[[Batch, SampleNoise], tuple[Tensor, Losses]]
"""(batch, the noise of its places) -> what each example adds to the mean that is minimised, (B,), and its loss."""

Weight = Callable[[Tensor], Tensor]
"""σ -> λ(σ)."""

NoisyDraw = Callable[[SampleNoise, Tensor], Tensor]
"""(noise, x) -> σ for each example, (B,), by that noise."""


def from_levels(sigmas: Tensor) -> NoisyDraw:
    """One of the levels for each example, all with the same probability."""
    schedule = as_schedule(sigmas)
    return lambda noise, x: level_at(schedule, noise.rand_like(x[:, 0, 0, 0]))


def from_log_normal(mean: float, std: float, sigma_range: tuple[float, float]) -> NoisyDraw:
    """ln σ ~ N(mean, std²) for each example; a σ outside of the range is moved to its nearest end."""
    return lambda noise, x: log_normal_at(noise.randn_like(x[:, 0, 0, 0]), mean, std, sigma_range)


def score_matching(
    score: ConditionalScore,
    draw: NoisyDraw | Tensor,
    *,
    objective: Callable[..., Tensor] = denoising,
    weight: Weight = torch.square,
    log_variance: Weight | None = None,
    label_dropout: float = 0.0,
    dropout: bool = False,
    flip: bool = False,
    dequantise: bool = True,
    autocast: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> Loss:
    """The terms of Eq. 6, λ(σ)ℓ(σ), at one random noise level for each example: drawn by `draw`, or one of the levels.

    `log_variance`: u(σ), with which the weights are learned (`objectives.uncertain`). `label_dropout`: the share of
    labels that become −1, for none. `dropout`: the score takes `rand_like`, random numbers for a dropout of its own.
    """
    draw_sigma = from_levels(draw) if isinstance(draw, Tensor) else draw

    def loss(batch: Batch, noise: SampleNoise) -> tuple[Tensor, Losses]:
        x = prepare(batch.pixels, noise, flip=flip, dequantise=dequantise)
        sigma = draw_sigma(noise, x)
        conditions: dict[str, object] = {}
        if batch.labels is not None:
            conditions["label"] = batch.labels
            if label_dropout:
                dropped = noise.rand_like(x[:, 0, 0, 0]) < label_dropout
                conditions["label"] = torch.where(dropped, -1, batch.labels)
        if dropout:
            conditions["rand_like"] = noise.rand_like
        conditioned: Score = partial(score, **conditions) if conditions else score
        with autocast():
            each = weighted(
                conditioned, x, sigma, objective=partial(objective, randn_like=noise.randn_like), weight=weight
            )
        minimised = each if log_variance is None else uncertain(each, log_variance(sigma), x[0].numel())
        return minimised, Losses(each.detach(), sigma)

    return loss


def prepare(pixels: Tensor, noise: SampleNoise, *, flip: bool, dequantise: bool) -> Tensor:
    """Bytes (B, H, W, C) as the floats to learn from, (B, C, H, W): dequantised, and half of them mirrored."""
    x = pixels.permute(0, 3, 1, 2).float()
    x = (x + noise.rand_like(x)) / 256 if dequantise else x / 255
    if not flip:
        return x.contiguous()
    mirrored = noise.rand_like(x[:, :1, :1, :1]) < 0.5
    return torch.where(mirrored, x.flip(3), x)


def adam(network: nn.Module, learning_rate: float, *, beta2: float = 0.999) -> torch.optim.Adam:
    """The paper's optimizer; on a GPU in a form that can be recorded, for which the learning rate is a tensor."""
    device = next(network.parameters()).device
    cuda = device.type == "cuda"
    rate = torch.tensor(learning_rate, device=device) if cuda else learning_rate
    return torch.optim.Adam(network.parameters(), lr=rate, betas=(0.9, beta2), fused=cuda, capturable=cuda)


Average = tuple[dict[str, Tensor], Callable[[int], float]]
"""A moving average of the weights, by name, and its decay at update n, counted from 0."""


def new_average(network: nn.Module, decay: Callable[[int], float]) -> Average:
    """An average that starts at the network's weights."""
    return {name: value.clone() for name, value in network.state_dict().items()}, decay


def exponential(decay: float) -> Callable[[int], float]:
    """The usual moving average, which forgets its start in the first updates."""
    return lambda n: min(decay, (n + 1) / (n + 10))


def power_function(width: float) -> Callable[[int], float]:
    """β(t) = (1 − 1/t)^(γ+1) at update t = 1, 2, ...: the average of the weights with weights t^γ (Karras et al. 2024).

    `width` is the standard deviation of t in that average, divided by the whole time: √(γ+1)/((γ+2)√(γ+3)).
    """
    low, high = 0.0, 1e9
    for _ in range(200):
        gamma = (low + high) / 2
        wider = math.sqrt(gamma + 1) / ((gamma + 2) * math.sqrt(gamma + 3)) > width
        low, high = (gamma, high) if wider else (low, gamma)
    return lambda n: (1 - 1 / (n + 1)) ** (gamma + 1)


def learning_rates(
    rate: float, *, warmup: int = 0, decay: int = 0, cooldown: float = 0.0, steps: int = 0
) -> Callable[[int], float]:
    """n -> the learning rate of update n, counted from 0: it rises over `warmup` updates, falls as 1/√n after `decay`
    of them, and falls to 0 over the last of `steps` updates, a share `cooldown` of all."""
    cooling = cooldown * steps

    def at(n: int) -> float:
        falling = math.sqrt(decay / (n + 1)) if decay and n >= decay else 1.0
        ending = (steps - n) / cooling if cooling and steps - n < cooling else 1.0
        return rate * min(1.0, (n + 1) / max(1, warmup)) * falling * max(0.0, ending)

    return at


@dataclass
class Trainer:
    """Trains a network by Adam, update by update, in plain PyTorch.

    `rate` is the learning rate of each update. `averages` are moving averages of the network's weights, by name.
    `micro_batch` examples go through the network at once (0: all of them), which saves memory. `share` makes gradients,
    in place, the mean over all processes. `normalise` is called after each update, to bring weights back to unit size.
    An update whose gradients are not finite is skipped; the losses are NaN when TOO_MANY of the last ten or so updates
    were.
    """

    network: nn.Module
    loss: Loss
    optimizer: torch.optim.Optimizer
    rate: Callable[[int], float] = field(default_factory=partial(learning_rates, 1e-3))
    averages: dict[str, Average] = field(default_factory=dict)
    clip: float = 0.0
    seed: int = 0
    micro_batch: int = 0
    rank: int = 0
    share: Callable[[list[Tensor]], None] = lambda gradients: None
    normalise: Callable[[], object] = lambda: None
    steps_done: int = 0
    """The number of updates so far."""
    _skipped: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self._skipped = torch.zeros((), device=next(self.network.parameters()).device)

    def step(self, batch: Batch, n: int) -> Losses:
        """Update number n, counted from 0, on this batch. Returns the examples' losses before the update."""
        set_learning_rate(self.optimizer, self.rate(n))
        losses = self._update(batch, n)
        self.steps_done = n + 1
        for average, decay in self.averages.values():
            update_average(average, self.network, decay(n))
        return losses

    def _update(self, batch: Batch, n: int) -> Losses:
        """The gradient, and Adam's step along it."""
        total = len(batch.pixels)
        self.optimizer.zero_grad(set_to_none=True)
        parts = []
        for start in range(0, total, self.micro_batch or total):
            part = batch.part(slice(start, start + (self.micro_batch or total)))
            first = self.rank * total + start
            places = range(first, first + len(part.pixels))
            each, losses = self.loss(part, SampleNoise.at_step(self.seed, n, places, device=part.pixels.device))
            (each.sum() / total).backward()
            parts.append(losses)
        gradients = [p.grad for p in self.network.parameters() if p.grad is not None]
        self.share(gradients)
        bad = not_finite(gradients)  # the same in all processes, which have the same gradients now
        if self.clip:
            nn.utils.clip_grad_norm_(self.network.parameters(), self.clip)
        step_unless(bad, self.optimizer)
        self.normalise()
        values, sigmas = map(torch.cat, zip(*parts, strict=True))
        return Losses(self._marked(values, bad), sigmas)

    def _marked(self, losses: Tensor, bad: Tensor) -> Tensor:
        """The losses of one more update, which is skipped where `bad` is 1; NaN once TOO_MANY are."""
        self._skipped.lerp_(bad, 0.1)
        return torch.where(self._skipped < TOO_MANY, losses, torch.nan)


@dataclass
class RecordedTrainer(Trainer):
    """The same with each update as two CUDA graphs: noise, loss and gradients; then clipping and Adam's step.

    Between them `share` makes the gradients those of all processes. `bad` is a tensor that the loss sets to 1 in a
    backward pass whose gradients are too large for 16 bit; such an update is skipped, in all processes. Batches must
    all have one shape.
    """

    bad: Tensor | None = None
    _replay: tuple[Callable[[], object], Callable[[], object]] | None = field(default=None, init=False)

    def _update(self, batch: Batch, n: int) -> Losses:
        places = range(self.rank * len(batch.pixels), (self.rank + 1) * len(batch.pixels))
        noise = SampleNoise.at_step(self.seed, n, places, device=batch.pixels.device)
        if self._replay is None:
            self._batch = Batch(batch.pixels.clone(), None if batch.labels is None else batch.labels.clone())
            self._noise = noise.copy()
            warm_up(self._make_gradients)
            self._start_optimizer()
            self._replay = recorded(self._make_gradients), recorded(self._apply_gradients)
        if batch.pixels.shape != self._batch.pixels.shape:
            raise ValueError(f"recorded for {tuple(self._batch.pixels.shape)}; got {tuple(batch.pixels.shape)}")
        self._batch.pixels.copy_(batch.pixels)
        if self._batch.labels is not None and batch.labels is not None:
            self._batch.labels.copy_(batch.labels)
        self._noise.renew(noise)
        make_gradients, apply_gradients = self._replay
        make_gradients()
        gradients = [p.grad for p in self.network.parameters() if p.grad is not None]
        self.share(gradients if self.bad is None else [*gradients, self.bad])
        apply_gradients()
        return Losses(self._result.values.clone(), self._result.sigmas.clone())

    def _make_gradients(self) -> None:
        for parameter in self.network.parameters():
            parameter.grad = None
        if self.bad is not None:
            self.bad.zero_()
        each, self._losses = self.loss(self._batch, self._noise.copy())
        each.mean().backward()

    def _apply_gradients(self) -> None:
        if self.clip:
            nn.utils.clip_grad_norm_(self.network.parameters(), self.clip)
        self._result = self._losses
        if self.bad is None:
            self.optimizer.step()
        else:
            self.bad.copy_(self.bad > 0)  # it is the mean over all processes
            step_unless(self.bad, self.optimizer)
            self._result = Losses(self._marked(self._losses.values, self.bad), self._losses.sigmas)
        self.normalise()

    @torch.no_grad()
    def _start_optimizer(self) -> None:
        """Adam makes its moments in its first step, which must not be recorded: take that step, and undo it."""
        parameters = list(self.network.parameters())
        weights = [parameter.clone() for parameter in parameters]
        before = {p: {k: v.clone() for k, v in kinds.items()} for p, kinds in self.optimizer.state.items()}
        self.optimizer.step()
        for parameter, weight in zip(parameters, weights, strict=True):
            parameter.copy_(weight)
            for kind, value in self.optimizer.state[parameter].items():
                value.copy_(before[parameter][kind]) if parameter in before else value.zero_()


def not_finite(tensors: list[Tensor]) -> Tensor:
    """1 if any number in them is not finite, otherwise 0, (): on their device, without waiting for it."""
    if tensors[0].device.type == "mps":  # where older versions of PyTorch lack the kernel below
        return (~torch.stack([each.isfinite().all() for each in tensors]).all()).float()
    found, one = torch.zeros((), device=tensors[0].device), torch.ones((), device=tensors[0].device)
    torch._amp_foreach_non_finite_check_and_unscale_(tensors, found, one)
    return found


def step_unless(bad: Tensor, optimizer: torch.optim.Optimizer) -> None:
    """The optimizer's step, or none where `bad` is 1. A fused optimizer decides that on the GPU."""
    if optimizer.defaults.get("fused"):
        optimizer.found_inf = bad  # type: ignore[attr-defined]
        optimizer.step()
        del optimizer.found_inf  # type: ignore[attr-defined]
    elif not bad:
        optimizer.step()


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """A recorded optimizer reads its learning rate from the GPU's memory."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


@torch.no_grad()
def update_average(average: dict[str, Tensor], network: nn.Module, decay: float) -> None:
    """average ← decay · average + (1 − decay) · weights. Whole numbers, such as counters, are copied."""
    weights = network.state_dict()
    smooth = [name for name, value in weights.items() if value.is_floating_point()]
    torch._foreach_lerp_([average[name] for name in smooth], [weights[name] for name in smooth], 1 - decay)
    for name in weights.keys() - set(smooth):
        average[name].copy_(weights[name])


@torch.no_grad()
def held_out_losses(
    score: ConditionalScore,
    batch: Batch,
    sigmas: Tensor,
    *,
    dequantise: bool,
    batch_size: int,
    first: int = 0,
    weight: Weight = torch.square,
) -> Tensor:
    """λ(σ)ℓ(σ) of the denoising objective for every held-out image at every noise level, (L, N).

    `batch_size` images go through the network at once. Image k has noise of its own at each level, which never changes:
    losses are comparable over a run and between runs. `first` is the number of the first level here. Pixels are
    dequantised if they are in training, but never mirrored: mirrored images are added to learn more from the data, and
    the loss is to be that of the data themselves.
    """
    n = len(batch.pixels)
    losses = torch.empty(len(sigmas), n, device=batch.pixels.device)
    for level, sigma in enumerate(sigmas):
        number = first + level
        for start in range(0, n, batch_size):
            places = range(start, min(start + batch_size, n))
            rows = slice(places.start, places.stop)
            part, noise = batch.part(rows), SampleNoise(sample_seeds(number, places))
            x = prepare(part.pixels, noise, flip=False, dequantise=dequantise)
            conditioned: Score = score if part.labels is None else partial(score, label=part.labels)
            objective = partial(denoising, randn_like=noise.randn_like)
            each = weighted(conditioned, x, sigma.expand(len(x)), objective=objective, weight=weight)
            losses[level, rows] = each.float()
    return losses


class MeanLosses(NamedTuple):
    """Losses on n images: their means and the standard errors of these, which a single image does not have."""

    n: int
    mean: float
    """The mean over all noise levels (Eq. 6), or over those of training in their shares."""
    error: float | None
    by_level: list[float]
    errors_by_level: list[float | None]


def mean_losses(losses: Tensor, shares: Tensor | None = None) -> MeanLosses:
    """The means of losses (L, N) over the images. `shares` are those of the levels in the mean over all levels, (L,).

    The images are independent, but not the losses of one image at several levels: the standard error of the mean over
    all levels is that of the images' own means.
    """
    over_levels = losses.mean(0) if shares is None else shares.to(losses) @ losses
    rows = torch.cat([over_levels[None], losses]).cpu().double()
    n = rows.shape[1]
    mean, *means = rows.mean(1).tolist()
    error, *errors = (rows.std(1) / n**0.5).tolist() if n > 1 else [None] * len(rows)
    return MeanLosses(n, mean, error, means, errors)
