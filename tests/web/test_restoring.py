"""The API for restorations: those of the command line, bit by bit."""

from __future__ import annotations

import io
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from guidable import guidable, guidable_file
from PIL import Image

from scorefield import Euler, Heun
from scorefield.cli import main
from scorefield.evaluation import restorations
from scorefield.evaluation.restorations import measure
from scorefield.images import grid, to_bytes, to_float
from scorefield.models import pretrained
from scorefield.operators import Downsample
from scorefield.posteriors import Measurement, residual
from scorefield.web import restoring
from scorefield.web.estimates import Speeds, Work
from scorefield.web.limits import Limits
from web.live_server import Live, low_limits, opened, picture, tiny_model

FEW: dict[str, Any] = {"sampler": "heun", "calls": 3}


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A server with a grey model of the paper's kind, one with three channels, and one with classes."""
    folder = tmp_path_factory.mktemp("models")
    tiny_model(folder / "pretrained" / "tiny.safetensors", shape=(1, 12, 12))
    coloured = tiny_model(folder / "coloured.safetensors", shape=(3, 8, 8))
    pets = guidable_file(folder / "pets.safetensors")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pretrained, "FOLDERS", [folder / "pretrained"])
        with Live(str(coloured), str(pets), limits=low_limits(client_queue=8)) as live:
            yield live


def restore(live: Live, files: dict[str, bytes] | None = None, **fields: object) -> httpx.Response:
    given = {"model": "tiny", "n": 2} | fields
    parts: list[Any] = [(name, (None, str(value))) for name, value in given.items() if value is not None]
    parts += [(name, (f"{name}.png", content)) for name, content in (files or {}).items()]
    return live.client.post("/api/restore", files=parts)


def hole() -> bytes:
    """A mask that hides the pixels of a rectangle."""
    known = np.full((12, 12), 255, np.uint8)
    known[2:7, 3:8] = 0
    file = io.BytesIO()
    Image.fromarray(known).save(file, format="PNG")
    return file.getvalue()


@pytest.mark.parametrize(
    ("model", "fields"),
    [
        ("tiny", {"task": "superres:2", "sampler": "consistent_annealed", "calls": 6}),
        ("tiny", {"task": "blur:0.7", "method": "dps", "strength": 0.5, "noise": 0.1, **FEW}),
        ("tiny", {"task": "inpaint", "method": "replace", "seed": 3, "steps": 2}),
        ("tiny", {"task": "inpaint:random", "method": "diffpir", "seed": 3, **FEW}),
        ("coloured", {"task": "gray", "iterations": 1, **FEW}),
        ("pets", {"task": "inpaint:left", "label": "dog", "guidance": 1.5}),
    ],
)
def test_restorations_are_those_of_the_command_line(
    model: str, fields: dict[str, Any], live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"image": picture((40, 30), mode="RGB")}
    if fields["task"] == "inpaint":
        files["mask"] = hole()
    status = live.end(restore(live, files, model=model, **fields).json()["job"])
    assert (status["state"], status["kind"]) == ("done", "restore"), status
    monkeypatch.chdir(tmp_path)
    for name, content in files.items():
        Path(f"{name}.png").write_bytes(content)
    main([*shlex.split(status["command"])[1:], "--device", "cpu", "--json", "numbers.json"])
    assert Path("restored.png").read_bytes() == live.client.get(f"/api/jobs/{status['job']}/grid.png").content
    said = Path("numbers.json").read_text()
    assert all(f'"{name}": {value}' in said for name, value in status["numbers"].items())


def test_what_is_shown_beside_restorations(live: Live) -> None:
    """The measurement, the mean, the standard deviation and the original, from the library's own numbers."""
    content = picture((12, 12))
    job = restore(live, {"image": content}, task="superres:4", n=3, noise=0.05, **FEW).json()["job"]
    status = live.end(job)
    x, operator = to_float(opened(content)[None, ..., None]), Downsample(4)
    y = measure(x, operator, 0.05, 0)
    model = live.server.models.load(live.server.models.cards()["tiny"])
    made = model.restore(y[0], operator, noise=0.05, n=3, sampler=Heun(calls=3))
    assert np.array_equal(live.array(job), to_bytes(made))
    std = made.std(0, correction=0)
    wanted = {
        "measurement": y[0].repeat_interleave(4, 1).repeat_interleave(4, 2),
        "mean": made.mean(0),
        "deviation": std / std.max(),
        "original": x[0],
    }
    for name, image in wanted.items():
        sent = opened(live.client.get(f"/api/jobs/{job}/{name}.png").content)
        assert np.array_equal(sent, to_bytes(image[None])[0, ..., 0]), name
    assert status["parts"] == sorted(wanted)
    error = residual(made, Measurement(y.expand(3, -1, -1, -1), operator, 0.05)).square().mean().sqrt().item()
    assert status["numbers"]["residual"] == pytest.approx(error, rel=1e-5)
    psnr = -10 * (made.mean(0) - x[0]).square().mean().log10().item()
    assert status["numbers"]["psnr"] == pytest.approx(psnr, rel=1e-5)


def test_an_image_that_is_the_measurement_itself(live: Live) -> None:
    content = picture((6, 6))
    job = restore(live, {"image": content}, task="superres:2", measured=1, **FEW).json()["job"]
    status = live.end(job)
    assert (status["state"], status["parts"]) == ("done", ["deviation", "mean", "measurement"])
    shown = opened(live.client.get(f"/api/jobs/{job}/measurement.png").content)
    assert np.array_equal(shown, np.kron(opened(content), np.ones((2, 2), np.uint8)))
    assert status["numbers"]["psnr"] is None
    assert "--measured" in status["command"]
    assert live.client.get(f"/api/jobs/{job}/original.png").status_code == 404


@pytest.mark.parametrize(
    ("files", "fields", "status", "words"),
    [
        ({}, {}, 422, "one image is needed"),
        ({}, {"example": "9", "task": "sharpen"}, 400, "there is no task 'sharpen'"),
        ({}, {"example": "9", "task": "inpaint:/etc/hostname"}, 400, "a hole is one of left"),
        ({}, {"example": "9", "task": "inpaint"}, 400, "there is no task 'inpaint'"),
        ({}, {"example": "9", "task": "superres:5"}, 400, "12"),
        ({}, {"example": "9", "task": "superres:" + "9" * 5000}, 400, "task is too long"),
        ({}, {"example": "9", "task": "blur:0"}, 400, "sigma must be positive"),
        ({}, {"example": "9", "task": "gray"}, 400, "gray wants a model of colour images"),
        ({}, {"example": "9", "task": "superres:2", "method": "replace"}, 400, "knows nothing of superres:2"),
        ({}, {"example": "9", "method": "magic"}, 400, "method must be one of mmps, dps, diffpir, replace"),
        ({}, {"example": "9", "noise": 0}, 400, "noise must be finite, above 0"),
        ({}, {"example": "9", "iterations": 11}, 400, "iterations must be from 1 to 10"),
        ({}, {"example": "9", "measured": "maybe"}, 422, "measured must be true or false"),
        ({"mask": hole()}, {"example": "9", "task": "superres:2"}, 422, "a mask belongs to the task inpaint"),
        ({"image": b"no"}, {"task": "superres:2"}, 415, "as an image"),
        ({"image": picture((5, 6))}, {"task": "superres:2", "measured": 1}, 400, "the measurement of superres:2 is"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_wrong_requests(files: dict[str, bytes], fields: dict[str, Any], status: int, words: str, live: Live) -> None:
    answer = restore(live, files, **fields)
    assert (answer.status_code, words in answer.json()["error"]) == (status, True), answer.text


def test_frames_show_the_estimate_of_the_restored_image(live: Live) -> None:
    """That is D = x + σ² s(x, σ), where s is the score of the posterior: the D of Euler's step from σ to τ, which leads
    to x + (τ/σ − 1)(x − D). At the end both views are the image itself."""
    content, settings = picture((4, 4)), {"model": "pets", "label": "cat"}
    job = restore(live, {"image": content}, task="superres:2", sampler="euler", calls=4, **settings).json()["job"]
    last = live.end(job)["frames"] - 1
    operator = Downsample(2)
    y = measure(to_float(opened(content)[None, ..., None]), operator, 0.01, 0)
    sampler = Euler(calls=4)
    states = list(
        restorations.states(guidable(), Measurement(y, operator, 0.01), range(2), 2, sampler=sampler, label="cat")
    )
    assert len(states) == last + 1

    def frame(number: int, view: str) -> np.ndarray:
        return opened(live.client.get(f"/api/jobs/{job}/frames/{number}.png?view={view}").content).astype(int)

    for k in range(1, last):
        before, after = states[k - 1], states[k]
        clean = before.x + (after.x - before.x) / (1 - after.sigma / before.sigma)
        wanted = grid(to_bytes(clean), columns=2, gap=0)[..., 0].astype(int)
        assert abs(frame(k, "denoised") - wanted).max() <= 1
    assert np.array_equal(frame(last, "noisy"), frame(last, "denoised"))


def test_backward_passes_count_in_the_estimate(live: Live) -> None:
    """Three calls of two images at 0.5 s each, backward passes as four calls each; then measured."""
    card, speeds = live.server.models.cards()["tiny"], live.worker.speeds
    plain = Work((card.name, card.shape, card.parameters), 2, 1)
    speeds._seconds.clear()  # those of the jobs before
    speeds.record(plain, 0.5)
    asked = {"model": "tiny", "n": 2, **FEW}
    for method, seconds in (("replace", 1.5), ("diffpir", 1.5), ("dps", 7.5), ("mmps", 31.5)):
        assert live.post("estimate", **asked, method=method).json() == {"seconds": seconds}
    speeds.record(plain._replace(what=(plain.what, 5)), 2.0)
    assert live.post("estimate", **asked, method="mmps").json() == {"seconds": 6.0}
    speeds._seconds.clear()


def test_a_request_reads_no_file_of_the_server(live: Live, tmp_path: Path) -> None:
    Image.new("L", (12, 12)).save(tmp_path / "secret.png")
    answer = restore(live, example="9", task=f"inpaint:{tmp_path / 'secret.png'}")
    assert answer.status_code == 400


def test_classes_apply_to_restorations(live: Live) -> None:
    job = restore(live, {"image": picture((4, 4))}, model="pets", task="superres:2", label="0").json()["job"]
    live.end(job)
    x = to_float(opened(picture((4, 4)))[None, ..., None])
    y = measure(x, Downsample(2), 0.01, 0)
    wanted = guidable().restore(y[0], Downsample(2), noise=0.01, n=2, label="cat")
    assert np.array_equal(live.array(job), to_bytes(wanted))
    assert restoring.estimate(Speeds(), *_asked(live)) is None


def _asked(live: Live) -> tuple[Any, Any]:
    from scorefield.web.requests import Fields
    from scorefield.web.sampling import read_request

    card = live.server.models.cards()["tiny"]
    fields = Fields({}, ("n",))
    return read_request(fields, card, n=1, most=1, limits=Limits()), restoring.read_method(fields)
