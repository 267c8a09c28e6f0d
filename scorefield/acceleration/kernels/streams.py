"""A second stream, for work whose results are needed later only."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor

Beside = Callable[..., AbstractContextManager[None]]
"""A context for launches whose results are needed later only; it gets the tensors that they read. Aside.work or
at_once."""


def at_once(*read: Tensor) -> AbstractContextManager[None]:
    """The context that launches on the current stream."""
    return nullcontext()


class Aside:
    """A second stream for the gradients of parameters, which are needed at the end of a backward pass only."""

    LAG = 4
    """How many pieces of work it may lag behind. The tensors that they read are kept until then, which takes memory."""

    def __init__(self) -> None:
        self.stream = torch.cuda.Stream()
        self.pending: deque[tuple[torch.cuda.Event, tuple[Tensor, ...]]] = deque()

    @contextmanager
    def work(self, *read: Tensor) -> Iterator[None]:
        """Inside, launches go to the second stream. `read`: tensors that must not be freed before the work is done."""
        while len(self.pending) >= self.LAG:
            torch.cuda.current_stream().wait_event(self.pending[0][0])
            self.pending.popleft()
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            yield
            self.pending.append((self.stream.record_event(), read))

    def join(self) -> None:
        """Let the current stream wait for all work of the second."""
        torch.cuda.current_stream().wait_stream(self.stream)
        self.pending.clear()
