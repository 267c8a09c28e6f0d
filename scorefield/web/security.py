"""Checks before every request: who may use the server, and what a browser may do with its answers."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import math
import time
from collections import OrderedDict
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
GUESSES, GUESS_SECONDS = 10, 6.0
"""How many wrong tokens an address may send at once, and the seconds after which it may send one more."""
ADDRESSES = 1000
"""The most addresses whose wrong tokens are remembered."""


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


def client_of(request: Request) -> str:
    """The address that a request comes from. All addresses of one IPv6 network, which one client has, are the same."""
    host = request.client.host if request.client else ""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((int(address), 64), strict=False))


class Throttle:
    """Slows down the guessing of tokens from one address.

    A token that is sent again counts once: a page that was left open goes on sending the token of an earlier server.
    """

    def __init__(self) -> None:
        self._wrong = OrderedDict[str, tuple[float, list[bytes]]]()  # when all is forgiven, and the last wrong tokens

    def seconds(self, address: str) -> float:
        """The time until this address may try another token; 0 if it may do so now."""
        forgiven_at, _ = self._wrong.get(address, (0.0, []))
        return max(0.0, forgiven_at - time.monotonic() - (GUESSES - 1) * GUESS_SECONDS)

    def count(self, address: str, token: str) -> None:
        """Remember a wrong token."""
        forgiven_at, tokens = self._wrong.get(address, (0.0, []))
        if (digest := hashlib.sha256(token.encode()).digest()) in tokens:
            return
        until = max(forgiven_at, time.monotonic()) + GUESS_SECONDS
        self._wrong[address] = until, [*tokens, digest][-GUESSES:]
        self._wrong.move_to_end(address)
        if len(self._wrong) > ADDRESSES:
            self._wrong.popitem(last=False)


class Guard:
    """Wraps the whole application, its error answers included."""

    def __init__(self, app: ASGIApp, *, hosts: frozenset[str] | None, token: str | None, port: int) -> None:
        self._app, self._hosts, self._token, self._throttle = app, hosts, token, Throttle()
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
        path, client = request.scope["path"], client_of(request)
        if self._token is None or path.startswith("/static/"):
            return None
        link = request.query_params.get("token") if path == "/" else None
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        tokens = [link, request.cookies.get(self._cookie), bearer.strip() if scheme.lower() == "bearer" else None]
        given = [token for token in tokens if token]
        if given and (seconds := math.ceil(self._throttle.seconds(client))):
            message = f"too many wrong tokens came from your address (try again in {seconds} s)"
            return _error(429, message, {"Retry-After": str(seconds)})
        if link and self._is_token(link):
            answer = RedirectResponse("/", 303)
            answer.set_cookie(self._cookie, self._token, httponly=True, samesite="strict")
            return answer
        if any(map(self._is_token, given)):
            return None
        for token in given:
            self._throttle.count(client, token)
        if path == "/" and "text/html" in request.headers.get("accept", ""):
            return FileResponse(LOCKED, 401)
        return _error(401, "the token is missing or wrong (open /?token=TOKEN, or send Authorization: Bearer TOKEN)")

    def _is_token(self, token: str) -> bool:
        return hmac.compare_digest(token.encode(), (self._token or "").encode())


def _error(status: int, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"error": message}, status, headers)
