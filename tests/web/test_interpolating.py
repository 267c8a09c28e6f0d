"""The API for images between two others: those of the command line, bit by bit."""

from __future__ import annotations

import io
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from guidable import NAMES, RECIPE, SHAPE, guidable_file, guidable_network
from PIL import Image

from scorefield.cli import main
from scorefield.images import grid, to_bytes
from scorefield.models import pretrained
from scorefield.models.model import load, save_model
from web.live_server import Live, low_limits, opened, picture, tiny_model


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("models")
    tiny_model(folder / "pretrained" / "tiny.safetensors")
    guidable_file(folder / "pretrained" / "pets.safetensors")
    needs = replace(RECIPE, label_dropout=0.0)
    weights = guidable_network().state_dict()
    save_model(
        folder / "pretrained" / "needs.safetensors", weights, None, recipe=needs, shape=SHAPE, step=5, labels=NAMES
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pretrained, "FOLDERS", [folder / "pretrained"])
        with Live(limits=low_limits()) as live:
            yield live


def between(live: Live, files: dict[str, bytes] | None = None, **fields: object) -> httpx.Response:
    given = {"model": "pets", "frames": 4} | fields
    parts: list[Any] = [(name, (None, str(value))) for name, value in given.items() if value is not None]
    parts += [(name, (f"{name}.png", content)) for name, content in (files or {}).items()]
    return live.client.post("/api/interpolate", files=parts)


def same_as_command_line(live: Live, status: dict[str, Any]) -> None:
    assert (status["state"], status["kind"]) == ("done", "interpolate"), status
    words = [*shlex.split(status["command"])[1:], "--device", "cpu"]
    main(words)
    job = f"/api/jobs/{status['job']}"
    assert Path("interpolation.png").read_bytes() == live.client.get(f"{job}/grid.png").content
    main([*words, "--out", "interpolation.gif"])
    assert Path("interpolation.gif").read_bytes() == live.client.get(f"{job}/annealing.gif").content


def test_between_seeds(live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    status = live.end(between(live, seed=5, to_seed=8, calls=5).json()["job"])
    same_as_command_line(live, status)
    assert status["frames"] > 2  # the sampler's states
    ends = [to_bytes(load("pets").sample(1, seed=seed, sampler=None)) for seed in (5, 8)]
    status = live.end(between(live, seed=5, to_seed=8).json()["job"])
    assert np.array_equal(live.array(status["job"])[[0, -1]], np.concatenate(ends))
    same_as_command_line(live, live.end(between(live, seed=5, to_seed=8, label="dog").json()["job"]))


def test_between_images(live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ends are the images, up to the solver's error; the first frame shows the ends alone."""
    monkeypatch.chdir(tmp_path)
    turned = io.BytesIO()
    Image.open(io.BytesIO(picture((4, 4)))).rotate(90).save(turned, format="PNG")
    files = {"image": picture((4, 4)), "to_image": turned.getvalue()}
    for name, content in files.items():
        Path(f"{name}.png").write_bytes(content)
    status = live.end(between(live, files, label="cat", tolerance=1e-5).json()["job"])
    same_as_command_line(live, status)
    made = live.array(status["job"]).astype(int)
    for k, content in ((0, files["image"]), (-1, files["to_image"])):
        assert abs(made[k, ..., 0] - opened(content)).max() <= 2
    first = opened(live.client.get(f"/api/jobs/{status['job']}/frames/0.png").content)
    ends = np.stack([opened(files[name])[..., None] for name in ("image", "image", "to_image", "to_image")])
    assert np.array_equal(first, grid(ends, columns=2, gap=0)[..., 0])
    assert live.end(between(live, example="9", to_example="5", frames=2).json()["job"])["state"] == "done"


@pytest.mark.parametrize(
    ("fields", "status", "words"),
    [
        ({"model": "tiny"}, 400, "tiny knows only certain noise levels"),
        ({"frames": 1}, 400, "frames must be from 2 to 64"),
        ({"seed": -1}, 400, "seed must be from 0"),
        ({"to_seed": "x"}, 422, "to_seed must be a whole number"),
        ({"calls": 0}, 400, "calls must be a whole number from 1 to"),
        ({"example": "9"}, 422, "two images are needed, or none; to_image is missing"),
        ({"to_example": "9"}, 422, "image is missing"),
        ({"example": "9", "to_example": "5", "calls": 9}, 400, "calls applies to seeds"),
        ({"example": "9", "to_example": "5", "tolerance": 0}, 400, "tolerance must be finite, above 0"),
        ({"example": "9", "to_example": "none"}, 404, "there is no such example"),
        ({"model": "needs", "example": "9", "to_example": "5"}, 400, "the model needs a class (give a label: cat, dog"),
        ({"label": "bird"}, 400, "no class is called 'bird'"),
        ({"n": 3}, 422, 'unknown: "n"'),
    ],
    ids=lambda value: str(value)[:40],
)
def test_wrong_requests(fields: dict[str, Any], status: int, words: str, live: Live) -> None:
    answer = between(live, **fields)
    assert (answer.status_code, words in answer.json()["error"]) == (status, True), answer.text


def test_a_cancelled_job_between_images_ends_at_the_next_call(
    live: Live, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls = 0

    def endless(score: Any, x: Any, **options: Any) -> Any:  # noqa: ANN401
        nonlocal calls
        while True:
            calls += 1
            score(x, x.new_tensor(1.0))

    monkeypatch.setattr("scorefield.evaluation.interpolation.encode", endless)
    job = between(live, example="9", to_example="5").json()["job"]
    while calls < 2:
        assert live.status(job)["state"] in ("queued", "running")
    live.client.delete(f"/api/jobs/{job}")
    assert live.end(between(live, seed=1, to_seed=2).json()["job"])["state"] == "done"  # the worker goes on
    assert live.status(job)["state"] == "cancelled"
    assert not caplog.records
