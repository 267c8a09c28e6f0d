"""The web server: who may use it, and for what."""

from __future__ import annotations

import http.client
import math
import re
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from starlette.requests import Request

from scorefield.web import security
from scorefield.web.models import Models
from web.live_server import TIMEOUT, Live
from web.live_server import folder as folder
from web.live_server import live as live


def test_every_answer_has_the_security_headers(live: Live) -> None:
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


def test_an_error_of_the_server_shows_only_its_kind(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with Live() as live:
        monkeypatch.setattr(Models, "runs", property(lambda models: 1 / 0))
        answer = live.client.get("/api/runs")
        assert answer.status_code == 500
        assert re.fullmatch(r"the server failed: ZeroDivisionError \(.*\)", answer.json()["error"])
        assert answer.headers["x-content-type-options"] == "nosniff"


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
def test_only_names_of_this_machine_are_answered(live: Live, host: str, status: int) -> None:
    answer = live.client.get("/api/models", headers={"host": host.format(live.port)})
    assert answer.status_code == status
    assert ("error" in answer.json()) == (status != 200)


def test_which_names_are_allowed() -> None:
    local = {"localhost", "127.0.0.1", "[::1]"}
    for host, port, names in (
        ("127.0.0.1", 7860, {f"{name}:7860" for name in local}),
        ("127.0.0.9", 7860, {f"{name}:7860" for name in local | {"127.0.0.9"}}),
        ("localhost", 80, local | {f"{name}:80" for name in local}),
    ):
        assert security.allowed_hosts(host, port) == frozenset(names)
    for host in ("0.0.0.0", "::", "192.0.2.1", "my.machine"):  # others may reach it by any name
        assert security.allowed_hosts(host, 7860) is None


def test_pages_of_other_servers_cannot_change_anything(live: Live) -> None:
    for origin in (
        "http://elsewhere.example",
        f"http://localhost:{live.port}",
        f"http://elsewhere.127.0.0.1:{live.port}",  # it ends as this server's name does
        f"http://elsewhere-127.0.0.1:{live.port}",
        f"http://elsewhere@127.0.0.1:{live.port}",
        f"{live.address}.elsewhere.example",
        f"{live.address}0",
        f"127.0.0.1:{live.port}",
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


def test_only_the_token_opens_the_server(folder: Path) -> None:
    with Live(token="open-sesame", host="0.0.0.0") as live:
        name = f"token-{live.port}"  # two servers on one machine share cookies
        for host in ("my.machine", "x/static/", "my.machine/static/?"):  # no host name changes the address
            assert live.client.get("/api/models", headers={"host": host}).status_code == 401  # and not 421
        link = "/api/models?token=open-sesame"  # only / takes it
        for path in ("/", "/api", "/api/models", "/?token=", link, "/api/static/", "/static"):
            answer = live.client.get(path)
            assert answer.status_code == 401
            assert "/?token=TOKEN" in answer.json()["error"]
        person = live.client.get("/", headers={"accept": "text/html,application/xhtml+xml"})
        assert (person.status_code, person.headers["content-type"]) == (401, "text/html; charset=utf-8")
        assert "needs a token" in person.text
        assert live.post("sample", model="tiny").status_code == 401
        for wrong in ("Bearer", "open-sesame", "Basic open-sesame", "Bearer öpen-sesame"):
            assert live.client.get("/api/models", headers={b"authorization": wrong.encode()}).status_code == 401
        for wrong in ("open", "open-sesame1", "xopen-sesame", "OPEN-SESAME"):
            assert live.client.get("/api/models", headers={"authorization": f"Bearer {wrong}"}).status_code == 401
            assert live.client.get("/api/models", headers={"cookie": f"{name}={wrong}"}).status_code == 401
            assert live.client.get(f"/?token={wrong}").status_code == 401
        assert live.client.get("/static/style.css").status_code == 200
        right = {"authorization": "Bearer open-sesame"}
        description = live.client.get("/api", headers=right | {"host": "<b>"}).text
        assert "curl -s &lt;b&gt;/api/jobs" in description
        assert "<b>" not in description
        assert live.client.get("/api/models", headers=right).status_code == 200
        answer = live.client.get("/?token=open-sesame")
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        cookie = answer.headers["set-cookie"].lower()
        assert all(word in cookie for word in (f"{name}=open-sesame", "httponly", "samesite=strict", "path=/"))
        assert live.client.get("/").status_code == 200  # with the cookie
        assert live.post("field", points=2).status_code == 200


def test_guessing_tokens_is_slowed_down(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(security, "time", SimpleNamespace(monotonic=lambda: now))
    with Live(token="open-sesame", host="0.0.0.0") as live:

        def ask(token: str | None, client: str = "10.0.0.1") -> int:
            headers = {"X-Forwarded-For": client} | ({"authorization": f"Bearer {token}"} if token else {})
            answer = live.client.get("/api/models", headers=headers)
            if answer.status_code == 429:
                assert answer.headers["retry-after"] == str(math.ceil(1006 - now))
                assert "too many wrong tokens" in answer.json()["error"]
            return answer.status_code

        assert [ask("a page that was left open") for _ in range(30)] == [401] * 30  # one guess
        assert [ask(f"guess {k}") for k in range(9)] == [401] * 9
        assert ask("guess 9") == 429
        assert ask("open-sesame") == 429  # or it could be found in the meantime
        assert ask(None) == 401
        assert ask("open-sesame", "10.0.0.2") == 200
        now += 5.9
        assert ask("open-sesame") == 429
        now += 0.2
        assert ask("open-sesame") == 200
        assert ask("guess 10") == 401
        now = 1006.0
        assert security.GUESSES == 10


def test_only_some_addresses_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security, "ADDRESSES", 3)
    throttle = security.Throttle()
    for address in "abcad":  # a comes again, so b is the oldest
        for guess in range(40):
            throttle.count(address, f"{guess}{'x' * 10_000}")
    assert [throttle.seconds(address) > 0 for address in "abcd"] == [True, False, True, True]
    held = [value for _, tokens in throttle._wrong.values() for value in tokens]
    assert sum(map(len, held)) <= 3 * 10 * 32


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("203.0.113.7", "203.0.113.7"),
        ("::ffff:203.0.113.7", "203.0.113.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::1", "2001:db8:1:3::/64"),
        ("testclient", "testclient"),
        (None, ""),
    ],
)
def test_clients_are_told_apart_by_their_address(address: str | None, name: str) -> None:
    client = None if address is None else (address, 1234)
    assert security.client_of(Request({"type": "http", "client": client})) == name


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
        "/api/examples/..%2f..%2fpaper%2fdigit.png",
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
def test_no_path_leads_out_of_the_served_folders(live: Live, path: str) -> None:
    with closing(http.client.HTTPConnection("127.0.0.1", live.port, timeout=TIMEOUT)) as connection:
        connection.request("GET", path)  # httpx would normalise the path
        assert connection.getresponse().status == 404
