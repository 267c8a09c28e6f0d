"""Wrong requests: status codes and error messages."""

from __future__ import annotations

import asyncio
import io
import socket
import struct
import subprocess
import sys
import tracemalloc
import zlib
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx
import pytest
from PIL import Image
from starlette.exceptions import HTTPException
from starlette.requests import Request

from scorefield.web import requests
from web.live_server import Live, inpaint, picture
from web.live_server import tiny_live as tiny_live

SAMPLE: list[tuple[dict[str, Any], int, str]] = [
    ({}, 422, "coloured, tiny"),
    ({"model": 7}, 422, "model must be text"),
    ({"model": "huge"}, 404, "coloured, tiny"),
    ({"model": "../tiny"}, 404, "coloured, tiny"),
    ({"n": "4"}, 422, "n must be a whole number"),
    ({"n": 4.0}, 422, "n must be a whole number"),
    ({"n": True}, 422, "n must be a whole number; got true"),
    ({"n": 10**30}, 400, "n must be from 1 to 64"),
    ({"n": 65}, 400, "n must be from 1 to 64; got 65"),
    ({"n": 0}, 400, "n must be from 1 to 64"),
    ({"n": [1]}, 422, "n must be a whole number"),
    ({"steps": 201}, 400, "steps must be at most 200"),
    ({"steps": 0}, 400, "steps must be"),
    ({"steps": -1}, 400, "steps must be"),
    ({"steps": 2.5}, 422, "steps must be a whole number"),
    ({"sampler": "magic"}, 400, "annealed_langevin"),
    ({"sampler": 3}, 422, "sampler must be text"),
    ({"sampler": "heun", "calls": 0}, 400, "calls must be a whole number from 1 to 100,000; got 0"),
    ({"sampler": "heun", "calls": 30}, 400, "knows 2 noise levels, with which heun makes at most 3 calls"),
    ({"calls": 10**9}, 400, "calls must be at most 100000"),
    ({"sampler": "heun", "churn": -1}, 400, "churn and churn_noise must be finite and not negative"),
    ({"sampler": "consistent_annealed", "eta": 1.95}, 400, "eta must be positive and at most 1 + σᵢ₊₁/σᵢ = 1.01"),
    ({"seed": -1}, 400, "seed must be from 0 to 4294967295"),
    ({"seed": 2**32}, 400, "seed must be from 0"),
    ({"step_size": 0}, 400, "step_size must be"),
    ({"step_size": -1e-5}, 400, "step_size must be"),
    ({"step_size": 10**400}, 400, "finite"),
    ({"step_size": "small"}, 422, "step_size must be a number"),
    ({"step_size": False}, 422, "step_size must be a number"),
    ({"denoise": 1}, 422, "denoise must be true or false"),
    ({"number": 3}, 422, '"number" (the fields are model, n, seed, sampler, calls, step_size, steps, denoise,'),
]


@pytest.mark.parametrize(("values", "status", "words"), SAMPLE, ids=lambda value: str(value)[:40])
def test_bad_samples(live: Live, values: dict[str, Any], status: int, words: str) -> None:
    answer = live.post("sample", **({"model": "tiny"} | values if values else {}))
    assert (answer.status_code, words in answer.json()["error"]) == (status, True), answer.text


BODIES = [
    (b"", 422, "not JSON"),
    (b"model=tiny", 422, "not JSON"),
    (b"[1]", 422, "must be a JSON object"),
    (b'"tiny"', 422, "must be a JSON object"),
    (b'{"model": "tiny", "step_size": NaN}', 422, "NaN is not a number"),
    (b'{"model": "tiny", "step_size": -Infinity}', 422, "-Infinity is not a number"),
    (b'{"model": "tiny", "step_size": 1e999}', 400, "step_size must be finite"),
    (b'{"model": "tiny", "n": 1' + b"0" * 4800 + b"}", 422, "not JSON"),
    (b"[" * 4900, 422, "not JSON"),
    (b'{"model": "\xff"}', 422, "not JSON"),
    (b'{"model": "\\ud800"}', 404, "no model"),
    (b'{"\\ud800": 1}', 422, "unknown"),
    (b'{"model": "tiny", "n": "\\ud800"}', 422, "n must be a whole number"),
    (b'{"model": "' + b"x" * 5000 + b'"}', 413, "at most 5,000 bytes"),
]


@pytest.mark.parametrize(("body", "status", "words"), BODIES, ids=lambda value: str(value)[:40])
def test_bad_bodies(live: Live, body: bytes, status: int, words: str) -> None:
    answer = live.client.post("/api/sample", content=body)
    assert (answer.status_code, words in answer.json()["error"]) == (status, True), answer.text


PLAY: list[tuple[dict[str, Any], int, str]] = [
    ({"means": "here"}, 422, "means must be a list"),
    ({"means": []}, 400, "means must have 1 to 8"),
    ({"means": [[0, 0]] * 9}, 400, "means must have 1 to 8 entries; got 9"),
    ({"means": [[0, 0, 0], [1, 1, 1]]}, 422, "points [x, y]"),
    ({"means": [[0, 9], [0, 0]]}, 400, "coordinates must be from -8 to 8"),
    ({"means": [[0, "a"], [0, 0]]}, 422, "a coordinate must be a number"),
    ({"weights": [1]}, 400, "each of the 2 means needs a weight"),
    ({"weights": [1, 0]}, 400, "a weight must be finite, above 1e-09"),
    ({"weights": [1e-300, 1]}, 400, "a weight must be finite, above 1e-09"),
    ({"method": "hamiltonian"}, 400, "method must be one of langevin, annealed"),
    ({"n": 2001}, 400, "n must be from 1 to 2000"),
    ({"levels": 51}, 400, "levels must be from 1 to 50"),
    ({"levels": 50, "steps": 101}, 400, "steps must be from 1 to 100"),
    ({"sigma_max": 1, "sigma_min": 2}, 400, "sigma_max must exceed sigma_min"),
    ({"sigma_min": 0}, 400, "sigma_min must be finite, above 0.01"),
    ({"sigma_min": 0.01}, 400, "sigma_min must be finite, above 0.01"),
    ({"sigma_max": 100.1}, 400, "sigma_max must be finite, above 0.01, at most 100"),
]


@pytest.mark.parametrize(("values", "status", "words"), PLAY, ids=lambda value: str(value)[:40])
def test_bad_playgrounds(live: Live, values: dict[str, Any], status: int, words: str) -> None:
    answer = live.post("playground", **values)
    assert (answer.status_code, words in answer.json()["error"]) == (status, True), answer.text


def test_bad_fields(live: Live) -> None:
    for values, status in (({"sigma": 0}, 400), ({"points": 65}, 400), ({"points": "a"}, 422), ({"sigmas": 1}, 422)):
        assert live.post("field", **values).status_code == status


def header_alone(width: int, height: int) -> bytes:
    """A PNG with this size in its header, and almost no pixels."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    ihdr = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", ihdr) + chunk(b"IDAT", zlib.compress(b"\0" * 1000)) + chunk(b"IEND", b"")
    )


IMAGES = {
    "text": (b"just some words", 415, "cannot be read as an image (send PNG"),
    "empty": (b"", 415, "as an image"),
    "50,000 pixels wide": (picture((50_000, 1)), 413, "50,000 × 1 has too many pixels"),
    "30 million pixels": (header_alone(6000, 5000), 413, "at most 25,000,000 pixels"),
    "a bomb": (header_alone(20_000, 20_000), 413, "too large"),
    "a greater bomb": (header_alone(2**31 - 1, 2**31 - 1), 413, "too large"),
    "no pixels": (header_alone(20, 20), 415, "damaged or cut short"),
    "truncated JPEG": (picture((200, 200), "JPEG")[:1500], 415, "damaged or cut short"),
    "truncated PNG": (picture((200, 200), "PNG")[:300], 415, "damaged or cut short"),
    "PPM": (picture(kind="PPM"), 415, "as an image"),
    "an SVG": (b'<svg xmlns="http://www.w3.org/2000/svg"/>', 415, "as an image"),
    "EPS": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n", 415, "as an image"),
    "too large": (bytes(300_000), 413, "at most 200,000 bytes"),
}


@pytest.mark.parametrize("name", IMAGES)
@pytest.mark.parametrize("path", ["fit", "inpaint"])
def test_bad_images(live: Live, path: str, name: str) -> None:
    content, status, words = IMAGES[name]
    answer = live.client.post(f"/api/{path}", data={"model": "tiny"}, files={"image": ("a.png", content)})
    assert (answer.status_code, words in answer.json()["error"]) == (status, True), answer.text


FORMS: list[tuple[dict[str, bytes], dict[str, Any], int, str]] = [
    ({}, {}, 422, "either image as a file, or the name of an example"),
    ({"image": picture()}, {"example": "9"}, 422, "either image as a file"),
    ({}, {"image": "9"}, 422, "either image as a file"),
    ({}, {"example": "nine"}, 404, "no such example (choose from 2, "),
    ({}, {"example": "../../paper/digit"}, 404, "no such example"),
    ({}, {"example": "9", "model": None}, 422, "model is missing"),
    ({}, {"example": "9", "mask": "/etc/passwd"}, 400, "mask must be one of left, right"),
    (
        {"mask": picture((12, 10))},
        {"example": "9"},
        400,
        "the mask is 12 × 10, but must have the model's size, 10 × 12",
    ),
    ({"mask": header_alone(20_000, 20_000)}, {"example": "9"}, 413, "too large"),
    ({"mask": picture((10, 12))[:48]}, {"example": "9"}, 415, "damaged or cut short"),
    ({"mask": b"text"}, {"example": "9"}, 415, "as an image"),
    ({}, {"example": "9", "n": 17}, 400, "n must be from 1 to 16"),
    ({}, {"example": "9", "n": "many"}, 422, "n must be a whole number"),
    ({}, {"example": "9", "n": "1.0"}, 422, "n must be a whole number"),
    ({}, {"example": "9", "step_size": "nan"}, 422, "step_size must be a number"),
    ({}, {"example": "9", "step_size": "NaN"}, 400, "step_size must be finite"),
    ({}, {"example": "9", "step_size": "Infinity"}, 400, "step_size must be finite"),
    ({}, {"example": "9", "denoise": "maybe"}, 422, "denoise must be true or false"),
    ({}, {"example": "9", "colour": "red"}, 422, 'unknown: "colour"'),
    ({"other": picture()}, {"example": "9"}, 422, 'unknown: "other"'),
    ({"mask": picture((10, 12))}, {"example": "9", "mask": "left"}, 422, '"mask" was sent twice'),
]


@pytest.mark.parametrize(("files", "values", "status", "words"), FORMS, ids=lambda value: str(value)[:30])
def test_bad_forms(live: Live, files: dict[str, bytes], values: dict[str, Any], status: int, words: str) -> None:
    answer = inpaint(live, files, **values)
    assert (answer.status_code, words in answer.json()["error"]) == (status, True), answer.text


def test_a_mask_must_hide_something(live: Live) -> None:
    file = io.BytesIO()
    Image.new("L", (10, 12), 255).save(file, format="PNG")
    answer = inpaint(live, {"mask": file.getvalue()}, example="9")
    assert answer.status_code == 400
    assert "hides nothing" in answer.json()["error"]


def test_a_mask_is_rotated_as_its_exif_says_before_its_size_is_checked(live: Live) -> None:
    file, exif = io.BytesIO(), Image.Exif()
    exif[0x0112] = 6  # rotate by 90°
    Image.new("L", (10, 12)).save(file, format="PNG", exif=exif)
    answer = inpaint(live, {"mask": file.getvalue()}, example="9")
    assert answer.status_code == 400
    assert "the mask is 12 × 10" in answer.json()["error"]


def test_bodies_that_are_no_forms(live: Live) -> None:
    kind = {"content-type": "multipart/form-data; boundary=x"}
    for body, headers in (
        (b"{}", {"content-type": "application/json"}),
        (b"nonsense", kind),
        (b"--x\r\nContent-Disposition: form-data\r\n\r\nvalue\r\n--x--\r\n", kind),
        (b"--x--\r\n", {"content-type": "multipart/form-data"}),
    ):
        for path in ("fit", "inpaint"):
            assert live.client.post(f"/api/{path}", content=body, headers=headers).status_code == 422
    assert live.client.post("/api/fit", data={"model": "tiny"}, files={"file": b""}).status_code == 422


def test_an_upload_without_a_length_is_not_kept_beyond_the_limit(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = 0

    def chunks() -> Iterator[bytes]:
        nonlocal sent
        yield b'--x\r\nContent-Disposition: form-data; name="image"; filename="a"\r\n\r\n'
        for _ in range(20):
            sent += 1
            yield bytes(50_000)

    kind = {"content-type": "multipart/form-data; boundary=x"}
    answer = live.client.post("/api/fit", content=chunks(), headers=kind)
    assert (answer.status_code, sent) == (413, 20)  # it is read to its end, so that the client sees the answer
    monkeypatch.setattr(requests, "PATIENCE", 2)
    with suppress(httpx.TransportError):  # the server may close the connection while the client is still sending
        assert live.client.post("/api/fit", content=chunks(), headers=kind).status_code == 413


@pytest.mark.parametrize(("chunks", "kept"), [(10, 10), (11, 0), (100, 0)])
def test_a_body_is_kept_up_to_its_limit_and_not_at_all_beyond(chunks: int, kept: int) -> None:
    """Bodies in chunks of 100,000 bytes for a limit of ten of them. One more chunk is held while it is looked at."""
    size, held = 100_000, list[int]()

    async def receive() -> dict[str, Any]:
        held.append(tracemalloc.get_traced_memory()[0])
        more = len(held) < chunks
        return {"type": "http.request", "body": bytes(size), "more_body": more}

    request = Request({"type": "http", "method": "POST"}, receive)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        if kept:
            assert len(asyncio.run(requests._read_body(request, 10 * size, "send less"))) == chunks * size
        else:
            with pytest.raises(HTTPException, match="at most 1,000,000 bytes"):
                asyncio.run(requests._read_body(request, 10 * size, "send less"))
    finally:
        tracemalloc.stop()
    assert max(held) - before < 11.5 * size
    assert all(bytes_held - before < 1.5 * size for bytes_held in held[11:])  # what came before is freed
    assert len(held) == chunks


def test_a_body_is_read_only_so_far_beyond_its_limit() -> None:
    read = 0

    async def receive() -> dict[str, Any]:
        nonlocal read
        read += 1
        return {"type": "http.request", "body": bytes(100), "more_body": read < 1000}

    with pytest.raises(HTTPException, match="at most 1,000 bytes"):
        asyncio.run(requests._read_body(Request({"type": "http", "method": "POST"}, receive), 1000, "send less"))
    assert read == 101


LARGE = r"""
import io, struct, zlib
from pathlib import Path
from scorefield.data import pictures

def chunk(name, content):
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

def file(side, depth, kind):
    row = bytes(1 + side * depth // 8 * {0: 1, 4: 2, 6: 4}[kind])
    packer = zlib.compressobj(1)
    rows = b"".join([packer.compress(row) for _ in range(side)] + [packer.flush()])
    header = struct.pack(">IIBBBBB", side, side, depth, kind, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")

def peak(content):
    pictures.fit_image(pictures.decode(io.BytesIO(content)), "x", 3, pictures.Fit(size=(28, 28)))
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024

KINDS = (16, 0), (8, 4), (8, 6)
before = max(peak(file(100, *kind)) for kind in KINDS)
print(*(peak(file(5000, *kind)) - before for kind in KINDS))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of the memory is read from /proc")
def test_an_image_of_25_million_pixels_takes_little_memory() -> None:
    """16-bit grey, grey with transparency, RGBA: not much more than two copies of four bytes for a pixel."""
    done = subprocess.run([sys.executable, "-c", LARGE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    peaks = [int(peak) / 1e6 for peak in done.stdout.split()]
    assert len(peaks) == 3
    assert 100 < max(peaks) < 250


def test_unknown_addresses(live: Live) -> None:
    job = live.start(n=1, steps=1)
    live.end(job)
    for path in ("nothing", f"{job}/frames/3.png", f"{job}/frames/-1.png", f"{job}/images/1.png", f"{job}/all.zip"):
        answer = live.client.get(f"/api/jobs/{path}")
        assert answer.status_code == 404
        assert "error" in answer.json()
    assert live.client.get(f"/api/jobs/{job}/frames/{'9' * 5000}.png").status_code == 404
    for path in ("/nothing", "/api/nothing", "/api/models/", "/api/runs/mine", "/api/runs/mine/samples/1.png"):
        assert live.client.get(path).status_code == 404
    assert live.client.delete("/api/jobs/nothing").status_code == 404
    assert live.client.get("/api/jobs/nothing/events").status_code == 404


def test_wrong_methods_are_answered_with_the_right_ones(live: Live) -> None:
    answer = live.client.get("/api/sample")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert "POST" in answer.json()["error"]
    allowed = live.client.post("/api/jobs/x").headers["allow"]
    assert set(allowed.split(", ")) == {"GET", "HEAD", "DELETE"}
    for method, path in (("POST", "/api/models"), ("PUT", "/api/jobs/x"), ("DELETE", "/"), ("PATCH", "/api/fit")):
        assert live.client.request(method, path).status_code == 405


def test_a_client_that_disconnects_during_its_upload_does_no_harm(live: Live) -> None:
    with socket.create_connection(("127.0.0.1", live.port)) as connection:
        head = f"POST /api/fit HTTP/1.1\r\nHost: 127.0.0.1:{live.port}\r\nContent-Length: 1000\r\n"
        connection.sendall(f"{head}Content-Type: multipart/form-data; boundary=x\r\n\r\n--x".encode())
    assert live.client.get("/api/models").status_code == 200
