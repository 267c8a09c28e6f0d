"""Work that nothing waits for yet, on a stream of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor

Beside = Callable[..., AbstractContextManager[None]]
"""Around launches whose results nothing waits for yet, given the tensors that they read: Aside.work, or at_once."""


def at_once(*read: Tensor) -> AbstractContextManager[None]:
    """Beside nothing: on the same stream."""
    return nullcontext()


class Aside:
    """A second stream for the gradients of parameters, which nothing waits for until the end."""

    LAG = 4
    """Pieces of work that it may be behind. What they read is kept so long, which takes memory."""

    def __init__(self) -> None:
        self.stream = torch.cuda.Stream()
        self.pending: deque[tuple[torch.cuda.Event, tuple[Tensor, ...]]] = deque()

    @contextmanager
    def work(self, *read: Tensor) -> Iterator[None]:
        """Inside, what is launched runs beside what comes next. `read`: tensors not to be freed before it is done."""
        while len(self.pending) >= self.LAG:
            torch.cuda.current_stream().wait_event(self.pending[0][0])
            self.pending.popleft()
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            yield
            self.pending.append((self.stream.record_event(), read))

    def join(self) -> None:
        """All of it is done before what comes next."""
        torch.cuda.current_stream().wait_stream(self.stream)
        self.pending.clear()
