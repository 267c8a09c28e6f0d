"""scorefield evaluate."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from scorefield.cli.app import app, prepare_file, say, tracker, write_json
from scorefield.cli.models import Sampler, how_of, sampled, subject_of

if TYPE_CHECKING:
    from scorefield.models.checkpoint import Model
    from scorefield.evaluation import How


@app.command
def evaluate(
    what: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL|SOURCE")],
    /,
    *,
    data: str | None = None,
    sampler: tyro.conf.OmitArgPrefixes[Sampler] = Sampler(n=50_000, batch_size=500),  # noqa: B008
    json_file: Annotated[Path | None, tyro.conf.arg(name="json")] = None,
) -> None:
    """Measure a model, or any images, against real ones: FID, KID, precision and recall, and the training objective.

    Samples of a model are drawn first and kept on the disk: an interrupted evaluation goes on where it stopped. Of the
    reference, features and statistics are kept.

    Example: scorefield evaluate runs/cifar10 -n 10000 --json cifar10.json

    Args:
        what: A run folder, a model file, a shipped model (mnist-small, model:mnist), or images: mnist, cifar10:test, a
            folder, an .npy or .npz file.
        data: The images to compare with, or an .npz of their statistics (mu, sigma). Default: what the model was
            trained on; where that lies elsewhere now, say where, and what was held out of it is left out again.
        json_file: Write the numbers to this file as well.
    """
    from scorefield.distributed import joined
    from scorefield.evaluation import Pool, held_out_loss, numbers_of
    from scorefield.evaluation.subjects import held_out_images, reference_for, rows_of
    from scorefield.evaluation.inception import load_inception

    sampler.check(least=0)
    if sampler.n == 1:
        raise ValueError("-n must be 0, for the objective alone, or at least 2; got 1")
    if json_file is not None:
        prepare_file(json_file, "--json")
    with joined(sampler.device) as group:
        track = tracker(group)
        model = subject_of(what, sampler, group)
        numbers: dict[str, Any] = {"what": what}
        if sampler.n:
            if model is None:  # opened now: a name that means nothing must not cost the reference's features first
                rows = rows_of(what, sampler.n, group, track=track)
            network = group.main_first(partial(load_inception, device=group.device, track=track))
            reference, held_out = reference_for(model, data, network, group, track=track)
            if model is not None:
                rows = sampled(model, sampler, group, track=track)
            size = sampler.batch_size
            found = numbers_of({"images": rows}, reference, network, group, batch_size=size, track=track)
            numbers |= found.pop("images", {}) | found
        else:
            if model is None:
                raise ValueError(f"-n 0 measures the objective of a model, and {what} is none")
            if (held_out := held_out_images(model, data, group, track=track)) is None:
                raise _nothing_held_out(what, model)
        if group.main:
            if model is not None:
                numbers |= _origin(model, Pool(model, how_of(sampler, model)).how)
                numbers |= held_out_loss(model, held_out) if held_out is not None else {}
                if held_out is None:
                    say("note: no objective: there are no held-out images of what the model was trained on")
            _tell(numbers)
            if json_file is not None:
                write_json(json_file, numbers)


def _nothing_held_out(what: str, model: Model) -> ValueError:
    cure = "none were kept apart, or they lie elsewhere: name the place with --data"
    name = model.facts.get("data", "data that its file does not name")
    return ValueError(f"{what} was trained on {name}, of which no held-out images are to be had here ({cure})")


def _origin(model: Model, how: How) -> dict[str, Any]:
    facts = {"step": model.step, "weights": model.weights, "digest": model.digest[:12]}
    return {"model": facts, "denoised": how.denoise, "sampler": asdict(how)}


def _tell(numbers: dict[str, Any]) -> None:
    """Each number with its n, for people."""
    from scorefield.data import folder_of
    from scorefield.evaluation.numbers import PLACE

    said = {None: "", True: ", denoised", False: ", not denoised"}[numbers.get("denoised")]
    if "fid" in numbers:
        reference = numbers["reference"]
        count = "an unknown number of" if reference["n"] is None else reference["n"]
        model = numbers.get("model")
        whose = f" (step {model['step']}, {model['weights']} weights)" if model else ""
        print(f"{numbers['what']}{whose} against {reference['name']} ({count} images, {reference['digest']})")
        suffix = f"n = {numbers['n']}{said}"
        print(f"  FID              {numbers['fid']:.4f}   {suffix}")
    if "kid" in numbers:
        suffix = f"n = {numbers['kept_n'][0]} against {numbers['kept_n'][1]}{said}"
        print(f"  KID              {numbers['kid']:.6f} ± {numbers['kid_standard_error']:.6f}   {suffix}")
        print(f"  precision        {numbers['precision']:.4f}   {suffix}")
        print(f"  recall           {numbers['recall']:.4f}   {suffix}")
    if numbers.get("inception_score") is not None:
        score, deviation = numbers["inception_score"], numbers["inception_score_deviation"]
        suffix = f"n = {numbers['n']}, {numbers['inception_score_splits']} splits{said}"
        print(f"  Inception score  {score:.3f} ± {deviation:.3f}   {suffix}")
    if "loss" in numbers:
        suffix = f"n = {numbers['loss_n']} held-out images of {numbers['loss_data']}"
        print(f"  objective, Eq. 6 {numbers['loss']:.4f}   {suffix}")
        print("    at each level  " + " ".join(f"{value:.4g}" for value in numbers["loss_per_level"]))
    for note in [*numbers.get("preprocessing", []), *numbers.get("notes", [])]:
        say(f"note: {note}".replace(PLACE, str(folder_of("inception"))))
