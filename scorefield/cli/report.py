"""scorefield report, results."""

from __future__ import annotations

import math
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from scorefield.cli.app import ModelName, command, prepare_file, prepare_folder, say, tracker
from scorefield.cli.evaluate import sample_cache
from scorefield.cli.options import Sampling, SamplingOptions, note_guidance, note_shortfall
from scorefield.evaluation import PARTS, USUAL_PARTS, Part
from scorefield.progress import plural

if TYPE_CHECKING:
    from scorefield.evaluation.records import Metrics, Report

USUAL = Sampling(n=10_000, batch_size=500)


@command
def report(
    model: ModelName,
    /,
    *,
    out: Path,
    data: str | None = None,
    run: Path | None = None,
    parts: tuple[Part, ...] = USUAL_PARTS,
    sampling: SamplingOptions = USUAL,
) -> None:
    """Make everything that the paper shows about a model: pictures, and report.json with all numbers.

    samples: 10 × 10 samples, without and with the last denoising step. stages: samples on their way from noise.
    neighbors: samples beside the nearest training images, and whether they are copies, by distances between pixels and
    between Inception features. numbers: FID, KID, precision and recall, without and with the last denoising step, and
    the objective. The other parts are made only if --parts names them. inpainting: held-out images, completed under
    masks of several shapes. robustness: the metrics for other step sizes ε and numbers of steps T. real: the metrics of
    the data set's test images, for comparison. An interrupted report continues where it stopped.

    Example: scorefield report runs/mnist --out docs/results/mnist

    Args:
        out: Folder for the pictures and report.json; made if it is missing.
        data: The images to compare with and to complete. Default: what the model was trained on. If that has moved,
            name its new place; the same images are then held out of it as in training.
        run: The run folder with the model's losses. Default: the run folder that the model is in, if any.
        parts: The parts to make; numbers takes longest.
    """
    from scorefield.distributed import joined
    from scorefield.evaluation.report import ReportFile, ReportMaker, make_report
    from scorefield.evaluation.sample_cache import cached_batch_size
    from scorefield.models.model import load
    from scorefield.training.history import history, run_of

    sampling.check(least=2)
    if not parts:
        raise ValueError(f"--parts needs one or more of {', '.join(PARTS)}")
    with joined(sampling.device) as group:
        subject = load(model, weights=sampling.weights, device=group.device)
        prepare_folder(out)
        cache, size = sample_cache(subject, sampling), cached_batch_size(sampling.batch_size, group)
        note_shortfall(cache.sampler, subject, group)
        note_guidance(cache.guidance, group)
        maker = ReportMaker(cache, sampling.n, size, data, out, group, tracker(group))
        place = run or run_of(Path(model))
        training = history(place, subject) if place is not None else None
        command = _command(model, {"out": out, "n": sampling.n, "data": data, "run": run}, sampling)
        file = ReportFile(maker, command=command, training=training)
        make_report(maker, file, [part for part in PARTS if part in parts], say=say)
        if group.main:
            _print(out.resolve().name, file.report)
            print(file.path)


def _command(model: str, options: dict[str, Any], sampling: Sampling) -> str:
    """The command line that makes this report, without --parts."""
    words = ["scorefield", "report", _place(model)]
    for name, value in asdict(sampling).items():
        if name not in ("n", "device") and value != getattr(USUAL, name):
            options[name.replace("_", "-")] = value
    for key, value in options.items():
        if value is not None:
            words += ["-n" if key == "n" else f"--{key}", *([] if value is True else [_place(str(value))])]
    return shlex.join(words)


def _place(word: str) -> str:
    """A full path as seen from the working folder, or its last part if it is elsewhere, because reports are published.
    Other words stay as they are."""
    from scorefield.data.named import short_name
    from scorefield.files import from_here

    path = Path(word)
    return word if not path.is_absolute() else from_here(path) or short_name(word)


def _print(name: str, found: Report) -> None:
    """A short version for people."""
    machines = sorted({each.machine for each in found.made_on.values()})
    print(f"{name}: step {found.model.step}, {found.model.weights} weights, on {' and '.join(machines)}")
    metrics = ("fid", "kid", "precision", "recall")
    if (numbers := found.numbers) is not None:
        columns = [numbers.plain, numbers.denoised]
        print(f"  n = {found.n}, against {numbers.reference.name}     plain   denoised")
        for key in (*metrics, "inception_score"):
            if any(getattr(column, key) is not None for column in columns):
                print(f"  {key:24} " + "".join(f"{_cell(column, key):>11}" for column in columns))
        for note in dict.fromkeys(note for column in columns for note in column.notes):
            say(f"note: {note}")
        if numbers.loss is not None:
            n = plural(numbers.loss_n or 0, "held-out image")
            print(f"  objective, Eq. 6         {numbers.loss:11.4f}   n = {n}")
    if (real := found.real) is not None:
        for key in metrics:
            print(f"  {key + ', ' + real.name:24} {_cell(real, key):>11}   n = {plural(real.n, 'real image')}")
    if found.digits is not None:
        for kind, verdict in vars(found.digits).items():
            print(f"  accepted as digits       {verdict.accepted:11.4f}   {kind}, n = {verdict.n}")
    if found.neighbors is not None:
        for space in ("neighbors", "neighbors_inception"):
            copies = getattr(found.neighbors, space)
            alarm = "ALARM: " if copies.alarm else ""
            number = len(copies.copies)
            word = "copy" if number == 1 else "copies"
            print(f"  {space}: {alarm}{number} {word} among {plural(copies.n, 'sample')}")


def _cell(metrics: Metrics, key: str) -> str:
    value = getattr(metrics, key)
    return "–" if value is None or not math.isfinite(value) else f"{value:.4f}"


@command
def results(
    folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")] = Path("docs/results"),
    /,
    *,
    out: Path | None = None,
) -> None:
    """Make the results page from the reports in a folder: the paper's figures and numbers beside ours.

    Each report has its own folder DIR/NAME, as scorefield report --out DIR/NAME makes it: mnist, mnist-small,
    mnist-baseline, cifar10, ... The curves of the losses are drawn beside it. Your remarks on how a model was made go
    into DIR/NAME/remarks.md and appear on the page above its commands. Remarks on inpainting go into DIR/inpainting.md.
    Where measurements/frontier_NAME.json lies beside the page, as scorefield frontier NAME makes it, the page shows it.

    Example: scorefield results docs/results --out docs/results.md

    Args:
        folder: The folder that holds the folders of the reports.
        out: The page, FILE.md. Default: beside the folder, with its name.
    """
    from scorefield.paper.results import make_page, missing_pictures

    whole = folder.resolve()
    out = out or (folder.parent if folder.name == whole.name else whole.parent) / f"{whole.name}.md"
    if out.suffix != ".md":
        raise ValueError(f"--out must be a file, FILE.md; got {out}")
    if folder.is_dir():  # otherwise the error is about that folder
        prepare_file(out)
    for path in make_page(folder, out):
        print(path)
    if missing := missing_pictures(out):
        say(f"warning: pictures that the page shows are missing: {', '.join(missing)} (make their reports again)")
