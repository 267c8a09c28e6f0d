"""Training: a generator that yields after each update.

Update number n is a pure function of (seed, n): the batch, the levels, the noise, the flips. So a run that is resumed
goes on as if it had never stopped, and P processes compute what one would with the joined batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from scorefield.noise import SampleNoise
from scorefield.objectives import denoising, weighted
from scorefield.score import Score

Batch = Callable[[int], Tensor]
"""step -> this process's part of its batch: bytes (B, H, W, C) on the device."""

ExampleLosses = Callable[[Tensor, SampleNoise], tuple[Tensor, Tensor]]
"""(bytes, the noise of their places) -> the examples' losses λ(σ)ℓ(σ) and their levels, both (B,)."""

StepLoss = Callable[[int, Tensor, range], tuple[Tensor, Tensor]]
"""(step, bytes, their places in the step's batch) -> the same."""

TOO_MANY = 0.5
"""The share of the last ten or so updates that may be left out, as their gradients were not finite."""


class Update(NamedTuple):
    """After update number `step`: what its examples lost and at which levels, both (B,), on the device."""

    step: int
    losses: Tensor
    levels: Tensor


@dataclass
class TrainingState:
    """All that changes during training."""

    network: nn.Module
    optimizer: torch.optim.Optimizer
    average: dict[str, Tensor] | None = None
    """A moving average of the network's state, if one is kept."""
    step: int = 0


def adam(network: nn.Module, learning_rate: float) -> torch.optim.Adam:
    """The paper's optimizer; on a GPU in a form that can be recorded, for which the learning rate lies there too."""
    device = next(network.parameters()).device
    cuda = device.type == "cuda"
    rate = torch.tensor(learning_rate, device=device) if cuda else learning_rate
    return torch.optim.Adam(network.parameters(), lr=rate, fused=cuda, capturable=cuda)


def example_losses(
    score: Score,
    sigmas: Tensor,
    *,
    objective: Callable[..., Tensor] = denoising,
    flip: bool = False,
    dequantise: bool = True,
    autocast: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> ExampleLosses:
    """The terms of Eq. 6 with λ(σ) = σ², at one random level for each example."""

    def losses(pixels: Tensor, noise: SampleNoise) -> tuple[Tensor, Tensor]:
        x = prepared(pixels, noise, flip=flip, dequantise=dequantise)
        levels = (noise.rand_like(x[:, 0, 0, 0]) * len(sigmas)).long()
        with autocast():
            each = partial(objective, randn_like=noise.randn_like)
            return weighted(score, x, sigmas[levels], objective=each), levels

    return losses


def step_loss(losses: ExampleLosses, *, seed: int) -> StepLoss:
    """These losses with the noise of each step, which depends on (seed, step, place) alone."""

    def loss(step: int, pixels: Tensor, places: range) -> tuple[Tensor, Tensor]:
        return losses(pixels, SampleNoise.at_step(seed, step, places, device=pixels.device))

    return loss


def prepared(pixels: Tensor, noise: SampleNoise, *, flip: bool, dequantise: bool) -> Tensor:
    """Bytes (B, H, W, C) as the floats to learn from, (B, C, H, W): dequantised, and half of them mirrored."""
    x = pixels.permute(0, 3, 1, 2).float()
    x = (x + noise.rand_like(x)) / 256 if dequantise else x / 255
    if not flip:
        return x.contiguous()
    mirrored = noise.rand_like(x[:, :1, :1, :1]) < 0.5
    return torch.where(mirrored, x.flip(3), x)


Descent = Callable[[int, Tensor], tuple[Tensor, Tensor]]
"""(step, bytes) -> the examples' losses and levels, after one step of the optimizer along their gradient."""


def fit(
    state: TrainingState,
    batch: Batch,
    descent: Descent,
    *,
    steps: int,
    learning_rate: float,
    warmup: int = 0,
    ema: float = 0.0,
) -> Iterator[Update]:
    """Updates number state.step + 1 ... steps."""
    while state.step < steps:
        pixels = batch(state.step)
        set_learning_rate(state.optimizer, learning_rate * min(1.0, (state.step + 1) / max(1, warmup)))
        losses, levels = descent(state.step, pixels)
        state.step += 1
        if state.average is not None:
            update_average(state.average, state.network, min(ema, state.step / (state.step + 9)))
        yield Update(state.step, losses, levels)


def descent(
    state: TrainingState,
    loss: StepLoss,
    *,
    clip: float = 0.0,
    micro_batch: int = 0,
    rank: int = 0,
    share: Callable[[list[Tensor]], None] = lambda gradients: None,
) -> Descent:
    """Plainly, in PyTorch. `share` makes the gradients, in place, the mean over all processes.

    A batch goes through the network `micro_batch` examples at a time (0: all at once), which saves memory. An update
    whose gradients are not finite is left out; the losses are NaN when TOO_MANY of the last ten or so updates were.
    """
    left_out = LeftOut(next(state.network.parameters()).device)

    def descend(step: int, pixels: Tensor) -> tuple[Tensor, Tensor]:
        first, size = rank * len(pixels), micro_batch or len(pixels)
        state.optimizer.zero_grad(set_to_none=True)
        parts = []
        for start in range(0, len(pixels), size):
            part = pixels[start : start + size]
            losses, levels = loss(step, part, range(first + start, first + start + len(part)))
            (losses.sum() / len(pixels)).backward()
            parts.append((losses.detach(), levels))
        gradients = [p.grad for p in state.network.parameters() if p.grad is not None]
        share(gradients)
        bad = not_finite(gradients)  # as in all processes, which have the same gradients now
        if clip:
            nn.utils.clip_grad_norm_(state.network.parameters(), clip)
        step_unless(bad, state.optimizer)
        losses, levels = map(torch.cat, zip(*parts, strict=True))
        return left_out.told(losses, bad), levels

    return descend


class LeftOut:
    """Keeps count of the updates that are left out, on their device, which need not be waited for."""

    def __init__(self, device: torch.device) -> None:
        self._share = torch.zeros((), device=device)

    def told(self, losses: Tensor, bad: Tensor) -> Tensor:
        """The losses of one more update, which is left out where `bad` is 1; NaN once TOO_MANY are."""
        self._share.lerp_(bad, 0.1)
        return torch.where(self._share < TOO_MANY, losses, torch.nan)


def not_finite(tensors: list[Tensor]) -> Tensor:
    """1 if any number in them is not finite, else 0, (): on their device, which need not be waited for."""
    found, one = torch.zeros((), device=tensors[0].device), torch.ones((), device=tensors[0].device)
    torch._amp_foreach_non_finite_check_and_unscale_(tensors, found, one)
    return found


def step_unless(bad: Tensor, optimizer: torch.optim.Optimizer) -> None:
    """The optimizer's step, but none where `bad` is 1: a fused optimizer decides that on the GPU."""
    if optimizer.defaults.get("fused"):
        optimizer.found_inf = bad  # type: ignore[attr-defined]
        optimizer.step()
        del optimizer.found_inf  # type: ignore[attr-defined]
    elif not bad:
        optimizer.step()


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """A recorded optimizer reads its rate from the GPU's memory."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


@torch.no_grad()
def update_average(average: dict[str, Tensor], network: nn.Module, decay: float) -> None:
    """average ← decay · average + (1 − decay) · weights."""
    weights = network.state_dict()
    torch._foreach_lerp_([average[name] for name in weights], list(weights.values()), 1 - decay)


@torch.no_grad()
def measure(score: Score, pixels: Tensor, sigmas: Tensor, *, batch_size: int) -> Tensor:
    """λ(σ)ℓ(σ) at each level on held-out bytes (N, H, W, C), (L,): denoising loss, with noise that is always the same.

    Image k is perturbed at level k modulo L; of fewer images than levels there are several rounds.
    """
    pixels = pixels.repeat(-(-len(sigmas) // len(pixels)), 1, 1, 1)
    levels = torch.arange(len(pixels), device=pixels.device) % len(sigmas)
    total = torch.zeros(len(sigmas), device=pixels.device)
    for start in range(0, len(pixels), batch_size):
        part = slice(start, min(start + batch_size, len(pixels)))
        noise = SampleNoise(range(part.start, part.stop))
        x = prepared(pixels[part], noise, flip=False, dequantise=False)
        objective = partial(denoising, randn_like=noise.randn_like)
        losses = weighted(score, x, sigmas[levels[part]], objective=objective)
        total.index_add_(0, levels[part], losses.float())
    return total / torch.bincount(levels, minlength=len(sigmas))
