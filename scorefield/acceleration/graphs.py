"""CUDA graphs: recordings of all the kernels of a network call, which the GPU replays without waiting for Python.

A recording works on tensors that stay where they are, so inputs are copied into them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from scorefield.score import ConditionalScore, unbind

WARM_UP = 3
"""Calls before a recording, in which libraries choose their kernels."""
HUGE = 1e6
"""No image has entries of this size: where x has, the sampler diverged, and any precision overflows."""


def warm_up(work: Callable[[], object]) -> None:
    """Call `work` a few times on another stream, which a recording requires."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP):
            work()
    torch.cuda.current_stream().wait_stream(stream)


def record(work: Callable[[], Tensor]) -> tuple[torch.cuda.CUDAGraph, Tensor]:
    """A recording of `work`, and the tensor that holds its result after each replay."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        out = work()
    return graph, out


def recorded(work: Callable[[], object]) -> Callable[[], None]:
    """A recording of `work`, which does it again on the same tensors. Recording does not do it."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        work()
    return graph.replay  # type: ignore[no-any-return, unused-ignore]


class Recorded:
    """A score as a CUDA graph, without gradients.

    It is recorded for batches of `size`: smaller ones are padded, larger ones cut into parts. Conditions, keyword
    tensors with one row per example, are padded and cut in the same way.

    `check(sigma, x)` raises an error for a σ that the network does not accept, which a recording cannot do.

    `fallback` makes another score, which is recorded instead if the first one overflows: for the first batch at one of
    the sigmas `probe`, or for a later one, when `fall_back` is called. Scores are not looked at before that, because it
    would make the GPU wait at every call.
    """

    def __init__(
        self,
        score: ConditionalScore,
        shape: tuple[int, ...],
        *,
        size: int,
        device: torch.device,
        check: Callable[[Tensor, Tensor], object] | None = None,
        probe: Tensor | None = None,
        fallback: Callable[[], ConditionalScore] | None = None,
    ) -> None:
        self.size, self._check, self._probe, self._fallback = size, check, probe, fallback
        self._score, self._bound = unbind(score)
        self._x = torch.zeros(size, *shape, device=device)
        self._sigma = torch.ones(size, device=device)
        self._conditions: dict[str, Tensor] = {}
        self._checked: Tensor | None = None
        self._last: tuple[Tensor, Tensor, dict[str, Tensor]] | None = None
        self._graph: torch.cuda.CUDAGraph | None = None
        self._out: Tensor | None = None

    @torch.no_grad()
    def __call__(self, x: Tensor, sigma: Tensor, **conditions: Tensor) -> Tensor:
        conditions = self._bound | conditions
        if self._check is not None and sigma is not self._checked:  # a look at σ makes the GPU wait: once per level
            self._check(sigma, x)
            self._checked = sigma
        self._last = x, sigma, conditions
        sigma, out = sigma.expand(len(x)), torch.empty_like(x, dtype=self._x.dtype)
        for start in range(0, len(x), self.size):  # each part overwrites the output of the one before
            rows = slice(start, start + self.size)
            out[rows] = self._part(x[rows], sigma[rows], {name: value[rows] for name, value in conditions.items()})
        return out

    def _part(self, x: Tensor, sigma: Tensor, conditions: dict[str, Tensor]) -> Tensor:
        if self._graph is None:
            self._conditions = {name: value[-1:].repeat_interleave(self.size, 0) for name, value in conditions.items()}
        if conditions.keys() != self._conditions.keys():
            raise ValueError(f"recorded with the conditions {sorted(self._conditions)}; got {sorted(conditions)}")
        self._x[: len(x)].copy_(x)
        self._sigma[: len(x)].copy_(sigma)
        self._sigma[len(x) :].copy_(sigma[-1])
        for name, value in conditions.items():
            self._conditions[name][: len(x)].copy_(value)
        if self._graph is None:
            self._record()
        assert self._graph is not None
        assert self._out is not None
        self._graph.replay()
        return self._out[: len(x)]

    def _call(self) -> Tensor:
        return self._score(self._x, self._sigma, **self._conditions)

    def _record(self) -> None:
        before = torch.backends.cudnn.benchmark
        torch.backends.cudnn.benchmark = not torch.are_deterministic_algorithms_enabled()
        try:
            warm_up(self._call)
            if self._fallback is not None and self._overflows():
                self._replace(self._fallback())
                warm_up(self._call)
            self._graph, self._out = record(self._call)
        finally:
            torch.backends.cudnn.benchmark = before

    def _overflows(self) -> bool:
        """Whether the score of the first batch is not finite at one of the sigmas to probe."""
        sigmas = self._sigma[:1] if self._probe is None else self._probe
        scores = (self._score(self._x, sigma, **self._conditions) for sigma in sigmas)
        return not all(bool(score.isfinite().all()) for score in scores)

    @torch.no_grad()
    def fall_back(self) -> bool:
        """Use the fallback from now on if the score of the last batch overflowed and the fallback's does not. Returns
        whether the fallback is in use now: then the last batch must be computed again."""
        if self._fallback is None or self._last is None:
            return False
        x, sigma, conditions = self._last
        if not bool(x.abs().max() < HUGE) or bool(self(x, sigma, **conditions).isfinite().all()):
            return False
        other = self._fallback()
        if not bool(other(x, sigma, **conditions).isfinite().all()):
            return False
        self._replace(other)
        return True

    def _replace(self, other: ConditionalScore) -> None:
        self._score, self._fallback, self._graph, self._out = other, None, None, None
        warnings.warn(
            "the network overflowed float16, so it computes in bfloat16 from here on, which is less precise "
            "(--precision float32 avoids both)",
            stacklevel=2,
        )
