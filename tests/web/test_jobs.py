"""The web server's jobs: their queue, cancelling, and when they are deleted."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from scorefield.web import api
from scorefield.web.jobs import Job, Update, Worker
from scorefield.web.limits import Limits
from web.live_server import TIMEOUT, Live, client_of, events_in, low_limits, sample_states, wait_for
from web.live_server import folder as folder
from web.live_server import live as live


def samples(seed: int, n: int, steps: int) -> np.ndarray:
    return sample_states("tiny", n, seed=seed, steps=steps)[-1]


# ---------------------------------------------------------------- the queue


def test_jobs_wait_in_order_and_know_their_position(live: Live) -> None:
    with live.busy() as running:
        answers = [live.post("sample", model="tiny", n=1, steps=1) for _ in range(4)]
        assert [answer.json()["position"] for answer in answers] == [1, 2, 3, 4]
        jobs = [answer.json()["job"] for answer in answers]
        assert [live.status(job)["position"] for job in (running.id, *jobs)] == [0, 1, 2, 3, 4]
        full = live.post("sample", model="tiny", n=1, steps=1)
        assert full.status_code == 503
        assert 1 <= int(full.headers["retry-after"]) <= 30
        assert "4 jobs" in full.json()["error"]
        assert live.post("field", points=2).status_code == 200  # answered at once
        cancelled = live.client.delete(f"/api/jobs/{jobs[1]}").json()
        assert cancelled["state"] == "cancelled"
        assert [live.status(job)["position"] for job in (jobs[0], *jobs[2:])] == [1, 2, 3]
        assert live.post("sample", model="tiny", n=1, steps=1).status_code == 202
        assert live.status(jobs[0])["state"] == "queued"
        assert live.client.get(f"/api/jobs/{jobs[0]}/grid.png").status_code == 404
    assert [live.end(job)["state"] for job in jobs] == ["done", "cancelled", "done", "done"]


def test_twenty_clients_at_once_each_get_their_own_images(live: Live) -> None:
    full = 0

    def ask(seed: int) -> np.ndarray:
        nonlocal full
        with client_of(live.address) as client:
            while True:
                answer = client.post("/api/sample", json={"model": "tiny", "n": 1, "steps": 1, "seed": seed})
                if answer.status_code == 202:
                    break
                assert answer.status_code == 503
                assert int(answer.headers["retry-after"]) >= 1
                full += 1
                time.sleep(0.1)
            job = answer.json()["job"]
            with client.stream("GET", f"/api/jobs/{job}/events") as stream:
                *_, (name, status) = events_in(stream)
            assert (name, status["state"]) == ("status", "done")
            assert status["settings"]["seed"] == seed
            return live.array(job)

    with ThreadPoolExecutor(20) as clients:
        images = list(clients.map(ask, range(20)))
    assert full > 0
    for seed, made in enumerate(images):
        assert np.array_equal(made, samples(seed, 1, 1))
    assert len({made.tobytes() for made in images}) == 20


def test_names_of_jobs_cannot_be_guessed() -> None:
    names = [Job("playground", lambda: iter(()), 0, {"n": 1}).id for _ in range(100)]
    assert all(re.fullmatch("[0-9a-f]{16}", name) for name in names)
    assert len({name[:8] for name in names}) == len({name[8:] for name in names}) == 100


def test_two_jobs_do_not_mix(live: Live) -> None:
    one, two = live.start(n=2, steps=2, seed=1), live.start(n=3, steps=3, seed=2)
    live.end(two)
    assert np.array_equal(live.array(one), samples(1, 2, 2))
    assert np.array_equal(live.array(two), samples(2, 3, 3))


def test_clients_take_turns() -> None:
    worker, gate, ran = Worker(Limits(queue=20, client_queue=9)), threading.Event(), list[str]()

    def job(name: str) -> Job:
        def run() -> Iterator[Update]:
            ran.append(name)
            assert name != "gate" or gate.wait(TIMEOUT)
            return iter(())

        made = Job("playground", run, 0, {"n": 1}, client=name[0])
        worker.submit(made)
        return made

    worker.start()
    try:
        job("gate")
        wait_for(lambda: ran)
        jobs = [job(name) for name in ("a1", "a2", "a3", "b1", "b2", "c1")]
        assert [worker.status(each)["position"] for each in jobs] == [1, 4, 6, 2, 5, 3]
        gate.set()
        wait_for(lambda: all(each.ended for each in jobs))
        assert ran == ["gate", "a1", "b1", "c1", "a2", "b2", "a3"]
        gate.clear()
        job("gate")
        wait_for(lambda: ran[-1] == "gate")
        jobs = [job(name) for name in ("a4", "b3", "c2")]  # c has waited longest for a turn, then b
        gate.set()
        wait_for(lambda: all(each.ended for each in jobs))
        assert ran[-3:] == ["c2", "b3", "a4"]
    finally:
        gate.set()
        worker.stop()
        worker.join(TIMEOUT)


# ---------------------------------------------------------------- cancelling


def test_a_job_is_cancelled_between_two_steps(live: Live) -> None:
    job = live.start(n=2, steps=200)
    wait_for(lambda: live.status(job)["step"] >= 2)
    status = live.client.delete(f"/api/jobs/{job}").json()
    assert (status["state"], status["seconds_left"]) == ("cancelled", 0.0)
    assert live.end(live.start(n=1, steps=1))["state"] == "done"  # the worker is free again
    after = live.status(job)
    assert status["step"] <= after["step"] < 400
    assert live.array(job).shape == (2, 12, 10, 1)  # its results so far are kept
    assert live.client.delete(f"/api/jobs/{job}").json() == after


@contextmanager
def listening(live: Live, job: Job) -> Iterator[None]:
    """Inside, a client listens to the job's events."""
    with live.client.stream("GET", f"/api/jobs/{job.id}/events") as stream:
        events = events_in(stream)
        next(events)
        yield
        assert next(events)


def test_a_job_is_cancelled_when_its_listener_disconnects(live: Live) -> None:
    with live.busy() as job:
        with listening(live, job):
            assert job.listeners == 1
        wait_for(lambda: job.ended)
        assert job.state == "cancelled"


def test_a_job_goes_on_while_a_listener_stays_or_comes_back(live: Live) -> None:
    with live.busy() as job:
        with listening(live, job):
            with listening(live, job):
                assert job.listeners == 2
            time.sleep(0.5)  # longer than the grace period
            assert not job.ended
        with listening(live, job):
            time.sleep(0.5)
            assert not job.ended


def test_a_listener_who_came_and_left_again_has_a_grace_period_of_his_own(live: Live) -> None:
    with live.busy() as job:
        stream = api.Events(live.worker, job, grace=60)
        job.last_left_at = 2.0
        stream._cancel_if_alone(1.0)  # the end of the grace period of a listener who left before
        assert not job.ended
        stream._cancel_if_alone(2.0)
        assert job.state == "cancelled"


def test_a_job_that_never_had_a_listener_goes_on(live: Live) -> None:
    with live.busy() as job:
        time.sleep(0.5)
        assert not job.ended


def test_a_head_request_for_events_does_not_count_as_a_listener(live: Live) -> None:
    with live.busy() as job:
        answer = live.client.head(f"/api/jobs/{job.id}/events")
        assert (answer.status_code, answer.headers["content-type"].split(";")[0]) == (200, "text/event-stream")
        time.sleep(0.5)  # longer than the grace period
        assert not job.ended


def test_a_silent_stream_sends_comments(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "HEARTBEAT", 0.1)
    with live.busy():
        job = live.start(n=1, steps=1)
        with live.client.stream("GET", f"/api/jobs/{job}/events") as stream:
            lines = stream.iter_lines()
            assert [next(line for line in lines if line.startswith(":")) for _ in range(2)] == [": waiting"] * 2


def test_a_job_ends_for_its_listeners_after_its_last_frame() -> None:
    """A job that makes its last step, and ends, at the moment when its status is asked for the second time."""
    job, asked = Job("playground", lambda: iter(()), 2, {"n": 1, "method": "annealed"}), 0

    def status(job: Job) -> dict[str, Any]:
        nonlocal asked
        asked += 1
        job.record(Update(asked, frame=np.full((1, 2), asked)))
        if asked == 2:
            job.end("done")
        return job.status(0)

    async def events() -> list[bytes]:
        return [event async for event in api.stream(cast(Worker, SimpleNamespace(status=status)), job)]

    names = [event.decode().split("\n")[0] for event in asyncio.run(events())]
    assert names == ["retry: 1000", "event: frame", "event: status", "event: frame", "event: status"]


# ---------------------------------------------------------------- deleting


def test_only_the_newest_jobs_are_kept(folder: Path) -> None:
    with Live(limits=low_limits(jobs=2)) as live:
        jobs = [live.start("playground", n=2, steps=2, levels=2, seed=seed) for seed in range(4)]
        wait_for(lambda: live.client.get(f"/api/jobs/{jobs[1]}").status_code == 404)
        assert live.end(jobs[-1])["state"] == "done"
        wait_for(lambda: [live.client.get(f"/api/jobs/{job}").status_code for job in jobs] == [404, 404, 200, 200])


def test_many_jobs_of_one_client_do_not_push_out_those_of_another() -> None:
    worker = Worker(Limits(jobs=3))
    jobs = [Job("playground", lambda: iter(()), 0, {"n": 1}, client=client) for client in "abbbb"]
    for job in jobs:
        worker.submit(job)
        job.end("done")
    assert [worker.find(job.id) is not None for job in jobs] == [True, False, False, True, True]


@pytest.mark.parametrize("changes", [{"job_seconds": 0.3}, {"job_bytes": 100}])
def test_jobs_are_deleted_by_age_and_by_size(folder: Path, changes: dict[str, Any]) -> None:
    with Live(limits=low_limits(**changes)) as live:
        job = live.start("playground", n=20, steps=2, levels=2)
        live.events(job)
        live.events(live.start("playground", n=20, steps=2, levels=2))
        wait_for(lambda: live.client.get(f"/api/jobs/{job}").status_code == 404)


def test_an_idle_server_deletes_old_jobs_too(folder: Path) -> None:
    with Live(limits=low_limits(job_seconds=0.3, idle_seconds=0.1)) as live:
        job = live.worker.find(live.start("playground", n=2, steps=2, levels=2))
        assert job is not None
        wait_for(lambda: job.ended)
        wait_for(lambda: not live.worker._jobs)
