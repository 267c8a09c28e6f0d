"""scorefield digits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from scorefield.cli.app import JsonFile, app, prepare_file, say, tracker
from scorefield.cli.evaluate import (
    Subject,
    denoised_or_not,
    describe_samples,
    draw_samples,
    resolve_subject,
    sample_cache,
)
from scorefield.cli.options import Sampling, SamplingOptions
from scorefield.files import write_json

if TYPE_CHECKING:
    from scorefield.data.images import Pixels
    from scorefield.evaluation.digits import Classifier

SHOWN = 100
"""The most samples in the picture."""
RED, WHITE = (220, 20, 20), (255, 255, 255)


@app.command
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

    Example: scorefield digits runs/mnist -n 10000 --json digits.json --out digits.png

    Args:
        what: A run folder, a model file, a pretrained model such as mnist-small, or images: mnist:test, a folder, an
            .npy or .npz file. Images must be 28 × 28 pixels, grey, white on black.
        out: FILE.png for a picture of the first 100 samples, sorted by digit and confidence; rejected ones come last,
            with a red frame.
        json_file: Write the numbers to this file as well.
    """
    from scorefield.distributed import joined
    from scorefield.evaluation.digits import check_shape, judge, load_classifier
    from scorefield.evaluation.records import to_json
    from scorefield.evaluation.sources import choose_images

    if out is not None and out.suffix != ".png":
        raise ValueError(f"cannot write {out.suffix or 'a folder'} (--out FILE.png)")
    sampling.check()
    for file, option in ((out, "--out"), (json_file, "--json")):
        if file is not None:
            prepare_file(file, option)
    with joined(sampling.device) as group:
        track = tracker(group)
        model = resolve_subject(what, sampling, group)
        if model is None:
            rows = choose_images(what, sampling.n, group, track=track)
        else:
            check_shape((*model.shape[1:], model.shape[0]))
            rows = draw_samples(model, sampling, group, track=track)
        if not group.main:
            return
        samples, classifier = rows[: len(rows)], load_classifier()
        numbers = {"what": what, **to_json(judge(samples, classifier)), "real": to_json(classifier.test)}
        numbers["classifier"] = classifier.digest[:12]
        if model is not None:
            numbers |= describe_samples(sample_cache(model, sampling))
        _print(numbers)
        if json_file is not None:
            write_json(json_file, numbers)
        if out is not None:
            _save_digits(out, samples[:SHOWN], classifier)
            print(out)


def _print(numbers: dict[str, Any]) -> None:
    """The verdict, for people."""
    model, real = numbers.get("model"), numbers["real"]
    whose = f" (step {model['step']}, {model['weights']} weights)" if model else ""
    share, error = numbers["accepted"], numbers["accepted_standard_error"]
    print(f"{numbers['what']}{whose}: n = {numbers['n']}{denoised_or_not(numbers)}")
    print(f"  accepted as digits           {share:.2%} ± {error:.2%}   (real digits: {real['accepted']:.2%})")
    if numbers["accepted"]:
        usual = f"(real digits: {real['distance_to_uniform']:.4f}; by chance: {numbers['distance_by_chance']:.4f})"
        print(f"  distance to equal shares     {numbers['distance_to_uniform']:.4f}   {usual}")
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
