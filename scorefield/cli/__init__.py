"""The command line: results go to stdout and files, messages to stderr.

Importing this package is quick: a command's module is imported when the command is called.
"""

from __future__ import annotations

import os
import sys
import warnings
from difflib import get_close_matches
from importlib import import_module

from scorefield.cli.streams import say, show_all_characters
from scorefield.memory import is_out_of_memory

COMMANDS: dict[str, dict[str, tuple[str, str]]] = {
    "start here": {
        "demo": ("figures", "the main points on one page, in half a minute"),
        "serve": ("serve", "a web page: draw samples, complete images, watch training runs"),
    },
    "use a model": {
        "sample": ("sample", "draw samples"),
        "inpaint": ("sample", "fill in the hidden part of an image"),
        "restore": ("restore", "sharpen, enlarge, colour or complete an image, with error bars"),
        "interpolate": ("interpolate", "images on the way from one to another"),
        "models": ("models", "list the pretrained models: size, data, quality, and where they are"),
        "info": ("models", "show what a model is and how to sample it"),
        "export": ("models", "write a small model file to share"),
        "import": ("models", "convert a checkpoint of the code released with the paper"),
    },
    "train": {
        "doctor": ("doctor", "look at images and recommend settings; or say what is wrong with a run"),
        "train": ("train", "train a model on a data set or on your own images"),
        "select": ("select", "find the checkpoint of a run with the smallest FID"),
    },
    "measure": {
        "evaluate": ("evaluate", "FID, KID, precision and recall of a model or of images"),
        "digits": ("evaluate", "how many samples a classifier takes for digits"),
        "neighbors": ("evaluate", "the nearest training images, and whether samples are copies"),
        "frontier": ("frontier", "quality against the number of network calls, for many samplers"),
        "likelihood": ("likelihood", "bits per dimension of images under a model"),
        "bench": ("bench", "how fast this machine trains and samples"),
    },
    "the paper": {
        "figure": ("figures", "make a figure or the table of the paper"),
        "report": ("report", "all numbers and pictures about one model"),
        "results": ("report", "a page with the paper's results beside those of reports"),
    },
}
"""Groups of commands: the module of each, and what it does in a few words."""
MODULES = {name: module for group in COMMANDS.values() for name, (module, _) in group.items()}


def main(argv: list[str] | None = None) -> None:
    """Exit status: 0 on success, 2 on a wrong call, 130 or 143 after a signal, 1 on any other failure."""
    show_all_characters()
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
    warnings.showwarning = lambda message, *_: say(f"warning: {message}")
    try:
        if not argv or argv[0] in ("-h", "--help"):
            print(overview())
        elif argv == ["--version"]:
            from scorefield import __version__

            print(f"scorefield {__version__}")
        elif argv[0] not in MODULES:
            raise ValueError(unknown_command(argv[0]))
        else:
            run_command(argv[0], argv[1:])
    except BrokenPipeError:  # nobody reads the output any more, as after head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except (ValueError, ArithmeticError, OSError, ImportError) as error:
        _show_traceback()
        many = os.environ.get("WORLD_SIZE", "1") != "1" and "RANK" in os.environ
        say(f"scorefield{', process ' + os.environ['RANK'] if many else ''}: {error}")
        sys.exit(2 if isinstance(error, (ValueError, FileNotFoundError, FileExistsError)) else 1)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        _show_traceback()
        first = (str(error).rpartition("DefaultCPUAllocator: ")[2].splitlines() or ["there is too little"])[0]
        fix = "--micro-batch or --width" if argv[0] == "train" else "--batch-size"
        say(f"scorefield: out of memory: {first} (a smaller {fix} needs less)")
        sys.exit(1)
    except KeyboardInterrupt:
        say("scorefield: interrupted")
        sys.exit(130)


def run_command(name: str, argv: list[str]) -> None:
    """Run a command with the words that follow its name."""
    module = import_module(f"scorefield.cli.{MODULES[name]}")
    from scorefield.cli import app

    if name == "train":
        module.check_words(argv)
    app.run(name, argv)


def overview() -> str:
    """The commands in their groups, one line each."""
    lines = ["usage: scorefield COMMAND ...", "", "Score-based generative modelling, after Song & Ermon (2019)."]
    for group, commands in COMMANDS.items():
        lines += ["", f"{group}:", *(f"  {name:<11} {words}" for name, (_, words) in commands.items())]
    return "\n".join(
        [*lines, "", "scorefield COMMAND --help explains a command; scorefield --version prints the version."]
    )


def unknown_command(word: str) -> str:
    """What is wrong with a first word that is no command, and the nearest command if there is one."""
    if word.startswith("-"):
        return f"the first word must be a command; got {word} (scorefield --help lists the commands)"
    near = get_close_matches(word.lower(), MODULES, n=1, cutoff=0.5)
    question = f"did you mean {near[0]}? " if near else ""
    return f"there is no command {word!r} ({question}scorefield --help lists the commands)"


def _show_traceback() -> None:
    """Print the traceback of the error that is being handled, if the user wants it."""
    if os.environ.get("SCOREFIELD_TRACEBACK"):
        import traceback

        traceback.print_exc()
