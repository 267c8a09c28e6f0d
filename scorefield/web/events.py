"""A job's events, as they are sent to who listens."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from scorefield.web.jobs import ENDED, Job, Update, Worker
from scorefield.web.playground import BOTH

POLL, HEARTBEAT = 0.05, 10.0
"""Seconds between two looks at a job that is listened to, and between two signs of life."""


class Events(StreamingResponse):
    """A job's events. Where the last listener leaves before the end, and nobody comes back, the job is cancelled."""

    media_type = "text/event-stream"

    def __init__(self, worker: Worker, job: Job, *, grace: float) -> None:
        super().__init__(stream(worker, job))
        self._worker, self._job, self._grace = worker, job, grace

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        job = self._job
        job.listeners += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            job.listeners -= 1
            job.left = time.monotonic()
            if not job.ended and not job.listeners:
                asyncio.get_running_loop().call_later(self._grace, self._left_alone, job.left)

    def _left_alone(self, since: float) -> None:
        """Cancel the job if nobody has come since."""
        if not self._job.listeners and self._job.left == since:
            self._worker.cancel(self._job)


async def stream(worker: Worker, job: Job) -> AsyncIterator[bytes]:
    """Server-Sent Events of a job: a status where it changed, each frame once; the end of the job ends them."""
    sent, before, said = 0, None, time.monotonic()
    yield b"retry: 1000\n\n"
    while True:
        status = worker.status(job)  # before the frames: when it tells of the end, they are all sent
        for number, update in enumerate(job.frames[sent:], sent):
            yield _event("frame", _frame(job, number, update))
            sent = number + 1
        if (now := (status["state"], status["position"], status["step"])) != before:
            yield _event("status", status)
            before, said = now, time.monotonic()
        if status["state"] in ENDED:
            return
        if time.monotonic() - said > HEARTBEAT:
            yield b": waiting\n\n"
            said = time.monotonic()
        await asyncio.sleep(POLL)


def _event(name: str, values: dict[str, Any]) -> bytes:
    return f"event: {name}\ndata: {json.dumps(values)}\n\n".encode()


def _frame(job: Job, number: int, update: Update) -> dict[str, Any]:
    """A frame for JSON: the points themselves, or where its images are."""
    assert update.frame is not None
    values = {"frame": number, "step": update.step, "total": job.total, "sigma": update.sigma, "level": update.level}
    if job.kind == "playground":
        points = update.frame.astype(float).round(3).tolist()
        both = job.settings["method"] == "both"
        return {**values, "points": dict(zip(BOTH, points, strict=True)) if both else points}
    return {**values, "image": f"/api/jobs/{job.id}/frames/{number}.png"}
