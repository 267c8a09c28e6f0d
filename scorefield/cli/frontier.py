"""scorefield frontier."""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from scorefield import samplers
from scorefield.cli.app import Device, check_seed, command, prepare_folder, say, tracker
from scorefield.cli.options import SamplerName, check_guidance, note_guidance
from scorefield.samplers import MOST_CALLS

if TYPE_CHECKING:
    from scorefield.evaluation.frontier import Frontier, Trial
    from scorefield.evaluation.sample_cache import SampleCache

TOY = "toy"
FEW, MANY = (5, 10, 20, 35), (10, 20, 50, 100, 200, 500, 1000)
"""Usual numbers of calls: for networks that accept all noise levels, and for those that know a list of them."""


@command
def frontier(
    what: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL", help="A model, or toy.")],
    /,
    *,
    samplers: tuple[SamplerName, ...] = (),
    calls: tuple[int, ...] = (),
    n: Annotated[int, tyro.conf.arg(aliases=["-n"])] = 10_000,
    data: str | None = None,
    seed: int = 0,
    batch_size: int = 500,
    weights: str | None = None,
    label: Annotated[str | None, tyro.conf.arg(metavar="NAME|NUMBER|none")] = None,
    guidance: Annotated[float, tyro.conf.arg(metavar="W")] = 0.0,
    device: Device = "auto",
    out: Path = Path("frontier"),
) -> None:
    """Measure quality against cost: samplers with several numbers of network calls, in a table and a chart.

    For a model the quality is FID; samples and results are kept, so that an interrupted run goes on where it stopped.
    For toy, the mixture of Fig. 3 with its exact score, it is the distance to the distribution itself: that takes
    seconds, and shows the errors of the samplers alone. All samples of models end with a denoising step, which FID
    depends on. OUT/frontier.json has the numbers, OUT/frontier.png the chart.

    Example: scorefield frontier toy --out frontier

    Args:
        samplers: The samplers. Default: all.
        calls: Numbers of network calls per sample.
        n: Number of samples for each.
        data: The images to compare with. Default: what the model was trained on.
        seed: Random seed.
        batch_size: Number of samples drawn at once.
        weights: Raw weights (raw), their moving average (ema), or another average of the model. Default: ema.
        label: The class to sample, for models with classes, or none for no class. Default: a random class each.
        guidance: Weight w of guidance towards the class, s₁ + w (s₁ − s₀). All but 0 double the cost of each network
            call.
        out: Folder for the results; made if it is missing.
    """
    check_seed(seed)
    check_guidance(guidance)
    if what == TOY and (label is not None or guidance):
        raise ValueError("--label and --guidance apply only to models; toy has no classes (leave them out)")
    if not 2 <= n <= 10_000_000 or batch_size < 1:
        raise ValueError(f"-n must be from 2 to 10,000,000, --batch-size at least 1; got {n} and {batch_size}")
    if wrong := [each for each in calls if not 1 <= each <= MOST_CALLS]:
        raise ValueError(f"--calls must be from 1 to {MOST_CALLS:,}; got {wrong[0]}")
    from scorefield.distributed import joined
    from scorefield.paper.frontier_chart import draw_frontier

    if not (drawn := find_spec("matplotlib") is not None):
        say("note: there will be no chart, since matplotlib is missing (install it and run this again to draw it)")
    path = out / "frontier.json"
    with joined(device) as group:
        if what == TOY:
            found = _toy(path, samplers, calls, n, seed) if group.main else None
        else:
            from scorefield.evaluation.sample_cache import SampleCache
            from scorefield.models.model import load, parse_label

            model = load(what, weights=weights, device=group.device)
            chosen = parse_label(model.labels, label)
            usual = SampleCache(model, model.sampler, seed=seed, label=chosen, guidance=guidance)
            found = _model(path, usual, what, samplers, calls, n, data, batch_size, group)
        if not group.main or found is None:
            return
        _print_table(found)
        if drawn:
            print(draw_frontier(found, out / "frontier.png"))
        print(path)


def _toy(path: Path, names: tuple[str, ...], calls: tuple[int, ...], n: int, seed: int) -> Frontier:
    from scorefield.evaluation.frontier import Frontier, Toy, candidates, run_trials
    from scorefield.paper.output import EXTENT, HEAVY, LIGHT, WEIGHTS, toy_work
    from scorefield.progress import track

    toy = Toy(LIGHT, HEAVY, WEIGHTS, EXTENT)
    found, notes = candidates(toy.usual, toy.accepted, names or tuple(samplers.SAMPLERS), calls or (*FEW, 100, 200))
    prepare_folder(path.parent)
    for note in notes:
        say(f"note: {note}")
    with toy_work():
        start = Frontier(TOY, "distance", n, seed, samplers.to_dict(toy.usual), toy.floor(n), {})
        trials = run_trials(path, start, found, lambda sampler: toy.measure(toy.sample(sampler, n, seed)))
        *_, last = track(trials, "samplers", len(found))
    return last


def _model(
    path: Path,
    usual: SampleCache,
    what: str,
    names: tuple[str, ...],
    calls: tuple[int, ...],
    n: int,
    data: str | None,
    batch_size: int,
    group: Any,  # noqa: ANN401
) -> Frontier | None:
    """The trials of a model: `usual` has its own sampler, and the other settings of all. All processes draw the samples
    and compute their features, and the main one writes."""
    from scorefield.distributed import device_name
    from scorefield.evaluation import inception
    from scorefield.evaluation.features import measure
    from scorefield.evaluation.frontier import Frontier, candidates, run_trials
    from scorefield.evaluation.sample_cache import cached_batch_size
    from scorefield.evaluation.sources import load_reference
    from scorefield.metrics import frechet_distance

    model = usual.model
    note_guidance(usual.guidance, group)
    usual_calls = MANY if model.accepted.listed else FEW
    own = samplers.with_denoising(samplers.changed(model.sampler, {}, accepted=model.accepted), True)
    found, notes = candidates(own, model.accepted, names or tuple(samplers.SAMPLERS), calls or usual_calls)
    prepare_folder(path.parent)
    for note in notes if group.main else ():
        say(f"note: {note}")
    track = tracker(group)
    network = group.main_first(partial(inception.load_inception, device=group.device, track=track))
    reference, _ = load_reference(model, data, network, group, track=track)
    size = cached_batch_size(batch_size, group)

    def fid(sampler: Any) -> tuple[float, None]:  # noqa: ANN401
        rows = usual.with_sampler(sampler).draw(n, group, batch_size=size, track=track)
        features = measure(rows, n, network, group, track=track)
        return frechet_distance(features.statistics, reference.moments), None

    about = {
        "digest": model.digest[:12],
        "weights": model.weights,
        "reference": reference.digest,
        "machine": device_name(group.device),
        "batch_size": size,
    }
    if usual.label is not None or usual.guidance:
        about |= {"label": usual.label, "guidance": usual.guidance, "cost_per_call": 2 if usual.guidance else 1}
    start = Frontier(what, "fid", n, usual.seed, samplers.to_dict(own), None, about)
    last = None
    for last in run_trials(path, start, found, fid, write=group.main):
        if group.main:
            say(_line(last.trials[-1], "FID"))
    return last


def _line(trial: Trial, name: str) -> str:
    share = "" if trial.share is None else f"   heavy mode {trial.share:6.1%}"
    return f"{trial.sampler:<20} {trial.calls:>5} calls   {name} {trial.value:<9.4g}{share}   {trial.seconds:g} s"


def _print_table(found: Frontier) -> None:
    name = "FID" if found.metric == "fid" else "distance"
    print(
        f"{found.what}: n = {found.n:,} samples each" + (f"; exact samples: {found.floor:.4g}" if found.floor else "")
    )
    for trial in sorted(found.trials, key=lambda each: (each.sampler, each.calls)):
        print(f"  {_line(trial, name)}")
