"""Threads that share a batch rather than every operation, for CPUs.

PyTorch's own threads meet at the end of each operation, thousands of times a second. Where another program keeps one of
the cores busy, they wait for each other: with one of two cores busy, a network of width 16 took 6 to 14 times longer on
two threads than on one. Here they meet once a call, and where the cores are free that is as fast.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import torch
from torch import Tensor

from scorefield.score import ConditionalScore, unbind


def in_threads(score: ConditionalScore, *, threads: int | None = None) -> ConditionalScore:
    """The same score without gradients, computed by several threads, each with a part of the batch.

    `threads` is PyTorch's own number unless given. Examples must not depend on each other. Conditions, keyword tensors
    with one row per example, are split along with x. For fewer examples than threads, PyTorch's threads share the work.
    """
    threads = threads or torch.get_num_threads()
    return score if threads == 1 else _InThreads(score, threads)


class _InThreads:
    def __init__(self, score: ConditionalScore, threads: int) -> None:
        (self._score, self._bound), self._threads = unbind(score), threads
        self._pool = ThreadPoolExecutor(threads, initializer=partial(torch.set_num_threads, 1))

    def __call__(self, x: Tensor, sigma: Tensor, **conditions: Tensor) -> Tensor:
        conditions = self._bound | conditions
        if len(x) < self._threads:
            return self._part(x, sigma, conditions)
        parts = x.chunk(self._threads)
        sigmas = sigma.expand(len(x)).chunk(self._threads)
        chunks = {name: value.chunk(self._threads) for name, value in conditions.items()}
        each = [{name: values[k] for name, values in chunks.items()} for k in range(len(parts))]
        return torch.cat(list(self._pool.map(self._part, parts, sigmas, each)))

    @torch.no_grad()  # whether gradients are on is a setting of each thread
    def _part(self, x: Tensor, sigma: Tensor, conditions: dict[str, Tensor]) -> Tensor:
        return self._score(x, sigma, **conditions)
