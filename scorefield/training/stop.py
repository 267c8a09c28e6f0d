"""When to stop before the end."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType


@dataclass
class Stop:
    """Stop when the time is up, on SIGTERM, or on Ctrl-C (a second Ctrl-C interrupts at once)."""

    minutes: float
    reason: str = ""
    number: int = 0
    """Of the signal that said so, or 0; in the end, the same in all processes."""

    def __post_init__(self) -> None:
        if not self.minutes > 0:
            raise ValueError(f"minutes must be positive; got {self.minutes}")
        self._deadline = time.monotonic() + 60 * self.minutes

    def due(self) -> bool:
        """Whether to stop now."""
        if not self.reason and time.monotonic() > self._deadline:
            self.reason = f"time is up after {self.minutes:g} min"
        return bool(self.reason)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Signals are noted instead of ending the process."""

        def note(number: int, frame: FrameType | None) -> None:
            if self.reason and number == signal.SIGINT:
                raise KeyboardInterrupt
            self.reason, self.number = f"got {signal.Signals(number).name}", number

        before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
