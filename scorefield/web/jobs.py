"""Jobs, and the one worker thread that runs them in the order in which they were submitted."""

from __future__ import annotations

import logging
import math
import secrets
import threading
import time
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from starlette.exceptions import HTTPException
from torch import Tensor

from scorefield.samplers import State
from scorefield.web.limits import Limits

log = logging.getLogger(__name__)

JobState = Literal["queued", "running", "done", "cancelled", "failed"]
ENDED = ("done", "cancelled", "failed")


class Update(NamedTuple):
    """A job's progress after one step."""

    step: int = 0
    sigma: float = 0.0
    """The noise level of this step; 0 for a final denoising step."""
    level: int = 0
    """The number of different noise levels so far."""
    frame: np.ndarray | None = None
    """The result of this step, if it is one to keep: images as bytes (N, H, W, C), or points (N, 2)."""


def updates_from(
    states: Iterable[State], keep: Container[int], to_frame: Callable[[Tensor], np.ndarray]
) -> Iterator[Update]:
    """A sampler's states as updates of a job, with frames at the steps in `keep`."""
    sigmas = set[float]()
    for state in states:
        sigma = state.sigma.item()
        if sigma > 0:
            sigmas.add(sigma)
        yield Update(state.step, sigma, len(sigmas), to_frame(state.x) if state.step in keep else None)


@dataclass(eq=False)
class Job:
    """Something that a client asked for, and its results so far. Only the worker calls `record`."""

    kind: Literal["sample", "inpaint", "playground"]
    run: Callable[[], Iterator[Update]]
    total: int
    """The number of its last step."""
    settings: dict[str, Any]
    command: str | None = None
    """The command line that does the same, if there is one."""
    known: tuple[np.ndarray, np.ndarray] | None = None
    """For inpainting: the image (H, W, C) as the model sees it, and a mask (H, W) that is True where it is known."""
    warning: str | None = None
    """What may be wrong with the settings."""
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    state: JobState = "queued"
    error: str | None = None
    frames: list[Update] = field(default_factory=list)
    last: Update = field(default_factory=Update)
    started_at: float | None = None
    first_step_at: float | None = None
    """When the first step was done. The time before it, when a model is loaded, says nothing about the speed."""
    ended_at: float | None = None
    listeners: int = 0
    last_left_at: float = 0.0
    """When the last listener disconnected."""

    @property
    def ended(self) -> bool:
        return self.ended_at is not None

    @property
    def size(self) -> int:
        """The size of its frames in bytes."""
        return sum(update.frame.nbytes for update in self.frames if update.frame is not None)

    def record(self, update: Update) -> None:
        if self.first_step_at is None and update.step:
            self.first_step_at = time.monotonic()
        if update.frame is not None:
            self.frames.append(update)
        self.last = update._replace(frame=None)

    def end(self, state: JobState, error: str | None = None) -> None:
        """End the job, unless it has ended already."""
        if not self.ended:
            self.state, self.error, self.ended_at = state, error, time.monotonic()

    def seconds_left(self) -> float | None:
        """An estimate from the speed so far; None if there is none yet."""
        if self.ended:
            return 0.0
        if self.first_step_at is None or self.last.step < 2:
            return None
        return (time.monotonic() - self.first_step_at) / (self.last.step - 1) * (self.total - self.last.step)

    def status(self, position: int) -> dict[str, Any]:
        """The job's description for JSON. `position` is the number of jobs before it."""
        last, left = self.last, self.seconds_left()
        seconds = 0.0 if self.started_at is None else (self.ended_at or time.monotonic()) - self.started_at
        return {
            "job": self.id,
            "kind": self.kind,
            "state": self.state,
            "position": position,
            "step": last.step,
            "total": self.total,
            "sigma": last.sigma,
            "level": last.level,
            "seconds": round(seconds, 3),
            "seconds_left": None if left is None else round(left, 1),
            "frames": len(self.frames),
            "columns": math.ceil(math.sqrt(self.settings["n"])),
            "error": self.error,
            "warning": self.warning,
            "settings": self.settings,
            "command": self.command,
        }


class Worker:
    """One thread, so that one job at a time uses the machine, and the models need no locks."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._jobs: dict[str, Job] = {}  # in the order in which they were submitted
        self._running: Job | None = None  # until its last step ends, even if it was cancelled
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run_jobs, name="worker", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(self, job: Job) -> int:
        """Append a job to the queue. Returns the number of jobs before it."""
        with self._changed:
            if self._closed:
                raise _refused("the server is shutting down (start it again: scorefield serve)", 30)
            if (waiting := len(self._waiting())) >= self._limits.queue:
                left = self._running.seconds_left() if self._running else None
                raise _refused(f"{waiting} jobs are waiting already (try again later)", left or 1)
            self._jobs[job.id] = job
            self._delete_old()
            self._changed.notify_all()
            return self._position(job)

    def find(self, name: str) -> Job | None:
        """The job of that name, or None if there is none or it was deleted."""
        with self._changed:
            self._delete_old()
            return self._jobs.get(name)

    def status(self, job: Job) -> dict[str, Any]:
        """The job's status. All values belong to the same moment: a job that has ended has all its frames."""
        with self._changed:
            return job.status(self._position(job))

    def cancel(self, job: Job) -> None:
        """Cancel a job: a waiting one never starts, a running one ends after its current step."""
        with self._changed:
            job.end("cancelled")

    def stop(self) -> None:
        """Cancel all jobs and accept no more."""
        with self._changed:
            self._closed = True
            for job in self._jobs.values():
                job.end("cancelled")
            self._changed.notify_all()

    def close(self) -> None:
        """Stop, and wait for the thread; at most 5 seconds, since a step may take long and the process ends anyway."""
        self.stop()
        if self._thread.is_alive():
            self._thread.join(timeout=5)

    def _run_jobs(self) -> None:
        while (job := self._next()) is not None:
            self._run(job)

    def _next(self) -> Job | None:
        with self._changed:
            self._running = None
            while not self._changed.wait_for(lambda: self._closed or self._waiting(), self._limits.idle_seconds):
                self._delete_old()
            if self._closed:
                return None
            job = self._running = self._waiting()[0]
            job.state, job.started_at = "running", time.monotonic()
            return job

    def _run(self, job: Job) -> None:
        """Run a job to its end. An exception makes the job fail, and the worker goes on."""
        error: str | None = None
        try:
            for update in job.run():
                with self._changed:
                    if job.ended:
                        return
                    job.record(update)
        except Exception as caught:
            error = str(caught) or type(caught).__name__
            if not isinstance(caught, (ValueError, ArithmeticError, OSError)):
                log.exception("a job failed")
        with self._changed:
            job.end("failed" if error else "done", error)

    def _waiting(self) -> list[Job]:
        return [job for job in self._jobs.values() if job.state == "queued"]

    def _position(self, job: Job) -> int:
        return self._waiting().index(job) + (self._running is not None) if job.state == "queued" else 0

    def _delete_old(self) -> None:
        """Delete the oldest finished jobs that are too old, too many or too large."""
        ended = sorted((job for job in self._jobs.values() if job.ended), key=lambda job: -(job.ended_at or 0))
        size, now = 0, time.monotonic()
        for number, job in enumerate(ended):
            size += job.size
            old = now - (job.ended_at or now) > self._limits.job_seconds
            if old or number >= self._limits.jobs or (number and size > self._limits.job_bytes):
                del self._jobs[job.id]


def _refused(message: str, seconds: float) -> HTTPException:
    """The error for a job that is not accepted; the client may try again after that time."""
    return HTTPException(503, message, {"Retry-After": str(max(1, min(30, math.ceil(seconds))))})
