"""A job's events, sent to clients while it runs."""

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
"""Seconds between two looks at a job, and after which a comment keeps a silent connection open."""


class Events(StreamingResponse):
    """A stream of a job's events. When its last listener disconnects before the end, the job is cancelled, unless
    someone connects again within the grace period."""

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
            job.last_left_at = time.monotonic()
            if not job.ended and not job.listeners:
                asyncio.get_running_loop().call_later(self._grace, self._cancel_if_alone, job.last_left_at)

    def _cancel_if_alone(self, since: float) -> None:
        """Cancel the job if nobody has connected since that time."""
        if not self._job.listeners and self._job.last_left_at == since:
            self._worker.cancel(self._job)


async def stream(worker: Worker, job: Job) -> AsyncIterator[bytes]:
    """Server-Sent Events until the job ends: its status whenever it changes, and each frame once."""
    sent, before, last_sent_at = 0, None, time.monotonic()
    yield b"retry: 1000\n\n"
    while True:
        status = worker.status(job)  # asked before the frames: if it has ended, all frames are there to be sent
        for number, update in enumerate(job.frames[sent:], sent):
            yield _event("frame", _frame(job, number, update))
            sent = number + 1
        if (now := (status["state"], status["position"], status["step"])) != before:
            yield _event("status", status)
            before, last_sent_at = now, time.monotonic()
        if status["state"] in ENDED:
            return
        if time.monotonic() - last_sent_at > HEARTBEAT:
            yield b": waiting\n\n"
            last_sent_at = time.monotonic()
        await asyncio.sleep(POLL)


def _event(name: str, values: dict[str, Any]) -> bytes:
    return f"event: {name}\ndata: {json.dumps(values)}\n\n".encode()


def _frame(job: Job, number: int, update: Update) -> dict[str, Any]:
    """A frame for JSON: the points themselves, or the address of its images."""
    assert update.frame is not None
    values = {"frame": number, "step": update.step, "total": job.total, "sigma": update.sigma, "level": update.level}
    if job.kind == "playground":
        points = update.frame.astype(float).round(3).tolist()
        both = job.settings["method"] == "both"
        return {**values, "points": dict(zip(BOTH, points, strict=True)) if both else points}
    return {**values, "image": f"/api/jobs/{job.id}/frames/{number}.png"}
