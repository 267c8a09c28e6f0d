"""The web server: the page, the API and the worker."""

from __future__ import annotations

import errno
import html
import mimetypes
import signal
import socket
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
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


def _index(request: Request) -> Response:
    return FileResponse(PAGE / "index.html")


def _description(request: Request) -> Response:
    """The description of the API, with examples for this server."""
    text = (PAGE / "api.html").read_text(encoding="utf-8")
    return HTMLResponse(text.replace(EXAMPLE_HOST, html.escape(request.headers.get("host", EXAMPLE_HOST))))


async def _answer_error(request: Request, error: Exception) -> Response:
    status, headers = 500, None
    message = f"the server failed: {type(error).__name__} (see its terminal)"
    if isinstance(error, HTTPException):
        status, headers, message = error.status_code, error.headers, error.detail
        if message == HTTPStatus(status).phrase:  # the router's default message
            allowed = (headers or {}).get("Allow")
            message = f"use {allowed} at this address" if allowed else "there is nothing at this address (see /api)"
    elif isinstance(error, FileNotFoundError):
        status, message = 404, "a file of the server is missing (was it moved?)"
    elif isinstance(error, ClientDisconnect):
        status, message = 400, "the request is incomplete"  # nobody reads it
    return JSONResponse({"error": message}, status, headers)


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
    """The page and its API, for the pretrained models and those given.

    It runs until Ctrl-C or SIGTERM. Then its jobs end first: their listeners would keep it from ending.
    """

    def __init__(
        self,
        given: Sequence[str] = (),
        *,
        host: str = "127.0.0.1",
        port: int = 7860,
        token: str | None = None,
        device: str = "auto",
        limits: Limits | None = None,
    ) -> None:
        limits = limits or Limits()
        self.models, self.worker = Models(given, device=device), Worker(limits)
        pages = [Route("/", _index), Route("/api", _description), Mount("/static", StaticFiles(directory=PAGE))]
        errors = (HTTPException, ClientDisconnect, FileNotFoundError, Exception)
        app = Starlette(
            routes=[*pages, *Api(self.models, self.worker, limits).routes()],
            exception_handlers=dict.fromkeys(errors, _answer_error),
        )
        app.router.redirect_slashes = False
        super().__init__(
            uvicorn.Config(
                Guard(app, hosts=allowed_hosts(host, port), token=token, port=port),
                lifespan="off",
                ws="none",
                log_level="warning",
                access_log=False,  # it would print the token
                server_header=False,
                timeout_graceful_shutdown=3,
            )
        )

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        self.worker.start()
        try:
            super().run(sockets)
        finally:
            self.worker.close()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.worker.stop()
        await super().shutdown(sockets)

    def run_until_stopped(self, listening: socket.socket) -> None:
        """Run in the main thread. A signal to stop is not an error."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self.handle_exit)  # uvicorn raises it again at its end
        self.run([listening])
