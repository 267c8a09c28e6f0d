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

from scorefield.score import Score


def in_threads(score: Score, *, threads: int | None = None) -> Score:
    """The same score without gradients, by several threads, each with a part of the batch; None: as many as PyTorch's.

    The parts of a batch must not depend on each other. Where there are fewer of them than threads, PyTorch's threads
    share the work.
    """
    threads = threads or torch.get_num_threads()
    return score if threads == 1 else _InThreads(score, threads)


class _InThreads:
    def __init__(self, score: Score, threads: int) -> None:
        self._score, self._threads = score, threads
        self._pool = ThreadPoolExecutor(threads, initializer=partial(torch.set_num_threads, 1))

    def __call__(self, x: Tensor, sigma: Tensor) -> Tensor:
        if len(x) < self._threads:
            return self._part(x, sigma)
        parts = x.chunk(self._threads), sigma.expand(len(x)).chunk(self._threads)
        return torch.cat(list(self._pool.map(self._part, *parts)))

    @torch.no_grad()  # each thread has its own say on gradients
    def _part(self, x: Tensor, sigma: Tensor) -> Tensor:
        return self._score(x, sigma)
