"""In CUDA graphs' place, where there is no GPU: a replay calls the score on the same memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor


class DirectCall:
    """`work` is the method of a Recorded that calls its score."""

    def __init__(self, work: Any) -> None:  # noqa: ANN401
        self.work, self.score = work, work.__self__._score
        self.out, self.replays = torch.full_like(work(), torch.nan), 0

    def replay(self) -> None:
        assert self.work.__self__._score is self.score, "a graph would still replay the score that was recorded"
        self.out.copy_(self.work())
        self.replays += 1


def record(work: Any) -> tuple[DirectCall, Tensor]:  # noqa: ANN401
    call = DirectCall(work)
    return call, call.out


def use(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put these in the recordings' place."""
    monkeypatch.setattr("scorefield.acceleration.graphs.record", record)
    monkeypatch.setattr("scorefield.acceleration.graphs.warm_up", lambda work: work())
