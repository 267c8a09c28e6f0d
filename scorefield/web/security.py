"""Checks before every request: who may use the server, and what a browser may do with its answers."""

from __future__ import annotations

import hmac
import ipaddress
from pathlib import Path

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOCKED = Path(__file__).parent / "page" / "locked.html"
"""The page for a person without the token."""
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
        "form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Headers of every answer: the browser loads nothing from other servers, runs no inline scripts, and shows the page in
no frame."""


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server at that address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def allowed_hosts(host: str, port: int) -> frozenset[str] | None:
    """The names by which a browser on this machine reaches the server, or None for a server that others may reach.

    A request with another name comes from a page elsewhere whose name was made to point here (DNS rebinding).
    """
    if not is_loopback(host):
        return None
    names = {"localhost", "127.0.0.1", "[::1]", f"[{host}]" if ":" in host else host}
    return frozenset({f"{name}:{port}" for name in names} | (names if port == 80 else set()))


class Guard:
    """Wraps the whole application, its error answers included."""

    def __init__(self, app: ASGIApp, *, hosts: frozenset[str] | None, token: str | None, port: int) -> None:
        self._app, self._hosts, self._token = app, hosts, token
        self._cookie = f"token-{port}"  # all ports of a host share their cookies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request, path = Request(scope), scope["path"]  # an error for anything but HTTP, which uvicorn does not send
        caching = "no-store" if path == "/api" or path.startswith("/api/") else "no-cache"

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update({**HEADERS, "Cache-Control": caching})
            await send(message)

        answer = self._refusal(request) or self._admission(request) or self._app
        await answer(scope, receive, guarded)

    def _refusal(self, request: Request) -> Response | None:
        host, origin = request.headers.get("host", ""), request.headers.get("origin")
        if self._hosts is not None and host.lower() not in self._hosts:
            names = ", ".join(sorted(self._hosts))
            return _error(421, f"this server answers only to {names} (open one of these; a tunnel needs the same port)")
        if request.method not in ("GET", "HEAD") and origin is not None and origin.partition("://")[2] != host:
            return _error(403, "this request comes from a page of another server (open this server's own page)")
        return None

    def _admission(self, request: Request) -> Response | None:
        """The answer to a request without the token, if the server has one; None lets the request pass."""
        path = request.scope["path"]
        if self._token is None or path.startswith("/static/"):
            return None
        if path == "/" and self._is_token(request.query_params.get("token")):
            answer = RedirectResponse("/", 303)
            answer.set_cookie(self._cookie, self._token, httponly=True, samesite="strict")
            return answer
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        if self._is_token(request.cookies.get(self._cookie)) or (
            scheme.lower() == "bearer" and self._is_token(bearer.strip())
        ):
            return None
        if path == "/" and "text/html" in request.headers.get("accept", ""):
            return FileResponse(LOCKED, 401)
        return _error(401, "the token is missing or wrong (open /?token=TOKEN, or send Authorization: Bearer TOKEN)")

    def _is_token(self, token: str | None) -> bool:
        return token is not None and hmac.compare_digest(token.encode(), (self._token or "").encode())


def _error(status: int, message: str) -> JSONResponse:
    return JSONResponse({"error": message}, status)
