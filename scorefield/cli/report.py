"""scorefield report."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro

from scorefield.cli.app import ModelName, app, prepare_folder, say, tracker, write_json
from scorefield.cli.evaluate import facts_of
from scorefield.cli.models import Sampler, how_of

if TYPE_CHECKING:
    from scorefield.checkpoint import Model
    from scorefield.distributed import Group
    from scorefield.evaluation.report import Work

Part = Literal["samples", "stages", "neighbors", "numbers"]
PARTS: tuple[Part, ...] = ("samples", "stages", "neighbors", "numbers")
KEPT = (*PARTS, "digits", "sampling", "seconds")
"""What an interrupted report finds again of what it has made."""
USUAL = Sampler(n=10_000, batch_size=500)
SAME = ("model", "sampler", "n", "data", "machine")
"""What must not have changed for an interrupted report to go on where it stopped."""


@app.command
def report(
    model: ModelName,
    /,
    *,
    out: Path,
    data: str | None = None,
    name: str | None = None,
    run: Path | None = None,
    parts: tuple[Part, ...] = PARTS,
    sampler: tyro.conf.OmitArgPrefixes[Sampler] = USUAL,
) -> None:
    """Everything that the paper shows of a model, in one go: pictures, and report.json with all numbers.

    samples: 10 × 10 of them, without and with the last denoising step. stages: samples on their way from noise.
    neighbors: samples beside the nearest training images, and whether they are copies, between pixels and between
    Inception's features. numbers: FID, KID, precision and recall without and with the last denoising step, and the
    objective. An interrupted report goes on where it stopped.

    Example: scorefield report runs/mnist --out docs/results/mnist

    Args:
        model: A run folder, a model file, or the name of a shipped model: mnist-small, say.
        out: Folder for the pictures and report.json; made if it is missing.
        data: The images to compare with. Default: what the model was trained on.
        name: What to call it. Default: the folder's name.
        run: The run folder with the model's losses. Default: the one that the model lies in, if any.
        parts: What to report on; the numbers take longest.
    """
    from scorefield.checkpoint import load
    from scorefield.distributed import joined
    from scorefield.evaluation import Pool
    from scorefield.evaluation.report import Work

    sampler.check(least=2)
    if not parts:
        raise ValueError(f"--parts needs one or more of {', '.join(PARTS)}")
    prepare_folder(out)
    with joined(sampler.device) as group:
        subject = load(model, weights=sampler.weights, device=group.device)
        how = Pool(subject, how_of(sampler, subject)).how
        work = Work(subject, how, sampler.n, sampler.batch_size, data, out, group, tracker(group))
        page = Page(out, _facts(work, name or out.resolve().name, _training(model, run, subject)), group)
        page.command = _command(model, {"out": out, "n": sampler.n, "data": data, "name": name, "run": run}, sampler)
        _make(work, page, [part for part in PARTS if part in parts])
        if group.main:
            _tell(page.content)
            print(page.path)


def _facts(work: Work, name: str, training: dict[str, Any] | None) -> dict[str, Any]:
    """What the report is about, and how it is made."""
    import torch

    from scorefield.bench import device_name
    from scorefield.evaluation.parts import about
    from scorefield.version import __version__

    facts = {
        "name": name,
        "command": "",
        "machine": device_name(work.group.device),
        "processes": work.group.world,
        "scorefield": __version__,
        "torch": torch.__version__,
        "n": work.n,
        "data": work.data,
        "sampler": asdict(work.how),
        "model": about(work.model),
    }
    return facts if training is None else {**facts, "training": training}


def _training(model: str, run: Path | None, subject: Model) -> dict[str, Any] | None:
    """The run's losses; None for a model file without a run."""
    from scorefield.runs.history import history, run_of

    place = run or run_of(Path(model))
    return history(place, subject) if place is not None else None


def _command(model: str, options: dict[str, Any], sampler: Sampler) -> str:
    """The command line that makes this report, without --parts."""
    words = ["scorefield", "report", model]
    for name in asdict(sampler):
        value = getattr(sampler, name)
        if name not in ("n", "device") and value != getattr(USUAL, name):
            options[name.replace("_", "-")] = value
    for key, value in options.items():
        if value is not None:
            words += ["-n" if key == "n" else f"--{key}", *([] if value is True else [str(value)])]
    return shlex.join(words)


class Page:
    """report.json, written anew after every part: what it holds of the same model and settings is not made again."""

    command = ""

    def __init__(self, out: Path, facts: dict[str, Any], group: Group) -> None:
        self.path, self.group = out / "report.json", group
        before: dict[str, Any] = {}
        with suppress(FileNotFoundError, ValueError):
            before = json.loads(self.path.read_text())
        now = json.loads(json.dumps(facts))
        same = all(before.get(key) == now[key] for key in SAME)
        if group.main and before and not same:
            say(f"{self.path} is of another model, machine or setting: made anew")
        made = {key: before[key] for key in KEPT if key in before} if same else {}
        self.content = {**now, "seconds": {}, **made}

    def has(self, part: str) -> bool:
        """Whether that part is done; all processes get the same answer."""
        made = self.content.get(part)
        here = made is not None and all((self.path.parent / name).exists() for name in made.get("files", []))
        return bool(self.group.all(here)[0])

    @contextmanager
    def part(self, name: str) -> Iterator[dict[str, Any]]:
        """Inside, fill the dictionary with what the part finds; its end writes the page."""
        made: dict[str, Any] = {}
        began = time.monotonic()
        yield made
        if self.group.main:
            if made:
                self.content[name] = made
            before = self.content["seconds"].get(name, 0.0) if name in ("preparing", "sampling") else 0.0
            self.content["seconds"][name] = round(before + time.monotonic() - began, 2)
            held = [part for part in PARTS if part in self.content]
            parts = f" --parts {' '.join(held)}" if 0 < len(held) < len(PARTS) else ""
            self.content["command"] = self.command + parts
            write_json(self.path, self.content)


def _make(work: Work, page: Page, parts: list[str]) -> None:
    """The parts that are not there yet."""
    from scorefield.evaluation.parts import has_digits

    wanted = [*parts, *(["digits"] if "numbers" in parts and has_digits(work.model) else [])]
    todo = [part for part in wanted if not page.has(part)]
    for part in wanted:
        if part not in todo and work.group.main:
            say(f"{part}: there already, in {page.path}")
    with page.part("preparing"):
        work.prepare(todo)
    if most := work.samples_for(todo):
        with page.part("sampling") as made:
            made["images"] = page.content.get("sampling", {}).get("images", 0) + work.draw(most)
    makers = {"samples": work.samples, "stages": work.stages, "neighbors": work.neighbors, "digits": work.digits}
    makers["numbers"] = lambda: work.numbers() | facts_of(work.drawn["plain"], work.reference[0], work.network)
    for part in todo:
        with page.part(part) as made:
            made |= makers[part]()


def _tell(found: dict[str, Any]) -> None:
    """A short version, for people."""
    model, numbers, digits = found["model"], found.get("numbers"), found.get("digits")
    print(f"{found['name']}: step {model['step']}, {model['weights']} weights, on {found['machine']}")
    if numbers is not None:
        columns = [numbers["plain"], numbers["denoised"]]
        reference = numbers["reference"]
        print(f"  n = {found['n']}, against {reference['name']}     plain   denoised")
        for key in ("fid", "kid", "precision", "recall", "inception_score"):
            if columns[0].get(key) is not None:
                print(f"  {key:24} " + "".join(f"{column[key]:11.4f}" for column in columns))
        if "loss" in numbers:
            print(f"  objective, Eq. 6         {numbers['loss']:11.4f}   n = {numbers['loss_n']} held-out images")
    for kind, verdict in (digits or {}).items():
        print(f"  accepted as digits       {verdict['accepted']:11.4f}   {kind}, n = {verdict['n']}")
    for space in ("neighbors", "neighbors_inception"):
        if (told := found.get("neighbors", {}).get(space)) is not None:
            alarm = "ALARM: " if told["alarm"] else ""
            print(f"  {space}: {alarm}{len(told['copies'])} copies among {told['n']} samples")
