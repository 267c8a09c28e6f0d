"""A server in a thread, with tiny models, for the tests of the API."""

from __future__ import annotations

import io
import json
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from PIL import Image

from scorefield.distributed import Group
from scorefield.images import to_bytes
from scorefield.models import pretrained
from scorefield.models.build import build_network
from scorefield.models.model import load, save_model
from scorefield.models.recipes import Recipe
from scorefield.noise import SampleNoise, sample_seeds
from scorefield.samplers import annealed_langevin
from scorefield.training import train
from scorefield.web.jobs import Job, Update
from scorefield.web.limits import Limits
from scorefield.web.server import Server, listen

RECIPE = Recipe(width=2, levels=2, step_size=1e-5, sample_steps=3, data="/home/somebody/dots")
SHAPE = (1, 12, 10)
TIMEOUT = 60.0
"""Seconds after which a test fails."""


def tiny_model(path: Path, *, seed: int = 0, shape: tuple[int, int, int] = SHAPE) -> Path:
    """A model file with untrained weights."""
    network = build_network(Recipe(width=2, levels=2, seed=seed), channels=shape[0])
    metadata = {"data": "/home/somebody/dots"}
    save_model(path, network.state_dict(), None, recipe=RECIPE, shape=shape, step=1234, metadata=metadata)
    return path


def sample_states(
    model: str | Path, n: int, *, steps: int, step_size: float = 1e-5, seed: int = 0, denoise: bool = False
) -> list[np.ndarray]:
    """The samples' bytes at every step from 0 on, by the sampler's function alone."""
    loaded, noise = load(model), SampleNoise(sample_seeds(seed, range(n)))
    states = annealed_langevin(
        loaded.score,
        noise.rand(loaded.shape),
        loaded.sigmas,
        step_size=step_size,
        steps=steps,
        denoise=denoise,
        randn_like=noise.randn_like,
    )
    return [to_bytes(state.x) for state in states]


def tiny_run(folder: Path) -> Path:
    """A training run of six steps on 20 grey images of 5 × 6, with a checkpoint every second step."""
    return shutil.copytree(Path(_trained().name) / "run", folder)


@cache
def _trained() -> tempfile.TemporaryDirectory[str]:
    """A folder with such a run, which is deleted at the end of the tests."""
    place = tempfile.TemporaryDirectory()
    data = Path(place.name) / "dots.npy"
    np.save(data, np.random.default_rng(0).integers(0, 256, (20, 5, 6), dtype=np.uint8))
    recipe = Recipe(
        data=str(data),
        width=2,
        levels=2,
        held_out=4,
        steps=6,
        batch_size=4,
        checkpoint_every=2,
        evaluate_every=3,
        log_every=1,
        previews=2,
        preview_steps=1,
        sample_steps=2,
    )
    train(recipe, Path(place.name) / "run", Group(0, 1, torch.device("cpu")))
    return place


def client_of(address: str) -> httpx.Client:
    """A client without certificates, which take longer to read than a test takes."""
    return httpx.Client(base_url=address, timeout=TIMEOUT, trust_env=False, verify=False)


class Live:
    """A running server and a client of it."""

    def __init__(self, *given: str, **options: Any) -> None:  # noqa: ANN401
        listening = listen("127.0.0.1", 0)
        self.port = listening.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"
        self.server = Server(given, port=self.port, device="cpu", **options)
        self.worker = self.server.worker
        self._thread = threading.Thread(target=lambda: self.server.run(sockets=[listening]))
        self._thread.start()
        wait_for(lambda: self.server.started)
        self.client = client_of(self.address)

    def __enter__(self) -> Live:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def stop(self) -> None:
        self.client.close()
        self.server.should_exit = True
        self._thread.join(TIMEOUT)
        self.worker.join(TIMEOUT)
        assert not self._thread.is_alive()

    def post(self, path: str, **values: object) -> httpx.Response:
        return self.client.post(f"/api/{path}", json=values)

    def start(self, path: str = "sample", **values: object) -> str:
        """Start a job; returns its name."""
        answer = self.post(path, **({"model": "tiny"} if path == "sample" else {}), **values)
        assert answer.status_code == 202, answer.text
        return answer.json()["job"]

    def status(self, job: str) -> dict[str, Any]:
        answer = self.client.get(f"/api/jobs/{job}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    def end(self, job: str) -> dict[str, Any]:
        """The status at the job's end."""
        wait_for(lambda: self.status(job)["state"] not in ("queued", "running"))
        return self.status(job)

    def events(self, job: str) -> list[tuple[str, dict[str, Any]]]:
        """All events of a job until its end."""
        with self.client.stream("GET", f"/api/jobs/{job}/events") as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            return list(events_in(answer))

    def array(self, job: str) -> np.ndarray:
        return np.load(io.BytesIO(self.client.get(f"/api/jobs/{job}/images.npy").content))

    @contextmanager
    def busy(self) -> Iterator[Job]:
        """Inside, the worker runs a job that goes on until it is cancelled."""

        def run() -> Iterator[Update]:
            step = 0
            while True:
                step += 1
                yield Update(step, 1.0, 1)
                time.sleep(0.005)

        job = Job("sample", run, 10**6, {"n": 1})
        self.worker.submit(job)
        wait_for(lambda: job.state == "running")
        yield job
        self.worker.cancel(job)


def events_in(answer: httpx.Response) -> Iterator[tuple[str, dict[str, Any]]]:
    name = ""
    for line in answer.iter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < deadline, "this never became true"
        time.sleep(0.02)


def low_limits(**changes: Any) -> Limits:  # noqa: ANN401
    """Limits that a test can reach."""
    return Limits(**{"grace_seconds": 0.3, **changes})


@pytest.fixture(scope="module", name="live")
def tiny_live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A server with a tiny pretrained model, another model with three channels, and low limits on uploads."""
    folder = tmp_path_factory.mktemp("models")
    tiny_model(folder / "pretrained" / "tiny.safetensors")
    coloured = tiny_model(folder / "coloured.safetensors", shape=(3, 8, 8))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pretrained, "FOLDERS", [folder / "pretrained"])
        with Live(str(coloured), limits=low_limits(upload_bytes=200_000, json_bytes=5_000)) as live:
            yield live


def picture(size: tuple[int, int] = (40, 30), kind: str = "PNG", mode: str = "L", **options: Any) -> bytes:  # noqa: ANN401
    """An image file with a gradient."""
    pixels = np.add.outer(np.arange(size[1]) * 3, np.arange(size[0]) * 2) % 256
    file = io.BytesIO()
    Image.fromarray(pixels.astype(np.uint8)).convert(mode).save(file, format=kind, **options)
    return file.getvalue()


def opened(content: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(content)) as image:
        return np.asarray(image)


def inpaint(live: Live, files: dict[str, bytes] | None = None, **fields: object) -> httpx.Response:
    given = {"model": "tiny", "n": 2, "steps": 2} | fields
    parts: list[Any] = [(name, (None, str(value))) for name, value in given.items() if value is not None]
    parts += [(name, (f"{name}.png", content)) for name, content in (files or {}).items()]
    return live.client.post("/api/inpaint", files=parts)


@contextmanager
def work_folder(place: Path) -> Iterator[Path]:
    """A folder with a run and a model file of the same name; tiny is the pretrained model."""
    tiny_model(place / "pretrained" / "tiny.safetensors")
    tiny_run(place / "runs" / "my run")
    tiny_model(place / "my run.safetensors", seed=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pretrained, "FOLDERS", [place / "pretrained"])
        yield place


@contextmanager
def serving(folder: Path) -> Iterator[Live]:
    """A server for that run and that model."""
    limits = low_limits(queue=4, jobs=30)
    with Live(str(folder / "runs" / "my run"), str(folder / "my run.safetensors"), limits=limits) as server:
        yield server


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with work_folder(tmp_path_factory.mktemp("work")) as place:
        yield place


@pytest.fixture(scope="module")
def live(folder: Path) -> Iterator[Live]:
    with serving(folder) as server:
        yield server
