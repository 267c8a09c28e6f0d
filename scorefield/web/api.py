"""The addresses: each reads a request, calls the rest and answers."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from torch import Tensor

from scorefield.data import pictures
from scorefield.images import completion_row, grid, png, save_completions, save_gif, save_images, zoom_for
from scorefield.data.masks import NAMES, mask_of
from scorefield.web import monitor, playground, sampling
from scorefield.web.events import Events
from scorefield.web.jobs import Job, QueueFullError, Worker
from scorefield.web.limits import Limits
from scorefield.web.models import EXAMPLES, Card, Models
from scorefield.web.requests import Fields, Upload, bad, malformed, read_form, read_json
from scorefield.web.uploads import fitted, mask_in

DECODERS = 2
"""Images that are decoded at once: each may take some hundred MB for a moment."""
MAKERS = 2
"""Files that are made at once: an animation may take as much."""
MADE = {"grid.png": "image/png", "annealing.gif": "image/gif", "images.npy": "application/octet-stream"}
"""Files that are made of a job's images."""


class Api:
    """All that stands under /api/, but for its description."""

    def __init__(self, models: Models, worker: Worker, limits: Limits) -> None:
        self.models, self.worker, self.limits = models, worker, limits
        self._decoding, self._making = asyncio.Semaphore(DECODERS), asyncio.Semaphore(MAKERS)

    def routes(self) -> list[Route]:
        return [
            Route("/api/models", self.list_models),
            Route("/api/examples/{name}.png", self.example),
            Route("/api/sample", self.sample, methods=["POST"]),
            Route("/api/fit", self.fit, methods=["POST"]),
            Route("/api/inpaint", self.inpaint, methods=["POST"]),
            Route("/api/playground", self.playground, methods=["POST"]),
            Route("/api/field", self.field, methods=["POST"]),
            Route("/api/jobs/{job}", self.status, methods=["GET", "DELETE"]),
            Route("/api/jobs/{job}/events", self.events),
            Route("/api/jobs/{job}/frames/{number}.png", self.frame),
            Route("/api/jobs/{job}/images/{number}.png", self.image),
            Route("/api/jobs/{job}/{name}", self.made),
            Route("/api/runs", self.runs),
            Route("/api/runs/{name}", self.run),
            Route("/api/runs/{name}/samples/{step}.png", self.run_samples),
        ]

    # ---------------------------------------------------------------- models, and jobs to be done

    def list_models(self, request: Request) -> Response:
        cards = self.models.cards().values()
        return JSONResponse({"models": [card.described() for card in cards], "limits": asdict(self.limits)})

    def example(self, request: Request) -> Response:
        return Response(_example(request.path_params["name"]).content, media_type="image/png")

    async def sample(self, request: Request) -> Response:
        fields = Fields(await read_json(request, self.limits), ("model", *sampling.KNOWN))
        card = await self._card(fields)
        settings = sampling.settings_of(fields, card, n=16, most=self.limits.n, limits=self.limits)
        return self._submitted(sampling.sample_job(self.models, card, settings, self.limits))

    async def fit(self, request: Request) -> Response:
        texts, files = await read_form(request, self.limits)
        card = await self._card(Fields(texts | dict.fromkeys(files, "file"), ("model", "image"), form=True))
        if "image" not in files:
            raise malformed("image is missing (send it as a file)")
        async with self._decoding:
            pixels = await run_in_threadpool(fitted, files["image"], card, self.limits)
        return Response(png(pixels), media_type="image/png")

    async def inpaint(self, request: Request) -> Response:
        texts, files = await read_form(request, self.limits)
        known = ("model", "image", "example", "mask", *sampling.KNOWN)
        fields = Fields(dict.fromkeys(files, "file") | texts, known, form=True)
        card = await self._card(fields)
        settings = sampling.settings_of(fields, card, n=8, most=self.limits.completions, limits=self.limits)
        if "image" in texts or ("image" in files) == ("example" in texts):
            raise malformed("what is to be completed? (send either image as a file, or the name of an example)")
        given = files["image"] if "image" in files else _example(texts["example"])
        name = "mask.png" if "mask" in files else fields.choice("mask", NAMES, "left")
        async with self._decoding:
            original = await run_in_threadpool(fitted, given, card, self.limits)
            if "mask" in files:
                mask = await run_in_threadpool(mask_in, files["mask"], card, self.limits)
            else:
                mask = _ready_made(name, card, settings.seed)
        image = (Path(given.name).name[-80:] or "image", original)
        job = sampling.inpaint_job(self.models, card, settings, self.limits, image=image, mask=(name, mask))
        return self._submitted(job)

    async def playground(self, request: Request) -> Response:
        fields = Fields(await read_json(request, self.limits), playground.KNOWN)
        return self._submitted(playground.playground_job(fields, self.limits))

    async def field(self, request: Request) -> Response:
        fields = Fields(await read_json(request, self.limits), playground.FIELD)
        return JSONResponse(await run_in_threadpool(playground.score_field, fields, self.limits))

    async def _card(self, fields: Fields) -> Card:
        cards, name = await run_in_threadpool(self.models.cards), fields.text("model")
        if name is None:
            raise malformed(f"model is missing (one of {', '.join(cards)})")
        if name not in cards:
            raise HTTPException(404, f"no model of that name (there are {', '.join(cards) or 'none'})")
        return cards[name]

    def _submitted(self, job: Job) -> Response:
        try:
            position = self.worker.submit(job)
        except QueueFullError as error:
            raise HTTPException(503, str(error), {"Retry-After": str(error.seconds)}) from None
        return JSONResponse({"job": job.id, "position": position}, 202)

    # ---------------------------------------------------------------- jobs under way, and what they made

    async def status(self, request: Request) -> Response:
        """DELETE cancels the job first."""
        job = self._job(request)
        if request.method == "DELETE":
            self.worker.cancel(job)
        return JSONResponse(self.worker.status(job))

    async def events(self, request: Request) -> Response:
        job = self._job(request)
        return (
            Response(media_type=Events.media_type)
            if request.method == "HEAD"
            else Events(self.worker, job, grace=self.limits.grace_seconds)
        )

    def frame(self, request: Request) -> Response:
        frames = _images(self._job(request))
        pixels = frames[_number(request, len(frames))]
        return Response(png(grid(pixels, columns=math.ceil(math.sqrt(len(pixels))), gap=0)), media_type="image/png")

    def image(self, request: Request) -> Response:
        pixels = _images(self._job(request))[-1]
        return Response(png(pixels[_number(request, len(pixels))]), media_type="image/png")

    async def made(self, request: Request) -> Response:
        name, job = request.path_params["name"], self._job(request)
        if name not in MADE:
            raise HTTPException(404, f"a job has no such file (there are {', '.join(MADE)})")
        async with self._making:
            return await run_in_threadpool(self._file, name, job)

    def _file(self, name: str, job: Job) -> Response:
        """As the command line writes it: by the same functions, in a folder that goes again."""
        frames = _images(job)
        with TemporaryDirectory() as folder:
            path = Path(folder) / name
            if name == "grid.png" and job.given:
                save_completions(path, frames[-1], *job.given)
            elif name == "annealing.gif" and job.given:
                rows = [completion_row(frame, *job.given) for frame in frames]
                save_gif(path, rows, zoom=zoom_for(rows[0]))
            else:
                save_images(path, np.stack(frames if name == "annealing.gif" else frames[-1:], axis=1))
            content = path.read_bytes()
        disposition = {"Content-Disposition": f'attachment; filename="{job.kind}-{name}"'}
        return Response(content, media_type=MADE[name], headers=disposition)

    def _job(self, request: Request) -> Job:
        job = self.worker.find(request.path_params["job"])
        if job is None:
            raise HTTPException(404, "no such job: it never was, or is forgotten since (start it again)")
        return job

    # ---------------------------------------------------------------- training runs

    def runs(self, request: Request) -> Response:
        found, waiting = monitor.runs_among(self.models.folders), self.models.awaited
        later = [{"name": name, "step": 0, "steps": 0, "state": "waiting"} for name in waiting]
        return JSONResponse({"runs": [*(_readable(monitor.summary, name, run) for name, run in found.items()), *later]})

    def run(self, request: Request) -> Response:
        name, run = request.path_params["name"], self._run(request)
        card = self.models.cards().get(name)
        shape = card.shape if card else None  # of its images, once there is a model
        return JSONResponse({**_readable(monitor.details, name, run), "shape": shape})

    def run_samples(self, request: Request) -> Response:
        files = {str(step): file for step, file in monitor.sample_files(self._run(request)).items()}
        if request.path_params["step"] not in files:
            raise HTTPException(404, "the run has no samples of that step")
        return Response(files[request.path_params["step"]].read_bytes(), media_type="image/png")

    def _run(self, request: Request) -> Path:
        runs = monitor.runs_among(self.models.folders)
        if request.path_params["name"] not in runs:
            raise HTTPException(404, f"no such run (there are {', '.join(runs) or 'none: scorefield serve RUN'})")
        return runs[request.path_params["name"]]


def _readable(tell: Callable[[str, Path], dict[str, Any]], name: str, run: Path) -> dict[str, Any]:
    """What is to be told of a run; one that cannot be read must not hide the others."""
    try:
        return tell(name, run)
    except (OSError, ValueError) as error:
        return {"name": name, "step": 0, "steps": 0, "state": "damaged", "error": str(error)}


def _images(job: Job) -> list[np.ndarray]:
    """The images of all frames so far."""
    if job.kind == "playground":
        raise HTTPException(404, "the playground makes points, not images (its frames come with the events)")
    frames = [update.frame for update in job.frames if update.frame is not None]
    if not frames:
        raise HTTPException(404, "the job has no images yet (wait until it runs)")
    return frames


def _number(request: Request, count: int) -> int:
    """The number in the address, of one of so many things."""
    text = request.path_params["number"]
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) < count):
        raise HTTPException(404, f"no such image (they are numbered from 0 to {count - 1})")
    return int(text)


def _ready_made(name: str, card: Card, seed: int) -> Tensor:
    try:
        return mask_of(name, pictures.Fit(size=card.shape[1:]), seed=seed)
    except ValueError as error:  # it hides nothing of so small an image
        raise bad(str(error)) from error


def _example(name: str) -> Upload:
    if name not in EXAMPLES:
        raise HTTPException(404, f"no such example (there are {', '.join(sorted(EXAMPLES))})")
    return Upload(f"{name}.png", EXAMPLES[name].read_bytes())
