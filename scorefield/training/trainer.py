"""The trainer: `step(batch, n)` is update number n, a pure function of (seed, n) and the state before it.

The batch, the noise levels, the noise and the flips of update n depend on (seed, n) alone. So a resumed run goes on as
if it had never stopped, and P processes compute what one would with the joined batch.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from scorefield.acceleration.graphs import warm_up
from scorefield.noise import SampleNoise, as_schedule, level_at, sample_seeds
from scorefield.objectives import denoising, weighted
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


Loss = Callable[[Batch, SampleNoise], Losses]
"""(batch, the noise of its places) -> the examples' losses."""


def score_matching(
    score: ConditionalScore,
    sigmas: Tensor,
    *,
    objective: Callable[..., Tensor] = denoising,
    flip: bool = False,
    dequantise: bool = True,
    autocast: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> Loss:
    """The terms of Eq. 6 with λ(σ) = σ², at one random noise level for each example."""
    schedule = as_schedule(sigmas)

    def loss(batch: Batch, noise: SampleNoise) -> Losses:
        x = prepare(batch.pixels, noise, flip=flip, dequantise=dequantise)
        sigma = level_at(schedule, noise.rand_like(x[:, 0, 0, 0]))
        conditioned: Score = score if batch.labels is None else partial(score, label=batch.labels)
        with autocast():
            each = weighted(conditioned, x, sigma, objective=partial(objective, randn_like=noise.randn_like))
        return Losses(each, sigma)

    return loss


def prepare(pixels: Tensor, noise: SampleNoise, *, flip: bool, dequantise: bool) -> Tensor:
    """Bytes (B, H, W, C) as the floats to learn from, (B, C, H, W): dequantised, and half of them mirrored."""
    x = pixels.permute(0, 3, 1, 2).float()
    x = (x + noise.rand_like(x)) / 256 if dequantise else x / 255
    if not flip:
        return x.contiguous()
    mirrored = noise.rand_like(x[:, :1, :1, :1]) < 0.5
    return torch.where(mirrored, x.flip(3), x)


def adam(network: nn.Module, learning_rate: float) -> torch.optim.Adam:
    """The paper's optimizer; on a GPU in a form that can be recorded, for which the learning rate is a tensor."""
    device = next(network.parameters()).device
    cuda = device.type == "cuda"
    rate = torch.tensor(learning_rate, device=device) if cuda else learning_rate
    return torch.optim.Adam(network.parameters(), lr=rate, fused=cuda, capturable=cuda)


@dataclass
class Trainer:
    """Trains a network by Adam, update by update, in plain PyTorch.

    `average` is a moving average of the network's weights with decay `ema`, if one is kept. `micro_batch` examples go
    through the network at once (0: all of them), which saves memory. `share` makes gradients, in place, the mean over
    all processes. An update whose gradients are not finite is skipped; the losses are NaN when TOO_MANY of the last
    ten or so updates were.
    """

    network: nn.Module
    loss: Loss
    optimizer: torch.optim.Optimizer
    average: dict[str, Tensor] | None = None
    learning_rate: float = 1e-3
    warmup: int = 0
    clip: float = 0.0
    ema: float = 0.0
    seed: int = 0
    micro_batch: int = 0
    rank: int = 0
    share: Callable[[list[Tensor]], None] = lambda gradients: None
    steps_done: int = 0
    """The number of updates so far."""
    _skipped: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self._skipped = torch.zeros((), device=next(self.network.parameters()).device)

    def step(self, batch: Batch, n: int) -> Losses:
        """Update number n, counted from 0, on this batch. Returns the examples' losses before the update."""
        set_learning_rate(self.optimizer, self.learning_rate * min(1.0, (n + 1) / max(1, self.warmup)))
        losses = self._update(batch, n)
        self.steps_done = n + 1
        if self.average is not None:
            update_average(self.average, self.network, min(self.ema, (n + 1) / (n + 10)))
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
            losses = self.loss(part, SampleNoise.at_step(self.seed, n, places, device=part.pixels.device))
            (losses.values.sum() / total).backward()
            parts.append(Losses(losses.values.detach(), losses.sigmas))
        gradients = [p.grad for p in self.network.parameters() if p.grad is not None]
        self.share(gradients)
        bad = not_finite(gradients)  # the same in all processes, which have the same gradients now
        if self.clip:
            nn.utils.clip_grad_norm_(self.network.parameters(), self.clip)
        step_unless(bad, self.optimizer)
        values, sigmas = map(torch.cat, zip(*parts, strict=True))
        return Losses(self._marked(values, bad), sigmas)

    def _marked(self, losses: Tensor, bad: Tensor) -> Tensor:
        """The losses of one more update, which is skipped where `bad` is 1; NaN once TOO_MANY are."""
        self._skipped.lerp_(bad, 0.1)
        return torch.where(self._skipped < TOO_MANY, losses, torch.nan)


@dataclass
class RecordedTrainer(Trainer):
    """The same with each update as one CUDA graph: noise, loss, gradients, clipping and Adam's step.

    `bad` is a tensor that the loss sets to 1 in a backward pass whose gradients are too large for 16 bit; such an
    update is skipped. Batches must all have one shape.
    """

    bad: Tensor | None = None
    _graph: torch.cuda.CUDAGraph | None = field(default=None, init=False)

    def _update(self, batch: Batch, n: int) -> Losses:
        noise = SampleNoise.at_step(self.seed, n, range(len(batch.pixels)), device=batch.pixels.device)
        if self._graph is None:
            self._batch = Batch(batch.pixels.clone(), None if batch.labels is None else batch.labels.clone())
            self._noise = noise.copy()
            self._record()
        assert self._graph is not None
        if batch.pixels.shape != self._batch.pixels.shape:
            raise ValueError(f"recorded for {tuple(self._batch.pixels.shape)}; got {tuple(batch.pixels.shape)}")
        self._batch.pixels.copy_(batch.pixels)
        if self._batch.labels is not None and batch.labels is not None:
            self._batch.labels.copy_(batch.labels)
        self._noise.renew(noise)
        self._graph.replay()
        return Losses(self._result.values.clone(), self._result.sigmas.clone())

    def _record(self) -> None:
        warm_up(self._gradients)
        self._start_optimizer()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            losses = self._gradients()
            if self.clip:
                nn.utils.clip_grad_norm_(self.network.parameters(), self.clip)
            if self.bad is None:
                self.optimizer.step()
                self._result = losses
            else:
                step_unless(self.bad, self.optimizer)
                self._result = Losses(self._marked(losses.values, self.bad), losses.sigmas)
        self._graph = graph

    def _gradients(self) -> Losses:
        for parameter in self.network.parameters():
            parameter.grad = None
        if self.bad is not None:
            self.bad.zero_()
        losses = self.loss(self._batch, self._noise.copy())
        losses.values.mean().backward()
        return Losses(losses.values.detach(), losses.sigmas)

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
    score: ConditionalScore, batch: Batch, sigmas: Tensor, *, dequantise: bool, batch_size: int, first: int = 0
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
            losses[level, rows] = weighted(conditioned, x, sigma.expand(len(x)), objective=objective).float()
    return losses


class MeanLosses(NamedTuple):
    """Losses on n images: their means and the standard errors of these, which a single image does not have."""

    n: int
    mean: float
    """The mean over all noise levels (Eq. 6)."""
    error: float | None
    by_level: list[float]
    errors_by_level: list[float | None]


def mean_losses(losses: Tensor) -> MeanLosses:
    """The means of losses (L, N) over the images.

    The images are independent, but not the losses of one image at several levels: the standard error of the mean over
    all levels is that of the images' own means.
    """
    rows = torch.cat([losses.mean(0, keepdim=True), losses]).cpu().double()
    n = rows.shape[1]
    mean, *means = rows.mean(1).tolist()
    error, *errors = (rows.std(1) / n**0.5).tolist() if n > 1 else [None] * len(rows)
    return MeanLosses(n, mean, error, means, errors)
