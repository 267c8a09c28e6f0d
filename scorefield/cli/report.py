"""scorefield report."""

from __future__ import annotations

import hashlib
import json
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import tyro

from scorefield.cli.app import ModelName, app, prepare_folder, say, tracker, write_json
from scorefield.cli.models import Sampler, how_of, note_if_short

if TYPE_CHECKING:
    from scorefield.models.checkpoint import Model
    from scorefield.distributed import Group
    from scorefield.evaluation.report import Work

Part = Literal["samples", "stages", "neighbors", "numbers", "inpainting", "robustness", "real"]
PARTS: tuple[Part, ...] = get_args(Part)
USUAL_PARTS = PARTS[:4]
KEPT = (*PARTS, "digits", "sampling", "seconds", "made_on")
"""What an interrupted report finds again of what it has made."""
USUAL = Sampler(n=10_000, batch_size=500)
SAME = ("model", "sampler", "n", "data")
"""What must not have changed for an interrupted report to go on where it stopped."""


@app.command
def report(
    model: ModelName,
    /,
    *,
    out: Path,
    data: str | None = None,
    run: Path | None = None,
    parts: tuple[Part, ...] = USUAL_PARTS,
    sampler: tyro.conf.OmitArgPrefixes[Sampler] = USUAL,
) -> None:
    """Everything that the paper shows of a model, in one go: pictures, and report.json with all numbers.

    samples: 10 × 10 of them, without and with the last denoising step. stages: samples on their way from noise.
    neighbors: samples beside the nearest training images, and whether they are copies, between pixels and between
    Inception's features. numbers: FID, KID, precision and recall without and with the last denoising step, and the
    objective. Only where --parts names them: inpainting, held-out images with holes of several shapes, completed;
    robustness, FID and the like by other step sizes ε and numbers of steps T; and real, FID and the like of the data
    set's test images, for comparison. An interrupted report goes on where it stopped.

    Example: scorefield report runs/mnist --out docs/results/mnist

    Args:
        model: A run folder, a model file, or the name of a shipped model: mnist-small, say.
        out: Folder for the pictures and report.json; made if it is missing.
        data: The images to compare with, and to complete. Default: what the model was trained on; where that lies
            elsewhere now, say where, and what was held out of it is left out again, and completed.
        run: The run folder with the model's losses. Default: the one that the model lies in, if any.
        parts: What to report on; the numbers take longest.
    """
    from scorefield.models.checkpoint import load
    from scorefield.distributed import joined
    from scorefield.evaluation import Pool, at_once
    from scorefield.evaluation.report import Work

    sampler.check(least=2)
    if not parts:
        raise ValueError(f"--parts needs one or more of {', '.join(PARTS)}")
    with joined(sampler.device) as group:
        subject = load(model, weights=sampler.weights, device=group.device)
        prepare_folder(out)
        how = Pool(subject, how_of(sampler, subject)).how
        note_if_short(how, subject, group)
        work = Work(subject, how, sampler.n, at_once(sampler.batch_size, group), data, out, group, tracker(group))
        facts = {"command": _command(model, {"out": out, "n": sampler.n, "data": data, "run": run}, sampler)}
        file = ReportFile(out, facts | _facts(work, _training(model, run, subject)), group)
        _make(work, file, [part for part in PARTS if part in parts])
        if group.main:
            _tell(out.resolve().name, file.content)
            print(file.path)


def _facts(work: Work, training: dict[str, Any] | None) -> dict[str, Any]:
    """What the report is about, and how it is made."""
    from scorefield.data.named import name_alone
    from scorefield.evaluation.report import about

    data = work.data
    if data is not None and name_alone(data) != data:  # a path, of which the digest tells whether it is the same again
        data = f"{name_alone(data)} ({hashlib.sha256(data.encode()).hexdigest()[:12]})"
    facts = {"n": work.n, "data": data, "sampler": asdict(work.how), "model": about(work.model)}
    return facts if training is None else {**facts, "training": training}


def _here(group: Group) -> dict[str, Any]:
    """What makes a part now."""
    import torch

    from scorefield.distributed import device_name
    from scorefield.version import __version__

    versions = {"scorefield": __version__, "torch": torch.__version__}
    return {"machine": device_name(group.device), "processes": group.world, **versions}


def _training(model: str, run: Path | None, subject: Model) -> dict[str, Any] | None:
    """The run's losses; None for a model file without a run."""
    from scorefield.training.history import history, run_of

    place = run or run_of(Path(model))
    return history(place, subject) if place is not None else None


def _command(model: str, options: dict[str, Any], sampler: Sampler) -> str:
    """The command line that makes this report, without --parts."""
    words = ["scorefield", "report", _place(model)]
    for name in asdict(sampler):
        value = getattr(sampler, name)
        if name not in ("n", "device") and value != getattr(USUAL, name):
            options[name.replace("_", "-")] = value
    for key, value in options.items():
        if value is not None:
            words += ["-n" if key == "n" else f"--{key}", *([] if value is True else [_place(str(value))])]
    return shlex.join(words)


def _place(word: str) -> str:
    """A full path as seen from here, or its name alone where it lies elsewhere: reports are published."""
    from scorefield.data.named import name_alone
    from scorefield.files import from_here

    path = Path(word)
    return word if not path.is_absolute() else from_here(path) or name_alone(word)


class ReportFile:
    """report.json, written anew after every part. Parts of it are not made again; of another model, it stays as it is.

    `made_on` has the machine and the versions of each part, which may differ.
    """

    def __init__(self, out: Path, facts: dict[str, Any], group: Group) -> None:
        self.path, self.group, self.here = out / "report.json", group, _here(group)
        before: dict[str, Any] = {}
        with suppress(FileNotFoundError, ValueError):
            before = json.loads(self.path.read_text())
        self.facts = json.loads(json.dumps(facts))
        ours, same = "made_on" in before, all(before.get(key) == self.facts[key] for key in SAME)
        if before and not (ours and (same or not set(PARTS) & set(before))):  # without a part there is nothing to lose
            other = ", ".join(key for key in SAME if before.get(key) != self.facts[key]) if ours else "all of it"
            raise FileExistsError(f"{self.path} has another {other} (name another --out, or delete it)")
        if same and "training" in before and "training" not in self.facts:  # known from a call that named the run
            whole: str = before["command"]
            self.facts |= {"training": before["training"], "command": whole.partition(" --parts ")[0]}
        self.content = {**self.facts, "seconds": {}, "made_on": {}}
        self.content |= {key: before[key] for key in KEPT if same and key in before}

    def has(self, part: str) -> bool:
        """Whether that part is done; all processes get the same answer."""
        made = self.content.get(part)
        here = made is not None and all((self.path.parent / name).exists() for name in made.get("files", []))
        return bool(self.group.all(here)[0])

    @contextmanager
    def part(self, name: str) -> Iterator[dict[str, Any]]:
        """Inside, fill the dictionary with what the part finds; its end writes the file."""
        made: dict[str, Any] = {}
        began = time.monotonic()
        yield made
        if self.group.main:
            if made:
                self.content[name] = made
                self.content["made_on"][name] = self.here
            before = self.content["seconds"].get(name, 0.0) if name in ("preparing", "sampling") else 0.0
            self.content["seconds"][name] = round(before + time.monotonic() - began, 2)
            held = [part for part in PARTS if part in self.content]
            parts = f" --parts {' '.join(held)}" if held and held != list(USUAL_PARTS) else ""
            self.content["command"] = self.facts["command"] + parts
            write_json(self.path, self.content)


def _make(work: Work, file: ReportFile, parts: list[str]) -> None:
    """The parts that are not there yet."""
    from scorefield.evaluation.report import has_digits

    wanted = [*parts, *(["digits"] if "numbers" in parts and has_digits(work.model) else [])]
    todo = [part for part in wanted if not file.has(part)]
    for part in wanted:
        if part not in todo and work.group.main:
            say(f"{part}: there already, in {file.path}")
    with file.part("preparing"):
        work.prepare(todo)
    if most := work.samples_for(todo):
        with file.part("sampling") as made:
            if drawn := work.draw(most):
                made["images"] = file.content.get("sampling", {}).get("images", 0) + drawn
    for part in todo:
        with file.part(part) as made:
            made |= work.make(part)


def _tell(name: str, found: dict[str, Any]) -> None:
    """A short version, for people."""
    model, numbers, digits = found["model"], found.get("numbers"), found.get("digits")
    machines = sorted({each["machine"] for each in found["made_on"].values()})
    print(f"{name}: step {model['step']}, {model['weights']} weights, on {' and '.join(machines)}")
    if numbers is not None:
        columns = [numbers["plain"], numbers["denoised"]]
        reference = numbers["reference"]
        print(f"  n = {found['n']}, against {reference['name']}     plain   denoised")
        for key in ("fid", "kid", "precision", "recall", "inception_score"):
            if any(column.get(key) is not None for column in columns):
                cells = ("–" if column.get(key) is None else f"{column[key]:.4f}" for column in columns)
                print(f"  {key:24} " + "".join(f"{cell:>11}" for cell in cells))
        for note in dict.fromkeys(note for column in columns for note in column.get("notes", [])):
            say(f"note: {note}")
        if numbers.get("loss") is not None:
            print(f"  objective, Eq. 6         {numbers['loss']:11.4f}   n = {numbers['loss_n']} held-out images")
    if (real := found.get("real")) is not None:
        for key in ("fid", "kid", "precision", "recall"):
            cell = "–" if real.get(key) is None else f"{real[key]:.4f}"
            print(f"  {key + ', ' + real['name']:24} {cell:>11}   n = {real['n']} real images")
    for kind, verdict in (digits or {}).items():
        print(f"  accepted as digits       {verdict['accepted']:11.4f}   {kind}, n = {verdict['n']}")
    for space in ("neighbors", "neighbors_inception"):
        if (told := found.get("neighbors", {}).get(space)) is not None:
            alarm = "ALARM: " if told["alarm"] else ""
            print(f"  {space}: {alarm}{len(told['copies'])} copies among {told['n']} samples")
