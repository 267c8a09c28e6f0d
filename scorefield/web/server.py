"""The web application, and the server that runs it until it is stopped."""

from __future__ import annotations

import errno
import html
import mimetypes
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
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from scorefield.web.api import Api
from scorefield.web.jobs import Worker
from scorefield.web.limits import Limits
from scorefield.web.models import Models
from scorefield.web.security import Guard, allowed_hosts

PAGE = Path(__file__).parent / "page"
EXAMPLE_HOST = "localhost:7860"
"""The server's name in the description of the API, which is replaced by the real one."""
mimetypes.add_type("text/javascript", ".js")  # some systems call it plain text, which browsers do not run


class Application(NamedTuple):
    """The web application, its worker and its models."""

    app: Guard
    worker: Worker
    models: Models


def make_application(
    given: Sequence[str] = (),
    *,
    host: str = "127.0.0.1",
    port: int = 7860,
    token: str | None = None,
    device: str = "auto",
    limits: Limits | None = None,
) -> Application:
    """The page and its API, for the pretrained models and those given."""
    limits = limits or Limits()
    models, worker = Models(given, device=device), Worker(limits)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        worker.start()
        yield
        await run_in_threadpool(worker.close)

    pages = [Route("/", _index), Route("/api", _description), Mount("/static", StaticFiles(directory=PAGE))]
    routes = [*pages, *Api(models, worker, limits).routes()]
    app = Starlette(routes=routes, exception_handlers=HANDLERS, lifespan=lifespan)
    app.router.redirect_slashes = False
    return Application(Guard(app, hosts=allowed_hosts(host, port), token=token, port=port), worker, models)


def _index(request: Request) -> Response:
    return FileResponse(PAGE / "index.html")


def _description(request: Request) -> Response:
    """The description of the API, with examples for this server."""
    text = (PAGE / "api.html").read_text(encoding="utf-8")
    return HTMLResponse(text.replace(EXAMPLE_HOST, html.escape(request.headers.get("host", EXAMPLE_HOST))))


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = error.detail
    if message == HTTPStatus(error.status_code).phrase:  # the router's default message
        allowed = (error.headers or {}).get("Allow")
        message = f"use {allowed} at this address" if allowed else "there is nothing at this address (see /api)"
    return JSONResponse({"error": message}, error.status_code, error.headers)


async def _file_gone(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": "a file of the server is missing (was it moved?)"}, 404)


async def _server_error(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": f"the server failed: {type(error).__name__} (see its terminal)"}, 500)


async def _disconnected(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": "the request is incomplete"}, 400)  # nobody reads it


HANDLERS = {
    HTTPException: _http_error,
    ClientDisconnect: _disconnected,
    FileNotFoundError: _file_gone,
    Exception: _server_error,
}


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens at that address; port 0 takes a free port."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            message = f"port {port} is taken, perhaps by another scorefield serve (choose another: --port {port + 1})"
        elif error.errno in (errno.EACCES, errno.EPERM):
            message = f"only the administrator may use port {port} (choose one above 1023: --port 7860)"
        else:
            message = f"cannot listen at {host}: {error.strerror or error} (--host 127.0.0.1 is this machine)"
        raise OSError(error.errno, message) from error


class Server(uvicorn.Server):
    """Runs until Ctrl-C or SIGTERM. Then its jobs end first: their listeners would keep it from ending."""

    def __init__(self, application: Application) -> None:
        super().__init__(
            uvicorn.Config(
                application.app,
                lifespan="on",
                ws="none",
                log_level="warning",
                access_log=False,  # it would print the token
                server_header=False,
                timeout_graceful_shutdown=3,
            )
        )
        self._worker = application.worker

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._worker.stop()
        await super().shutdown(sockets)

    def run_until_stopped(self, listening: socket.socket) -> None:
        """Run in the main thread. A signal to stop is not an error."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self.handle_exit)  # uvicorn raises it again at its end
        try:
            self.run(sockets=[listening])
        finally:
            self._worker.close()
