"""The command line: results go to stdout and files, messages to stderr."""

from __future__ import annotations

import os
import sys
import traceback
import warnings

# Each module registers its commands.
from scorefield.cli import bench, evaluate, figures, models, report, sample, select, serve, train  # noqa: F401
from scorefield.cli.app import app, arguments, say


def main(argv: list[str] | None = None) -> None:
    """Exit status: 0 on success, 2 on a wrong call, 130 or 143 after a signal, 1 on any other failure."""
    try:
        _run(sys.argv[1:] if argv is None else argv)
    except SystemExit as end:
        distributed = sys.modules.get("torch.distributed")
        if distributed is None or not distributed.is_available() or not distributed.is_initialized():
            raise
        # after an error the group of processes is still up, and its threads may abort when Python ends them
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(end.code if isinstance(end.code, int) else bool(end.code))


def _run(argv: list[str]) -> None:
    if argv == ["--version"]:
        from scorefield import __version__

        print(f"scorefield {__version__}")
        return
    warnings.showwarning = lambda message, *_: say(f"warning: {message}")
    arguments[:] = argv
    try:
        app.cli(prog="scorefield", args=argv or ["--help"])
    except BrokenPipeError:  # nobody reads the output any more, as after head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except (ValueError, ArithmeticError, OSError, ImportError) as error:
        if os.environ.get("SCOREFIELD_TRACEBACK"):
            traceback.print_exc()
        many = int(os.environ.get("WORLD_SIZE", 1)) > 1
        say(f"scorefield{', process ' + os.environ['RANK'] if many else ''}: {error}")
        sys.exit(2 if isinstance(error, (ValueError, FileNotFoundError, FileExistsError)) else 1)
    except (RuntimeError, MemoryError) as error:
        if not isinstance(error, MemoryError) and "memory" not in str(error).lower():
            raise
        say(f"scorefield: out of memory: {str(error).splitlines()[0]} (a smaller --batch-size or --width needs less)")
        sys.exit(1)
    except KeyboardInterrupt:
        say("scorefield: interrupted")
        sys.exit(130)
