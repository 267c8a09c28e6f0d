"""What stands before every request: who may ask, and what a browser may do with the answers."""

from __future__ import annotations

import hmac
import ipaddress
from pathlib import Path

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOCKED = Path(__file__).parent / "page" / "locked.html"
"""What a person sees who comes without the token."""
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
"""On every answer: nothing from elsewhere, nothing inline, in nobody's frame."""


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server at that address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def hosts_of(host: str, port: int) -> frozenset[str] | None:
    """What a browser on this machine calls the server; None: anything, where others may reach it.

    A page elsewhere whose name is made to point here is told apart by it.
    """
    if not is_loopback(host):
        return None
    names = {"localhost", "127.0.0.1", "[::1]", f"[{host}]" if ":" in host else host}
    return frozenset({f"{name}:{port}" for name in names} | (names if port == 80 else set()))


class Guard:
    """Around the whole application, its errors included."""

    def __init__(self, app: ASGIApp, *, hosts: frozenset[str] | None, token: str | None, port: int) -> None:
        self._app, self._hosts, self._token = app, hosts, token
        self._cookie = f"token-{port}"  # browsers share cookies among all ports of a host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request, path = Request(scope), scope["path"]
        caching = "no-store" if path == "/api" or path.startswith("/api/") else "no-cache"

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update({**HEADERS, "Cache-Control": caching})
            await send(message)

        answer = self._refusal(request) or self._admission(request) or self._app
        await answer(scope, receive, guarded)

    def _refusal(self, request: Request) -> Response | None:
        host, origin = request.headers.get("host", ""), request.headers.get("origin")
        if self._hosts is not None and host.lower() not in self._hosts:
            names = ", ".join(sorted(self._hosts))
            return _error(421, f"this server is {names} alone (open one of these; a tunnel needs the same port)")
        if request.method not in ("GET", "HEAD") and origin is not None and origin.partition("://")[2] != host:
            return _error(403, "this request comes from a page of another server (open the page of this one)")
        return None

    def _admission(self, request: Request) -> Response | None:
        """What a request gets instead of its answer where a token is wanted."""
        path = request.scope["path"]
        if self._token is None or path.startswith("/static/"):
            return None
        if path == "/" and self._right(request.query_params.get("token")):
            answer = RedirectResponse("/", 303)
            answer.set_cookie(self._cookie, self._token, httponly=True, samesite="strict")
            return answer
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        if self._right(request.cookies.get(self._cookie)) or (
            scheme.lower() == "bearer" and self._right(bearer.strip())
        ):
            return None
        if path == "/" and "text/html" in request.headers.get("accept", ""):
            return FileResponse(LOCKED, 401)
        return _error(401, "this server wants its token (open /?token=TOKEN, or send Authorization: Bearer TOKEN)")

    def _right(self, token: str | None) -> bool:
        return token is not None and hmac.compare_digest(token.encode(), (self._token or "").encode())


def _error(status: int, message: str) -> JSONResponse:
    return JSONResponse({"error": message}, status)
