"""scorefield evaluate; and what all commands share that measure a model or images."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from scorefield import samplers
from scorefield.cli.app import JsonFile, app, prepare_file, say, tracker
from scorefield.cli.options import Sampling, SamplingOptions, note_shortfall
from scorefield.files import write_json

if TYPE_CHECKING:
    from scorefield.data import Images
    from scorefield.distributed import Group
    from scorefield.evaluation.features import Rows
    from scorefield.evaluation.sample_cache import SampleCache
    from scorefield.models.model import Model
    from scorefield.progress import Track

Subject = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL|SOURCE")]
"""A model, or the source of images."""


def resolve_subject(what: str, sampling: Sampling, group: Group) -> Model | None:
    """The model that is meant, or None if the name means images, for which the sampler's options make no sense.

    mnist is the data set, and model:mnist the pretrained model of that name.
    """
    from scorefield.evaluation.sources import resolve_model
    from scorefield.models.pretrained import PREFIX, pretrained_models

    model = resolve_model(what, weights=sampling.weights, device=group.device)
    if model is None:
        other = f"{PREFIX}{what}" if what in pretrained_models() else ""
        sampling.check_unused(what, f"did you mean {other}?" if other else "")
        if other and group.main:
            say(f"note: {what} is the data set; the pretrained model of that name is {other}")
    return model


def sample_cache(model: Model, sampling: Sampling) -> SampleCache:
    """The cache of the samples that these options ask for."""
    from scorefield.evaluation.sample_cache import SampleCache

    return SampleCache(model, sampling.sampler_for(model), seed=sampling.seed, precision=sampling.precision)


def draw_samples(model: Model, sampling: Sampling, group: Group, *, track: Track[object]) -> Rows:
    """The model's samples, which are kept on disk; those that are missing there are drawn."""
    from scorefield.evaluation.sample_cache import cached_batch_size

    cache, size = sample_cache(model, sampling), cached_batch_size(sampling.batch_size, group)
    note_shortfall(cache.sampler, model, group)
    return cache.draw(sampling.n, group, batch_size=size, track=track)


def describe_samples(cache: SampleCache) -> dict[str, Any]:
    """The model and the settings that the samples come from, for JSON. There, `precision` is a metric."""
    model = cache.model
    return {
        "model": {"step": model.step, "weights": model.weights, "digest": model.digest[:12]},
        **describe_sampling(cache),
    }


def describe_sampling(cache: SampleCache) -> dict[str, Any]:
    """The settings of the sampling, for JSON."""
    return {
        **({"denoised": cache.sampler.denoise} if hasattr(cache.sampler, "denoise") else {}),
        "sampler": samplers.to_dict(cache.sampler),
        "seed": cache.seed,
        "sampling_precision": cache.precision,
        "calls": cache.sampler.calls,
    }


def denoised_or_not(numbers: dict[str, Any]) -> str:
    """Whether the samples were denoised, as words after a comma; nothing for images."""
    return {None: "", True: ", denoised", False: ", not denoised"}[numbers.get("denoised")]


@app.command
def evaluate(
    what: Subject,
    /,
    *,
    data: str | None = None,
    sampling: SamplingOptions = Sampling(n=50_000, batch_size=500),  # noqa: B008
    json_file: JsonFile = None,
) -> None:
    """Measure a model, or any images, against real images: FID, KID, precision and recall, and the training objective.

    Samples of a model are drawn first and kept on disk, so that an interrupted evaluation continues where it stopped.
    Features and statistics of the reference are kept, too.

    Example: scorefield evaluate runs/cifar10 -n 10000 --json cifar10.json

    Args:
        what: A run folder, a model file, a pretrained model (mnist-small, model:mnist), or images: mnist, cifar10:test,
            a folder, an .npy or .npz file. With -n 0, only the objective of a model is measured.
        data: The images to compare with, or an .npz file of their statistics (mu, sigma). Default: what the model was
            trained on. If that has moved, name its new place; the same images are then held out of it as in training.
        json_file: Write the numbers to this file as well.
    """
    from scorefield.distributed import joined
    from scorefield.evaluation.numbers import held_out_loss
    from scorefield.evaluation.records import to_json
    from scorefield.evaluation.sources import load_held_out

    sampling.check(least=0)
    if sampling.n == 1:
        raise ValueError("-n must be 0, for the objective alone, or at least 2; got 1")
    if json_file is not None:
        prepare_file(json_file, "--json")
    with joined(sampling.device) as group:
        model = resolve_subject(what, sampling, group)
        numbers: dict[str, Any] = {"what": what}
        if sampling.n:
            metrics, held_out = _measure(what, model, data, sampling, group)
            numbers |= metrics
        else:
            if model is None:
                raise ValueError(f"-n 0 measures the objective of a model, but {what!r} is images (give a model)")
            if (held_out := load_held_out(model, data, group, track=tracker(group))) is None:
                raise _no_held_out_images(what, model)
        if not group.main:
            return
        if model is not None:
            numbers |= describe_samples(sample_cache(model, sampling))
            if held_out is not None:
                loss = held_out_loss(model, held_out)
                numbers |= to_json(loss._asdict()) | {"loss_per_level": [each.loss for each in loss.loss_by_sigma]}
            else:
                say("note: no objective: there are no held-out images of what the model was trained on")
        _print(numbers)
        if json_file is not None:
            write_json(json_file, numbers)


def _measure(
    what: str, model: Model | None, data: str | None, sampling: Sampling, group: Group
) -> tuple[dict[str, Any], Images | None]:
    """The metrics for JSON, of which the main process gets all, and the held-out images of the model's data, if any."""
    from scorefield.evaluation import inception
    from scorefield.evaluation.numbers import describe_comparison, measure_metrics
    from scorefield.evaluation.records import to_json
    from scorefield.evaluation.sources import choose_images, load_reference

    track = tracker(group)
    if model is None:  # opened first, so that a wrong name is noticed before the reference's features are computed
        rows = choose_images(what, sampling.n, group, track=track)
    network = group.main_first(partial(inception.load_inception, device=group.device, track=track))
    reference, held_out = load_reference(model, data, network, group, track=track)
    if model is not None:
        rows = draw_samples(model, sampling, group, track=track)
    metrics = measure_metrics(rows, reference, network, group, batch_size=sampling.batch_size, track=track)
    if metrics is None:
        return {}, held_out
    return to_json(metrics) | to_json(describe_comparison(rows, reference, network)._asdict()), held_out


def _no_held_out_images(what: str, model: Model) -> ValueError:
    fix = "if they were held out and have moved, name their place with --data"
    name = model.metadata.get("data", "data that its file does not name")
    return ValueError(f"there are no held-out images: {what} was trained on {name} ({fix})")


def _print(numbers: dict[str, Any]) -> None:
    """Each number with its n, for people."""
    from scorefield.data import folder_of
    from scorefield.evaluation.numbers import PLACE

    denoised = denoised_or_not(numbers)
    if "fid" in numbers:
        reference = numbers["reference"]
        count = "an unknown number of" if reference["n"] is None else reference["n"]
        model = numbers.get("model")
        whose = f" (step {model['step']}, {model['weights']} weights)" if model else ""
        print(f"{numbers['what']}{whose} against {reference['name']} ({count} images, {reference['digest']})")
        print(f"  FID              {numbers['fid']:.4f}   n = {numbers['n']}{denoised}")
    if "kid" in numbers:
        suffix = f"n = {numbers['kept_n'][0]} against {numbers['kept_n'][1]}{denoised}"
        print(f"  KID              {numbers['kid']:.6f} ± {numbers['kid_standard_error']:.6f}   {suffix}")
        print(f"  precision        {numbers['precision']:.4f}   {suffix}")
        print(f"  recall           {numbers['recall']:.4f}   {suffix}")
    if numbers.get("inception_score") is not None:
        score, deviation = numbers["inception_score"], numbers["inception_score_deviation"]
        suffix = f"n = {numbers['n']}, {numbers['inception_score_splits']} splits{denoised}"
        print(f"  Inception score  {score:.3f} ± {deviation:.3f}   {suffix}")
    if "loss" in numbers:
        suffix = f"n = {numbers['loss_n']} held-out images of {numbers['loss_data']}"
        print(f"  objective, Eq. 6 {numbers['loss']:.4f}   {suffix}")
        print("    at each level  " + " ".join(f"{value:.4g}" for value in numbers["loss_per_level"]))
    for note in [*numbers.get("preprocessing", []), *numbers.get("notes", [])]:
        say(f"note: {note}".replace(PLACE, str(folder_of("inception"))))
