"""The rule for CPU threads: one thread for small work, threads that share the batch for large work.

PyTorch's own threads meet at the end of each operation, thousands of times a second. Where another program keeps one of
the cores busy, they wait for each other there, and a small job takes many times longer on two threads than on one.
Threads that share a batch meet once a call. But Python runs one thread at a time, so that they gain something only
where operations take much longer than their launch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import Tensor, nn

from scorefield.score import ConditionalScore, unbind

T = TypeVar("T")

PART = 2e9
"""The least work, in multiplications, of a part of a batch that is worth a thread. On two idle cores, two threads were
as fast as one at 3e9 for both parts, and 1.4 times as fast at 6.5e9 (docs/measurements/threads.json)."""
ALONE, HELPERS = 1e10, 4
"""PyTorch's own threads help with an example of this much work, if there are at least so many for each example. Two are
too few: for one image of CIFAR-10's network they gained a factor of 1.6 on an idle machine, and lost 2 to 7 on a busy
one."""


@contextmanager
def pytorch_threads(number: int) -> Iterator[None]:
    """Inside, PyTorch's operations in this thread of the program use that many threads. Afterwards as before.

    (A thread that calls PyTorch for the first time meanwhile starts with this number.)
    """
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def on_one_thread(items: Iterator[T]) -> Iterator[T]:
    """The same items, each made on one thread. Between them the caller's own setting holds."""
    end = object()
    while True:
        with pytorch_threads(1):
            item = next(items, end)
        if item is end:
            return
        yield item  # type: ignore[misc]


def multiplications(network: nn.Module, shape: tuple[int, ...]) -> float:
    """An estimate of a network's work for one example: every parameter is used once for each pixel."""
    return float(sum(parameter.numel() for parameter in network.parameters()) * math.prod(shape[1:]))


def shares(threads: int, examples: int, work: float) -> tuple[int, int]:
    """The rule: how many threads share a batch, and how many of PyTorch's own each of them may use.

    `work`: multiplications for one example.
    """
    parts = max(1, min(threads, examples, math.floor(min(examples * work / PART, threads))))
    own = threads // parts
    return parts, own if work >= ALONE and own >= HELPERS else 1


def training_threads(threads: int, examples: int, work: float) -> int:
    """How many of PyTorch's threads a training update of so many examples may use: each must have work for it.

    `work`: multiplications for one example and call; the backward pass has twice as many.
    """
    return max(1, min(threads, math.floor(min(3 * examples * work / PART, threads))))


def in_threads(score: ConditionalScore, *, work: float = math.inf, threads: int | None = None) -> ConditionalScore:
    """The same score without gradients, computed by threads that share the batch where the work is worth it.

    `work` is an estimate of the multiplications for one example, `threads` PyTorch's own number unless given. Examples
    must not depend on each other. Conditions, keyword tensors with one row per example, are split along with x.
    """
    threads = threads or torch.get_num_threads()
    return score if threads == 1 else _InThreads(score, work, threads)


class _InThreads:
    def __init__(self, score: ConditionalScore, work: float, threads: int) -> None:
        (self._score, self._bound), self._work, self._threads = unbind(score), work, threads
        self._pool = ThreadPoolExecutor(threads)

    def __call__(self, x: Tensor, sigma: Tensor, **conditions: Tensor) -> Tensor:
        conditions = self._bound | conditions
        parts, own = shares(self._threads, len(x), self._work)
        if parts == 1:
            return self._part(x, sigma, conditions, own)
        xs, sigmas = x.chunk(parts), sigma.expand(len(x)).chunk(parts)
        chunks = {name: value.chunk(parts) for name, value in conditions.items()}
        each = [{name: values[k] for name, values in chunks.items()} for k in range(len(xs))]
        with pytorch_threads(1):  # what a part sets for its thread, threads that begin later would get too
            return torch.cat(list(self._pool.map(self._part, xs, sigmas, each, [own] * len(xs))))

    @torch.no_grad()  # whether gradients are on is a setting of each thread, as the number of threads is
    def _part(self, x: Tensor, sigma: Tensor, conditions: dict[str, Tensor], own: int) -> Tensor:
        with pytorch_threads(own):
            return self._score(x, sigma, **conditions)
