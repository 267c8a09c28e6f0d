"""scorefield digits, train-digits."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import tyro

from scorefield.cli.app import app, check_seed, prepare_file, say, tracker, write_json
from scorefield.cli.models import Sampler, how_of, sampled, subject_of

if TYPE_CHECKING:
    from scorefield.data.images import Pixels
    from scorefield.evaluation.digits import Classifier

SHOWN = 100
"""Samples in the picture, at most."""
RED, WHITE = (220, 20, 20), (255, 255, 255)


@app.command
def digits(
    what: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL|SOURCE")],
    /,
    *,
    sampler: tyro.conf.OmitArgPrefixes[Sampler] = Sampler(n=10_000, batch_size=500),  # noqa: B008
    out: Path | None = None,
    json_file: Annotated[Path | None, tyro.conf.arg(name="json")] = None,
) -> None:
    """Judge samples of MNIST's digits: the share that an independent classifier calls a digit, and how even they are.

    The classifier has learned that noise, scribbles and digits torn apart are none, so it calls a digit only what looks
    like one. What it says of real digits stands beside. Samples of a model are drawn first and kept on the disk.

    Example: scorefield digits runs/mnist -n 10000 --json digits.json --out digits.png

    Args:
        what: A run folder, a model file, a shipped model (mnist-small, say), or images: mnist:test, a folder,
            an .npy or .npz file. 28 × 28 pixels, grey, white on black.
        out: FILE.png for a picture of the first 100 samples: by digit, the surest first, those that are none with a
            red frame.
        json_file: Write the numbers to this file as well.
    """
    from scorefield.distributed import joined
    from scorefield.evaluation import Pool
    from scorefield.evaluation.subjects import rows_of
    from scorefield.evaluation.digits import check_shape, judge, load_classifier

    if out is not None and out.suffix != ".png":
        raise ValueError(f"cannot write {out.suffix or 'a folder'} (--out FILE.png)")
    sampler.check()
    for file, option in ((out, "--out"), (json_file, "--json")):
        if file is not None:
            prepare_file(file, option)
    with joined(sampler.device) as group:
        track = tracker(group)
        model = subject_of(what, sampler, group)
        if model is None:
            rows = rows_of(what, sampler.n, group, track=track)
        else:
            check_shape((*model.shape[1:], model.shape[0]))
            rows = sampled(model, sampler, group, track=track)
        if not group.main:
            return
        samples, classifier = rows[: len(rows)], load_classifier()
        numbers = {"what": what, **judge(samples, classifier), "classifier": classifier.digest[:12]}
        if model is not None:
            how = Pool(model, how_of(sampler, model)).how
            facts = {"step": model.step, "weights": model.weights, "digest": model.digest[:12]}
            numbers |= {"model": facts, "denoised": how.denoise, "sampler": asdict(how)}
        _tell(numbers)
        if json_file is not None:
            write_json(json_file, numbers)
        if out is not None:
            _save_digits(out, samples[:SHOWN], classifier)
            print(out)


def _tell(numbers: dict[str, Any]) -> None:
    """The verdict, for people."""
    said = {None: "", True: ", denoised", False: ", not denoised"}[numbers.get("denoised")]
    model, real = numbers.get("model"), numbers["real"]
    whose = f" (step {model['step']}, {model['weights']} weights)" if model else ""
    share, error = numbers["accepted"], numbers["accepted_standard_error"]
    print(f"{numbers['what']}{whose}: n = {numbers['n']}{said}")
    print(f"  called a digit   {share:.2%} ± {error:.2%}   (real ones: {real['accepted']:.2%})")
    distance, chance = numbers["distance_to_uniform"], numbers["distance_by_chance"]
    usual = f"(real ones: {real['distance_to_uniform']:.4f}; by chance alone: {chance:.4f})"
    if numbers["accepted"]:
        print(f"  off even shares  {distance:.4f}   {usual}")
    print("  of digit 0 ... 9 " + " ".join(map(str, numbers["histogram"])))
    say(f"note: called a digit: with a confidence over {numbers['confidence']}; real ones: MNIST's test set")


def _save_digits(out: Path, samples: Pixels, classifier: Classifier) -> None:
    """By digit, the surest first; those that are none come last, with a red frame."""
    from scorefield.evaluation.digits import CONFIDENCE
    from scorefield.images import grid, save_png, zoom_for

    found, confidence = (each.numpy() for each in classifier(samples))
    rejected = confidence <= CONFIDENCE
    order = np.lexsort((-confidence, np.where(rejected, 10, found)))
    framed = np.where(rejected[:, None], RED, WHITE).astype(np.uint8)[:, None, None].repeat(30, 1).repeat(30, 2)
    framed[:, 1:-1, 1:-1] = samples
    sheet = grid(framed[order], columns=10, gap=1)
    save_png(out, sheet, zoom=zoom_for(sheet, target=900))


@app.command(name="train-digits")
def train_digits(*, out: Path, seed: int = 0) -> None:
    """Train the classifier behind `scorefield digits` anew: about twelve minutes on one core.

    Needs MNIST with its labels. Says what it reaches on the test set, and which share of images that are no digits it
    rejects, of kinds that it learned and of kinds that it did not.

    Example: scorefield train-digits --out classifier.safetensors

    Args:
        out: FILE.safetensors for the weights.
        seed: Another seed gives another classifier.
    """
    from scorefield.evaluation.digits import make
    from scorefield.progress import track

    check_seed(seed)
    if out.suffix != ".safetensors":
        raise ValueError(f"classifiers are .safetensors files; got --out {out} (name it FILE.safetensors)")
    prepare_file(out)
    real = make(out, seed=seed, track=track)
    say(
        f"MNIST's test set: accuracy {real['accuracy']:.2%}, called a digit {real['accepted']:.2%}, with noise "
        f"{real['noisy_accepted']:.2%}"
    )
    for kinds, words in (("rejected", "learned"), ("rejected_unseen", "not learned")):
        for name, share in real[kinds].items():
            say(f"  {name:12} rejected {share:.2%}   {words}")
    print(out)
