"""The web server: its queue, who may ask, training runs, and how it starts and stops."""

from __future__ import annotations

import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from web_live import PATIENCE, SHAPE, Live, client_of, events_in, few, tiny_model, tiny_run, wait_for

from scorefield import shipped
from scorefield.checkpoint import load
from scorefield.cli import main
from scorefield.generate import drawn
from scorefield.runs.folder import locked
from scorefield.runs.history import read_log
from scorefield.web import api, models, monitor, security
from scorefield.web.jobs import Job


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a run and a model file of the same name; tiny is the shipped model."""
    place = tmp_path_factory.mktemp("work")
    tiny_model(place / "box" / "tiny.safetensors")
    tiny_run(place / "runs" / "my run")
    tiny_model(place / "my run.safetensors", seed=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shipped, "FOLDERS", [place / "box"])
        yield place


@pytest.fixture(scope="module")
def live(folder: Path) -> Iterator[Live]:
    server = Live(str(folder / "runs" / "my run"), str(folder / "my run.safetensors"), limits=few(queue=4, jobs=30))
    yield server
    server.stop()


def samples(seed: int, n: int, steps: int) -> np.ndarray:
    model = load("tiny")
    settings: dict[str, Any] = {"step_size": 1e-5, "steps": steps, "batch_size": 64}
    return drawn(model.score, model.sigmas, SHAPE, range(n), seed=seed, **settings)[:, -1]


# ---------------------------------------------------------------- the queue


def test_jobs_wait_in_order_and_their_places_can_be_seen(live: Live) -> None:
    with live.busy() as running:
        answers = [live.post("sample", model="tiny", n=1, steps=1) for _ in range(4)]
        assert [answer.json()["position"] for answer in answers] == [1, 2, 3, 4]
        jobs = [answer.json()["job"] for answer in answers]
        assert [live.status(job)["position"] for job in (running.id, *jobs)] == [0, 1, 2, 3, 4]
        full = live.post("sample", model="tiny", n=1, steps=1)
        assert full.status_code == 503
        assert 1 <= int(full.headers["retry-after"]) <= 30
        assert "4 jobs are waiting already" in full.json()["error"]
        assert live.post("field", points=2).status_code == 200  # at once, whatever waits
        cancelled = live.client.delete(f"/api/jobs/{jobs[1]}").json()
        assert cancelled["state"] == "cancelled"
        assert [live.status(job)["position"] for job in (jobs[0], *jobs[2:])] == [1, 2, 3]
        assert live.post("sample", model="tiny", n=1, steps=1).status_code == 202
        assert live.status(jobs[0])["state"] == "queued"
        assert live.client.get(f"/api/jobs/{jobs[0]}/grid.png").status_code == 404
    assert [live.end(job)["state"] for job in jobs] == ["done", "cancelled", "done", "done"]


def test_twenty_clients_at_once_are_all_served_and_none_gets_anothers_images(live: Live) -> None:
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


def test_two_jobs_do_not_mix(live: Live) -> None:
    one, two = live.start(n=2, steps=2, seed=1), live.start(n=3, steps=3, seed=2)
    live.end(two)
    assert np.array_equal(live.array(one), samples(1, 2, 2))
    assert np.array_equal(live.array(two), samples(2, 3, 3))


# ---------------------------------------------------------------- cancelling


def test_a_job_is_cancelled_between_two_steps(live: Live) -> None:
    job = live.start(n=2, steps=200)
    wait_for(lambda: live.status(job)["step"] >= 2)
    status = live.client.delete(f"/api/jobs/{job}").json()
    assert (status["state"], status["seconds_left"]) == ("cancelled", 0.0)
    assert live.end(live.start(n=1, steps=1))["state"] == "done"  # the worker is free again
    after = live.status(job)
    assert status["step"] <= after["step"] < 400
    assert live.array(job).shape == (2, 12, 10, 1)  # what there was remains
    assert live.client.delete(f"/api/jobs/{job}").json() == after


@contextmanager
def listening(live: Live, job: Job) -> Iterator[None]:
    """Inside, somebody listens to the job."""
    with live.client.stream("GET", f"/api/jobs/{job.id}/events") as stream:
        events = events_in(stream)
        next(events)
        yield
        assert next(events)


def test_a_closed_page_cancels_its_job(live: Live) -> None:
    with live.busy() as job:
        with listening(live, job):
            assert job.listeners == 1
        wait_for(lambda: job.ended)
        assert job.state == "cancelled"


def test_a_job_goes_on_while_anyone_listens_or_comes_back(live: Live) -> None:
    with live.busy() as job:
        with listening(live, job):
            with listening(live, job):
                assert job.listeners == 2
            time.sleep(0.5)  # longer than the grace
            assert not job.ended
        with listening(live, job):
            time.sleep(0.5)
            assert not job.ended


def test_a_job_that_nobody_listens_to_runs_on(live: Live) -> None:
    with live.busy() as job:
        time.sleep(0.5)
        assert not job.ended


def test_a_stream_with_nothing_to_tell_shows_that_it_lives(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "HEARTBEAT", 0.1)
    with live.busy():
        job = live.start(n=1, steps=1)
        with live.client.stream("GET", f"/api/jobs/{job}/events") as stream:
            lines = stream.iter_lines()
            assert [next(line for line in lines if line.startswith(":")) for _ in range(2)] == [": waiting"] * 2


# ---------------------------------------------------------------- forgetting


def test_old_jobs_are_forgotten(folder: Path) -> None:
    live = Live(limits=few(jobs=2))
    try:
        jobs = [live.start("playground", n=2, steps=2, levels=2, seed=seed) for seed in range(4)]
        wait_for(lambda: live.client.get(f"/api/jobs/{jobs[1]}").status_code == 404)
        assert live.end(jobs[-1])["state"] == "done"
        wait_for(lambda: [live.client.get(f"/api/jobs/{job}").status_code for job in jobs] == [404, 404, 200, 200])
    finally:
        live.stop()


@pytest.mark.parametrize("changes", [{"job_seconds": 0.3}, {"job_bytes": 100}])
def test_jobs_are_forgotten_by_age_and_by_size(folder: Path, changes: dict[str, Any]) -> None:
    live = Live(limits=few(**changes))
    try:
        job = live.start("playground", n=20, steps=2, levels=2)
        live.events(job)
        live.events(live.start("playground", n=20, steps=2, levels=2))
        wait_for(lambda: live.client.get(f"/api/jobs/{job}").status_code == 404)
    finally:
        live.stop()


# ---------------------------------------------------------------- who may ask


def test_every_answer_has_the_headers(live: Live) -> None:
    job = live.start(n=1, steps=1)
    live.end(job)
    paths = ["/", "/static/style.css", "/api", "/api/models", f"/api/jobs/{job}/grid.png", "/nothing", "/api/sample"]
    answers = [live.client.get(path) for path in paths]
    answers += [live.post("sample", n="x"), live.client.get("/api/models", headers={"host": "elsewhere.example"})]
    with live.client.stream("GET", f"/api/jobs/{job}/events") as stream:
        answers.append(stream)
    for answer in answers:
        assert {name: answer.headers[name] for name in security.HEADERS} == security.HEADERS
        stored = answer.headers["cache-control"]
        assert stored == ("no-store" if answer.request.url.path.startswith("/api") else "no-cache")
        assert "server" not in answer.headers
    assert "unsafe" not in security.HEADERS["Content-Security-Policy"]


def test_an_error_of_the_server_is_told_in_general_words(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    live = Live()
    try:
        monkeypatch.setattr(monitor, "runs_among", lambda folders: 1 / 0)
        answer = live.client.get("/api/runs")
        assert answer.status_code == 500
        assert answer.json() == {"error": "the server failed: ZeroDivisionError (its terminal tells more)"}
        assert answer.headers["x-content-type-options"] == "nosniff"
    finally:
        live.stop()


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:{}", 200),
        ("localhost:{}", 200),
        ("LOCALHOST:{}", 200),
        ("[::1]:{}", 200),
        ("localhost", 421),
        ("localhost:1", 421),
        ("elsewhere.example:{}", 421),
        ("127.0.0.1.elsewhere.example:{}", 421),
        ("", 421),
    ],
)
def test_only_this_machines_names_are_served(live: Live, host: str, status: int) -> None:
    answer = live.client.get("/api/models", headers={"host": host.format(live.port)})
    assert answer.status_code == status
    assert ("error" in answer.json()) == (status != 200)


def test_pages_of_other_servers_change_nothing(live: Live) -> None:
    for origin in (
        "http://elsewhere.example",
        f"http://localhost:{live.port}",
        "null",
        "http://127.0.0.1:1",
        "",
        "http://[",
    ):
        headers = {"origin": origin}
        assert live.client.post("/api/field", json={"points": 2}, headers=headers).status_code == 403
        assert live.client.delete("/api/jobs/x", headers=headers).status_code == 403
        assert live.client.get("/api/models", headers=headers).status_code == 200
    own = {"origin": live.address}
    assert live.client.post("/api/field", json={"points": 2}, headers=own).status_code == 200


def test_a_token_opens_the_server_and_nothing_else_does(folder: Path) -> None:
    live = Live(token="open-sesame", host="0.0.0.0")
    try:
        for host in ("my.machine", "x/static/", "my.machine/static/?"):  # no name changes what is asked for
            assert live.client.get("/api/models", headers={"host": host}).status_code == 401  # and not 421
        for path in ("/", "/api", "/api/models", "/?token=open", "/?token=", "/api/models?token=open-sesame"):
            answer = live.client.get(path)
            assert answer.status_code == 401
            assert "/?token=TOKEN" in answer.json()["error"]
        assert live.post("sample", model="tiny").status_code == 401
        for wrong in ("Bearer open", "Bearer", "open-sesame", "Basic open-sesame", "Bearer öpen-sesame"):
            assert live.client.get("/api/models", headers={b"authorization": wrong.encode()}).status_code == 401
        assert live.client.get("/api/models", headers={"cookie": "token=open"}).status_code == 401
        assert live.client.get("/static/style.css").status_code == 200
        right = {"authorization": "Bearer open-sesame"}
        assert live.client.get("/api/models", headers=right).status_code == 200
        answer = live.client.get("/?token=open-sesame")
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        cookie = answer.headers["set-cookie"].lower()
        assert all(word in cookie for word in ("token=open-sesame", "httponly", "samesite=strict", "path=/"))
        assert live.client.get("/").status_code == 200  # with the cookie
        assert live.post("field", points=2).status_code == 200
    finally:
        live.stop()


@pytest.mark.parametrize(
    "path",
    [
        "/static/../api.py",
        "/static/%2e%2e/api.py",
        "/static/..%2fapi.py",
        "/static/%2e%2e%2fapi.py",
        "/static/..%5capi.py",
        "/static//etc/passwd",
        "/static/%2fetc%2fpasswd",
        "/static/index.html%00.css",
        "/static/.",
        "/static/",
        "/api/examples/..%2f..%2fexperiments%2fdigit.png",
        "/api/examples/%2fetc%2fpasswd.png",
        "/api/runs/..",
        "/api/runs/..%2f..",
        "/api/runs/%2e%2e/samples/2.png",
        "/api/runs/my%20run/samples/..%2f..%2fsamples%2f2.png",
        "/api/runs/my%20run/samples/00000002.png",
        "/api/runs/my%20run/samples/../../recipe.json",
        "/api/runs/my%20run%2frecipe.json",
        "/../../etc/passwd",
        "//etc/passwd",
    ],
)
def test_no_path_leads_out(live: Live, path: str) -> None:
    with closing(http.client.HTTPConnection("127.0.0.1", live.port, timeout=PATIENCE)) as connection:
        connection.request("GET", path)  # as it is, which httpx would tidy first
        assert connection.getresponse().status == 404


# ---------------------------------------------------------------- training runs


def test_the_monitor_shows_a_run(live: Live, folder: Path) -> None:
    run = folder / "runs" / "my run"
    assert live.client.get("/api/runs").json() == {"runs": [{"name": "my run", "step": 6, "steps": 6, "state": "done"}]}
    found = live.client.get("/api/runs/my run").json()
    assert {key: found[key] for key in ("name", "step", "steps", "state")} == {
        "name": "my run",
        "step": 6,
        "steps": 6,
        "state": "done",
    }
    log = read_log(run / "log.csv")
    assert found["log"] == log
    assert found["held_out"] == read_log(run / "held_out.csv")
    assert [row[0] for row in found["held_out"]["rows"]] == [3, 6]
    assert found["seconds"] == log["rows"][-1][log["columns"].index("seconds")]
    assert found["images_per_second"] == log["rows"][-1][log["columns"].index("images_per_second")]
    assert found["recipe"]["width"] == 2
    assert found["recipe"]["data"] == "dots.npy"  # and not where they lie on this machine
    assert [each["step"] for each in found["samples"]] == [2, 4, 6]
    for each in found["samples"]:
        assert live.client.get(each["image"]).content == (run / "samples" / f"{each['step']:08d}.png").read_bytes()


def test_a_runs_model_is_served_and_names_are_made_unique(live: Live, folder: Path) -> None:
    models = {model["name"]: model for model in live.client.get("/api/models").json()["models"]}
    assert list(models) == ["tiny", "my run", "my run-2"]
    assert models["my run"]["trained"] == 6
    assert models["my run-2"]["trained"] == 1234
    job = live.post("sample", model="my run", n=1).json()["job"]
    status = live.end(job)
    assert status["state"] == "done"
    assert f"scorefield sample '{folder}/runs/my run' -n 1" in status["command"]
    model = load(folder / "runs" / "my run")
    made = drawn(model.score, model.sigmas, model.shape, range(1), seed=0, step_size=2e-5, steps=2, batch_size=1)
    assert np.array_equal(live.array(job), made[:, -1])


def test_a_run_that_trains_is_followed(tmp_path: Path, folder: Path) -> None:
    run = tmp_path / "young"
    run.mkdir()
    (run / "recipe.json").write_bytes((folder / "runs" / "my run" / "recipe.json").read_bytes())
    live = Live(str(run))
    try:
        assert live.client.get("/api/runs").json()["runs"] == [
            {"name": "young", "step": 0, "steps": 6, "state": "stopped"}
        ]
        assert [model["name"] for model in live.client.get("/api/models").json()["models"]] == ["tiny"]
        lines = (folder / "runs" / "my run" / "log.csv").read_text().splitlines(keepends=True)
        with locked(run):
            (run / "log.csv").write_text("".join(lines[:3]) + lines[3][:-4])  # in the middle of a line's writing
            found = live.client.get("/api/runs/young").json()
            assert (found["step"], found["state"]) == (2, "training")
            assert len(found["log"]["rows"]) == 2
            (run / "log.csv").write_text("".join(lines[:4]))
            assert live.client.get("/api/runs/young").json()["step"] == 3
        assert live.client.get("/api/runs/young").json()["state"] == "stopped"
        tiny_model(run / "checkpoints" / "model-00000004.safetensors")
        assert live.client.get("/api/runs/young").json()["step"] == 4
        assert live.end(live.post("sample", model="young", n=1, steps=1).json()["job"])["state"] == "done"
        (run / "checkpoints" / "model-00000005.safetensors").write_bytes(b"damaged")
        assert live.client.get("/api/models").json()["models"][1]["trained"] == 1234
        (run / "recipe.json").unlink()
        assert live.client.get("/api/runs/young").status_code == 404
    finally:
        live.stop()


def test_a_log_may_hold_anything(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    assert monitor.log_of(log) == {"columns": [], "rows": []}
    log.write_bytes(b"step,loss,rate\n1,2.5,\nx,1,1\n2,nan,1e-3\n3,-,inf\n4,1\n\xff,1,2\n5,1,2\n6,1,")
    rows = [[1, 2.5, None], [2, None, 1e-3], [3, None, None], [5, 1.0, 2.0]]
    assert monitor.log_of(log) == {"columns": ["step", "loss", "rate"], "rows": rows}
    log.write_bytes(b"\n\n")
    assert monitor.log_of(log) == {"columns": [], "rows": []}


def test_a_damaged_run_or_model_does_not_hide_the_others(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "recipe.json").write_text("{")
    broken = tmp_path / "broken.safetensors"
    save_file({"x": np.zeros(1, np.float32)}, broken, {"kind": "scorefield model"})
    live = Live(str(tmp_path / "torn"), str(folder / "runs" / "my run"))
    try:
        states = {run["name"]: run["state"] for run in live.client.get("/api/runs").json()["runs"]}
        assert states == {"torn": "damaged", "my run": "done"}
    finally:
        live.stop()
    with pytest.raises((ValueError, KeyError)):
        load(broken)
    assert models._newest("broken", models.Place(str(broken), broken, shipped=False)) is None


# ---------------------------------------------------------------- starting and stopping


def test_it_stops_cleanly_in_the_middle_of_a_job() -> None:
    command = [sys.executable, "-m", "scorefield", "serve", "--port", "0", "--device", "cpu", "--no-open"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    numbers = (signal.SIGINT, signal.SIGTERM)
    servers = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) for _ in numbers]
    for number, server in zip(numbers, servers, strict=True):
        with server:
            try:
                stop_in_the_middle(server, number)
            finally:
                server.kill()


def stop_in_the_middle(server: subprocess.Popen[str], number: signal.Signals) -> None:
    assert server.stderr is not None
    address = re.search(r"http://127\.0\.0\.1:\d+", server.stderr.readline())
    assert address
    with client_of(address[0]) as client:
        job = client.post("/api/sample", json={"model": "mnist-small", "n": 1}).json()["job"]
        assert client.post("/api/sample", json={"model": "mnist-small"}).json()["position"] == 1
        with client.stream("GET", f"/api/jobs/{job}/events") as stream:
            events = events_in(stream)
            assert any(values["step"] > 1 for _, values in events)
            start = time.monotonic()
            server.send_signal(number)
            assert list(events)[-1][1]["state"] == "cancelled"  # the stream has its proper end
        assert server.wait(PATIENCE) == 0
        assert time.monotonic() - start < 5
    assert server.stderr.read() == "stopped\n"


def failure(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[object, str]:
    with pytest.raises(SystemExit) as stopped:
        main(["serve", "--no-open", *words])
    return stopped.value.code, capsys.readouterr().err


def test_what_keeps_it_from_starting_is_said(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, said = failure(capsys, "--port", str(port))
        assert code == 1
        assert f"port {port} is taken" in said
        assert f"--port {port + 1}" in said
    assert failure(capsys, "--port", "99999") == (2, "scorefield: --port must be from 0 to 65535; got 99999\n")
    code, said = failure(capsys, "--host", "0.0.0.0")
    assert code == 2
    assert "--token TOKEN" in said
    assert failure(capsys, "--token", "short")[0] == 2
    assert failure(capsys, "--token", "with space")[0] == 2
    (tmp_path / "text.safetensors").write_text("no model")
    for given in ("nowhere", str(tmp_path), str(tmp_path / "text.safetensors")):
        code, said = failure(capsys, "--port", "0", given)
        assert code == 2
        assert given in said
    assert "cannot listen at 192.0.2.1" in failure(capsys, "--host", "192.0.2.1", "--token", "open-sesame")[1]


def test_all_threads_end_with_the_server(folder: Path) -> None:
    before = set(threading.enumerate())
    live = Live()
    with live.busy():
        live.start(n=1, steps=200)
        live.stop()
    left = {thread.name for thread in set(threading.enumerate()) - before}
    assert not any("worker" in name and "AnyIO" not in name for name in left)
    assert not live.worker._thread.is_alive()


def test_others_are_let_in_with_a_warning(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scorefield.web.server.Server.run_until_stopped", lambda self, listening: None)
    main(["serve", "--host", "0.0.0.0", "--port", "0", "--token", "open-sesame", "--no-open"])
    said = capsys.readouterr().err
    assert "warning: all who can reach this machine" in said
    assert "/?token=open-sesame (stop it with Ctrl-C)" in said
