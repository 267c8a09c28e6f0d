"""The description of the API says what the server does."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from guidable import guidable_file

from scorefield.models import pretrained
from scorefield.web.api import Api
from scorefield.web.limits import Limits
from scorefield.web.openapi import OPERATIONS, fields_of
from web.live_server import Live, low_limits, tiny_model

POSTS = [path for method, path in OPERATIONS if method == "post"]


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A server with tiny models of the names in the examples."""
    folder = tmp_path_factory.mktemp("models")
    tiny_model(folder / "mnist-small.safetensors", shape=(1, 12, 12))
    guidable_file(folder / "unet-mnist.safetensors")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pretrained, "FOLDERS", [folder])
        with Live(limits=low_limits(client_queue=8)) as live:
            yield live


@pytest.fixture(scope="module")
def description(live: Live) -> dict[str, Any]:
    answer: dict[str, Any] = live.client.get("/api/openapi.json").json()
    return answer


def body_of(description: dict[str, Any], path: str) -> tuple[str, dict[str, Any]]:
    """The media type of a request's body, and what is said about it."""
    (found,) = description["paths"][path]["post"]["requestBody"]["content"].items()
    return found


def send(live: Live, kind: str, path: str, values: dict[str, Any], files: dict[str, Any] | None = None) -> Any:  # noqa: ANN401
    if kind == "application/json":
        return live.client.post(path, json=values)
    parts: list[Any] = [(name, (None, str(value))) for name, value in values.items()]
    return live.client.post(path, files=parts + list((files or {}).items()))


def test_every_route_is_described_and_nothing_else(live: Live, description: dict[str, Any]) -> None:
    server = live.server
    routes = Api(server.models, server.worker, Limits()).routes()
    wanted = {(method.lower(), route.path) for route in routes for method in (route.methods or set()) - {"HEAD"}}
    found = {(method, path) for path, methods in description["paths"].items() for method in methods}
    assert found == wanted
    assert description["openapi"].startswith("3.1")
    for path, methods in description["paths"].items():
        names = {each["name"] for each in next(iter(methods.values())).get("parameters", []) if each["in"] == "path"}
        assert names == set(re.findall(r"{(\w+)}", path))


@pytest.mark.parametrize("path", POSTS)
def test_the_fields_are_those_that_the_server_reads(path: str, live: Live, description: dict[str, Any]) -> None:
    """It names them where it gets another one."""
    kind, content = body_of(description, path)
    answer = send(live, kind, path, {"nonsense": 1})
    assert answer.status_code == 422
    read = re.search(r"the fields are ([^)]*)\)", answer.json()["error"])
    assert read is not None
    assert set(read[1].split(", ")) == set(content["schema"]["properties"])


@pytest.mark.parametrize("path", [path for path in POSTS if OPERATIONS["post", path].example])
def test_the_example_works_and_its_answer_is_as_described(path: str, live: Live, description: dict[str, Any]) -> None:
    kind, content = body_of(description, path)
    answer = send(live, kind, path, content["example"])
    operation = OPERATIONS["post", path]
    assert answer.status_code == operation.status, answer.text
    assert isinstance(operation.answer, dict)
    assert set(answer.json()) == set(operation.answer["properties"])
    if operation.status == 202:
        status = live.end(answer.json()["job"])
        assert status["state"] == "done", status
        assert set(status) == set(OPERATIONS["get", "/api/jobs/{job}"].answer["properties"])  # type: ignore[index]


def written(number: float) -> str:
    """A bound as messages write it."""
    return re.escape(f"{number:g}" if isinstance(number, float) else str(number))


@pytest.mark.parametrize("path", POSTS)
def test_the_bounds_are_those_that_the_server_checks(path: str, live: Live, description: dict[str, Any]) -> None:
    """A value beyond a bound, or of another type, is refused with a message about its field that names the bound."""
    kind, content = body_of(description, path)
    checked = 0
    for name, schema in content["schema"]["properties"].items():
        wrong: list[tuple[Any, str]] = []
        if "maximum" in schema:
            wrong.append((schema["maximum"] + 1, f"(to|at most) {written(schema['maximum'])};"))
        if "minimum" in schema:
            wrong.append((schema["minimum"] - 1, f"from {written(schema['minimum'])} to"))
        if "exclusiveMinimum" in schema:
            wrong.append((schema["exclusiveMinimum"], f"above {written(schema['exclusiveMinimum'])}[,;]"))
        if "maxItems" in schema:
            wrong.append(([1] * (schema["maxItems"] + 1), f"1 to {schema['maxItems']} entries"))
        if "enum" in schema:
            wrong.append(("nonsense", f"one of {', '.join(schema['enum'])};"))
        if schema.get("type") in ("integer", "number", "boolean", "array"):
            wrong.append(("x", "must be"))
        base = {"model": "unet-mnist"} if "model" in content["schema"].get("required", []) else {}
        for value, words in wrong:
            answer = send(live, kind, path, {**base, name: value})
            said = answer.json().get("error", "")
            assert answer.status_code in (400, 422), (name, value, answer.text)
            assert name in said, (name, value, said)
            assert re.search(words, said), (name, value, said, words)
            checked += 1
    assert checked or path == "/api/fit"


def test_every_field_has_a_line_of_help(description: dict[str, Any]) -> None:
    for path in POSTS:
        for name, schema in body_of(description, path)[1]["schema"]["properties"].items():
            assert re.fullmatch(r".{10,400}", schema["description"]), (path, name)
    points = body_of(description, "/api/playground")[1]["schema"]["properties"]  # not the method of a restoration
    assert "points" in points["n"]["description"]
    assert "annealed" in points["method"]["description"]


def test_a_sampler_that_is_registered_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    from scorefield.samplers import SAMPLERS

    monkeypatch.setitem(SAMPLERS, "another", SAMPLERS["euler"])
    found = fields_of(OPERATIONS["post", "/api/sample"], Limits(n=7))
    assert "another" in found["sampler"]["enum"]
    assert (found["n"]["maximum"], found["n"]["default"]) == (7, 16)
    assert "default" not in found["sampler"]


def test_the_answers_to_other_requests_are_as_described(live: Live) -> None:
    for path in ("/api/models", "/api/runs"):
        answer = live.client.get(path).json()
        assert set(answer) == set(OPERATIONS["get", path].answer["properties"])  # type: ignore[index]


PAGE = Path(__file__).parents[2] / "scorefield" / "web" / "page" / "api.html"
PYTHON = re.findall(r'<pre class="python"><code>(.*?)</code>', PAGE.read_text(encoding="utf-8"), re.S)


@pytest.mark.parametrize("number", range(len(PYTHON)))
def test_the_python_examples_of_the_page_run(
    number: int, live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import html

    monkeypatch.chdir(tmp_path)
    (tmp_path / "digit.png").write_bytes(live.client.get("/api/examples/9.png").content)
    code = html.unescape(PYTHON[number]).replace("localhost:7860", f"127.0.0.1:{live.port}")
    exec(compile(code, f"example {number}", "exec"), {})
    written = sorted(file.name for file in tmp_path.glob("*.png") if file.name != "digit.png")
    assert written
    for name in written:
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    assert json.dumps(written) in code or all(f'"{name}"' in code for name in written)


def test_there_are_python_examples() -> None:
    assert len(PYTHON) >= 2
