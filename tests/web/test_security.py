"""The web server: who may use it, and for what."""

from __future__ import annotations

import http.client
import re
from contextlib import closing
from pathlib import Path

import pytest

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


def test_pages_of_other_servers_cannot_change_anything(live: Live) -> None:
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


def test_only_the_token_opens_the_server(folder: Path) -> None:
    with Live(token="open-sesame", host="0.0.0.0") as live:
        name = f"token-{live.port}"  # two servers on one machine share cookies
        for host in ("my.machine", "x/static/", "my.machine/static/?"):  # no host name changes the address
            assert live.client.get("/api/models", headers={"host": host}).status_code == 401  # and not 421
        for path in ("/", "/api", "/api/models", "/?token=open", "/?token=", "/api/models?token=open-sesame"):
            answer = live.client.get(path)
            assert answer.status_code == 401
            assert "/?token=TOKEN" in answer.json()["error"]
        person = live.client.get("/", headers={"accept": "text/html,application/xhtml+xml"})
        assert (person.status_code, person.headers["content-type"]) == (401, "text/html; charset=utf-8")
        assert "needs a token" in person.text
        assert live.post("sample", model="tiny").status_code == 401
        for wrong in ("Bearer open", "Bearer", "open-sesame", "Basic open-sesame", "Bearer öpen-sesame"):
            assert live.client.get("/api/models", headers={b"authorization": wrong.encode()}).status_code == 401
        assert live.client.get("/api/models", headers={"cookie": f"{name}=open"}).status_code == 401
        assert live.client.get("/static/style.css").status_code == 200
        right = {"authorization": "Bearer open-sesame"}
        assert live.client.get("/api/models", headers=right).status_code == 200
        answer = live.client.get("/?token=open-sesame")
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        cookie = answer.headers["set-cookie"].lower()
        assert all(word in cookie for word in (f"{name}=open-sesame", "httponly", "samesite=strict", "path=/"))
        assert live.client.get("/").status_code == 200  # with the cookie
        assert live.post("field", points=2).status_code == 200


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
