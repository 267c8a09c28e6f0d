"""scorefield serve."""

from __future__ import annotations

import math
import os
import re
import secrets
import socket
import sys
from typing import Annotated

import tyro

from scorefield.cli.app import Device, Flag, command, say

TOKEN_VARIABLE = "SCOREFIELD_TOKEN"


@command
def serve(
    models: Annotated[
        tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="MODEL|RUN", help_behavior_hint="")
    ] = (),
    /,
    *,
    host: str = "127.0.0.1",
    port: int = 7860,
    token: str | None = None,
    max_minutes: float | None = None,
    device: Device = "auto",
    no_open: Flag = False,
) -> None:
    """Serve a web page on this machine: draw samples, complete images, watch training runs.

    Stop it with Ctrl-C. Programs can use the same API as the page: /api describes it.

    Example: scorefield serve runs/mine

    Args:
        models: Model files, and run folders, whose training is shown too. A run may begin after the server. The
            pretrained models are always there.
        host: Address to listen at. 127.0.0.1 is for this machine only; 0.0.0.0 lets other machines in, and needs
            --token.
        port: Port to listen at; 0 takes a free one.
        token: A password that every request needs: at least 8 letters, digits, - or _. With --token auto the server
            makes one up. If it is not given, it is the value of the environment variable SCOREFIELD_TOKEN, if that is
            set: other users of this machine cannot see it there.
        max_minutes: The longest job that is accepted, by an estimate from the speed of this machine; 30 on a server
            with a token, which several people may use, and otherwise 720. All jobs of one client together may take
            twice as long.
        no_open: Do not open the page in a browser. By default it is opened if there is a screen.
    """
    from scorefield.distributed import pick_device
    from scorefield.web.limits import Limits
    from scorefield.web.security import is_loopback
    from scorefield.web.server import Server, listen

    if not 0 <= port < 2**16:
        raise ValueError(f"--port must be from 0 to 65535; got {port}")
    token, shown = _find_token(token)
    minutes = (720 if token is None else 30) if max_minutes is None else max_minutes
    if not 0 < minutes < math.inf:
        raise ValueError(f"--max-minutes must be a positive number; got {max_minutes}")
    if token is None and not is_loopback(host):
        raise ValueError(
            f"--host {host} lets other machines use this one (choose a password for them: --token TOKEN, --token auto "
            f"or {TOKEN_VARIABLE}=TOKEN)"
        )
    pick_device(device)
    limits = Limits(work_seconds=60 * minutes, client_seconds=120 * minutes)
    with listen(host, port) as listening:
        port = listening.getsockname()[1]
        server = Server(models, host=host, port=port, token=token, device=device, limits=limits)
        for name in server.models.waiting:
            say(f"{name}: the training has not begun yet; the page shows it as soon as it does")
        if not is_loopback(host):
            say(f"warning: everyone who can reach this machine at port {port} and knows the token can use its models")
        query = f"?token={shown}" if token else ""
        address = f"http://{_shown(host)}:{port}/"
        say(f"scorefield is at {address}{query} (stop it with Ctrl-C)")
        if host == "0.0.0.0" and (own := _own_address()):
            say(f"from other machines: http://{own}:{port}/{query}")
        if not no_open and _has_screen():
            import webbrowser

            webbrowser.open(f"{address}?token={token}" if token else address)
        server.run_until_stopped(listening)


def _find_token(given: str | None) -> tuple[str | None, str | None]:
    """The token, and what is printed in its place: that of the environment stays secret."""
    where, token = ("--token", given) if given is not None else (TOKEN_VARIABLE, os.environ.get(TOKEN_VARIABLE) or None)
    if token == "auto":
        token = given = secrets.token_urlsafe(16)
    if token is not None and not re.fullmatch(r"[A-Za-z0-9_-]{8,}", token):
        raise ValueError(f"{where} must be at least 8 letters, digits, - or _ (or auto, which makes one up)")
    return token, f"${TOKEN_VARIABLE}" if given is None else given


def _shown(host: str) -> str:
    """The server's host name in an address for this machine."""
    return {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)


def _own_address() -> str | None:
    """This machine's address in its network. Nothing is sent to find it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # an address that no machine has
        except OSError:  # no network
            return None
        name: str = probe.getsockname()[0]
        return name


def _has_screen() -> bool:
    return sys.stderr.isatty() and (sys.platform != "linux" or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY"))))
