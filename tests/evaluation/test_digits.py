"""The judge of digits: the classifier in the package, its verdict and its command."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from evaluation.easy_digits import LABELS, bars
from evaluation.easy_digits import hundred as hundred
from evaluation.easy_digits import store as store
from scorefield.cli import main
from scorefield.data.images import Pixels
from scorefield.evaluation.digits import WEIGHTS, Classifier, classify, judge, load_classifier
from scorefield.models import checkpoint


@pytest.fixture(scope="module")
def classifier() -> Classifier:
    return load_classifier()


# ---------------------------------------------------------------- the classifier


def test_the_classifier_knows_real_digits(hundred: Pixels, classifier: Classifier) -> None:
    found, confidence = classifier(hundred)
    assert (found == LABELS).sum() >= 97
    assert (confidence > 0.9).sum() >= 95
    assert torch.equal(classifier(hundred[::-1])[0], found.flip(0))
    noisy = hundred + np.random.default_rng(0).normal(0, 0.01 * 255, hundred.shape)
    assert judge(noisy.clip(0, 255).round().astype(np.uint8), classifier).accepted >= 0.95


def test_the_file_says_how_good_the_classifier_is(classifier: Classifier) -> None:
    """Of kinds that it was not trained on, it rejects most images, and of most kinds nearly all."""
    test = classifier.test
    assert test.n == 10_000
    assert test.accuracy > 0.99
    assert min(test.accepted, test.noisy_accepted) > 0.98
    assert 0.02 < test.distance_to_uniform < 0.04  # of the test set's labels: 0.0252
    assert len(test.rejected) == 11
    assert len(test.rejected_unseen) == 5
    assert min(test.rejected.values()) > 0.8
    assert min(test.rejected_unseen.values()) > 0.6
    assert np.median(list(test.rejected_unseen.values())) > 0.95


@pytest.mark.parametrize("kind", ["noise", "black", "white", "grey", "inverted", "permuted", "rows", "checks"])
def test_images_that_are_not_digits_are_rejected(kind: str, hundred: Pixels, classifier: Classifier) -> None:
    rng = np.random.default_rng(0)
    made: dict[str, NDArray[Any]] = {
        "noise": rng.integers(0, 256, hundred.shape),
        "black": np.zeros_like(hundred),
        "white": np.full_like(hundred, 255),
        "grey": np.full_like(hundred, 128),
        "inverted": 255 - hundred,
        "permuted": rng.permuted(hundred.reshape(100, -1), axis=1).reshape(hundred.shape),
        "rows": rng.permuted(hundred, axis=1),
        "checks": np.broadcast_to(255 * (np.indices((28, 28)).sum(0) // 4 % 2)[..., None], hundred.shape),
    }
    assert judge(made[kind].astype(np.uint8), classifier).accepted <= 0.02


def test_the_classifiers_file_is_small() -> None:
    assert WEIGHTS.stat().st_size < 300_000


def test_a_file_that_is_not_a_classifier_is_refused(tmp_path: Path) -> None:
    checkpoint.write(tmp_path / "c.safetensors", {"x": torch.zeros(1)}, {"kind": "scorefield model"})
    with pytest.raises(ValueError, match="is not a classifier of digits"):
        load_classifier(tmp_path / "c.safetensors")


# ---------------------------------------------------------------- the verdict


def stand_in(pixels: Pixels) -> tuple[Tensor, Tensor]:
    """A classifier that reads its answer from two pixels: the first is the digit, the second its probability."""

    def network(x: Tensor) -> Tensor:
        digit, p = (255 * x[:, 0, 0, :1]).round().long(), x[:, 0, 0, 1:2]
        return torch.zeros(len(x), 11).scatter(1, digit, p).scatter(1, torch.full_like(digit, 10), 1 - p).log()

    return classify(network, pixels)


def image(digit: int, confidence: int) -> Pixels:
    made = np.zeros((1, 28, 28, 1), np.uint8)
    made[0, 0, :2, 0] = digit, confidence
    return made


def test_the_verdict_by_hand() -> None:
    """230/255 is above 0.9, 229/255 is not."""
    pixels = np.concatenate([image(3, 255), image(3, 230), image(3, 229), image(7, 240), image(0, 100), image(9, 0)])
    verdict = judge(pixels, stand_in)
    assert verdict.n == 6
    assert verdict.accepted == 0.5
    assert verdict.accepted_standard_error == pytest.approx(math.sqrt(0.25 / 8))
    assert verdict.histogram == (0, 0, 0, 2, 0, 0, 0, 1, 0, 0)
    assert verdict.distance_to_uniform == pytest.approx(0.8)  # ½ (|2/3 − 0.1| + |1/3 − 0.1| + 8 · 0.1)
    assert verdict.confidence == 0.9
    even = np.concatenate([image(k, 255) for k in range(10)] * 60)  # more than one batch
    verdict = judge(even, stand_in)
    assert verdict.histogram == (60,) * 10
    assert verdict.distance_to_uniform == pytest.approx(0, abs=1e-7)
    assert verdict.as_asked is None
    asked = judge(pixels, stand_in, asked=[3, 5, 3, 7, 0, 9])
    assert asked.as_asked == pytest.approx(2 / 3)  # of the three accepted, the second should be a 5
    assert judge(pixels, stand_in, asked=[3, -1, 3, 8, 0, 9]).as_asked == 0.5  # −1 is any digit
    nothing = judge(image(2, 10), stand_in)
    assert math.isnan(nothing.distance_to_uniform)
    assert nothing.accepted == 0


def test_the_distance_by_chance_is_that_of_equally_likely_digits() -> None:
    """The mean over 2000 draws of 600 digits, whose standard error is about 0.0003."""
    counts = np.random.default_rng(0).multinomial(600, [0.1] * 10, size=2000)
    expected = (np.abs(counts / 600 - 0.1).sum(1) / 2).mean()
    found = judge(np.concatenate([image(k, 255) for k in range(10)] * 60), stand_in).distance_by_chance
    assert found == pytest.approx(expected, abs=0.0015)


@pytest.mark.parametrize("shape", [(2, 32, 32, 1), (2, 28, 28, 3), (2, 28, 28), (2, 1, 28, 28)])
def test_images_of_other_shapes_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="takes images of 28 × 28 × 1 pixels"):
        judge(np.zeros(shape, np.uint8), stand_in)


def test_no_images_are_refused() -> None:
    with pytest.raises(ValueError, match="no images to judge"):
        judge(np.zeros((0, 28, 28, 1), np.uint8), stand_in)


# ---------------------------------------------------------------- the command


def numbers_of(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def test_digits_of_an_array(hundred: Pixels, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Three sevens, two ones and an inverted digit: the verdict, and the order of the picture."""
    pixels = np.concatenate([hundred[70:73], hundred[10:12], 255 - hundred[:1]])
    np.save(tmp_path / "a.npy", pixels)
    call = ["--json", str(tmp_path / "d.json"), "--out", str(tmp_path / "d.png")]
    main(["digits", str(tmp_path / "a.npy"), *call])
    printed = capsys.readouterr().out
    numbers = numbers_of(tmp_path / "d.json")
    assert (numbers["n"], numbers["accepted"]) == (6, pytest.approx(5 / 6))
    assert numbers["histogram"] == [0, 2, 0, 0, 0, 0, 0, 3, 0, 0]
    assert numbers["distance_to_uniform"] == pytest.approx(0.8)
    assert numbers["real"]["accuracy"] > 0.99
    assert f"83.33% ± {math.sqrt(6 / 8 * 2 / 8 / 8):.2%}" in printed
    with Image.open(tmp_path / "d.png") as opened:
        picture = np.asarray(opened)
    zoom = picture.shape[1] // (10 * 31 + 1)
    tiles = picture[1 * zoom :: zoom, 1 * zoom :: zoom][:30, : 10 * 31].reshape(30, 10, 31, 3).transpose(1, 0, 2, 3)
    inside = tiles[:, 1:29, 1:29, :1]
    assert all(any(np.array_equal(inside[k], one) for one in pixels[3:5]) for k in range(2))
    assert all(any(np.array_equal(inside[k], seven) for seven in pixels[:3]) for k in range(2, 5))
    assert np.array_equal(inside[5], pixels[5])
    assert [tuple(tile[0, 0]) for tile in tiles[:6]] == [(255, 255, 255)] * 5 + [(220, 20, 20)]
    main(["digits", str(tmp_path / "a.npy"), "-n", "2", "--json", str(tmp_path / "d.json")])
    assert numbers_of(tmp_path / "d.json")["n"] == 2


def test_digits_of_a_model(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "bars.npy", bars(20, 0)[0])
    options = "--width 2 --levels 2 --held-out 0 --steps 1 --batch-size 4 --previews 0 --sample-steps 1"
    for size in (28, 8):
        run = ["--data", str(tmp_path / "bars.npy"), "--out", str(tmp_path / f"run{size}"), "--image-size", str(size)]
        main(["train", "tiny", *run, *options.split()])
    main(["digits", str(tmp_path / "run28"), "-n", "6", "--denoise", "--json", str(tmp_path / "d.json")])
    numbers = numbers_of(tmp_path / "d.json")
    assert (numbers["n"], numbers["denoised"], numbers["accepted"]) == (6, True, 0)
    assert numbers["distance_to_uniform"] is None
    assert numbers["model"]["step"] == 1
    assert len(list((store / "samples").iterdir())) >= 1
    capsys.readouterr()
    with pytest.raises(SystemExit) as stopped:
        main(["digits", str(tmp_path / "run8"), "-n", "6"])
    assert stopped.value.code == 2
    printed = capsys.readouterr().err
    assert "got 8 × 8 × 1" in printed
    assert "sampling" not in printed


@pytest.mark.parametrize(
    ("call", "words"),
    [([], "got 28 × 28 × 3"), (["--out", "d.gif"], "--out must be a file, FILE.png; got"), (["-n", "0"], "-n must be")],
)
def test_wrong_calls(call: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "a.npy", np.zeros((3, 28, 28, 3), np.uint8))
    with pytest.raises(SystemExit) as stopped:
        main(["digits", str(tmp_path / "a.npy"), *call])
    assert stopped.value.code == 2
    assert words in capsys.readouterr().err
