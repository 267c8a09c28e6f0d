"""The web server: its pages, and how it starts and stops."""

from __future__ import annotations

import errno
import html
import http.client
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from starlette.requests import Request

from scorefield.cli import main
from scorefield.models import pretrained
from scorefield.web.security import Guard
from scorefield.web.server import EXIT_SECONDS, Server, listen
from web.live_server import TIMEOUT, Live, client_of, events_in, tiny_model
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


ENDLESS = """
import sys
import torch
from scorefield.cli import main
from scorefield.web import sampling, server
from scorefield.web.jobs import Update

if sys.argv[1:] == ["patient"]:
    server.ANSWER_SECONDS, server.EXIT_SECONDS = 50, 55

def endless(states, keep, to_frame, denoised):
    yield Update(1, 1.0, 1)
    x = torch.rand(500, 500)
    while True:
        x @ x

sampling.updates_from = endless
main(["serve", "--port", "0", "--device", "cpu", "--no-open"])
"""
"""A server whose jobs have a second step that never ends; a patient one would wait long after a signal."""


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_stops_it_in_the_middle_of_a_step(endless_servers: list[subprocess.Popen[str]], times: int) -> None:
    """Once, it waits a second for an upload that does not go on; twice, even a patient one waits for nothing.

    A busy machine may take much longer than that, but less than the patient server would wait.
    """
    assert EXIT_SECONDS < 2
    server = endless_servers[times - 1]
    assert server.stderr is not None
    address = re.search(r"http://127\.0\.0\.1:(\d+)", server.stderr.readline())
    assert address
    head = f"POST /api/fit HTTP/1.1\r\nHost: 127.0.0.1:{address[1]}\r\nContent-Length: 9\r\n\r\n"
    with client_of(address[0]) as client, socket.create_connection(("127.0.0.1", int(address[1]))) as slow:
        job = client.post("/api/sample", json={"model": "mnist-small", "n": 1}).json()["job"]
        assert client.post("/api/playground", json={}).json()["position"] == 1
        slow.sendall(head.encode())
        with client.stream("GET", f"/api/jobs/{job}/events") as stream:
            events = events_in(stream)
            assert any(values["step"] == 1 for _, values in events)
            start = time.monotonic()
            server.send_signal(signal.SIGINT)
            if times == 1:
                assert list(events)[-1][1]["state"] == "cancelled"  # the stream ends properly
            else:
                time.sleep(0.1)
                server.send_signal(signal.SIGINT)
            assert server.wait(TIMEOUT) == 130
            assert time.monotonic() - start < 40
    said = server.stderr.read().splitlines()
    assert said[-1:] == ["stopped"] * (times == 1)
    assert not any("terminate" in line or "Traceback" in line for line in said)


@pytest.fixture(scope="module")
def endless_servers() -> Iterator[list[subprocess.Popen[str]]]:
    """One server as it is and a patient one, started together, so that they start while the tests before wait."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    servers = [
        subprocess.Popen([sys.executable, "-c", ENDLESS, *words], stderr=subprocess.PIPE, text=True, env=environment)
        for words in ([], ["patient"])
    ]
    try:
        yield servers
    finally:
        for server in servers:
            with server:
                server.kill()


def test_the_status_after_a_signal(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGTERM stops the server too. It ends the process even if the server itself does not come to an end."""
    ended, statuses = threading.Event(), list[int]()

    def end(status: int) -> None:
        statuses.append(status)
        ended.set()
        if threading.current_thread() is threading.main_thread():
            raise SystemExit(status)

    monkeypatch.setattr("scorefield.web.server.os._exit", end)
    monkeypatch.setattr("scorefield.web.server.EXIT_SECONDS", 0.1)
    server = Server(device="cpu")
    server.handle_exit(signal.SIGTERM, None)
    assert server.should_exit
    assert ended.wait(TIMEOUT)
    assert statuses == [143]
    with pytest.raises(SystemExit, match="130"):
        server.handle_exit(signal.SIGINT, None)  # the second one


def test_answers_are_sent_at_once() -> None:
    with listen("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname()):
        connection, _ = listening.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_an_unused_connection_stays_open_longer_than_in_common_clients(live: Live) -> None:
    """Proxies commonly keep connections for 60 seconds."""
    assert live.server.config.timeout_keep_alive > 60
    with closing(http.client.HTTPConnection("127.0.0.1", live.port, timeout=TIMEOUT)) as connection:
        for _ in range(2):
            connection.request("GET", "/api/models")
            assert connection.getresponse().read()
            assert connection.sock is not None


@pytest.mark.skipif(not (shutil.which("curl") and shutil.which("bash")), reason="the example needs curl and bash")
def test_the_first_example_of_the_description_saves_the_finished_grid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny_model(tmp_path / "mnist-small.safetensors")
    monkeypatch.setattr(pretrained, "FOLDERS", [tmp_path])
    with Live() as live:
        found = re.search("<pre><code>(.*?)</code></pre>", live.client.get("/api").text, re.DOTALL)
        assert found
        example = html.unescape(found[1])
        assert f"127.0.0.1:{live.port}/api/sample" in example
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "no_proxy": "127.0.0.1"}
        done = subprocess.run(["bash", "-e", "-c", example], cwd=tmp_path, env=environment, timeout=TIMEOUT)
        assert done.returncode == 0
        (job,) = live.worker._jobs
        status = live.status(job)
        assert (status["state"], status["step"]) == ("done", status["total"])
        assert (tmp_path / "samples.png").read_bytes() == live.client.get(f"/api/jobs/{job}/grid.png").content


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
    for minutes in ("0", "-1", "nan", "inf"):
        code, said = failure(capsys, "--max-minutes", minutes)
        assert (code, "--max-minutes must be" in said) == (2, True)
    (tmp_path / "text.safetensors").write_text("no model")
    for given in ("nowhere", str(tmp_path), str(tmp_path / "text.safetensors")):
        code, said = failure(capsys, "--port", "0", given)
        assert code == 2
        assert given in said
    assert "192.0.2.1" in failure(capsys, "--host", "192.0.2.1", "--token", "open-sesame")[1]


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EACCES, "only the administrator may use port 80 (choose one above 1023: --port 7860)"),
        (errno.EADDRNOTAVAIL, "cannot listen at 192.0.2.1: no such address (--host 127.0.0.1 is this machine)"),
    ],
)
def test_errors_of_the_address_say_what_to_do(monkeypatch: pytest.MonkeyPatch, number: int, words: str) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, "no such address")

    monkeypatch.setattr(socket, "create_server", refuse)
    with pytest.raises(OSError, match=re.escape(words)) as found:
        listen("192.0.2.1", 80)
    assert found.value.errno == number


def test_all_threads_end_with_the_server(folder: Path) -> None:
    before = set(threading.enumerate())
    live = Live()
    with live.busy():
        live.start(n=1, steps=200)
        live.stop()
    left = {thread.name for thread in set(threading.enumerate()) - before}
    assert not any("worker" in name and "AnyIO" not in name for name in left)
    assert not live.worker._thread.is_alive()


def serve_without_running(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str
) -> tuple[Server, str]:
    """The server that a command line makes, and what it says."""
    made = list[Server]()
    monkeypatch.setattr(Server, "run_until_stopped", lambda self, listening: made.append(self))
    monkeypatch.setattr("scorefield.cli.serve._own_address", lambda: "192.0.2.7")
    main(["serve", "--port", "0", "--no-open", *words])
    return made[0], capsys.readouterr().err


def test_listening_for_other_machines_prints_a_warning_and_the_addresses(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("runs/later", "--host", "0.0.0.0", "--token", "open-sesame", "--max-minutes", "5")
    server, said = serve_without_running(capsys, monkeypatch, *words)
    assert "warning:" in said
    assert re.search(r"http://127.0.0.1:\d+/\?token=open-sesame", said)
    assert re.search(r"http://192.0.2.7:\d+/\?token=open-sesame", said)
    assert "later:" in said  # a run that has not begun yet
    limits = server.worker._limits
    assert (limits.work_seconds, limits.client_seconds) == (300, 600)


def test_the_longest_job_is_shorter_where_several_people_may_use_the_server(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for words, minutes in (((), 720), (("--token", "auto"), 30)):
        server, _ = serve_without_running(capsys, monkeypatch, *words)
        assert server.worker._limits.work_seconds == 60 * minutes


def admits(server: Server, token: str) -> bool:
    """Whether that token opens the server."""
    app = server.config.app
    assert isinstance(app, Guard)
    headers = [(b"authorization", f"Bearer {token}".encode())]
    scope = {"type": "http", "method": "GET", "path": "/api", "query_string": b"", "headers": headers}
    return app._admission(Request(scope)) is None


def test_a_token_is_made_up_or_comes_from_the_environment(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = set[str]()
    for variable in ("", "auto"):
        monkeypatch.setenv("SCOREFIELD_TOKEN", variable)
        server, said = serve_without_running(capsys, monkeypatch, *([] if variable else ["--token", "auto"]))
        ((token),) = re.findall(r"/\?token=([A-Za-z0-9_-]{22}) ", said)
        assert admits(server, token)
        assert not admits(server, "auto")
        tokens.add(token)
    assert len(tokens) == 2
    monkeypatch.setenv("SCOREFIELD_TOKEN", "open-sesame")
    server, said = serve_without_running(capsys, monkeypatch, "--host", "0.0.0.0")
    assert admits(server, "open-sesame")
    assert not admits(server, "close-sesame")
    assert "open-sesame" not in said  # it is not printed
    assert said.count("/?token=$SCOREFIELD_TOKEN") == 2
    server, _ = serve_without_running(capsys, monkeypatch, "--token", "another-one")
    assert (admits(server, "another-one"), admits(server, "open-sesame")) == (True, False)
    monkeypatch.setenv("SCOREFIELD_TOKEN", "short")
    code, said = failure(capsys)
    assert (code, "SCOREFIELD_TOKEN must be at least 8" in said) == (2, True)
