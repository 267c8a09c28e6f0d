"""A server of one file on this machine, with the faults of real ones."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from local_server import Quiet, serving


@dataclass
class FileServer:
    """What it serves, how, and what it was asked for."""

    content: bytes
    ranges: bool = True
    """Whether it can send a part of the file."""
    cuts: list[int] = field(default_factory=list)
    """How many bytes it sends before it cuts the connection, for the first answers."""
    length: bool = True
    """Whether it says how long the answer is."""
    seconds: float = 0.0
    """How long it waits before it answers."""
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    """The path and the Range of each request."""
    url: str = ""

    @contextmanager
    def running(self) -> Iterator[FileServer]:
        files = self

        class Handler(Quiet):
            def do_GET(self) -> None:
                files.asked.append((self.path, self.headers.get("Range")))
                time.sleep(files.seconds)
                if self.path.endswith("missing"):
                    self.send_error(404)
                    return
                start = 0
                if files.ranges and (found := re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))):
                    start = int(found[1])
                    if start >= len(files.content):
                        self.send_error(416)
                        return
                body = files.content[start:]
                self.send_response(206 if start else 200)
                if files.length:
                    self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body[: files.cuts.pop(0)] if files.cuts else body)

        with serving(Handler) as self.url:
            yield self
