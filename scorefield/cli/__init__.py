"""The command line: parses, shows progress and calls the rest. Results go to stdout and files, all else to stderr."""

from __future__ import annotations

import os
import sys
import traceback
import warnings

import tyro

from scorefield.cli import bench as bench
from scorefield.cli import digits as digits
from scorefield.cli import evaluate as evaluate
from scorefield.cli import figures as figures
from scorefield.cli import model_files as model_files
from scorefield.cli import models as models
from scorefield.cli import neighbors as neighbors
from scorefield.cli import report as report
from scorefield.cli import results as results
from scorefield.cli import selection as selection
from scorefield.cli import serve as serve
from scorefield.cli import training as training
from scorefield.cli.app import app, say


def main(argv: list[str] | None = None) -> None:
    """Run the command line: exit status 0 on success, 2 on a wrong call, 130 or 143 where a signal
    has stopped a run, 1 on any other failure."""
    try:
        _run(sys.argv[1:] if argv is None else argv)
    except SystemExit as end:
        distributed = sys.modules.get("torch.distributed")
        if distributed is None or not distributed.is_available() or not distributed.is_initialized():
            raise
        # the group of processes is still up, as after any error, and when Python takes down its threads they may abort
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(end.code if isinstance(end.code, int) else bool(end.code))


def _run(argv: list[str]) -> None:
    if argv == ["--version"]:
        from scorefield import __version__

        print(f"scorefield {__version__}")
        return
    warnings.showwarning = lambda message, *_: say(f"warning: {message}")
    try:
        if argv[:1] == ["train"] and len(argv) > 1 and not argv[1].startswith("-"):
            from scorefield.cli.train_recipe import train_command

            train_command(argv[1], argv[2:])
        else:
            app.cli(prog="scorefield", args=argv or ["--help"], config=(tyro.conf.FlagCreatePairsOff,))
    except BrokenPipeError:  # who reads the output has left, head say
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
