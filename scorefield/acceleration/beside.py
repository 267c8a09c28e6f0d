"""How long small jobs take while another program keeps a core busy: with PyTorch's own threads, and by our rule."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import NamedTuple

import torch
from torch import nn

from scorefield import acceleration
from scorefield.distributions import GaussianMixture
from scorefield.networks import RefineNet
from scorefield.noise import SampleNoise
from scorefield.samplers import State, annealed_langevin
from scorefield.score import ConditionalScore

SIGMAS = [1.0, 0.1]


class Job(NamedTuple):
    """Langevin dynamics of n points, or of n images by a network of the size of the pretrained mnist-small."""

    n: int
    images: bool

    @property
    def shape(self) -> tuple[int, ...]:
        return (1, 28, 28) if self.images else (2,)

    def network(self) -> nn.Module | None:
        if not self.images:
            return None
        network = RefineNet(channels=1, width=16, sigmas=SIGMAS).requires_grad_(False)
        return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def run(self, score: ConditionalScore) -> Iterator[State]:
        noise = SampleNoise(range(self.n))
        x = noise.rand(self.shape)
        return annealed_langevin(score, x, SIGMAS, step_size=1e-3, steps=1000, randn_like=noise.randn_like)


JOBS = {"600 points": Job(600, False), "1 digit": Job(1, True), "32 digits": Job(32, True)}
MIXTURE = GaussianMixture([[-5.0, -5.0], [5.0, 5.0]], 1.0, [1, 4])


def measure(*, seconds: float = 1.0) -> dict[str, dict[str, dict[str, float]]]:
    """Milliseconds of a step: by job, by who chooses the threads, and "idle" or "busy"; each for about that long.

    Empty where PyTorch has a single thread, because then there is nothing to choose.
    """
    if torch.get_num_threads() == 1:
        return {}
    return {name: _measured(job, seconds) for name, job in JOBS.items()}


def _measured(job: Job, seconds: float) -> dict[str, dict[str, float]]:
    network = job.network()
    plain: ConditionalScore = network or MIXTURE.score
    score = acceleration.for_sampling(network, job.shape, size=job.n) if network else plain

    def both() -> dict[str, float]:
        return {
            "pytorch": milliseconds(job.run(plain), seconds),
            "scorefield": milliseconds(acceleration.run_sampler(lambda: job.run(score), score), seconds),
        }

    idle = both()
    with a_busy_program():
        busy = both()
    return {way: {"idle": idle[way], "busy": busy[way]} for way in idle}


def milliseconds(states: Iterator[State], seconds: float) -> float:
    """The mean time of a step, over about that many seconds, after a step that does not count."""
    list(islice(states, 2))
    began, steps, passed = time.perf_counter(), 0, 0.0
    for _ in states:
        steps, passed = steps + 1, time.perf_counter() - began
        if passed > seconds:
            break
    return passed * 1e3 / steps


@contextmanager
def a_busy_program() -> Iterator[None]:
    """Inside, another process keeps one core busy."""
    code = "print(flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        try:
            program.stdout.readline()  # it runs now
            yield
        finally:
            program.kill()
