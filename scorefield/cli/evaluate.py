"""scorefield evaluate, digits, neighbors: commands that measure a model or images."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from scorefield import samplers
from scorefield.cli.app import JsonFile, command, prepare_file, say, say_notes, tracker
from scorefield.cli.options import Sampling, SamplingOptions, note_guidance, note_shortfall
from scorefield.files import write_json
from scorefield.progress import plural

if TYPE_CHECKING:
    from scorefield.data import Images
    from scorefield.data.images import Pixels
    from scorefield.distributed import Group
    from scorefield.evaluation.digits import Classifier
    from scorefield.evaluation.features import Rows
    from scorefield.evaluation.records import Memorisation
    from scorefield.evaluation.sample_cache import SampleCache
    from scorefield.models.model import Model
    from scorefield.progress import Track

SUBJECT_HELP = (
    "A run folder, a model file, a pretrained model (mnist-small, model:mnist), or images: mnist, cifar10:test, a "
    "folder, an .npy or .npz file."
)
Subject = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL|SOURCE", help=SUBJECT_HELP)]
DIGITS_SHOWN = 100
"""The most samples in the picture of digits."""
RED, WHITE = (220, 20, 20), (255, 255, 255)


def resolve_subject(what: str, sampling: Sampling, group: Group) -> Model | None:
    """The model that is meant, or None if the name means images, for which the sampler's options make no sense.

    mnist is the data set, and model:mnist the pretrained model of that name.
    """
    from scorefield.evaluation.sources import resolve_model
    from scorefield.models.pretrained import PREFIX, is_pretrained

    model = resolve_model(what, weights=sampling.weights, device=group.device)
    if model is None:
        other = f"{PREFIX}{what}" if is_pretrained(what) else ""
        sampling.check_unused(what, f"did you mean {other}?" if other else "")
        if other and group.main:
            say(f"note: {what} is the data set; the pretrained model of that name is {other}")
    return model


def sample_cache(model: Model, sampling: Sampling) -> SampleCache:
    """The cache of the samples that these options ask for."""
    from scorefield.evaluation.sample_cache import SampleCache

    return SampleCache(
        model,
        sampling.sampler_for(model),
        seed=sampling.seed,
        precision=sampling.precision,
        label=sampling.label_for(model),
        guidance=sampling.guidance,
    )


def draw_samples(model: Model, sampling: Sampling, group: Group, *, track: Track[object]) -> Rows:
    """The model's samples, which are kept on disk; those that are missing there are drawn."""
    from scorefield.evaluation.sample_cache import cached_batch_size

    cache, size = sample_cache(model, sampling), cached_batch_size(sampling.batch_size, group)
    note_shortfall(cache.sampler, model, group)
    note_guidance(cache.guidance, group)
    return cache.draw(sampling.n, group, batch_size=size, track=track)


def describe_samples(model: Model, sampling: Sampling) -> dict[str, Any]:
    """The model and the settings that samples come from, for JSON."""
    about = {"step": model.step, "weights": model.weights, "digest": model.digest[:12]}
    return {"model": about, **describe_sampling(sample_cache(model, sampling))}


def describe_sampling(cache: SampleCache) -> dict[str, Any]:
    """The settings of the sampling, for JSON, where `precision` is a metric. `calls` are the sampler's: with guidance
    each costs `cost_per_call` = 2 times as much."""
    classes = {"label": cache.label, "guidance": cache.guidance, "cost_per_call": 2 if cache.guidance else 1}
    return {
        **({"denoised": cache.sampler.denoise} if hasattr(cache.sampler, "denoise") else {}),
        "sampler": samplers.to_dict(cache.sampler),
        "seed": cache.seed,
        "sampling_precision": cache.precision,
        "calls": cache.sampler.calls,
        **(classes if cache.model.labels else {}),
    }


def sampled_how(numbers: dict[str, Any]) -> str:
    """Whether the samples were denoised, their class and their guidance, as words after a comma; nothing for images."""
    words = {None: [], True: ["denoised"], False: ["not denoised"]}[numbers.get("denoised")]
    if numbers.get("label") is not None:
        words.append(f"label {numbers['label']}")
    if numbers.get("guidance"):
        words.append(f"guidance {numbers['guidance']}")
    return "".join(f", {each}" for each in words)


@command
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
    Features and statistics of the reference are kept, too. With -n 0, only the objective of a model is measured.

    Example: scorefield evaluate runs/cifar10 -n 10000 --json cifar10.json

    Args:
        data: The images to compare with, or an .npz file of their statistics (mu, sigma). Default: what the model was
            trained on. If that has moved, name its new place; the same images are then held out of it as in training.
    """
    from scorefield.distributed import joined
    from scorefield.evaluation import inception
    from scorefield.evaluation.numbers import describe_comparison, held_out_loss, measure_metrics
    from scorefield.evaluation.records import to_json
    from scorefield.evaluation.sources import choose_images, load_held_out, load_reference

    sampling.check(least=0)
    if sampling.n == 1:
        raise ValueError("-n must be 0, for the objective alone, or at least 2; got 1")
    prepare_file(json_file, "--json")
    with joined(sampling.device) as group:
        track = tracker(group)
        model = resolve_subject(what, sampling, group)
        numbers: dict[str, Any] = {"what": what}
        if sampling.n:
            if model is None:  # opened first, so that an error comes before the reference's features are computed
                chosen = choose_images(what, sampling.n, group, track=track)
                say_notes(chosen.notes, group)
                rows: Rows = chosen
            network = group.main_first(partial(inception.load_inception, device=group.device, track=track))
            reference, held_out = load_reference(model, data, network, group, track=track)
            say_notes(reference.notes, group)
            if model is not None:
                rows = draw_samples(model, sampling, group, track=track)
            metrics = measure_metrics(rows, reference, network, group, track=track)
            if metrics is not None:
                numbers |= to_json(metrics) | to_json(describe_comparison(rows, reference, network))
        elif model is None:
            raise ValueError(f"-n 0 measures the objective of a model, but {what!r} is images (give a model)")
        elif (held_out := load_held_out(model, data, group, track=track)) is None:
            raise ValueError(
                f"there are no held-out images: {what} was trained on "
                f"{model.metadata.get('data', 'data that its file does not name')} (if they were held out and have "
                "moved, name their place with --data)"
            )
        if not group.main:
            return
        if model is not None:
            numbers |= describe_samples(model, sampling)
            if held_out is not None:
                loss = held_out_loss(model, held_out)
                numbers |= to_json(loss) | {"loss_per_level": [each.loss for each in loss["loss_by_sigma"]]}
            else:
                say("note: no objective: there are no held-out images of what the model was trained on")
        _print_metrics(numbers)
        if json_file is not None:
            write_json(json_file, numbers)


def _print_metrics(numbers: dict[str, Any]) -> None:
    """Each number with its n, for people."""
    from scorefield.data import folder_of
    from scorefield.evaluation.numbers import PLACE
    from scorefield.training.history import with_error

    how = sampled_how(numbers)
    if "fid" in numbers:
        reference = numbers["reference"]
        count = "an unknown number of images" if reference["n"] is None else plural(reference["n"], "image")
        model = numbers.get("model")
        whose = f" (step {model['step']}, {model['weights']} weights)" if model else ""
        print(f"{numbers['what']}{whose} against {reference['name']} ({count}, {reference['digest']})")
        print(f"  FID              {numbers['fid']:.4f}   n = {numbers['n']}{how}")
    if "kid" in numbers:
        suffix = f"n = {numbers['kept_n'][0]} against {numbers['kept_n'][1]}{how}"
        print(f"  KID              {numbers['kid']:.6f} ± {numbers['kid_standard_error']:.6f}   {suffix}")
        print(f"  precision        {numbers['precision']:.4f}   {suffix}")
        print(f"  recall           {numbers['recall']:.4f}   {suffix}")
    if numbers.get("inception_score") is not None:
        score, deviation = numbers["inception_score"], numbers["inception_score_deviation"]
        suffix = f"n = {numbers['n']}, {numbers['inception_score_splits']} splits{how}"
        print(f"  Inception score  {score:.3f} ± {deviation:.3f}   {suffix}")
    if "loss" in numbers:
        suffix = f"n = {plural(numbers['loss_n'], 'held-out image')} of {numbers['loss_data']}"
        error = numbers["loss_standard_error"]
        print(f"  objective, Eq. 6 {numbers['loss']:.4f}{'' if error is None else f' ± {error:.4f}'}   {suffix}")
        levels = (with_error(each["loss"], each.get("standard_error")) for each in numbers["loss_by_sigma"])
        print(f"    at each level  {', '.join(levels)}")
    for note in [*numbers.get("preprocessing", []), *numbers.get("notes", [])]:
        say(f"note: {note}".replace(PLACE, str(folder_of("inception"))))


@command
def digits(
    what: Subject,
    /,
    *,
    sampling: SamplingOptions = Sampling(n=10_000, batch_size=500),  # noqa: B008
    out: Path | None = None,
    json_file: JsonFile = None,
) -> None:
    """Judge samples of MNIST's digits: the share that a classifier accepts, and whether all ten are equally frequent.

    The classifier was trained on noise, scribbles and broken digits as well, so that it accepts only what looks like a
    digit. Its verdict on real digits is printed for comparison. Samples of a model are drawn first and kept on disk.
    Images must be 28 × 28 pixels, grey, white on black.

    Example: scorefield digits runs/mnist -n 10000 --json digits.json --out digits.png

    Args:
        out: FILE.png for a picture of the first 100 samples, sorted by digit and confidence; rejected ones come last,
            with a red frame.
    """
    from scorefield.distributed import joined
    from scorefield.evaluation.digits import check_shape, judge, load_classifier
    from scorefield.evaluation.records import to_json
    from scorefield.evaluation.sources import choose_images

    sampling.check()
    prepare_file(out, suffix=".png")
    prepare_file(json_file, "--json")
    with joined(sampling.device) as group:
        track = tracker(group)
        model = resolve_subject(what, sampling, group)
        if model is None:
            chosen = choose_images(what, sampling.n, group, track=track)
            say_notes(chosen.notes, group)
            rows: Rows = chosen
        else:
            check_shape((*model.shape[1:], model.shape[0]))
            rows = draw_samples(model, sampling, group, track=track)
        if not group.main:
            return
        samples, classifier = rows[: len(rows)], load_classifier()
        asked = None
        if model is not None and model.labels == tuple("0123456789"):
            label = sampling.label_for(model)
            asked = model.drawn_classes(range(len(samples)), seed=sampling.seed, label=label)
        verdict = judge(samples, classifier, asked=asked)
        numbers = {"what": what, **to_json(verdict), "real": to_json(classifier.test)}
        numbers["classifier"] = classifier.digest[:12]
        if model is not None:
            numbers |= describe_samples(model, sampling)
        _print_digits(numbers)
        if json_file is not None:
            write_json(json_file, numbers)
        if out is not None:
            _save_digits(out, samples[:DIGITS_SHOWN], classifier)
            print(out)


def _print_digits(numbers: dict[str, Any]) -> None:
    model, real = numbers.get("model"), numbers["real"]
    whose = f" (step {model['step']}, {model['weights']} weights)" if model else ""
    share, error = numbers["accepted"], numbers["accepted_standard_error"]
    print(f"{numbers['what']}{whose}: n = {numbers['n']}{sampled_how(numbers)}")
    print(f"  accepted as digits           {share:.2%} ± {error:.2%}   (real digits: {real['accepted']:.2%})")
    if numbers["accepted"]:
        usual = f"(real digits: {real['distance_to_uniform']:.4f}; by chance: {numbers['distance_by_chance']:.4f})"
        print(f"  distance to equal shares     {numbers['distance_to_uniform']:.4f}   {usual}")
    if numbers.get("as_asked") is not None:
        print(f"  of these the digit asked for {numbers['as_asked']:.2%}")
    print("  number of each digit, 0 to 9 " + " ".join(map(str, numbers["histogram"])))
    say(
        f"note: a sample is accepted if the classifier's confidence in a digit is above {numbers['confidence']}; real "
        "digits: MNIST's test set"
    )


def _save_digits(out: Path, samples: Pixels, classifier: Classifier) -> None:
    """Sorted by digit and confidence; rejected samples come last, with a red frame."""
    import numpy as np

    from scorefield.evaluation.digits import CONFIDENCE
    from scorefield.images import grid, save_png, zoom_for

    found, confidence = (each.numpy() for each in classifier(samples))
    rejected = confidence <= CONFIDENCE
    order = np.lexsort((-confidence, np.where(rejected, 10, found)))
    framed = np.where(rejected[:, None], RED, WHITE).astype(np.uint8)[:, None, None].repeat(30, 1).repeat(30, 2)
    framed[:, 1:-1, 1:-1] = samples
    sheet = grid(framed[order], columns=10, gap=1)
    save_png(out, sheet, zoom=zoom_for(sheet, target=900))


@command
def neighbors(
    what: Subject,
    /,
    *,
    data: str | None = None,
    space: Literal["pixel", "inception"] = "pixel",
    flips: bool = True,
    sampling: SamplingOptions = Sampling(n=8, batch_size=500),  # noqa: B008
    out: Path = Path("neighbors.png"),
    json_file: JsonFile = None,
) -> None:
    """Show the training images nearest to a model's samples, and say whether the samples are copies of them.

    The picture has the samples to the left of a red line and their nearest training images to the right. The samples'
    distances are compared with those of held-out images, which the model cannot have copied.

    A sample is called a copy if its distance to the nearest training image is below a third of its distance to the
    farthest of the 50 nearest, or of the smallest distance of a held-out image to its nearest. Held-out images may be
    called copies by the same rule, since data sets have near duplicates. The alarm is raised if the samples have more
    copies than chance explains (Fisher's exact test, p < 0.05), or if the second condition holds for any sample.

    Example: scorefield neighbors runs/cifar10 -n 100 --space inception --out neighbors.png

    Args:
        data: The training images. Default: what the model was trained on.
        space: Measure distances between pixels or between Inception features.
        flips: Whether an image and its mirror image count as the same.
        out: FILE.png for the picture, which shows at most 20 samples.
    """
    from scorefield.distributed import joined
    from scorefield.evaluation import inception
    from scorefield.evaluation.neighbors import (
        COLUMNS,
        Embed,
        check_neighbors,
        find_neighbors,
        in_pixels,
        measure_memorisation,
        save_neighbors,
    )
    from scorefield.evaluation.records import to_json
    from scorefield.evaluation.sources import ChosenImages, choose_images, load_training_images

    sampling.check()
    prepare_file(out, suffix=".png")
    prepare_file(json_file, "--json")
    with joined(sampling.device) as group:
        track = tracker(group)
        model = resolve_subject(what, sampling, group)
        training, held_out = load_training_images(model, data, group, track=track)
        say_notes(training.notes, group)
        if model is None:
            chosen = choose_images(what, sampling.n, group, track=track)
            say_notes(chosen.notes, group)
            rows: Rows = chosen
        shape = model.shape if model is not None else rows[:1].transpose(0, 3, 1, 2).shape[1:]
        fix = "other --data, or --space inception" if space == "pixel" else "other --data"
        check_neighbors(what, shape if space == "pixel" else None, training, fix)
        embeds: list[Embed] = [in_pixels]
        if space == "inception":  # only the main process needs it, and all stop if it is missing
            group.agreed(lambda: embeds.append(inception.load_inception(device=group.device, track=track)))
        if model is not None:
            rows = draw_samples(model, sampling, group, track=track)
        if not group.main:
            return
        samples = rows[: len(rows)]
        numbers = list(range(len(rows)))
        if isinstance(rows, ChosenImages) and len(rows) < len(rows.pixels):
            numbers = rows.numbers.tolist()
            print(f"{len(rows)} of {plural(len(rows.pixels), 'image')} of {what}, drawn at random (-n for more)")
        found, usual = find_neighbors(
            samples, training, held_out, embeds[-1], flips=flips, device=group.device, track=track
        )
        result = measure_memorisation(found, usual)
        result = replace(result, copies=tuple(replace(copy, sample=numbers[copy.sample]) for copy in result.copies))
        save_neighbors(out, samples, training.pixels, found)
        _print_neighbors(result, training, held_out, space, searched=found.numbers.shape[1])
        if json_file is not None:
            about: dict[str, Any] = {
                "what": what,
                "data": training.name,
                "data_digest": training.digest[:12],
                "space": space,
            }
            about |= describe_samples(model, sampling) if model is not None else {}
            about |= {"flips": flips, **to_json(result), "samples": numbers}
            write_json(json_file, about | {"neighbors": found.numbers[:, :COLUMNS].tolist()})
        print(out)


def _print_neighbors(
    found: Memorisation, training: Images, held_out: Images | None, space: str, *, searched: int
) -> None:
    from scorefield.evaluation.neighbors import describe_copy, describe_others

    others = describe_others(held_out)
    others = others.replace("images", "image", 1) if found.held_out_n == 1 else others
    print(f"distance to the nearest of {plural(len(training), 'image')} of {training.name}, in {space} space,")
    print(f"over the median distance of {found.held_out_n} {others} ({found.held_out_distance:.4g}):")
    print("  quantile        " + "".join(f"{float(q):8.0%}" for q in found.ratio))
    print(
        f"  {found.n:5d} sample{' ' if found.n == 1 else 's'}   " + "".join(f"{v:8.3f}" for v in found.ratio.values())
    )
    other = "held out " if held_out is not None else "in training"
    print(f"  {found.held_out_n:5d} {other} " + "".join(f"{v:8.3f}" for v in found.held_out_ratio.values()))
    of_held_out = f"{found.held_out_copies} of {found.held_out_n} {others}"
    print(f"copies: {len(found.copies)} of {plural(found.n, 'sample')}, {of_held_out}")
    print(f"  ({describe_copy(searched, held_out)})")
    for copy in found.copies[:20]:
        print(f"  sample {copy.sample} is training image {copy.training_image}")
    if found.alarm:
        print(f"ALARM: samples are copies of training images (by chance: p = {found.chance:.2g})")
    elif found.copies:
        print(f"no alarm: there may be this many copies by chance (p = {found.chance:.2g})")
    else:
        print(f"no sign of memorisation in {plural(found.n, 'sample')}")
