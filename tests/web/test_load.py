"""Many requests: random ones, none of which may make the server fail, and many clients at once."""

from __future__ import annotations

import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from guidable import guidable_file

from scorefield.models import pretrained
from scorefield.web.limits import Limits
from scorefield.web.openapi import OPERATIONS, Recorder, fields_of
from web.live_server import Live, client_of, events_in, low_limits, picture, tiny_model

MANY = 10**6
NASTY: list[Any] = [
    *(
        None,
        True,
        False,
        0,
        -1,
        1,
        2,
        7,
        10**9,
        10**30,
        1.5,
        -0.0,
        1e308,
        1e-320,
        "",
        " ",
        "0",
        "x",
        "none",
        "NaN",
        "ñ\u0000",
    ),
    *(
        [],
        [[]],
        {},
        {"a": 1},
        [1, 2],
        [[1, 2]],
        [[1, "x"]],
        "🙂" * 50,
        "9" * 400,
        "../../etc/passwd",
        "inpaint:/etc/passwd",
    ),
    *("superres:2", "superres:0", "blur:1", "blur:1e9", "gray", "inpaint", "inpaint:left", "left", "heun", "euler"),
    *("consistent_annealed", "annealed_hmc", "ancestral", "mmps", "replace", "9", "frog", "cat", "tiny", "pets"),
]
SCHEMAS = {path: fields_of(each, Limits()) for (_, path), each in OPERATIONS.items() if each.read is not None}
PARTS = ["0", "1", "-1", "x", "9", "10000000000", "%00", "..", "%2e%2e%2fsecret", "grid.png", "mean.png", "images.npy"]


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("models")
    tiny_model(folder / "tiny.safetensors", shape=(1, 12, 12))
    tiny_model(folder / "coloured.safetensors", shape=(3, 8, 8))
    guidable_file(folder / "pets.safetensors")
    limits = low_limits(queue=MANY, client_queue=MANY, work_seconds=MANY, client_seconds=MANY, upload_bytes=200_000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pretrained, "FOLDERS", [folder])
        with Live(limits=limits) as live:
            yield live


def ask_at_random(live: Live, draws: random.Random, jobs: list[str]) -> httpx.Response:
    """One request: a known address with values of which some are wrong, or nonsense."""
    known = [each for each in OPERATIONS if each[0] == "post" or draws.random() < 0.5]
    method, path = draws.choice(known)
    operation = OPERATIONS[method, path]
    if jobs and draws.random() < 0.7:
        path = path.replace("{job}", draws.choice(jobs))
    address = re.sub(r"{\w+}", lambda _: draws.choice(PARTS), path)
    address += draws.choice(["", "", "", "?view=denoised", "?view=x", "?" + "a" * 200])
    if operation.read is None:
        if address.partition("?")[0].endswith("/events"):
            method = "head"
        return live.client.request(method, address)
    kinds = draws.random()
    if kinds < 0.1:  # no JSON, no form
        content = bytes(draws.randrange(256) for _ in range(draws.randrange(80)))
        kind = draws.choice(
            ["application/json", "multipart/form-data; boundary=x", "multipart/form-data", "text/plain"]
        )
        return live.client.post(address, content=content, headers={"Content-Type": kind})
    schemas = SCHEMAS[path]
    values: dict[str, Any] = {"model": draws.choice(["tiny", "pets", "coloured"])} if "model" in schemas else {}
    values |= {name: few for name, few in {"n": 1, "calls": 4, "frames": 2}.items() if name in schemas}
    if draws.random() < 0.5 and "example" in schemas:
        values["example"] = "9"
    for name in draws.sample(sorted(schemas), min(len(schemas), draws.choice([0, 0, 1, 2, 3]))):
        values[name] = draws.choice([*NASTY, *schemas[name].get("enum", []), schemas[name].get("maximum", 3)])
    if not operation.form:
        return live.client.post(address, json=values)
    parts: list[Any] = [(name, (None, str(value))) for name, value in values.items()]
    image = picture(draws.choice([(12, 12), (4, 4), (8, 8), (30, 20)]), draws.choice(["PNG", "JPEG", "GIF"]))
    cut = image[: draws.randrange(len(image))]
    for name in operation.files:
        if name not in values and draws.random() < 0.5:
            parts.append((name, ("a.png", draws.choice([image, image, cut, b"", b"x" * 50]))))
    return live.client.post(address, files=parts or {"nothing": b""})


@pytest.mark.filterwarnings("ignore:step_size")
@pytest.mark.parametrize("count", [500, pytest.param(10_000, marks=pytest.mark.nightly)])
def test_random_requests_make_no_request_fail(count: int, live: Live, caplog: pytest.LogCaptureFixture) -> None:
    draws, jobs, answers = random.Random(count), list[str](), dict[int, int]()
    for _ in range(count):
        answer = ask_at_random(live, draws, jobs)
        answers[answer.status_code] = answers.get(answer.status_code, 0) + 1
        assert answer.status_code < 500, (answer.request.url, answer.request.content[:500], answer.text)
        if answer.status_code >= 400 and answer.request.method != "HEAD":
            assert answer.json()["error"]
        if answer.status_code == 202:
            jobs = [*jobs[-5:], answer.json()["job"]]
            if draws.random() < 0.8:  # some go on to their end
                live.client.delete(f"/api/jobs/{jobs[-1]}")
    assert answers[202] > count / 25  # many were possible
    assert answers[200] > count / 10
    assert answers[400] + answers[422] > count / 10
    for job in jobs:
        live.client.delete(f"/api/jobs/{job}")
    assert live.end(live.start(n=1, steps=1))["state"] == "done"
    assert not [each for each in caplog.records if each.levelname == "ERROR"]


def test_the_recorder_needs_no_request() -> None:
    """What the random requests are made from."""
    recorder = Recorder(())
    assert (recorder.whole("n", 3, least=1, most=5), recorder.text("model")) == (3, None)
    assert recorder.found["n"] == {"type": "integer", "minimum": 1, "maximum": 5, "default": 3}


# ---------------------------------------------------------------- many clients

SERVER = """
import sys
from scorefield.web.limits import Limits
from scorefield.web.server import Server, listen
listening = listen("127.0.0.1", 0)
port = listening.getsockname()[1]
print(port, flush=True)
Server([], port=port, device="cpu", limits=Limits(queue=20)).run_until_stopped(listening)
"""
CLIENTS, QUEUED, MEMORY = 100, 20, 1_000_000
"""How many visit the page, how many jobs they start, and the most memory of the server, in kB."""


@pytest.mark.nightly
def test_a_hundred_clients_and_twenty_jobs() -> None:
    """All requests are answered, nobody waits for a second job of another, and the memory stays small."""
    server = subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    address = f"http://127.0.0.1:{server.stdout.readline().strip()}"
    asked = {"model": "mnist-small", "n": 4, "sampler": "consistent_annealed", "calls": 10}
    page = [f"/static/{file.name}" for file in (Path(__file__).parents[2] / "scorefield/web/page").glob("*.*")]
    ended: list[tuple[float, int, int]] = []

    def visit(number: int) -> list[int]:
        """Load the whole page; the first ten clients start two jobs each and follow them to the end."""
        found = []
        with client_of(address) as client:
            client.headers["X-Forwarded-For"] = f"10.0.0.{number}"
            found += [client.get(path).status_code for path in ["/", *page, "/api/models", "/api"]]
            started = [
                client.post("/api/sample", json=asked | {"seed": seed}) for seed in (0, 1) if number < QUEUED / 2
            ]
            found += [answer.status_code for answer in started]
            for turn, answer in enumerate(started):
                with client.stream("GET", f"/api/jobs/{answer.json()['job']}/events") as stream:
                    last = list(events_in(stream))[-1][1]
                assert last["state"] == "done", last
                ended.append((time.monotonic(), number, turn))
        return found

    try:
        with ThreadPoolExecutor(CLIENTS) as pool:
            answers = [status for found in pool.map(visit, range(CLIENTS)) for status in found]
        assert len(ended) == QUEUED
        assert set(answers) == {200, 202}
        assert answers.count(202) == QUEUED
        turns = [turn for _, _, turn in sorted(ended)]
        assert sum(turns[:10]) <= 2  # the first jobs come first; a client may be early while the others still load
        memory = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{server.pid}/status").read_text())
        assert memory is not None
        assert int(memory[1]) < MEMORY
    finally:
        server.terminate()
        server.wait(20)
        server.stdout.close()
