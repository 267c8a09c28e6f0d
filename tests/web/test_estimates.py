"""How long jobs take: measured, told before a job, and limited."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from scorefield.web import api, jobs, sampling
from scorefield.web.estimates import Speeds, Work, in_words
from scorefield.web.jobs import Job, Update, Worker
from scorefield.web.limits import Limits
from scorefield.web.models import Models
from web.live_server import Live, inpaint, low_limits, wait_for
from web.live_server import folder as folder
from web.live_server import live as live
from web.test_jobs import listening


def work(live: Live, *, n: int, calls: int = 1) -> Work:
    card = live.server.models.cards()["tiny"]
    return Work((card.name, card.shape, card.parameters), n, calls)


def test_an_estimate_is_calls_times_images_times_seconds_for_each() -> None:
    speeds = Speeds()
    assert speeds.estimate(Work("a", 1, 10)) is None
    speeds.record(Work("a", 4, 10), 0.5)  # 0.125 s for each image
    assert speeds.estimate(Work("a", 4, 10)) == 5
    assert speeds.estimate(Work("a", 12, 100)) == 150
    assert speeds.estimate(Work("b", 4, 10)) is None
    speeds.record(Work("a", 64, 10), 1.0)  # many images take less each
    assert speeds.estimate(Work("a", 48, 10)) == 7.5
    assert speeds.estimate(Work("a", 24, 10)) == 3.75  # 24 is 6 times 4, and 64 is less than 3 times 24
    assert speeds.estimate(Work("a", 4, 10)) == 5
    speeds.record(Work("a", 4, 10), 0.25)  # the latest counts
    assert speeds.estimate(Work("a", 4, 10)) == 2.5


def test_a_speed_is_known_only_for_batches_of_nearly_that_size() -> None:
    speeds = Speeds()
    speeds.record(Work("a", 8, 10), 0.5)
    assert [n for n in range(1, 65) if speeds.knows(Work("a", n, 1))] == list(range(2, 33))
    assert not speeds.knows(Work("b", 8, 1))


def test_durations_in_words() -> None:
    words = [in_words(seconds) for seconds in (0.4, 59.6, 99, 100, 420, 1800, 3600, 9000)]
    assert words == [
        "0 seconds",
        "60 seconds",
        "99 seconds",
        "2 minutes",
        "7 minutes",
        "30 minutes",
        "60 minutes",
        "2.5 hours",
    ]


@pytest.mark.parametrize(
    ("n", "few", "seconds", "sizes"),
    [
        (3, 8, [(0.9, 0.2)], [3]),
        (64, 64, [(0.9, 0.2)], [64]),  # a GPU
        (64, 8, [(0.3, 0.24), (0.9, 0.7)], [8, 64]),  # a call for 64 images might take 0.96 s
        (64, 8, [(0.9, 0.26)], [8]),  # it would take 1.04 s
        (64, 8, [(1.5, None)], [8]),  # one step will do
    ],
)
def test_one_step_is_measured_and_for_many_images_too_if_that_is_quick(
    monkeypatch: pytest.MonkeyPatch, n: int, few: int, seconds: list[tuple[float, float]], sizes: list[int]
) -> None:
    """A fake model, whose first and second step take so many seconds. A step of its sampler has two calls."""
    now, asked = 100.0, list[int]()
    monkeypatch.setattr(sampling, "time", SimpleNamespace(perf_counter=lambda: now))

    def states(numbers: range, sampler: object) -> Iterator[SimpleNamespace]:
        nonlocal now
        asked.append(len(numbers))
        now += 10  # whatever the start takes
        yield SimpleNamespace(step=0)
        for step, duration in enumerate(seconds[len(asked) - 1], 1):
            now += duration
            yield SimpleNamespace(step=step)
        raise AssertionError("nobody should ask for a third step")

    sampler = SimpleNamespace(calls=20, updates=10)
    card = SimpleNamespace(name="m", shape=(1, 2, 2), parameters=7, sampler=sampler)
    wanted = cast(Any, SimpleNamespace(card=card, n=n, sampler=SimpleNamespace(calls=1000), guidance=0.0))
    models, speeds = cast(Models, SimpleNamespace(load=lambda card: SimpleNamespace(states=states))), Speeds()
    for _ in range(2):  # the second time it is known
        sampling.measure(models, speeds, wanted, few=few)
        assert asked == sizes
        assert sampling.size_to_measure(speeds, wanted, few=few) is None
    last = [each for each in seconds[-1] if each is not None][-1]
    assert speeds.estimate(sampling.work_of(wanted)) == pytest.approx(1000 * last / 2 * n / sizes[-1])


def test_the_estimate_of_a_model_is_measured_once_also_while_a_job_runs(live: Live) -> None:
    with live.busy():
        answer = live.post("estimate", model="tiny", n=2, steps=50)
        assert answer.status_code == 200
        assert live.worker.speeds.knows(work(live, n=2))
        live.worker.speeds.record(work(live, n=2), 0.5)
        for steps, n, seconds in ((50, 2, 50.0), (5, 2, 5.0), (50, 6, 150.0)):  # two noise levels
            assert live.post("estimate", model="tiny", n=n, steps=steps).json() == {"seconds": seconds}
        answers = [
            live.post("sample", model="tiny", n=2, steps=50),
            inpaint(live, example="9", mask="left", n=2, steps=3),
            live.post("playground", n=2, steps=2),
        ]
        assert [answer.json()["estimate"] for answer in answers] == [50, 3, None]
        status = live.status(answers[0].json()["job"])
        assert (status["estimate"], status["seconds_left"]) == (50, 50)
        for answer in answers:
            live.client.delete(f"/api/jobs/{answer.json()['job']}")


def test_wrong_settings_have_no_estimate(live: Live) -> None:
    assert live.post("estimate", model="huge").status_code == 404
    assert live.post("estimate", model="tiny", n=0).status_code == 400
    assert live.post("estimate", model="tiny", number=1).status_code == 422


def test_a_job_records_its_speed_for_each_call() -> None:
    """Of a made-up job of three steps with two calls each: the time between its first step and its last."""
    job, worker = Job("sample", lambda: iter(()), 3, {"n": 5}, work=Work("a", 5, 6)), Worker(Limits())

    def run() -> Iterator[Update]:
        yield Update(0)
        for step in (1, 2, 3):
            yield Update(step)
        job.first_step_at, job.last_step_at = 10.0, 18.0

    job.run = run
    worker._run(job)
    assert job.state == "done"
    assert worker.speeds.estimate(Work("a", 5, 6)) == 12  # 4 s for a step, 2 s for a call


def test_the_time_left_comes_from_the_steps_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(jobs, "time", SimpleNamespace(monotonic=lambda: now))
    job, left = Job("sample", lambda: iter(()), 10, {"n": 1}, estimate=70.0), list[float | None]()
    for at, step in ((5.0, 0), (100.0, 1), (102.0, 2), (104.0, 3), (109.0, 4)):  # loading takes long
        now = at
        job.record(Update(step))
        left.append(job.seconds_left())
    assert left == [70, 70, 2 * 8, 2 * 7, 3 * 6]
    job.end("done")
    assert job.seconds_left() == 0


def test_what_cannot_be_measured_has_no_estimate_and_the_job_says_why(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(models: Models, card: object) -> None:
        raise ValueError("no such weights")

    monkeypatch.setattr(Models, "load", fail)
    with Live() as live:
        assert live.post("estimate", model="tiny").json() == {"seconds": None}
        assert live.end(live.start(n=1))["error"] == "no such weights"


def test_a_slow_measurement_is_not_waited_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "MEASURING", 0.05)
    load = Models.load

    def slow(models: Models, card: Any) -> Any:  # noqa: ANN401
        time.sleep(0.3)
        return load(models, card)

    monkeypatch.setattr(Models, "load", slow)
    with Live() as live:
        assert live.post("estimate", model="tiny", n=1).json() == {"seconds": None}
        wait_for(lambda: live.worker.speeds.knows(work(live, n=1)))
        assert live.post("estimate", model="tiny", n=1).json()["seconds"] is not None


# ---------------------------------------------------------------- limits


def test_work_is_limited_for_each_job_and_for_each_client(folder: Path) -> None:
    limits = low_limits(work_seconds=100, client_seconds=150, queue=8, client_queue=3)
    with Live(limits=limits) as live, live.busy():
        live.worker.speeds.record(work(live, n=1), 10.0)

        def ask(client: str, n: int, steps: int = 3) -> tuple[int, str]:
            """The status of the answer, and its text. There are two noise levels: two calls for each step."""
            values = {"model": "tiny", "n": n, "steps": steps}
            answer = live.client.post("/api/sample", json=values, headers={"X-Forwarded-For": client})
            if answer.status_code == 429:
                assert 1 <= int(answer.headers["retry-after"]) <= 30
            return answer.status_code, answer.text

        status, words = ask("10.0.0.1", 2)
        assert status == 400
        assert "about 2 minutes here, and at most 2 minutes are allowed" in words
        assert "fewer images or steps" in words
        assert "--max-minutes" in words
        assert [ask("10.0.0.1", 1)[0] for _ in range(2)] == [202, 202]  # 60 s each
        status, words = ask("10.0.0.1", 1)
        assert (status, "more than 2 minutes together" in words) == (429, True)
        assert ask("10.0.0.1", 1, steps=1)[0] == 202  # 20 s more
        status, words = ask("10.0.0.1", 1, steps=1)
        assert (status, "3 of your jobs are waiting already" in words) == (429, True)
        assert ask("10.0.0.2", 1)[0] == 202


def test_a_job_that_takes_too_long_is_stopped(folder: Path) -> None:
    with Live(limits=low_limits(work_seconds=0.2)) as live, live.busy() as job:
        start = time.monotonic()
        wait_for(lambda: job.ended)
        assert time.monotonic() - start > 0.3  # twice the limit: an estimate may be wrong
        assert (job.state, job.error) == (
            "failed",
            "this job was stopped after 0 seconds (ask for fewer images or steps)",
        )
        assert live.end(live.start("playground", n=2, steps=2, levels=2))["state"] == "done"


def test_a_job_that_nobody_asks_about_is_cancelled(folder: Path) -> None:
    with Live(limits=low_limits(unheard_seconds=0.4)) as live:
        with live.busy() as job:
            waiting = live.worker.find(live.start("playground", n=2, steps=2, levels=2))
            assert waiting is not None
            wait_for(lambda: live.status(job.id)["state"] != "running" or waiting.ended)
            assert (waiting.state, waiting.started_at, job.state) == ("cancelled", None, "running")
            assert waiting.error is not None
            assert "nobody asked about this job" in waiting.error
            with listening(live, job):
                time.sleep(0.8)
                assert not job.ended
        with live.busy() as job:
            wait_for(lambda: job.ended)
            assert job.state == "cancelled"
