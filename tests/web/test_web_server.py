"""The web server: training runs, and how it starts and stops."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from web_live import (
    PATIENCE,
    Live,
    client_of,
    events_in,
    tiny_model,
    tiny_run,
)
from web_live import folder as folder
from web_live import live as live

from scorefield.models import pretrained as shipped
from scorefield.models.checkpoint import load
from scorefield.cli import main
from scorefield.models.generate import drawn
from scorefield.training.folder import locked
from scorefield.training.history import read_log
from scorefield.web import models, monitor

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
    assert found["shape"] == [1, 5, 6]
    assert found["recipe"]["width"] == 2
    assert found["recipe"]["data"] == "dots.npy"  # and not where they lie on this machine
    assert [each["step"] for each in found["samples"]] == [2, 4, 6]
    for each in found["samples"]:
        assert live.client.get(each["image"]).content == (run / "samples" / f"{each['step']:08d}.png").read_bytes()


def test_the_smallest_of_the_shipped_models_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which is the quickest, and so the one to begin with where there is no GPU."""
    tiny_model(tmp_path / "a.safetensors", shape=(3, 8, 8))
    tiny_model(tmp_path / "b.safetensors")
    monkeypatch.setattr(shipped, "FOLDERS", [tmp_path])
    assert list(models.Models().cards()) == ["b", "a"]
    assert list(models.Models([str(tmp_path / "a.safetensors")]).cards()) == ["a", "b"]


def test_a_runs_model_is_served_and_names_are_made_unique(live: Live, folder: Path) -> None:
    models = {model["name"]: model for model in live.client.get("/api/models").json()["models"]}
    assert list(models) == ["my run", "my run-2", "tiny"]
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
        assert live.client.get("/api/models").json()["models"][0]["trained"] == 1234
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
        torn = live.client.get("/api/runs/torn")
        assert (torn.status_code, torn.json()["state"]) == (200, "damaged")
        assert "recipe.json cannot be read" in torn.json()["error"]
    finally:
        live.stop()
    with pytest.raises((ValueError, KeyError)):
        load(broken)
    assert models._newest("broken", models.Place(str(broken), broken, shipped=False)) is None


def test_a_run_is_awaited(tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    live = Live(str(tmp_path / "runs" / "later"), str(tmp_path / "empty"))
    try:
        waiting = {"step": 0, "steps": 0, "state": "waiting"}
        both = [{"name": "later", **waiting}, {"name": "empty", **waiting}]
        assert live.client.get("/api/runs").json()["runs"] == both
        assert [model["name"] for model in live.client.get("/api/models").json()["models"]] == ["tiny"]
        (tmp_path / "empty" / "recipe.json.x.part").touch()  # as it is at the moment at which a run begins
        assert live.client.get("/api/runs").json()["runs"] == both
        tiny_run(tmp_path / "runs" / "later")
        runs = live.client.get("/api/runs").json()["runs"]
        assert {run["name"]: run["state"] for run in runs} == {"later": "done", "empty": "waiting"}
        assert [model["name"] for model in live.client.get("/api/models").json()["models"]] == ["later", "tiny"]
    finally:
        live.stop()
    for wrong in ("mnist-smal", str(tmp_path / "runs" / "model.safetensors"), str(tmp_path / "runs")):
        with pytest.raises(SystemExit):
            main(["serve", wrong, "--port", "0", "--no-open"])
    said = capsys.readouterr().err
    assert said.count("no shipped model of that name") == 2
    assert "holds no training run and no model" in said


def test_the_description_names_this_server(live: Live) -> None:
    text = live.client.get("/api").text
    assert f"curl -s 127.0.0.1:{live.port}/api/jobs/$job" in text
    assert "localhost:7860" not in text


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
    monkeypatch.setattr("scorefield.cli.serve._own_address", lambda: "192.0.2.7")
    main(["serve", "runs/later", "--host", "0.0.0.0", "--port", "0", "--token", "open-sesame", "--no-open"])
    said = capsys.readouterr().err
    assert "warning: all who can reach this machine" in said
    assert "/?token=open-sesame (stop it with Ctrl-C)" in said
    assert re.search(r"from other machines: http://192.0.2.7:\d+/\?token=open-sesame", said)
    assert "later: no training there yet; the page shows it as soon as it begins" in said
