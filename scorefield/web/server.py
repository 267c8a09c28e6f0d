"""The application as a whole, and the server that runs it until it is told to stop."""

from __future__ import annotations

import errno
import html
import signal
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from scorefield.web.api import Api
from scorefield.web.jobs import Worker
from scorefield.web.limits import Limits
from scorefield.web.models import Models
from scorefield.web.security import Guard, hosts_of

EXAMPLE = "localhost:7860"
"""The server's name in the description of the API."""
PAGE = Path(__file__).parent / "page"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


class Served(NamedTuple):
    """An application, its worker and its models."""

    app: Guard
    worker: Worker
    models: Models


def application(
    given: Sequence[str] = (),
    *,
    host: str = "127.0.0.1",
    port: int = 7860,
    token: str | None = None,
    device: str = "auto",
    limits: Limits | None = None,
) -> Served:
    """The page and its API, for the shipped models and those given."""
    limits = limits or Limits()
    models, worker = Models(given, device=device), Worker(limits)

    @asynccontextmanager
    async def life(app: Starlette) -> AsyncIterator[None]:
        worker.start()
        yield
        await run_in_threadpool(worker.close)

    inner = Starlette(
        routes=[*_pages(), *Api(models, worker, limits).routes()],
        exception_handlers=HANDLERS,
        lifespan=life,
    )
    inner.router.redirect_slashes = False
    return Served(Guard(inner, hosts=hosts_of(host, port), token=token, port=port), worker, models)


def _pages() -> list[Route]:
    """The page's files, from a table that is made once: a name that is not in it is not looked for."""
    table = {file.name: file for file in PAGE.glob("*") if file.suffix in TYPES}

    def sent(name: str) -> Response:
        if name not in table:
            raise HTTPException(404)
        return Response(table[name].read_bytes(), media_type=TYPES[table[name].suffix])

    def index(request: Request) -> Response:
        return sent("index.html")

    def description(request: Request) -> Response:
        """Its examples are for this server."""
        text = table["api.html"].read_text(encoding="utf-8")
        host = html.escape(request.headers.get("host", EXAMPLE))
        return Response(text.replace(EXAMPLE, host), media_type=TYPES[".html"])

    def static(request: Request) -> Response:
        return sent(request.path_params["name"])

    return [Route("/", index), Route("/api", description), Route("/static/{name}", static)]


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = error.detail
    if message == HTTPStatus(error.status_code).phrase:  # the router's own words
        allowed = (error.headers or {}).get("Allow")
        message = f"use {allowed} at this address" if allowed else "nothing is at this address (/api tells what is)"
    return JSONResponse({"error": message}, error.status_code, error.headers)


async def _gone(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": "a file of the server cannot be read any more (was it moved?)"}, 404)


async def _failed(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": f"the server failed: {type(error).__name__} (its terminal tells more)"}, 500)


async def _left(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": "the request was not sent to its end"}, 400)  # which nobody reads


HANDLERS = {HTTPException: _refused, ClientDisconnect: _left, FileNotFoundError: _gone, Exception: _failed}


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens at that address; port 0 takes one that is free."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            message = f"port {port} is taken, perhaps by another scorefield serve (choose another: --port {port + 1})"
        elif error.errno in (errno.EACCES, errno.EPERM):
            message = f"port {port} is not for every user (choose one above 1023: --port 7860)"
        else:
            message = f"cannot listen at {host}: {error.strerror or error} (--host 127.0.0.1 is this machine)"
        raise OSError(error.errno, message) from error


class Server(uvicorn.Server):
    """Runs until Ctrl-C or SIGTERM, and then ends its jobs first: their listeners would keep it from ending."""

    def __init__(self, served: Served) -> None:
        super().__init__(
            uvicorn.Config(
                served.app,
                lifespan="on",
                ws="none",
                log_level="warning",
                access_log=False,  # it would show the token
                server_header=False,
                timeout_graceful_shutdown=3,
            )
        )
        self._worker = served.worker

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._worker.stop()
        await super().shutdown(sockets)

    def run_until_stopped(self, listening: socket.socket) -> None:
        """In the main thread. A signal is an order to stop, and no error."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self.handle_exit)  # uvicorn raises it again at its end
        try:
            self.run(sockets=[listening])
        finally:
            self._worker.close()
