"""Measure a trained U-Net in one go: the choice of its average and sampler, its quality, copies, likelihood, pictures.

    python scripts/measure_unet.py runs/unet-cifar10 --out docs/results/unet-cifar10 --minutes 10

Each step is a command of scorefield, which writes a file in --out; `measure` has them in the order of their importance.
A step whose file exists is not done again, and with --minutes none begins after that time: run it again to go on. The
commands run in one process, so that the Inception network is loaded and the GPU is started only once.

1. FID of each moving average of the weights, n = 10,000, with the run's own sampler. The best average is exported in 16
   bit, and all that follows measures this file.
2. FID against network calls for the samplers that need the fewest. The cheapest setting within 5 % of the best FID
   becomes the default sampler of the file, NAME.safetensors for a folder --out called NAME.
3. 50,000 samples: with random classes, without, with guidance, and with 10 calls.
4. Copies of training images, likelihood, pictures of classes and of interpolations, the other samplers.

commands.json says what each command was, how long it took and on what machine.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from scorefield import cli
from scorefield.data import SETS
from scorefield.distributed import device_name, pick_device
from scorefield.evaluation.frontier import read_frontier
from scorefield.files import read_json, write_json
from scorefield.images import grid, save_png, to_bytes, zoom_for
from scorefield.models.export import published
from scorefield.models.model import held_weights, load, read_model
from scorefield.samplers import to_dict
from scorefield.training.history import history, run_of

BEST, OTHERS = ("adams_bashforth", "dpmpp_3m", "dpmpp_2m", "heun"), ("euler", "ancestral", "predictor_corrector")
CALLS, FEWER = ("10", "15", "20", "35"), ("5", "8")
"""The samplers and numbers of network calls that are compared."""
NEAR = 1.05
"""The default sampler's FID is at most this much of the best."""


class NoTimeLeftError(Exception):
    """The time that was given is over."""


@dataclass
class Session:
    """Where the results go, and until when."""

    run: str
    out: Path
    data: str
    n: int
    few: int
    ends: float
    done: dict[str, Any] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)

    @property
    def model(self) -> Path:
        """The exported file."""
        return self.out / f"{self.out.name}.safetensors"

    @property
    def trial(self) -> Path:
        """The same before its sampler is chosen."""
        return self.out / "trial.safetensors"

    def do(self, made: Path, *words: str) -> bool:
        """Do a command that makes this file, if it is not there. Says whether that went well."""
        if made.exists():
            return True
        if time.monotonic() > self.ends:
            raise NoTimeLeftError(made.name)
        print(f"$ scorefield {shlex.join(words)}", flush=True)
        began = time.monotonic()
        try:
            cli.main(list(words))
        except SystemExit as end:
            if end.code in (130, 143):  # interrupted
                raise
            print(f"{made.name} failed: exit status {end.code}", flush=True)
            self.failed.append(made.name)
            return False
        seconds = round(time.monotonic() - began, 1)
        print(f"{made.name}: {seconds} s", flush=True)
        self.done[made.name] = {"command": f"scorefield {shlex.join(words)}", "seconds": seconds}
        write_json(self.out / "commands.json", {"machine": device_name(pick_device("auto")), "files": self.done})
        return True

    def evaluate(self, name: str, what: str | Path, n: int, *options: str) -> bool:
        made = self.out / f"{name}.json"
        return self.do(made, "evaluate", str(what), "--data", self.data, "-n", str(n), *options, "--json", str(made))

    def compare(self, sampler: str, calls: Sequence[str]) -> None:
        """FID of a sampler with these numbers of network calls, into the file of all."""
        folder = self.out / "frontier"
        made = folder / f"{sampler}_{'_'.join(calls)}.done"
        words = ["frontier", str(self.trial), "--samplers", sampler, "--calls", *calls, "-n", str(self.few)]
        if self.do(made, *words, "--data", self.data, "--out", str(folder)):
            made.touch()


def choose_average(session: Session) -> None:
    """Export the moving average with the lowest FID."""
    if session.trial.exists():
        return
    path, tensors, _ = read_model(session.run)
    averages = [each for each in held_weights(tensors, path) if each != "raw"] or ["raw"]
    found = {}
    for each in averages:
        if session.evaluate(f"average_{each}", session.run, session.few, "--weights", each):
            found[each] = float(read_json(session.out / f"average_{each}.json")["fid"])
    if len(found) < len(averages):
        sys.exit(f"failed: {', '.join(session.failed)} (all averages are needed to choose one)")
    best = min(found, key=lambda each: found[each])
    session.do(session.trial, "export", session.run, "--weights", best, "--out", str(session.trial))


def choose_sampler(session: Session) -> None:
    """Compare samplers, and make the one that needs the fewest calls for a good FID the default of the file."""
    for calls in (CALLS, FEWER):
        for sampler in BEST:
            session.compare(sampler, calls)
    if session.failed:
        sys.exit(f"failed: {', '.join(session.failed)} (all of these are needed to choose a sampler)")
    trials = read_frontier(session.out / "frontier" / "frontier.json").trials
    best = min(each.value for each in trials)
    cheapest = min((each for each in trials if each.value <= NEAR * best), key=lambda each: (each.calls, each.value))
    words = ["--sampler", cheapest.sampler, "--calls", str(cheapest.calls), "--out", str(session.model)]
    session.do(session.model, "export", str(session.trial), *words)


def describe(session: Session) -> None:
    """model.json: what the model is and how it was trained, for the results page."""
    path = session.model if session.model.exists() else session.trial
    model, run = load(path, device=pick_device("auto")), run_of(Path(session.run))
    trained = history(run, model) if run is not None else None
    write_json(
        session.out / "model.json",
        {
            "data": session.data,
            "parameters": model.parameters,
            "sigma_range": model.sigma_range,
            "classes": len(model.labels),
            "weights": model.weights,
            "step": model.step,
            "images": model.step * model.recipe.batch_size,
            "sampler": to_dict(model.sampler)["name"],
            "calls": model.sampler.calls,
            "recipe": published(model.recipe),
            "seconds": trained.seconds if trained is not None else None,
            "machine": model.metadata.get("machine"),
            "held_out": asdict(trained.held_out) if trained is not None else None,
        },
    )


def draw_classes(session: Session) -> None:
    """A row of ten samples for each class, not selected: numbers 0, 1, ... of seed 0."""
    model, made = load(session.model, device=pick_device("auto")), session.out / "classes.png"
    if not model.labels or made.exists():
        return
    labels = [k // 10 for k in range(10 * len(model.labels))]
    sheet = grid(to_bytes(model.sample(len(labels), seed=0, label=labels)), columns=10)
    save_png(made, sheet, zoom=zoom_for(sheet, target=900))


def measure(session: Session) -> None:
    """All steps, in the order of their importance."""
    choose_average(session)
    describe(session)
    choose_sampler(session)
    describe(session)
    draw_classes(session)
    out, model, classes = session.out, str(session.model), bool(load(session.model).labels)
    if classes:
        session.evaluate("conditional", model, session.n)
    session.evaluate("unconditional", model, session.n, *(["--label", "none"] if classes else []))
    session.evaluate("calls_10", model, session.n, "--sampler", "adams_bashforth", "--calls", "10")
    for space in ("pixel", "inception"):
        made, picture = out / f"neighbors_{space}.json", out / f"neighbors_{space}.png"
        words = ["neighbors", model, "-n", str(min(1000, session.n)), "--space", space, "--data", session.data]
        session.do(made, *words, "--out", str(picture), "--json", str(made))
    if not classes:
        session.do(out / "samples.png", "sample", model, "-n", "100", "--out", str(out / "samples.png"))
    for guidance in ("0.5", "1", "2") if classes else ():
        n = session.n if guidance == "0.5" else session.few
        session.evaluate(f"guidance_{guidance}", model, n, "--guidance", guidance)
    made = out / "interpolation.png"
    session.do(made, "interpolate", model, "--seeds", "1", "2", "--out", str(made))
    made = out / "likelihood.json"
    test = f"{session.data}:test" if session.data in SETS else session.data
    words = ["likelihood", model, "--data", test, "-n", str(min(1000, session.n))]
    session.do(made, *words, "--json", str(made))
    session.evaluate("raw", session.run, session.few, "--weights", "raw")
    for sampler in OTHERS:
        session.compare(sampler, (*FEWER, *CALLS))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("run", help="a run folder or a model file")
    parser.add_argument("--out", type=Path, required=True, help="the folder of the results, named as the model")
    parser.add_argument("--data", default="cifar10", help="the training images (default: cifar10)")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no step after this time")
    parser.add_argument("-n", type=int, default=50_000, help="samples of the final numbers (default: 50000)")
    parser.add_argument("--few", type=int, default=10_000, help="samples of the comparisons (default: 10000)")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "frontier").mkdir(exist_ok=True)
    ends = time.monotonic() + 60 * options.minutes
    session = Session(options.run, options.out, options.data, options.n, options.few, ends)
    if (known := options.out / "commands.json").exists():
        session.done = read_json(known)["files"]
    try:
        measure(session)
    except NoTimeLeftError as first:
        sys.exit(f"no time left for {first}: run this again to go on")
    if session.failed:
        sys.exit(f"failed: {', '.join(session.failed)}")


if __name__ == "__main__":
    main()
