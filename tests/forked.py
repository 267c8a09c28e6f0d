"""Python programs in processes of their own that begin at once: each is forked from a process that has imported PyTorch
and this package already, which a new interpreter takes seconds for."""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

SERVER = """
import gc, json, os, signal, sys, traceback
import filelock, torch, torch._dynamo, torch.distributed, tyro
import scorefield.training, scorefield.cli.app, scorefield.cli.evaluate, scorefield.cli.sample, scorefield.cli.train

gc.freeze()  # or each child would copy all that its garbage collector looks at
running, code = set(), None
while code is None and (line := sys.stdin.readline()):
    request = json.loads(line)
    if "wait" in request:
        pid, status = os.waitpid(request["wait"], os.WNOHANG)
        running.discard(pid)
        answer = os.waitstatus_to_exitcode(status) if pid else None
    elif answer := os.fork():
        running.add(answer)
    else:
        code = request["code"]
        os.environ.clear()
        os.environ.update(request["environment"])
        os.chdir(request["folder"])
        for number, path in enumerate([os.devnull, *request["files"]]):
            file = os.open(path, os.O_RDWR)
            os.dup2(file, number)
            os.close(file)
        continue
    print(json.dumps(answer), flush=True)
if code is None:
    for pid in running:
        os.kill(pid, signal.SIGKILL)
else:
    status = 1
    try:
        exec(code, {"__name__": "__main__"})
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else bool(end.code)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # at once: to take PyTorch apart takes an interpreter a second
"""
"""Starts programs and asks how they ended, as told by lines of JSON. In the new process the loop ends."""


@cache
def _server() -> subprocess.Popen[str]:
    """It has no threads, so that it can fork."""
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    atexit.register(server.communicate)  # closes its stdin, at which it ends
    return server


def _ask(**request: object) -> int | None:
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    print(json.dumps(request), file=server.stdin, flush=True)
    return json.loads(server.stdout.readline())


class Program:
    """A running program, with the methods of subprocess.Popen that the tests need."""

    def __init__(self, code: str, *, folder: Path | None = None, variables: Mapping[str, str] | None = None) -> None:
        self.files = [tempfile.NamedTemporaryFile() for _ in range(2)]  # noqa: SIM115 (closed by communicate)
        environment = {**os.environ, **(variables or {})}
        names, place = [file.name for file in self.files], str(folder or Path.cwd())
        pid = _ask(code=code, environment=environment, folder=place, files=names)
        assert pid is not None
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit status, -N after signal N; None while it runs."""
        if self.returncode is None:
            self.returncode = _ask(wait=self.pid)
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def communicate(self, timeout: float = 120.0) -> tuple[str, str]:
        """What it printed to stdout and to stderr until its end."""
        deadline = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > deadline:
                os.kill(self.pid, signal.SIGKILL)
                raise AssertionError(f"no end after {timeout:g} s: {self.files[1].read().decode()}")
            time.sleep(0.01)
        out, err = (file.read().decode() for file in self.files)
        for file in self.files:
            file.close()
        return out, err


def command_line(
    *arguments: object, before: str = "", folder: Path | None = None, variables: Mapping[str, str] | None = None
) -> Program:
    """`scorefield ARGUMENTS`; `before`: Python to run first."""
    call = [str(each) for each in arguments]
    return Program(f"{before}\nfrom scorefield.cli import main\nmain({call!r})", folder=folder, variables=variables)


def ended(programs: Iterable[Program]) -> list[str]:
    """What these programs, all started, printed to stdout until their ends, which are no failures."""
    printed = list[str]()
    for program in list(programs):
        out, err = program.communicate()
        assert program.returncode == 0, err
        printed.append(out)
    return printed


def ranks(processes: int) -> list[dict[str, str]]:
    """The variables by which torchrun joins so many processes, for each."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    return [{**place, "RANK": str(rank), "WORLD_SIZE": str(processes)} for rank in range(processes)]
