"""Run the commands of the README and of the guides as they are written, and compare their times with the printed ones.

    python scripts/run_docs_commands.py                     all pages
    python scripts/run_docs_commands.py README.md docs/train.md
    python scripts/run_docs_commands.py --model unet-mnist=FILE.safetensors   use this file for that model

In the pages, blocks marked `sh` are run, page by page, each page in an empty folder of its own and in its order. Blocks
marked `bash` are not: they set up the machine, serve until they are stopped, or need GPUs, hours or data sets.

A comment such as `# 45 s` or `# 2 min` is a command's printed time, from its start to its end on two idle cores. A
command that fails, or whose time differs by more than a factor of two from the printed one, is reported, and the exit
status is 1.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TIMES = {"s": 1.0, "min": 60.0}
SLACK = 2.0
"""Seconds by which a short command may differ in any case."""


@dataclass(frozen=True)
class Command:
    """One command line of a page."""

    text: str
    """Without its comment; continued lines are joined."""
    seconds: float | None
    """The printed time."""
    runs: bool
    """Whether it is in a block that is run."""


RECORDS = ("results.md", "performance.md", "appendix.md")
"""Pages whose commands say how numbers were made, on GPUs."""


def pages() -> list[Path]:
    """The README and the guides."""
    return [ROOT / "README.md", *(page for page in sorted((ROOT / "docs").glob("*.md")) if page.name not in RECORDS)]


def commands(text: str) -> list[Command]:
    """The command lines of a page's `sh` and `bash` blocks."""
    found = []
    for kind, block in re.findall(r"^```(sh|bash)\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        for line in re.sub(r"\\\n\s*", "", block).splitlines():
            words, _, comment = line.partition("  #")
            if words.strip() and not words.startswith("#"):
                time_said = re.search(r"(\d+(?:\.\d+)?) (s|min)\b", comment)
                seconds = float(time_said[1]) * TIMES[time_said[2]] if time_said else None
                found.append(Command(words.strip(), seconds, kind == "sh"))
    return found


def scorefield_words(command: Command) -> list[str] | None:
    """The words after `scorefield` of a call of it, also by torchrun; None for another program."""
    words = shlex.split(command.text)
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words = words[1:]
    if words[:1] == ["scorefield"]:
        return words[1:]
    if words[:1] == ["torchrun"] and "-m" in words:
        return words[words.index("-m") + 2 :]
    return None


def with_models(text: str, models: dict[str, Path]) -> str:
    """The text with files in the place of these models' names."""
    for name, file in models.items():
        text = re.sub(rf"(?<![\w/.=-]){re.escape(name)}(?![\w/.-])", str(file), text)
    return text


def run(page: Path, models: dict[str, Path]) -> Iterable[str]:
    """Run a page's commands in a new folder. Yields what is wrong."""
    todo = [command for command in commands(page.read_text(encoding="utf-8")) if command.runs]
    if not todo:
        return
    print(f"\n{page.relative_to(ROOT)}")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "scripts").symlink_to(ROOT / "scripts")
        paths = [str(Path(sys.executable).parent), os.environ.get("PATH", "")]
        environment = os.environ | {"PATH": os.pathsep.join(paths)}
        for command in todo:
            text = with_models(command.text, models)
            if text.startswith("scorefield ") and shutil.which("scorefield", path=environment["PATH"]) is None:
                text = f"{shlex.quote(sys.executable)} -m {text}"
            before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            done = subprocess.run(text, shell=True, cwd=folder, env=environment, capture_output=True, text=True)
            wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            said = "" if command.seconds is None else f"{command.seconds:g} s"
            print(f"{wall:7.1f} s {cpu:7.1f} s of CPU, printed {said:>6}  {command.text}", flush=True)
            if done.returncode:
                yield f"{page.name}: {command.text} ended with {done.returncode}: {done.stderr[-800:]}"
            elif command.seconds is not None:
                low, high = command.seconds / 2 - SLACK, 2 * command.seconds + SLACK
                if not low <= wall <= high:
                    yield f"{page.name}: {command.text} took {wall:.0f} s, and {said} is printed"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("pages", nargs="*", type=Path, help="Pages to run. Default: the README and docs/*.md.")
    parser.add_argument("--model", action="append", default=[], metavar="NAME=FILE", help="A file for a model's name.")
    options = parser.parse_args()
    models = {name: Path(file).resolve() for name, _, file in (text.partition("=") for text in options.model)}
    chosen = [page.resolve() for page in options.pages] or pages()
    wrong = [problem for page in chosen for problem in run(page, models)]
    print("\n" + "\n".join(wrong) if wrong else "\nevery command works, in about its printed time")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
