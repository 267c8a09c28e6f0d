"""The API: each function reads a request, calls the rest and answers."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

import numpy as np
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from scorefield.data import pictures
from scorefield.data.masks import NAMES, make_mask
from scorefield.images import completion_row, grid, png, save_completions, save_gif, save_images, save_png, zoom_for
from scorefield.web import interpolating, monitor, openapi, playground, restoring, sampling
from scorefield.web.estimates import Speeds, rounded
from scorefield.web.jobs import ENDED, Job, Update, Worker
from scorefield.web.limits import Limits
from scorefield.web.models import EXAMPLES, Card, Models
from scorefield.web.requests import Fields, Upload, bad, fit_upload, malformed, read_form, read_json, read_mask
from scorefield.web.security import client_of

MEMORY_HEAVY = 2
"""How many images are decoded at once, and how many files are written: each may take some hundred MB for a moment."""
FILES = {"grid.png": "image/png", "annealing.gif": "image/gif", "images.npy": "application/octet-stream"}
"""Files that are made from a job's images, and their media types."""
PARTS = ("measurement", "mean", "deviation", "original")
"""Images beside those of a restoration, each a PNG."""
KNOWN: dict[str, Callable[[], tuple[str, ...]]] = {
    "sample": lambda: ("model", *sampling.field_names()),
    "estimate": lambda: (*KNOWN["sample"](), "task", "method", "iterations"),
    "inpaint": lambda: (*KNOWN["sample"](), "image", "example", "mask"),
    "restore": lambda: (*KNOWN["inpaint"](), *restoring.FIELDS),
    "interpolate": lambda: ("model", *interpolating.FIELDS),
    "fit": lambda: ("model", "image"),
}
"""The fields of each request. (A sampler that was registered just now has settings too.)"""
Cost = Callable[[Speeds, sampling.SampleRequest], float | None]
"""The seconds that a job takes, from what is known of the machine's speed."""
VIEWS = ("noisy", "denoised")
"""What a frame shows: x itself, or at each step the estimate x + σ² s(x, σ) of the clean image."""
FEW, MEASURING = 8, 5.0
"""Images by which the speed of a model is measured first on a CPU, and the most seconds that a request waits for it.
(On a GPU every size of a batch has to be prepared, so that only the wanted one is measured.)"""
POLL, HEARTBEAT = 0.05, 10.0
"""Seconds between two looks at a job, and after which a comment keeps a silent connection open."""


class Api:
    """Everything under /api/."""

    def __init__(self, models: Models, worker: Worker, limits: Limits) -> None:
        self.models, self.worker, self.limits = models, worker, limits
        self._decoding, self._writing = asyncio.Semaphore(MEMORY_HEAVY), asyncio.Semaphore(MEMORY_HEAVY)

    def routes(self) -> list[Route]:
        return [
            Route("/api/openapi.json", self.openapi),
            Route("/api/models", self.list_models),
            Route("/api/examples/{name}.png", self.example),
            Route("/api/sample", self.sample, methods=["POST"]),
            Route("/api/estimate", self.estimate, methods=["POST"]),
            Route("/api/fit", self.fit, methods=["POST"]),
            Route("/api/inpaint", self.inpaint, methods=["POST"]),
            Route("/api/restore", self.restore, methods=["POST"]),
            Route("/api/interpolate", self.interpolate, methods=["POST"]),
            Route("/api/playground", self.playground, methods=["POST"]),
            Route("/api/field", self.field, methods=["POST"]),
            Route("/api/jobs/{job}", self.status, methods=["GET", "DELETE"]),
            Route("/api/jobs/{job}/events", self.events),
            Route("/api/jobs/{job}/frames/{number}.png", self.frame),
            Route("/api/jobs/{job}/images/{number}.png", self.image),
            Route("/api/jobs/{job}/{name}", self.file),
            Route("/api/runs", self.runs),
            Route("/api/runs/{name}", self.run),
            Route("/api/runs/{name}/samples/{step}.png", self.run_samples),
        ]

    # ---------------------------------------------------------------- models and new jobs

    def list_models(self, request: Request) -> Response:
        cards = self.models.cards().values()
        return JSONResponse({"models": [card.described() for card in cards], "limits": asdict(self.limits)})

    def openapi(self, request: Request) -> Response:
        return JSONResponse(openapi.description(self.limits))

    def example(self, request: Request) -> Response:
        return Response(_example(request.path_params["name"]).content, media_type="image/png")

    async def sample(self, request: Request) -> Response:
        wanted = await self._read_sample(Fields(await read_json(request, self.limits), KNOWN["sample"]()))
        return await self._submit(request, sampling.image_job(self.models, wanted, self.limits), wanted)

    async def estimate(self, request: Request) -> Response:
        fields = Fields(await read_json(request, self.limits), KNOWN["estimate"]())
        method, cost, restores = restoring.read_method(fields), sampling.estimate, fields.text("method") is not None
        wanted = await self._read_sample(fields, restores=restores)
        if restores:
            cost = partial(restoring.estimate, method=method)
        return JSONResponse({"seconds": rounded(await self._estimate(wanted, cost))})

    async def fit(self, request: Request) -> Response:
        texts, files = await read_form(request, self.limits)
        card = await self._card(Fields(texts | dict.fromkeys(files, "file"), KNOWN["fit"](), form=True))
        if "image" not in files:
            raise malformed("image is missing (send it as a file)")
        async with self._decoding:
            pixels, notes = await run_in_threadpool(fit_upload, files["image"], card, self.limits)
        headers = {"X-Note": quote("; ".join(notes))} if notes else None
        return Response(png(pixels), media_type="image/png", headers=headers)

    async def inpaint(self, request: Request) -> Response:
        texts, files = await read_form(request, self.limits)
        fields = Fields(dict.fromkeys(files, "file") | texts, KNOWN["inpaint"](), form=True)
        card = await self._card(fields)
        wanted = sampling.read_request(fields, card, n=8, most=self.limits.completions, limits=self.limits)
        given = _image(texts, files, "image", "example")
        name = "mask.png" if "mask" in files else fields.choice("mask", NAMES, "left")
        async with self._decoding:
            original, _ = await run_in_threadpool(fit_upload, given, card, self.limits)
            if "mask" in files:
                mask = await run_in_threadpool(read_mask, files["mask"], card, self.limits)
            else:
                try:
                    mask = make_mask(name, pictures.Fit(size=card.shape[1:]), seed=wanted.seed)
                except ValueError as error:  # it hides nothing, if the image is tiny
                    raise bad(str(error)) from error
        hole = sampling.Hole(given.file_name, original, name, mask)
        return await self._submit(request, sampling.image_job(self.models, wanted, self.limits, hole), wanted)

    async def restore(self, request: Request) -> Response:
        texts, files = await read_form(request, self.limits)
        fields = Fields(dict.fromkeys(files, "file") | texts, KNOWN["restore"](), form=True)
        card = await self._card(fields)
        wanted = restoring.read_request(fields, card, self.limits)
        method = restoring.read_method(fields)
        given = _image(texts, files, "image", "example")
        async with self._decoding:
            measured, method = await run_in_threadpool(
                restoring.measure_upload, given, files, card, method, seed=wanted.seed, limits=self.limits
            )
        job = restoring.restore_job(self.models, wanted, method, measured, self.limits)
        return await self._submit(request, job, wanted, partial(restoring.estimate, method=method))

    async def interpolate(self, request: Request) -> Response:
        texts, files = await read_form(request, self.limits)
        fields = Fields(dict.fromkeys(files, "file") | texts, KNOWN["interpolate"](), form=True)
        card = await self._card(fields)
        pairs = [("image", "example"), ("to_image", "to_example")]
        ends = {pair[0]: _image(texts, files, *pair) for pair in pairs if any(each in files | texts for each in pair)}
        way = interpolating.read_way(fields, card, self.limits, images=bool(ends))
        names, images = list[str](), list[np.ndarray]()
        if ends:
            async with self._decoding:
                names, images = await run_in_threadpool(interpolating.fit_ends, ends, card, self.limits)
        job = interpolating.interpolation_job(self.models, way, self.limits, names, images)
        return await self._submit(request, job, interpolating.as_request(way))

    async def playground(self, request: Request) -> Response:
        fields = Fields(await read_json(request, self.limits), playground.JOB_FIELDS)
        return await self._submit(request, playground.playground_job(fields, self.limits))

    async def field(self, request: Request) -> Response:
        fields = Fields(await read_json(request, self.limits), playground.FIELD_FIELDS)
        return JSONResponse(await run_in_threadpool(playground.score_field, fields, self.limits))

    async def _card(self, fields: Fields) -> Card:
        cards, name = await run_in_threadpool(self.models.cards), fields.text("model")
        if name is None:
            raise malformed(f"model is missing (one of {', '.join(cards)})")
        if name not in cards:
            raise HTTPException(404, f"there is no model of that name (choose from {', '.join(cards) or 'none'})")
        return cards[name]

    async def _read_sample(self, fields: Fields, *, restores: bool = False) -> sampling.SampleRequest:
        card = await self._card(fields)
        if restores:
            return restoring.read_request(fields, card, self.limits)
        return sampling.read_request(fields, card, n=16, most=self.limits.n, limits=self.limits)

    async def _estimate(self, wanted: sampling.SampleRequest, cost: Cost = sampling.estimate) -> float | None:
        """The seconds that a job will take here, or None if that cannot be said in time.

        A speed that is not known yet is measured.
        """
        speeds, few = self.worker.speeds, FEW if self.models.on_cpu else wanted.n
        if sampling.size_to_measure(speeds, wanted, few=few) is not None:
            measured = self.worker.call(partial(sampling.measure, self.models, speeds, wanted, few=few))
            with suppress(Exception):  # the job itself will fail too, and say why
                await asyncio.wait_for(asyncio.wrap_future(measured), MEASURING)
        return cost(speeds, wanted)

    async def _submit(
        self,
        request: Request,
        job: Job,
        wanted: sampling.SampleRequest | None = None,
        cost: Cost = sampling.estimate,
    ) -> Response:
        job.client = client_of(request)
        job.estimate = None if wanted is None else await self._estimate(wanted, cost)
        position = self.worker.submit(job)
        return JSONResponse({"job": job.id, "position": position, "estimate": rounded(job.estimate)}, 202)

    # ---------------------------------------------------------------- jobs and their results

    async def status(self, request: Request) -> Response:
        """GET gives the job's status, DELETE cancels it first."""
        job = self._job(request)
        if request.method == "DELETE":
            self.worker.cancel(job)
        return JSONResponse(self.worker.status(job))

    async def events(self, request: Request) -> Response:
        job = self._job(request)
        if request.method == "HEAD":
            return Response(media_type=Events.media_type)
        return Events(self.worker, job, grace=self.limits.grace_seconds)

    def frame(self, request: Request) -> Response:
        frames = _images(self._job(request), _view(request))
        pixels = frames[_number(request, len(frames))]
        return Response(png(grid(pixels, gap=0)), media_type="image/png")

    def image(self, request: Request) -> Response:
        pixels = _images(self._job(request))[-1]
        return Response(png(pixels[_number(request, len(pixels))]), media_type="image/png")

    async def file(self, request: Request) -> Response:
        name, job = request.path_params["name"], self._job(request)
        part = name.removesuffix(".png")
        if part in PARTS and name != part and job.kind == "restore":
            if part not in job.parts:
                raise HTTPException(404, f"the job has no {name} (the mean and the deviation come at its end)")
            return Response(png(job.parts[part]), media_type="image/png")
        if name not in FILES:
            raise HTTPException(404, f"a job has no such file (choose from {', '.join(FILES)})")
        async with self._writing:
            return await run_in_threadpool(_write_file, name, job, _view(request))

    def _job(self, request: Request) -> Job:
        job = self.worker.find(request.path_params["job"])
        if job is None:
            raise HTTPException(404, "there is no such job; finished jobs are deleted after a while (start it again)")
        return job

    # ---------------------------------------------------------------- training runs

    def runs(self, request: Request) -> Response:
        runs = [_describe(monitor.summary, name, run) for name, run in self.models.runs.items()]
        waiting = [{"name": name, "step": 0, "steps": 0, "state": "waiting"} for name in self.models.waiting]
        return JSONResponse({"runs": [*runs, *waiting]})

    def run(self, request: Request) -> Response:
        name, run = request.path_params["name"], self._run(request)
        card = self.models.cards().get(name)
        return JSONResponse({**_describe(monitor.details, name, run), "shape": card.shape if card else None})

    def run_samples(self, request: Request) -> Response:
        files = {str(step): file for step, file in monitor.sample_files(self._run(request)).items()}
        if request.path_params["step"] not in files:
            raise HTTPException(404, "the run has no samples from that step")
        return Response(files[request.path_params["step"]].read_bytes(), media_type="image/png")

    def _run(self, request: Request) -> Path:
        runs = self.models.runs
        if request.path_params["name"] not in runs:
            raise HTTPException(404, f"there is no such run (choose from {', '.join(runs) or 'none'})")
        return runs[request.path_params["name"]]


def _describe(describe: Callable[[str, Path], dict[str, Any]], name: str, run: Path) -> dict[str, Any]:
    """A run's description. A run that cannot be read has the state damaged, so that it does not hide the others."""
    try:
        return describe(name, run)
    except (OSError, ValueError) as error:
        return {"name": name, "step": 0, "steps": 0, "state": "damaged", "error": str(error)}


def _view(request: Request) -> str:
    view = request.query_params.get("view", VIEWS[0])
    if view not in VIEWS:
        raise HTTPException(404, f"there is no such view of a job's images (choose from {', '.join(VIEWS)})")
    return view


def _images(job: Job, view: str = "noisy") -> list[np.ndarray]:
    """The images of all frames so far: as they are, or the estimates of the clean images."""
    if job.kind == "playground":
        raise HTTPException(404, "the playground makes points, not images (they are in the events)")
    clean = view == "denoised"
    frames = [u.denoised if clean and u.denoised is not None else u.frame for u in job.frames if u.frame is not None]
    if not frames:
        raise HTTPException(404, "the job has no images yet (wait until it runs)")
    return frames


def _write_file(name: str, job: Job, view: str) -> Response:
    """One of `FILES`, written by the functions of the command line in a temporary folder."""
    frames = _images(job, view)
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        if name == "grid.png" and job.result:
            save_png(path, job.result.sheet, zoom=zoom_for(job.result.sheet, target=900))
        elif name == "grid.png" and job.kind == "interpolate":
            row = grid(frames[-1], columns=len(frames[-1]))
            save_png(path, row, zoom=zoom_for(row, target=900))
        elif name == "annealing.gif" and job.kind == "interpolate":
            save_gif(path, frames[-1], zoom=zoom_for(frames[-1][0]))
        elif name == "grid.png" and job.known:
            save_completions(path, frames[-1], *job.known)
        elif name == "annealing.gif" and job.known:
            rows = [completion_row(frame, *job.known) for frame in frames]
            save_gif(path, rows, zoom=zoom_for(rows[0]))
        else:
            save_images(path, np.stack(frames if name == "annealing.gif" else frames[-1:], axis=1))
        content = path.read_bytes()
    disposition = {"Content-Disposition": f'attachment; filename="{job.kind}-{name}"'}
    return Response(content, media_type=FILES[name], headers=disposition)


def _number(request: Request, count: int) -> int:
    """The number in the address, which must be below `count`."""
    text = request.path_params["number"]
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) < count):
        raise HTTPException(404, f"there is no such image (they are numbered from 0 to {count - 1})")
    return int(text)


def _image(texts: Mapping[str, str], files: Mapping[str, Upload], image: str, example: str) -> Upload:
    """The image that a form has: a file, or the name of an example."""
    if image in texts or (image in files) == (example in texts):
        raise malformed(f"one image is needed (send either {image} as a file, or the name of an example as {example})")
    return files[image] if image in files else _example(texts[example])


def _example(name: str) -> Upload:
    if name not in EXAMPLES:
        raise HTTPException(404, f"there is no such example (choose from {', '.join(sorted(EXAMPLES))})")
    return Upload(f"{name}.png", EXAMPLES[name].read_bytes())


class Events(StreamingResponse):
    """A stream of a job's events. When its last listener disconnects before the end, the job is cancelled, unless
    someone connects again within the grace period."""

    media_type = "text/event-stream"

    def __init__(self, worker: Worker, job: Job, *, grace: float) -> None:
        super().__init__(stream(worker, job))
        self._worker, self._job, self._grace = worker, job, grace

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        job = self._job
        job.listeners += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            job.listeners -= 1
            job.last_left_at = time.monotonic()
            if not job.ended and not job.listeners:
                asyncio.get_running_loop().call_later(self._grace, self._cancel_if_alone, job.last_left_at)

    def _cancel_if_alone(self, since: float) -> None:
        """Cancel the job if nobody has connected since that time."""
        if not self._job.listeners and self._job.last_left_at == since:
            self._worker.cancel(self._job)


async def stream(worker: Worker, job: Job) -> AsyncIterator[bytes]:
    """Server-Sent Events until the job ends: its status whenever it changes, and each frame once."""
    sent, before, last_sent_at = 0, None, time.monotonic()
    yield b"retry: 1000\n\n"
    while True:
        status = worker.status(job)  # asked before the frames: if it has ended, all frames are there to be sent
        for number, update in enumerate(job.frames[sent:], sent):
            yield _event("frame", _frame(job, number, update))
            sent = number + 1
        if (now := (status["state"], status["position"], status["step"])) != before:
            yield _event("status", status)
            before, last_sent_at = now, time.monotonic()
        if status["state"] in ENDED:
            return
        if time.monotonic() - last_sent_at > HEARTBEAT:
            yield b": waiting\n\n"
            last_sent_at = time.monotonic()
        await asyncio.sleep(POLL)


def _event(name: str, values: dict[str, Any]) -> bytes:
    return f"event: {name}\ndata: {json.dumps(values)}\n\n".encode()


def _frame(job: Job, number: int, update: Update) -> dict[str, Any]:
    """A frame for JSON: the points themselves, or the address of its images."""
    assert update.frame is not None
    values = {"frame": number, "step": update.step, "total": job.total, "sigma": update.sigma, "level": update.level}
    if job.kind == "playground":
        points = update.frame.astype(float).round(3).tolist()
        both = job.settings["method"] == "both"
        return {**values, "points": dict(zip(playground.BOTH, points, strict=True)) if both else points}
    address = f"/api/jobs/{job.id}/frames/{number}.png"
    return {**values, "image": address, "denoised": f"{address}?view=denoised"}
