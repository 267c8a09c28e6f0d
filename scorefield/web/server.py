"""The web server: the page, the API and the worker."""

from __future__ import annotations

import errno
import html
import mimetypes
import os
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from types import FrameType
from typing import NoReturn

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
KEEP_ALIVE = 75
"""Seconds for which an unused connection stays open: longer than in common clients and proxies, which would otherwise
send a request at the moment when it is closed."""
ANSWER_SECONDS, EXIT_SECONDS = 1, 1.5
"""After a signal to stop: the most seconds for answers that are being sent, and until the process ends."""
mimetypes.add_type("text/javascript", ".js")  # some systems call it plain text, which browsers do not run
mimetypes.add_type("image/webp", ".webp")  # which Python knows from 3.13 on


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
    """A socket that listens at that address; port 0 takes a free port.

    Its connections send at once (asyncio sees to that only for sockets of its own): otherwise the second part of each
    answer would wait for the client to acknowledge the first, which takes 40 ms.
    """
    try:
        listening = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listening
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

    stopped_by: int | None = None
    """The signal that stopped it."""

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
        self._last_resort = threading.Timer(EXIT_SECONDS, self._end_process)
        self._last_resort.daemon = True
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
                timeout_keep_alive=KEEP_ALIVE,
                timeout_graceful_shutdown=ANSWER_SECONDS,
            )
        )

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        self.worker.start()
        try:
            super().run(sockets)
        finally:
            self.worker.stop()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.worker.stop()
        await super().shutdown(sockets)

    def run_until_stopped(self, listening: socket.socket) -> NoReturn:
        """Run in the main thread until a signal, then end the process with status 128 + its number."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self.handle_exit)
        self.run([listening])
        self._last_resort.cancel()
        self._end_process()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop at the first signal, in any case within `EXIT_SECONDS`, and at once at the second."""
        if self.stopped_by is not None:
            os._exit(128 + sig)
        self.stopped_by, self.should_exit = sig, True
        self._last_resort.start()

    def _end_process(self) -> NoReturn:
        """End the process without waiting for its threads.

        A step of a model cannot be interrupted: Python would wait for it, or abort in the middle of it.
        """
        with suppress(OSError):  # the terminal may be gone
            print("stopped", file=sys.stderr, flush=True)  # noqa: T201
        os._exit(128 + (self.stopped_by or signal.SIGTERM))
