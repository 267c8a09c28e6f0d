"""Jobs, and the one worker that does them in the order in which they came."""

from __future__ import annotations

import logging
import math
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

from scorefield.web.limits import Limits

log = logging.getLogger(__name__)


class Update(NamedTuple):
    """How far a job is: after `step` steps, the last of them at noise `sigma`, the level of that number from 1 on."""

    step: int
    sigma: float
    level: int
    frame: np.ndarray | None = None
    """What is to be kept of this step: images as bytes (N, H, W, C), or points (N, 2)."""


BEFORE = Update(0, 0.0, 0)
Work = Callable[[], Iterator[Update]]
State = Literal["queued", "running", "done", "cancelled", "failed"]
ENDED = ("done", "cancelled", "failed")


class QueueFullError(Exception):
    """No place is free; `seconds` is when to try again."""

    def __init__(self, message: str, seconds: int) -> None:
        super().__init__(message)
        self.seconds = seconds


@dataclass(eq=False)
class Job:
    """Work that a client asked for. The worker alone calls `note`; others read."""

    kind: Literal["sample", "inpaint", "playground"]
    work: Work
    total: int
    settings: dict[str, Any]
    command: str | None = None
    """The command line that does the same, where there is one."""
    given: tuple[np.ndarray, np.ndarray] | None = None
    """To complete: the image (H, W, C) as the model sees it, and where it is known (H, W)."""
    warning: str | None = None
    """What may be wrong with what was asked for."""
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    state: State = "queued"
    error: str | None = None
    frames: list[Update] = field(default_factory=list)
    last: Update = BEFORE
    started: float | None = None
    moved: float | None = None
    """When the first step was done: what comes before it, loading a model say, tells nothing of the pace."""
    finished: float | None = None
    listeners: int = 0
    left: float = 0.0
    """When the last listener left."""

    @property
    def ended(self) -> bool:
        return self.finished is not None

    @property
    def size(self) -> int:
        """Bytes that its frames take."""
        return sum(each.frame.nbytes for each in list(self.frames) if each.frame is not None)

    def note(self, update: Update) -> None:
        if self.moved is None and update.step:
            self.moved = time.monotonic()
        if update.frame is not None:
            self.frames.append(update)
        self.last = update._replace(frame=None)

    def end(self, state: State, error: str | None = None) -> None:
        self.error, self.state = error, state
        self.finished = time.monotonic()

    def seconds_left(self) -> float | None:
        """From the pace so far."""
        if self.ended:
            return 0.0
        if self.moved is None or self.last.step < 2:
            return None
        return (time.monotonic() - self.moved) / (self.last.step - 1) * (self.total - self.last.step)

    def status(self, position: int) -> dict[str, Any]:
        """All that a client may know, for JSON. `position`: how many jobs are before it."""
        last, left = self.last, self.seconds_left()
        seconds = 0.0 if self.started is None else (self.finished or time.monotonic()) - self.started
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
    """One thread, so that one job at a time has the machine, and the models need no locks."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._jobs: dict[str, Job] = {}
        self._waiting: deque[Job] = deque()
        self._running: Job | None = None
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._serve, name="worker", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(self, job: Job) -> int:
        """Put a job at the end of the queue, and tell how many are before it."""
        with self._changed:
            if self._closed:
                raise QueueFullError("the server is shutting down (start it again: scorefield serve)", 30)
            if len(self._waiting) >= self._limits.queue:
                raise QueueFullError(f"{len(self._waiting)} jobs are waiting already (try again later)", self._wait())
            self._jobs[job.id] = job
            self._waiting.append(job)
            self._forget()
            self._changed.notify_all()
            return self._position(job)

    def find(self, name: str) -> Job | None:
        """The job of that name, if it is not forgotten."""
        with self._changed:
            self._forget()
            return self._jobs.get(name)

    def status(self, job: Job) -> dict[str, Any]:
        """The job's, of one moment: where it is at its end, all its frames are there."""
        with self._changed:
            return job.status(self._position(job))

    def cancel(self, job: Job) -> None:
        """A job that waits never starts, one that runs ends after its step; one that ended stays as it is."""
        with self._changed:
            if job in self._waiting:
                self._waiting.remove(job)
            if not job.ended:
                job.end("cancelled")

    def stop(self) -> None:
        """Cancel all jobs and take no more."""
        with self._changed:
            self._closed = True
            for job in self._jobs.values():
                if not job.ended:
                    job.end("cancelled")
            self._waiting.clear()
            self._changed.notify_all()

    def close(self) -> None:
        """Stop, and wait for the thread; not for long, since a step may take its time and the process ends anyway."""
        self.stop()
        if self._thread.is_alive():
            self._thread.join(timeout=5)

    def _serve(self) -> None:
        while (job := self._next()) is not None:
            self._do(job)

    def _next(self) -> Job | None:
        with self._changed:
            self._running = None
            while not self._changed.wait_for(lambda: self._closed or self._waiting, timeout=self._limits.idle_seconds):
                self._forget()
            if self._closed:
                return None
            job = self._running = self._waiting.popleft()
            job.state, job.started = "running", time.monotonic()
            return job

    def _do(self, job: Job) -> None:
        """Whatever goes wrong is the job's, not the worker's."""
        error: str | None = None
        try:
            for update in job.work():
                with self._changed:
                    if job.ended:
                        return
                    job.note(update)
        except Exception as caught:
            error = str(caught) or type(caught).__name__
            if not isinstance(caught, (ValueError, ArithmeticError, OSError)):
                log.exception("a job failed")
        with self._changed:
            if not job.ended:
                job.end("failed" if error else "done", error)

    def _position(self, job: Job) -> int:
        return self._waiting.index(job) + (self._running is not None) if job in self._waiting else 0

    def _wait(self) -> int:
        """Seconds until a place may be free."""
        left = self._running.seconds_left() if self._running else None
        return max(1, min(30, math.ceil(left or 1)))

    def _forget(self) -> None:
        """The oldest of the finished jobs, where they are too old, too many or too large."""
        ended = sorted((job for job in self._jobs.values() if job.ended), key=lambda job: -(job.finished or 0))
        size, now = 0, time.monotonic()
        for number, job in enumerate(ended):
            size += job.size
            old = now - (job.finished or now) > self._limits.job_seconds
            if old or number >= self._limits.jobs or (number and size > self._limits.job_bytes):
                del self._jobs[job.id]
