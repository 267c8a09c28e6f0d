"""The web server: its pages, and how it starts and stops."""

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

import pytest

from scorefield.cli import main
from web.live_server import TIMEOUT, Live, client_of, events_in
from web.live_server import folder as folder
from web.live_server import live as live

# ---------------------------------------------------------------- pages


def test_pages_and_static_files_have_their_types(live: Live) -> None:
    page = live.client.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "<html" in page.text
    types = {"style.css": "text/css", "main.js": "text/javascript", "icon.svg": "image/svg+xml"}
    for name, kind in types.items():
        assert live.client.get(f"/static/{name}").headers["content-type"].split(";")[0] == kind
    assert "<html" in live.client.get("/api").text
    assert live.client.get("/static/nothing.js").status_code == 404


def test_the_description_names_this_server(live: Live) -> None:
    text = live.client.get("/api").text
    assert f"curl -s 127.0.0.1:{live.port}/api/jobs/$job" in text
    assert "localhost:7860" not in text


# ---------------------------------------------------------------- starting and stopping


def test_a_signal_stops_it_cleanly_in_the_middle_of_a_job() -> None:
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
            assert list(events)[-1][1]["state"] == "cancelled"  # the stream ends properly
        assert server.wait(TIMEOUT) == 0
        assert time.monotonic() - start < 5
    assert server.stderr.read() == "stopped\n"


def failure(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[object, str]:
    with pytest.raises(SystemExit) as stopped:
        main(["serve", "--no-open", *words])
    return stopped.value.code, capsys.readouterr().err


def test_errors_that_keep_it_from_starting(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, said = failure(capsys, "--port", str(port))
        assert code == 1
        assert str(port) in said
        assert f"--port {port + 1}" in said
    code, said = failure(capsys, "--port", "99999")
    assert (code, "--port" in said, "99999" in said) == (2, True, True)
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
    assert "192.0.2.1" in failure(capsys, "--host", "192.0.2.1", "--token", "open-sesame")[1]


def test_all_threads_end_with_the_server(folder: Path) -> None:
    before = set(threading.enumerate())
    live = Live()
    with live.busy():
        live.start(n=1, steps=200)
        live.stop()
    left = {thread.name for thread in set(threading.enumerate()) - before}
    assert not any("worker" in name and "AnyIO" not in name for name in left)
    assert not live.worker._thread.is_alive()


def test_listening_for_other_machines_prints_a_warning_and_the_addresses(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scorefield.web.server.Server.run_until_stopped", lambda self, listening: None)
    monkeypatch.setattr("scorefield.cli.serve._own_address", lambda: "192.0.2.7")
    main(["serve", "runs/later", "--host", "0.0.0.0", "--port", "0", "--token", "open-sesame", "--no-open"])
    said = capsys.readouterr().err
    assert "warning:" in said
    assert re.search(r"http://127.0.0.1:\d+/\?token=open-sesame", said)
    assert re.search(r"http://192.0.2.7:\d+/\?token=open-sesame", said)
    assert "later:" in said  # a run that has not begun yet
