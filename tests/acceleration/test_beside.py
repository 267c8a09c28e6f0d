from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor

from scorefield.acceleration import beside
from scorefield.networks import RefineNet
from scorefield.samplers import State


def test_every_job_is_measured_both_ways_idle_and_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a tiny job. The other program runs only while "busy" is measured."""
    running, programs = list[bool](), list[subprocess.Popen[bytes]]()
    start, measured = subprocess.Popen, beside.milliseconds

    def popen(*words: object, **options: object) -> subprocess.Popen[bytes]:
        programs.append(start(*words, **options))  # type: ignore[call-overload]
        return programs[-1]

    def counted(states: Iterator[State], seconds: float) -> float:
        running.append(any(program.poll() is None for program in programs))
        return measured(states, seconds)

    monkeypatch.setattr(subprocess, "Popen", popen)
    monkeypatch.setattr(beside, "milliseconds", counted)
    monkeypatch.setattr(beside, "JOBS", {"2 points": beside.Job(2, False)})
    assert beside.measure() == {}  # on a single thread
    torch.set_num_threads(2)
    try:
        found = beside.measure(seconds=0.01)
    finally:
        torch.set_num_threads(1)
    assert found.keys() == {"2 points"}
    assert found["2 points"].keys() == {"pytorch", "scorefield"}
    assert all(times["idle"] > 0 and times["busy"] > 0 for times in found["2 points"].values())
    assert running == [False, False, True, True]
    assert programs[0].poll() is not None


def test_digits_take_their_steps_by_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, forward = list[torch.Size](), RefineNet.forward

    def counted(network: RefineNet, x: Tensor, sigma: Tensor) -> Tensor:
        calls.append(x.shape)
        return forward(network, x, sigma)

    monkeypatch.setattr(RefineNet, "forward", counted)
    monkeypatch.setattr(beside, "a_busy_program", nullcontext)
    beside._measured(beside.Job(2, True), 0.0)
    assert calls == [(2, 1, 28, 28)] * 8  # both ways, idle and busy, a step that does not count and one that does


def test_a_step_is_timed_without_the_first() -> None:
    def states() -> Iterator[State]:
        for step in range(8):
            time.sleep(0.3 if step < 2 else 0.01)
            yield State(torch.zeros(1), torch.ones(()), step)

    assert 10 <= beside.milliseconds(states(), 10.0) < 100
    slow = states()
    beside.milliseconds(slow, 0.0)
    assert next(slow).step == 3  # it stops in time
