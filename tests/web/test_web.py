"""The web page's API: what it makes."""

from __future__ import annotations

import io
import math
import shlex
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from PIL import Image
from web_live import RECIPE, SHAPE, Live, inpaint, opened, picture, tiny_server

from scorefield.models.checkpoint import load
from scorefield.cli import main
from scorefield.data import pictures
from scorefield.paper.demo import DIGIT
from scorefield.models.generate import drawn, kept_steps
from scorefield.images import grid, to_bytes
from scorefield.noise import SampleNoise, sample_seeds
from scorefield.web.jobs import Job, Update
from scorefield.web.limits import Limits
from scorefield.web.models import Card
from scorefield.web.sampling import Settings, frames_for


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with tiny_server(tmp_path_factory.mktemp("models")) as server:
        yield server


# ---------------------------------------------------------------- the page


def test_the_pages_files(live: Live) -> None:
    page = live.client.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "<html" in page.text
    assert live.client.get("/static/style.css").headers["content-type"] == "text/css; charset=utf-8"
    assert "<html" in live.client.get("/api").text
    assert live.client.get("/static/nothing.js").status_code == 404


# ---------------------------------------------------------------- samples


@pytest.mark.parametrize("denoise", [False, True])
def test_samples_are_those_of_the_command_line(live: Live, denoise: bool, tmp_path: Path) -> None:
    job = live.start(n=3, seed=5, steps=2, denoise=denoise)
    status = live.end(job)
    assert status["state"] == "done"
    assert status["settings"] == {
        "model": "tiny",
        "n": 3,
        "seed": 5,
        "steps": 2,
        "step_size": 1e-5,
        "denoise": denoise,
    }
    model = load("tiny")
    made = drawn(
        model.score,
        model.sigmas,
        SHAPE,
        range(3),
        seed=5,
        step_size=1e-5,
        steps=2,
        batch_size=64,
        denoise=denoise,
        frames=99,
    )
    assert np.array_equal(live.array(job), made[:, -1])
    start = to_bytes(SampleNoise(sample_seeds(5, range(3))).rand_like(torch.empty(3, *SHAPE)))
    frames = [start, *(made[:, k] for k in range(made.shape[1]))]
    assert status["frames"] == len(frames) == 5 + denoise
    assert status["columns"] == 2
    for k, frame in enumerate(frames):
        sheet = opened(live.client.get(f"/api/jobs/{job}/frames/{k}.png").content)
        assert np.array_equal(sheet, grid(frame, columns=2, gap=0)[..., 0])
    for k in range(3):
        image = opened(live.client.get(f"/api/jobs/{job}/images/{k}.png").content)
        assert np.array_equal(image, made[k, -1, ..., 0])
    command = shlex.split(status["command"])
    main([*command[1:-1], str(tmp_path / "samples.png"), "--device", "cpu"])
    assert (tmp_path / "samples.png").read_bytes() == live.client.get(f"/api/jobs/{job}/grid.png").content
    with Image.open(io.BytesIO(live.client.get(f"/api/jobs/{job}/annealing.gif").content)) as film:
        assert film.n_frames == len(frames)


def test_events_tell_of_every_step_of_the_way(live: Live) -> None:
    job = live.start(n=1, steps=2, denoise=True)
    found = live.events(job)
    frames = [values for name, values in found if name == "frame"]
    states = [values for name, values in found if name == "status"]
    sigmas = load("tiny").sigmas.tolist()
    assert [frame["frame"] for frame in frames] == list(range(6))
    assert [frame["step"] for frame in frames] == list(range(6))
    assert [frame["level"] for frame in frames] == [1, 1, 1, 2, 2, 2]
    assert [frame["sigma"] for frame in frames] == [sigmas[0]] * 3 + [sigmas[1]] * 2 + [0.0]
    assert all(live.client.get(frame["image"]).headers["content-type"] == "image/png" for frame in frames)
    assert [states[-1][key] for key in ("state", "step", "total", "seconds_left")] == ["done", 5, 5, 0.0]
    assert found == [*found[:-1], ("status", live.status(job))]
    assert live.events(job)[-1] == found[-1]  # who comes late hears all of it


def test_frames_are_few_and_evenly_spaced() -> None:
    assert kept_steps(3, 60) == {0, 1, 2, 3}
    kept = sorted(kept_steps(1000, 60))
    assert (len(kept), kept[0], kept[-1]) == (60, 0, 1000)
    assert set(np.diff(kept)) == {16, 17}


def test_defaults_are_the_models_own(live: Live) -> None:
    job = live.start(n=None)
    assert live.end(job)["settings"] == {
        "model": "tiny",
        "n": 16,
        "seed": 0,
        "steps": RECIPE.sample_steps,
        "step_size": RECIPE.step_size,
        "denoise": False,
    }


@pytest.mark.filterwarnings("ignore:step_size")
def test_a_step_size_that_diverges_is_the_jobs_failure_and_not_the_servers(live: Live) -> None:
    status = live.end(live.start(n=1, steps=2, step_size=1e300))
    assert status["state"] == "failed"
    assert "diverged at level 1 of 2" in status["error"]
    assert live.end(live.start(n=1, steps=1))["state"] == "done"


@pytest.mark.parametrize("kind", ["sample", "inpaint"])
def test_a_step_size_that_is_too_large_is_told(live: Live, kind: str) -> None:
    """From 4σ² on, σ the last level's, 0.01."""
    for step_size, words in ((3.9e-4, None), (4.1e-4, "step_size 0.00041 is not below 4σ² = 0.0004")):
        settings: dict[str, Any] = {"n": 1, "steps": 1, "step_size": step_size}
        job = (
            live.start(**settings)
            if kind == "sample"
            else inpaint(live, example="9", mask="left", **settings).json()["job"]
        )
        warning = live.end(job)["warning"]
        assert (warning and warning.partition(":")[0]) == words


def test_of_large_images_fewer_frames_are_kept() -> None:
    card = cast(Card, SimpleNamespace(shape=(3, 100, 100)))
    settings = Settings(n=10, seed=0, steps=5, step_size=1e-5, denoise=False)
    kept = [frames_for(card, settings, Limits(job_bytes=size)) for size in (10**9, 6_000_000, 100)]
    assert kept == [60, 10, 2]  # of 300,000 bytes each, in half of the room


def test_an_error_in_a_job_leaves_the_worker_alive(live: Live) -> None:
    def work() -> Iterator[Update]:
        yield Update(1, 1.0, 1)
        raise KeyError

    job = Job("sample", work, 2, {"n": 1})
    live.worker.submit(job)
    status = live.end(job.id)
    assert (status["state"], status["error"]) == ("failed", "KeyError")
    assert live.end(live.start(n=1, steps=1))["state"] == "done"


def test_sheets_are_near_to_a_square(live: Live) -> None:
    for n in (1, 2, 5):
        job = live.start(n=n, steps=1)
        assert live.end(job)["columns"] == math.ceil(math.sqrt(n))


# ---------------------------------------------------------------- completions


@pytest.mark.parametrize("mask", ["right", "random"])
def test_completions_keep_what_is_known_and_are_those_of_the_command_line(
    live: Live, mask: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = inpaint(live, example="9", mask=mask, denoise="true", seed=3)
    status = live.end(answer.json()["job"])
    assert (status["state"], status["kind"]) == ("done", "inpaint")
    fit = pictures.Fit(size=SHAPE[1:])
    original = pictures.fitted(pictures.open_image(DIGIT), "9", fit)
    known = np.zeros((12, 10), bool)
    if mask == "right":
        known[:, :5] = True
    else:
        known = (torch.rand(12, 10, generator=torch.Generator().manual_seed(3)) < 0.5).numpy()
    images = live.array(status["job"])
    assert images.shape == (2, 12, 10, 1)
    assert (images[:, known] == original[known]).all()  # exactly: the last step takes no noise
    assert (images[:, ~known] != original[~known]).mean() > 0.5
    monkeypatch.chdir(tmp_path)
    Path("9.png").write_bytes(DIGIT.read_bytes())
    main([*shlex.split(status["command"])[1:], "--device", "cpu"])
    assert Path("inpainted.png").read_bytes() == live.client.get(f"/api/jobs/{status['job']}/grid.png").content


def test_a_painted_mask_and_an_image_of_any_size(live: Live) -> None:
    painted = np.full((12, 10), 255, np.uint8)
    painted[2:7, 3:8] = 0
    file = io.BytesIO()
    Image.fromarray(painted).save(file, format="PNG")
    content = picture((90, 50), "JPEG", "RGB")
    fit = live.client.post("/api/fit", data={"model": "tiny"}, files={"image": ("a.jpg", content)})
    shown = opened(fit.content)
    assert shown.shape == (12, 10)
    status = live.end(inpaint(live, {"image": content, "mask": file.getvalue()}, denoise=1).json()["job"])
    images = live.array(status["job"])[..., 0]
    assert (images[:, painted > 0] == shown[painted > 0]).all()
    assert (images[:, painted == 0] != shown[painted == 0]).mean() > 0.5
    assert status["settings"]["mask"] == "mask.png"


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "BMP", "GIF"])
def test_an_image_is_fitted_as_training_images_are(live: Live, kind: str, tmp_path: Path) -> None:
    content = picture((40, 30), kind, "L" if kind == "GIF" else "RGB")
    (tmp_path / "image").write_bytes(content)
    answer = live.client.post("/api/fit", data={"model": "coloured"}, files={"image": ("x", content)})
    assert answer.headers["content-type"] == "image/png"
    image = pictures.open_image(tmp_path / "image").convert("RGB")
    assert np.array_equal(opened(answer.content), pictures.fitted(image, "", pictures.Fit(size=(8, 8))))


def test_an_image_is_turned_as_its_exif_says(live: Live) -> None:
    turn = Image.Exif()
    turn[0x0112] = 6  # to be turned by 90° to the right
    upright = picture((30, 40), "PNG")
    with Image.open(io.BytesIO(upright)) as image:
        file = io.BytesIO()
        image.transpose(Image.Transpose.ROTATE_90).save(file, format="PNG", exif=turn)
    one, two = (
        live.client.post("/api/fit", data={"model": "tiny"}, files={"image": ("x.png", content)}).content
        for content in (upright, file.getvalue())
    )
    assert one == two


def test_the_animation_of_completions_shows_what_was_given(live: Live) -> None:
    job = inpaint(live, example="9", mask="left", n=3, steps=2).json()["job"]
    live.end(job)
    with Image.open(io.BytesIO(live.client.get(f"/api/jobs/{job}/annealing.gif").content)) as film:
        zoom = film.height // (SHAPE[1] + 4)
        assert film.size == (zoom * (5 * (SHAPE[2] + 2) + 2), zoom * (SHAPE[1] + 4))
        given = np.asarray(film.convert("L"))[::zoom, ::zoom][2 : 2 + SHAPE[1], 2 : 2 + SHAPE[2]]
    assert (given[:, : SHAPE[2] // 2] == 128).all()
