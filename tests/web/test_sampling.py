"""The API for samples and completions."""

from __future__ import annotations

import io
import math
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast
from urllib.parse import unquote

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from scorefield import samplers
from scorefield.cli import main
from scorefield.data import pictures
from scorefield.images import grid, to_bytes, to_float
from scorefield.models.model import kept_steps, load
from scorefield.noise import SampleNoise, sample_seeds
from scorefield.web.jobs import Job, Update
from scorefield.web.limits import Limits
from scorefield.web.models import EXAMPLES
from scorefield.web.requests import Upload, fit_upload
from scorefield.web.sampling import SampleRequest, frame_count
from web.live_server import RECIPE, SHAPE, Live, inpaint, opened, picture, sample_states
from web.live_server import tiny_live as tiny_live

# ---------------------------------------------------------------- samples


@pytest.mark.parametrize("denoise", [False, True])
def test_samples_are_those_of_the_command_line(live: Live, denoise: bool, tmp_path: Path) -> None:
    job = live.start(n=3, seed=5, steps=2, denoise=denoise)
    status = live.end(job)
    assert status["state"] == "done"
    sampler = samplers.changed(load("tiny").sampler, {"steps": 2, "denoise": denoise})
    chosen = {"model": "tiny", "n": 3, "seed": 5, "steps": 2, "step_size": 1e-5, "denoise": denoise}
    assert status["settings"] == chosen | {"sampler": samplers.to_dict(sampler)}
    frames = sample_states("tiny", 3, seed=5, steps=2, denoise=denoise)
    assert np.array_equal(live.array(job), frames[-1])
    assert status["frames"] == len(frames) == 5 + denoise
    assert status["columns"] == 2
    for k, frame in enumerate(frames):
        sheet = opened(live.client.get(f"/api/jobs/{job}/frames/{k}.png").content)
        assert np.array_equal(sheet, grid(frame, columns=2, gap=0)[..., 0])
    for k in range(3):
        image = opened(live.client.get(f"/api/jobs/{job}/images/{k}.png").content)
        assert np.array_equal(image, frames[-1][k, ..., 0])
    command = shlex.split(status["command"])
    main([*command[1:-1], str(tmp_path / "samples.png"), "--device", "cpu"])
    assert (tmp_path / "samples.png").read_bytes() == live.client.get(f"/api/jobs/{job}/grid.png").content
    with Image.open(io.BytesIO(live.client.get(f"/api/jobs/{job}/annealing.gif").content)) as film:
        assert film.n_frames == len(frames)


def test_events_report_every_step(live: Live) -> None:
    job = live.start(n=1, steps=2, denoise=True)
    found = live.events(job)
    frames = [values for name, values in found if name == "frame"]
    states = [values for name, values in found if name == "status"]
    sigmas = load("tiny").sigmas
    assert [frame["frame"] for frame in frames] == list(range(6))
    assert [frame["step"] for frame in frames] == list(range(6))
    assert [frame["level"] for frame in frames] == [1, 1, 1, 2, 2, 2]
    assert [frame["sigma"] for frame in frames] == [sigmas[0]] * 3 + [sigmas[1]] * 2 + [0.0]
    assert all(live.client.get(frame["image"]).headers["content-type"] == "image/png" for frame in frames)
    assert [states[-1][key] for key in ("state", "step", "total", "seconds_left")] == ["done", 5, 5, 0.0]
    assert found == [*found[:-1], ("status", live.status(job))]
    assert live.events(job)[-1] == found[-1]  # a late listener gets all events


def test_frames_are_few_and_evenly_spaced() -> None:
    assert kept_steps(3, 60) == {0, 1, 2, 3}
    kept = sorted(kept_steps(1000, 60))
    assert (len(kept), kept[0], kept[-1]) == (60, 0, 1000)
    assert set(np.diff(kept)) == {16, 17}


def test_defaults_are_the_models_own(live: Live) -> None:
    settings = live.end(live.start(n=None))["settings"]
    assert (settings["n"], settings["seed"]) == (16, 0)
    assert settings["sampler"] == samplers.to_dict(load("tiny").sampler)
    assert settings["steps"] == RECIPE.sample_steps
    assert settings["step_size"] == RECIPE.step_size
    assert settings["denoise"] is False


def test_each_frame_has_an_estimate_of_the_clean_images(live: Live) -> None:
    """x + σ² s at the x and σ of the step's network call, which is that of the state before; the last is the sample."""
    job = live.start(n=2, seed=5, steps=2)
    states = live.end(job)["frames"]
    model, noise = load("tiny"), SampleNoise(sample_seeds(5, range(2)))
    sampler = samplers.changed(model.sampler, {"steps": 2})
    made = list(sampler(model.score, noise.rand(model.shape), randn_like=noise.randn_like))
    estimates = [
        before.x + state.sigma**2 * model.score(before.x, state.sigma) for before, state in pairwise(made[:-1])
    ]
    wanted = [made[0].x, *estimates, made[-1].x]
    assert len(wanted) == states
    for k, each in enumerate(wanted):
        sheet = opened(live.client.get(f"/api/jobs/{job}/frames/{k}.png?view=denoised").content)
        assert np.array_equal(sheet, grid(to_bytes(each), columns=2, gap=0)[..., 0]), k
    assert live.client.get(f"/api/jobs/{job}/frames/1.png?view=other").status_code == 404


@pytest.mark.parametrize(("name", "calls"), [("heun", 3), ("consistent_annealed", 6)])
def test_samplers_by_name_and_number_of_calls(live: Live, name: str, calls: int) -> None:
    """The images are those of the library, for samples and for completions."""
    model, sampler = load("tiny"), samplers.SAMPLERS[name](calls=calls)
    job = live.start(n=2, seed=5, sampler=name, calls=calls)
    assert live.end(job)["settings"]["calls"] == calls
    assert np.array_equal(live.array(job), to_bytes(model.sample(2, seed=5, sampler=sampler)))
    content = picture((10, 12))
    job = inpaint(live, {"image": content}, mask="right", n=2, seed=5, steps=None, sampler=name, calls=calls).json()[
        "job"
    ]
    live.end(job)
    image, known = to_float(opened(content)[None, ..., None])[0], torch.arange(10).expand(12, 10) < 5
    wanted = model.inpaint(image, known, n=2, seed=5, sampler=sampler)
    assert np.array_equal(live.array(job), to_bytes(wanted))


def test_a_registered_sampler_is_chosen_by_name_with_its_own_settings(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    @dataclass(frozen=True)
    class Still:
        """A sampler that stays where it starts."""

        name: ClassVar[str] = "still"
        sigmas: tuple[float, ...]
        repeats: int = samplers.option(1, "Number of states after the first.")

        @property
        def updates(self) -> int:
            return self.repeats

        calls = updates

        def start(self, noise: SampleNoise, shape: tuple[int, ...]) -> Tensor:
            return noise.rand(shape)

        def __call__(self, score: object, x: Tensor, **options: object) -> Iterator[samplers.State]:
            for step in range(self.repeats + 1):
                yield samplers.State(x, torch.tensor(self.sigmas[step]), step)

    monkeypatch.setitem(samplers.SAMPLERS, "still", Still)
    job = live.start(n=2, seed=3, sampler="still", repeats=1)
    status = live.end(job)
    assert (status["state"], status["step"], status["level"]) == ("done", 1, 2)
    assert status["settings"]["sampler"] == {"name": "still", "sigmas": list(load("tiny").sigmas), "repeats": 1}
    assert "--sampler still --repeats 1" in status["command"]
    assert np.array_equal(live.array(job), sample_states("tiny", 2, seed=3, steps=1)[0])
    for wrong in ({"sampler": "still", "steps": 2}, {"repeats": 2}, {"sampler": "still", "repeats": 201}):
        assert live.post("sample", model="tiny", **wrong).status_code == 400


@pytest.mark.filterwarnings("ignore:step_size")
def test_a_step_size_that_diverges_makes_the_job_fail_and_the_server_goes_on(live: Live) -> None:
    status = live.end(live.start(n=1, steps=2, step_size=1e300))
    assert status["state"] == "failed"
    assert "diverged" in status["error"]
    assert live.end(live.start(n=1, steps=1))["state"] == "done"


@pytest.mark.parametrize("kind", ["sample", "inpaint"])
def test_a_step_size_that_is_too_large_brings_a_warning(live: Live, kind: str) -> None:
    """The limit is 4σ² of the last noise level, 0.01."""
    for step_size, warned in ((3.9e-4, False), (4.1e-4, True)):
        settings: dict[str, Any] = {"n": 1, "steps": 1, "step_size": step_size}
        job = (
            live.start(**settings)
            if kind == "sample"
            else inpaint(live, example="9", mask="left", **settings).json()["job"]
        )
        warning = live.end(job)["warning"]
        assert (warning is not None) == warned
        assert not warned or ("0.00041" in warning and "4σ² = 0.0004" in warning)


def test_fewer_frames_of_large_images_are_kept() -> None:
    request = cast(SampleRequest, SimpleNamespace(card=SimpleNamespace(shape=(3, 100, 100)), n=10))
    kept = [frame_count(request, Limits(job_bytes=size)) for size in (10**9, 6_000_000, 100)]
    assert kept == [60, 5, 2]  # twice 300,000 bytes each, with noise and without, in half of the limit


class Panic(BaseException):
    """As some packages raise them: it is no Exception."""


MEMORY = "the server ran out of memory (ask for fewer images at once)"
CPU = "[enforce fail at alloc_cpu.cpp:121] err == 0. DefaultCPUAllocator: can't allocate memory: you tried 8 bytes."


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (KeyError(), "the server failed: KeyError (see its terminal)"),
        (RuntimeError("no kernel\nfor this"), "the server failed: RuntimeError: no kernel (see its terminal)"),
        (
            RuntimeError("pinned memory is off"),
            "the server failed: RuntimeError: pinned memory is off (see its terminal)",
        ),
        (Panic(), "the server failed: Panic (see its terminal)"),
        (ValueError("sigma 3 is none of the network's"), "sigma 3 is none of the network's"),
        (FloatingPointError("it diverged (use a smaller step_size)"), "it diverged (use a smaller step_size)"),
        (MemoryError(), MEMORY),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.\nSee the manual"), MEMORY),
        (RuntimeError(CPU), MEMORY),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_error_in_a_job_reaches_its_client_and_leaves_the_worker_alive(
    live: Live, error: BaseException, words: str
) -> None:
    def run() -> Iterator[Update]:
        yield Update(1, 1.0, 1)
        raise error

    job = Job("sample", run, 2, {"n": 1})
    live.worker.submit(job)
    assert live.end(job.id)["state"] == "failed"
    name, status = live.events(job.id)[-1]
    assert (name, status["state"], status["error"]) == ("status", "failed", words)
    assert live.worker._thread.is_alive()


def test_frames_are_nearly_square(live: Live) -> None:
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
    original = pictures.crop_and_resize(pictures.open_image(EXAMPLES["9"]), "9", fit)
    known = np.zeros((12, 10), bool)
    if mask == "right":
        known[:, :5] = True
    else:
        known = (torch.rand(12, 10, generator=torch.Generator().manual_seed(3)) < 0.5).numpy()
    images = live.array(status["job"])
    assert images.shape == (2, 12, 10, 1)
    assert (images[:, known] == original[known]).all()  # exactly: the last step adds no noise
    assert (images[:, ~known] != original[~known]).mean() > 0.5
    monkeypatch.chdir(tmp_path)
    Path("9.png").write_bytes(EXAMPLES["9"].read_bytes())
    main([*shlex.split(status["command"])[1:], "--device", "cpu"])
    assert Path("inpainted.png").read_bytes() == live.client.get(f"/api/jobs/{status['job']}/grid.png").content


def test_a_painted_mask_and_an_image_of_any_size(live: Live) -> None:
    painted = np.full((12, 10), 255, np.uint8)
    painted[2:7, 3:8], painted[0, 0] = 0, 128  # greys count by whether they are nearer to white
    painted[5, 5] = 127
    file = io.BytesIO()
    Image.fromarray(painted).save(file, format="PNG")
    content = picture((90, 50), "JPEG", "RGB")
    fit = live.client.post("/api/fit", data={"model": "tiny"}, files={"image": ("a.jpg", content)})
    shown = opened(fit.content)
    assert shown.shape == (12, 10)
    status = live.end(inpaint(live, {"image": content, "mask": file.getvalue()}, denoise=1).json()["job"])
    images = live.array(status["job"])[..., 0]
    assert (images[:, painted > 127] == shown[painted > 127]).all()
    assert (images[:, painted < 128] != shown[painted < 128]).mean() > 0.5
    assert (images[:, 5, 5] != shown[5, 5]).all()
    assert status["settings"]["mask"] == "mask.png"


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF"])
def test_an_image_is_fitted_as_training_images_are(live: Live, kind: str, tmp_path: Path) -> None:
    content = picture((40, 30), kind, "L" if kind == "GIF" else "RGB")
    (tmp_path / "image").write_bytes(content)
    answer = live.client.post("/api/fit", data={"model": "coloured"}, files={"image": ("x", content)})
    assert answer.headers["content-type"] == "image/png"
    image = pictures.open_image(tmp_path / "image").convert("RGB")
    assert np.array_equal(opened(answer.content), pictures.crop_and_resize(image, "", pictures.Fit(size=(8, 8))))


def test_the_first_frame_of_an_animation_is_used_with_a_note(live: Live) -> None:
    first, second = (Image.new("L", SHAPE[:0:-1], grey) for grey in (10, 200))
    made = io.BytesIO()
    first.save(made, "GIF", save_all=True, append_images=[second])
    answer = live.client.post("/api/fit", data={"model": "tiny"}, files={"image": ("a.gif", made.getvalue())})
    assert unquote(answer.headers["X-Note"]) == "a.gif is animated or with several pages, of which the first is used"
    assert (opened(answer.content) == 10).all()


def test_an_image_is_cropped_as_training_images_were(live: Live) -> None:
    card, content = live.server.models.cards()["tiny"], picture((40, 30))
    recipe = replace(card.header.recipe, crop=20)
    seen, _ = fit_upload(Upload("x", content), replace(card, header=replace(card.header, recipe=recipe)), Limits())
    with Image.open(io.BytesIO(content)) as image:
        middle = image.crop((10, 5, 30, 25))
    assert np.array_equal(seen, pictures.crop_and_resize(middle, "", pictures.Fit(size=SHAPE[1:])))


def test_changes_of_an_image_that_may_surprise_are_noted(live: Live) -> None:
    def note(model: str, content: bytes) -> str | None:
        answer = live.client.post("/api/fit", data={"model": model}, files={"image": ("Ω, 5%25.png", content)})
        assert answer.status_code == 200
        text = answer.headers.get("x-note")
        return text if text is None else unquote(text)

    assert note("tiny", picture((10, 12))) is None
    assert note("tiny", picture((20, 24))) == "Ω, 5%25.png is shrunk to 12 × 10, from 24 × 20 pixels (height × width)"
    assert note("tiny", picture((10, 12), mode="RGB")) is None  # its channels are equal
    red = io.BytesIO()
    Image.new("RGB", (40, 12), "red").save(red, "PNG")
    colours, cropped = (note("tiny", red.getvalue()) or "").split("; ")
    assert colours == "Ω, 5%25.png has colours and the model's images are grey: only its brightness is used"
    assert cropped == "Ω, 5%25.png is cropped to the middle 12 × 10, from 12 × 40 pixels (height × width)"


def test_an_image_is_rotated_as_its_exif_says(live: Live) -> None:
    turn = Image.Exif()
    turn[0x0112] = 6  # rotate by 90° to the right
    upright = picture((30, 40), "PNG")
    with Image.open(io.BytesIO(upright)) as image:
        file = io.BytesIO()
        image.transpose(Image.Transpose.ROTATE_90).save(file, format="PNG", exif=turn)
    one, two = (
        live.client.post("/api/fit", data={"model": "tiny"}, files={"image": ("x.png", content)}).content
        for content in (upright, file.getvalue())
    )
    assert one == two


def test_the_animation_of_completions_shows_the_known_part(live: Live) -> None:
    job = inpaint(live, example="9", mask="left", n=3, steps=2).json()["job"]
    live.end(job)
    with Image.open(io.BytesIO(live.client.get(f"/api/jobs/{job}/annealing.gif").content)) as film:
        zoom = film.height // (SHAPE[1] + 4)
        assert film.size == (zoom * (5 * (SHAPE[2] + 2) + 2), zoom * (SHAPE[1] + 4))
        given = np.asarray(film.convert("L"))[::zoom, ::zoom][2 : 2 + SHAPE[1], 2 : 2 + SHAPE[2]]
    assert (given[:, : SHAPE[2] // 2] == 128).all()
