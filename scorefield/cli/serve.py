"""scorefield serve."""

from __future__ import annotations

import os
import re
import socket
import sys
from typing import Annotated

import tyro

from scorefield.cli.app import app, say


@app.command
def serve(
    models: Annotated[
        tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="MODEL|RUN", help_behavior_hint="")
    ] = (),
    /,
    *,
    host: str = "127.0.0.1",
    port: int = 7860,
    token: str | None = None,
    device: str = "auto",
    no_open: bool = False,
) -> None:
    """Serve a web page on this machine: samples from noise, images completed, training watched.

    Stop it with Ctrl-C. Programs can use what the page uses: /api describes it.

    Example: scorefield serve runs/mine

    Args:
        models: Run folders, which are also shown while they train, or will train, and model files. Shipped models are
            always there.
        host: Where to listen. 127.0.0.1 is for this machine alone, 0.0.0.0 for all that can reach it, with --token.
        port: Where to listen; 0 takes one that is free.
        token: A password, without which nobody is served: letters, digits, - and _, at least 8.
        device: auto (a GPU where there is one), cpu, cuda, cuda:1, ...
        no_open: Do not open the page in a browser, as is done where there is a screen.
    """
    from scorefield.distributed import pick_device
    from scorefield.web.security import is_loopback
    from scorefield.web.server import Server, application, bound

    _check(host, port, token, loopback=is_loopback(host))
    pick_device(device)
    with bound(host, port) as listening:
        port = listening.getsockname()[1]
        served = application(models, host=host, port=port, token=token, device=device)
        for name in served.models.awaited:
            say(f"{name}: no training there yet; the page shows it as soon as it begins")
        if not is_loopback(host):
            say(f"warning: all who can reach this machine at port {port}, and know the token, can use its models")
        query = f"?token={token}" if token else ""
        address = f"http://{_shown(host)}:{port}/{query}"
        say(f"scorefield is at {address} (stop it with Ctrl-C)")
        if host == "0.0.0.0" and (own := _own_address()):
            say(f"from other machines: http://{own}:{port}/{query}")
        if not no_open and _has_screen():
            import webbrowser

            webbrowser.open(address)
        Server(served).run_until_stopped(listening)
    say("stopped")


def _check(host: str, port: int, token: str | None, *, loopback: bool) -> None:
    """A wrong value is an error with its cure."""
    if not 0 <= port < 2**16:
        raise ValueError(f"--port must be from 0 to 65535; got {port}")
    if token is not None and not re.fullmatch(r"[A-Za-z0-9_-]{8,}", token):
        raise ValueError("--token must be at least 8 letters, digits, - or _")
    if token is None and not loopback:
        raise ValueError(f"--host {host} lets others use this machine (add a password that you choose: --token TOKEN)")


def _shown(host: str) -> str:
    """What to call the server in an address on this machine."""
    return {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)


def _own_address() -> str | None:
    """What other machines on the network call this one; nothing is sent to find out."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # an address of no machine
        except OSError:  # no network
            return None
        name: str = probe.getsockname()[0]
        return name


def _has_screen() -> bool:
    return sys.stderr.isatty() and (sys.platform != "linux" or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY"))))
