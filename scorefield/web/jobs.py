"""Jobs, and the one worker thread that runs them. Clients take turns."""

from __future__ import annotations

import logging
import math
import secrets
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Container, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from starlette.exceptions import HTTPException
from torch import Tensor

from scorefield.memory import is_out_of_memory
from scorefield.samplers import State
from scorefield.web.estimates import Speeds, Work, in_words, rounded
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
    denoised: np.ndarray | None = None
    """The estimate of the clean images at this step; None where it is the frame itself."""


def updates_from(
    states: Iterable[State],
    keep: Container[int],
    to_frame: Callable[[Tensor], np.ndarray],
    *,
    denoised: Callable[[State], Tensor | None] = lambda state: None,
) -> Iterator[Update]:
    """A sampler's states as updates of a job, with frames at the steps in `keep`. `denoised` gives the estimate of the
    clean images that belongs to a state."""
    sigmas = set[float]()
    for state in states:
        sigma = state.sigma.item()
        if sigma > 0:
            sigmas.add(sigma)
        frame = clean = None
        if state.step in keep:
            frame, estimate = to_frame(state.x), denoised(state)
            clean = None if estimate is None else to_frame(estimate)
        yield Update(state.step, sigma, len(sigmas), frame, clean)


class Result(NamedTuple):
    """What a restoration has found at its end, besides its images."""

    sheet: np.ndarray
    """The picture (H, W, C) that the command line writes."""
    numbers: dict[str, float | None]
    """How well the measurement is explained."""


@dataclass(eq=False)
class Job:
    """Something that a client asked for, and its results so far. Only the worker calls `record`."""

    kind: Literal["sample", "inpaint", "restore", "interpolate", "playground"]
    run: Callable[[], Iterator[Update]]
    total: int
    """The number of its last step."""
    settings: dict[str, Any]
    command: str | None = None
    """The command line that does the same, if there is one."""
    known: tuple[np.ndarray, np.ndarray] | None = None
    """For inpainting: the image (H, W, C) as the model sees it, and a mask (H, W) that is True where it is known."""
    parts: dict[str, np.ndarray] = field(default_factory=dict)
    """Images (H, W, C) by name that are shown beside its own: a measurement, the original, their mean, ..."""
    result: Result | None = None
    """Of a restoration that has ended."""
    warning: str | None = None
    """What may be wrong with the settings."""
    work: Work | None = None
    """What it computes, if its time can be estimated from that."""
    client: str = ""
    """Who asked for it."""
    estimate: float | None = None
    """The seconds that it should take, as far as known before it starts."""
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    state: JobState = "queued"
    error: str | None = None
    frames: list[Update] = field(default_factory=list)
    last: Update = field(default_factory=Update)
    started_at: float | None = None
    first_step_at: float | None = None
    """When the first step was done. The time before it, when a model is loaded, says nothing about the speed."""
    last_step_at: float = 0.0
    ended_at: float | None = None
    asked_at: float = field(default_factory=time.monotonic)
    """When a client last asked about it."""
    listeners: int = 0
    last_left_at: float = 0.0
    """When the last listener disconnected."""

    @property
    def ended(self) -> bool:
        return self.ended_at is not None

    @property
    def size(self) -> int:
        """The size of its frames in bytes."""
        kept = (each for update in self.frames for each in (update.frame, update.denoised))
        return sum(each.nbytes for each in kept if each is not None)

    def record(self, update: Update) -> None:
        self.last_step_at = time.monotonic()
        if self.first_step_at is None and update.step:
            self.first_step_at = self.last_step_at
        if update.frame is not None:
            self.frames.append(update)
        self.last = update._replace(frame=None, denoised=None)

    def end(self, state: JobState, error: str | None = None) -> None:
        """End the job, unless it has ended already."""
        if not self.ended:
            self.state, self.error, self.ended_at = state, error, time.monotonic()

    def step_seconds(self) -> float | None:
        """The seconds for one step so far; None before the second step."""
        if self.first_step_at is None or self.last.step < 2:
            return None
        return (self.last_step_at - self.first_step_at) / (self.last.step - 1)

    def seconds_left(self) -> float | None:
        """The time until it ends, from its speed so far, or from the estimate before the second step."""
        if self.ended:
            return 0.0
        seconds = self.step_seconds()
        return self.estimate if seconds is None else seconds * (self.total - self.last.step)

    def status(self, position: int) -> dict[str, Any]:
        """The job's description for JSON. `position` is the number of jobs before it."""
        last = self.last
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
            "seconds_left": rounded(self.seconds_left()),
            "estimate": rounded(self.estimate),
            "frames": len(self.frames),
            "columns": math.ceil(math.sqrt(self.settings["n"])),
            "parts": sorted(self.parts),
            "numbers": None if self.result is None else self.result.numbers,
            "error": self.error,
            "warning": self.warning,
            "settings": self.settings,
            "command": self.command,
        }


class Worker:
    """One thread, so that one job at a time uses the machine, and the models need no locks."""

    def __init__(self, limits: Limits) -> None:
        self.speeds = Speeds()
        self._limits = limits
        self._jobs: dict[str, Job] = {}  # in the order in which they were submitted
        self._running: Job | None = None  # until its last step ends, even if it was cancelled
        self._turns: dict[str, int] = {}  # of each client: the number of its last job that was started
        self._tasks: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="worker", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(self, job: Job) -> int:
        """Append a job to the queue. Returns the number of jobs before it."""
        with self._changed:
            self._end_overdue()
            self._check(job)
            self._jobs[job.id] = job
            self._delete_old()
            self._changed.notify_all()
            return self._position(job)

    def call(self, task: Callable[[], Any]) -> Future[Any]:
        """Do a short task in the worker's thread, before the next step of a job."""
        future = Future[Any]()
        with self._changed:
            self._tasks.append((future, task))
            self._changed.notify_all()
        return future

    def find(self, name: str) -> Job | None:
        """The job of that name, for a client that asks about it; None if there is none or it was deleted."""
        with self._changed:
            self._delete_old()
            job = self._jobs.get(name)
            if job is not None:
                job.asked_at = time.monotonic()
            return job

    def status(self, job: Job) -> dict[str, Any]:
        """The job's status. All values belong to the same moment: a job that has ended has all its frames."""
        with self._changed:
            return job.status(self._position(job))

    def cancel(self, job: Job) -> None:
        """Cancel a job: a waiting one never starts, a running one ends after its current step."""
        with self._changed:
            job.end("cancelled")

    def stop(self) -> None:
        """Cancel all jobs and accept no more. The thread ends after its current step."""
        with self._changed:
            self._closed = True
            for job in self._jobs.values():
                job.end("cancelled")
            self._changed.notify_all()

    def join(self, seconds: float) -> None:
        """Wait for the thread of a worker that was stopped."""
        self._thread.join(seconds)

    # ---------------------------------------------------------------- in the worker's thread

    def _work(self) -> None:
        while not self._closed:
            self._do_tasks()
            if (job := self._next()) is not None:
                self._run(job)

    def _do_tasks(self) -> None:
        while self._tasks:
            future, task = self._tasks.popleft()
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(task())
                except BaseException as error:
                    future.set_exception(error)

    def _next(self) -> Job | None:
        """The job whose turn it is, as soon as there is one. None if there is something else to do."""
        with self._changed:
            self._running = None
            self._changed.wait_for(lambda: self._closed or self._tasks or self._waiting(), self._limits.idle_seconds)
            self._end_overdue()
            self._delete_old()
            if self._closed or self._tasks or not (queue := self._queue()):
                return None
            job = self._running = queue[0]
            job.state, job.started_at = "running", time.monotonic()
            clients = {each.client for each in self._jobs.values()}
            latest = max(self._turns.values(), default=0)
            self._turns = {name: turn for name, turn in self._turns.items() if name in clients}
            self._turns[job.client] = latest + 1
            return job

    def _run(self, job: Job) -> None:
        """Run a job to its end. An exception makes the job fail, and the worker goes on."""
        error: str | None = None
        try:
            for update in job.run():
                with self._changed:
                    self._end_overdue()
                    if job.ended:
                        return
                    job.record(update)
                self._do_tasks()
        except BaseException as caught:  # some packages' errors are no Exceptions, and no error may end the worker
            error = _explain(caught)
        finally:
            if job.work is not None and (seconds := job.step_seconds()) is not None:
                self.speeds.record(job.work, seconds * job.total / job.work.calls)
        with self._changed:
            job.end("failed" if error else "done", error)

    # ---------------------------------------------------------------- with the lock

    def _check(self, job: Job) -> None:
        """Raise an error if the job cannot be accepted, now or at all."""
        limits, waiting = self._limits, self._waiting()
        if self._closed:
            raise _refused(503, "the server is shutting down (start it again: scorefield serve)", 30)
        if (job.estimate or 0) > limits.work_seconds:
            raise HTTPException(
                400,
                f"this job would take about {in_words(job.estimate or 0)} here, and at most "
                f"{in_words(limits.work_seconds)} are allowed (ask for fewer images or steps; or use the command line, "
                "or start the server with a larger --max-minutes)",
            )
        left = (self._running.seconds_left() if self._running else None) or 1
        if len(waiting) >= limits.queue:
            raise _refused(503, f"{len(waiting)} jobs are waiting already (try again later)", left)
        own = [each for each in self._jobs.values() if each.client == job.client and not each.ended]
        if sum(each.state == "queued" for each in own) >= limits.client_queue:
            raise _refused(429, f"{limits.client_queue} of your jobs are waiting already (wait for one of them)", left)
        if own and sum(each.seconds_left() or 0 for each in own) + (job.estimate or 0) > limits.client_seconds:
            most = in_words(limits.client_seconds)
            raise _refused(429, f"your jobs would take more than {most} together (wait for one of them)", left)

    def _waiting(self) -> list[Job]:
        return [job for job in self._jobs.values() if job.state == "queued"]

    def _queue(self) -> list[Job]:
        """The waiting jobs in the order in which they will run.

        The next job is always that of the client who has waited longest for a turn, and of each client the oldest.
        """
        waiting, turns, queue = self._waiting(), dict(self._turns), list[Job]()
        while waiting:
            queue.append(min(waiting, key=lambda job: turns.get(job.client, 0)))
            waiting.remove(queue[-1])
            turns[queue[-1].client] = max(turns.values(), default=0) + 1
        return queue

    def _position(self, job: Job) -> int:
        return self._queue().index(job) + (self._running is not None) if job.state == "queued" else 0

    def _end_overdue(self) -> None:
        """End the jobs that nobody wants any more, and one that takes much longer than is allowed."""
        now, limits = time.monotonic(), self._limits
        for job in self._jobs.values():
            if job.ended:
                continue
            if not job.listeners and now - job.asked_at > limits.unheard_seconds:
                what = f"nobody asked about this job for {in_words(limits.unheard_seconds)}"
                job.end("cancelled", f"{what} (follow its events, or ask for its status from time to time)")
            elif job.started_at is not None and now - job.started_at > 2 * limits.work_seconds:
                most = in_words(2 * limits.work_seconds)
                job.end("failed", f"this job was stopped after {most} (ask for fewer images or steps)")

    def _delete_old(self) -> None:
        """Delete finished jobs that are too old, too many or too large: the oldest of the clients with the most."""
        ended = sorted((job for job in self._jobs.values() if job.ended), key=lambda job: -(job.ended_at or 0))
        newer = defaultdict[str, int](int)
        ranks = dict[str, int]()
        for job in ended:
            ranks[job.id] = newer[job.client]
            newer[job.client] += 1
        size, now = 0, time.monotonic()
        for number, job in enumerate(sorted(ended, key=lambda job: ranks[job.id])):
            size += job.size
            old = now - (job.ended_at or now) > self._limits.job_seconds
            if old or number >= self._limits.jobs or (number and size > self._limits.job_bytes):
                del self._jobs[job.id]


def _explain(error: BaseException) -> str:
    """An error of a job for its client. What is not the client's fault is logged with its traceback."""
    if is_out_of_memory(error):
        log.warning("a job ran out of memory: %s", error)
        return "the server ran out of memory (ask for fewer images at once)"
    if isinstance(error, (ValueError, ArithmeticError, OSError)) and str(error):
        return str(error)
    log.error("a job failed", exc_info=error)
    first = [line[:200] for line in str(error).splitlines()[:1]]
    return f"the server failed: {': '.join([type(error).__name__, *first])} (see its terminal)"


def _refused(status: int, message: str, seconds: float) -> HTTPException:
    """The error for a job that is not accepted; the client may try again after that time."""
    return HTTPException(status, message, {"Retry-After": str(max(1, min(30, math.ceil(seconds))))})
