"""The judge of digits: the shipped classifier, its numbers and its command.

digits.png holds the first ten images of each digit in MNIST's test set, one digit in each row.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from easy_digits import bars
from easy_digits import store as store
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from scorefield.models import checkpoint
from scorefield.cli import main
from scorefield.data.images import Pixels
from scorefield.paper import digits as judging
from scorefield.paper import no_digits
from scorefield.evaluation.digits import Classifier, judge, load_classifier
from scorefield.images import to_float

LABELS = torch.arange(10).repeat_interleave(10)


@pytest.fixture(scope="module")
def hundred() -> Pixels:
    with Image.open(Path(__file__).parent / "digits.png") as sheet:
        return np.asarray(sheet).reshape(10, 28, 10, 28).transpose(0, 2, 1, 3).reshape(100, 28, 28, 1)


@pytest.fixture(scope="module")
def classifier() -> Classifier:
    return load_classifier()


# ---------------------------------------------------------------- the shipped classifier


def test_the_shipped_classifier_knows_real_digits(hundred: Pixels, classifier: Classifier) -> None:
    found, confidence = classifier(hundred)
    assert (found == LABELS).sum() >= 97
    assert (confidence > 0.9).sum() >= 95
    assert torch.equal(classifier(hundred[::-1])[0], found.flip(0))
    noisy = hundred + np.random.default_rng(0).normal(0, 0.01 * 255, hundred.shape)
    assert judge(noisy.clip(0, 255).round().astype(np.uint8), classifier)["accepted"] >= 0.95


def test_what_it_reached_on_the_test_set(classifier: Classifier) -> None:
    """What the shipped file says of itself. Of kinds that it did not learn, most images are rejected, and of most kinds
    nearly all."""
    real = classifier.real
    assert real["n"] == 10_000
    assert real["accuracy"] > 0.99
    assert min(real["accepted"], real["noisy_accepted"]) > 0.98
    assert 0.02 < real["distance_to_uniform"] < 0.04  # of the test set's labels: 0.0252
    assert set(real["rejected"]) == set(no_digits.SEEN)
    assert set(real["rejected_unseen"]) == set(no_digits.UNSEEN)
    assert min(real["rejected"].values()) > 0.8
    assert min(real["rejected_unseen"].values()) > 0.6
    assert np.median(list(real["rejected_unseen"].values())) > 0.95


@pytest.mark.parametrize("kind", ["noise", "black", "white", "grey", "inverted", "permuted", "rows", "checks"])
def test_what_is_no_digit_is_rejected(kind: str, hundred: Pixels, classifier: Classifier) -> None:
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
    assert judge(made[kind].astype(np.uint8), classifier)["accepted"] <= 0.02


def test_the_shipped_file_is_small() -> None:
    assert judging.WEIGHTS.stat().st_size < 300_000


# ---------------------------------------------------------------- the numbers


def told(x: Tensor) -> Tensor:
    """A stand-in whose pixels say it all: the first the digit, the second its probability, the rest being no digit."""
    digit, p = (255 * x[:, 0, 0, :1]).round().long(), x[:, 0, 0, 1:2]
    return torch.zeros(len(x), 11).scatter(1, digit, p).scatter(1, torch.full_like(digit, 10), 1 - p).log()


def image(digit: int, confidence: int) -> Pixels:
    made = np.zeros((1, 28, 28, 1), np.uint8)
    made[0, 0, :2, 0] = digit, confidence
    return made


STAND_IN = Classifier(told, {"accepted": 0.99, "distance_to_uniform": 0.03})


def test_the_verdict_by_hand() -> None:
    """230/255 is over 0.9, 229/255 is not."""
    pixels = np.concatenate([image(3, 255), image(3, 230), image(3, 229), image(7, 240), image(0, 100), image(9, 0)])
    verdict = judge(pixels, STAND_IN)
    assert verdict["n"] == 6
    assert verdict["accepted"] == 0.5
    assert verdict["accepted_standard_error"] == pytest.approx(math.sqrt(0.25 / 8))
    assert verdict["histogram"] == [0, 0, 0, 2, 0, 0, 0, 1, 0, 0]
    assert verdict["distance_to_uniform"] == pytest.approx(0.8)  # ½ (|2/3 − 0.1| + |1/3 − 0.1| + 8 · 0.1)
    assert verdict["real"] == {"accepted": 0.99, "distance_to_uniform": 0.03}
    even = np.concatenate([image(k, 255) for k in range(10)] * 60)  # more than one batch
    verdict = judge(even, STAND_IN)
    assert verdict["histogram"] == [60] * 10
    assert verdict["distance_to_uniform"] == pytest.approx(0, abs=1e-7)
    nothing = judge(image(2, 10), STAND_IN)
    assert math.isnan(nothing["distance_to_uniform"])
    assert nothing["accepted"] == 0


def test_the_distance_by_chance_is_that_of_a_fair_die() -> None:
    """Over 2000 throws of 600 dice; the standard error of their mean is about 0.0003."""
    counts = np.random.default_rng(0).multinomial(600, [0.1] * 10, size=2000)
    expected = (np.abs(counts / 600 - 0.1).sum(1) / 2).mean()
    found = judge(np.concatenate([image(k, 255) for k in range(10)] * 60), STAND_IN)["distance_by_chance"]
    assert found == pytest.approx(expected, abs=0.0015)


@pytest.mark.parametrize("shape", [(2, 32, 32, 1), (2, 28, 28, 3), (2, 28, 28), (2, 1, 28, 28)])
def test_other_shapes_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="takes images of 28 × 28 × 1 pixels, white on black as MNIST's; got"):
        judge(np.zeros(shape, np.uint8), STAND_IN)
    with pytest.raises(ValueError, match="there is no image to judge"):
        judge(np.zeros((0, 28, 28, 1), np.uint8), STAND_IN)


# ---------------------------------------------------------------- images that are no digits


def test_pairs_are_of_different_classes() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(10, (500,), generator=generator)
    x, y = no_digits._pairs(labels, labels, generator)
    assert (x != y).all()
    assert torch.equal(x.sort().values, labels.sort().values)


def test_kinds_by_what_they_keep(hundred: Pixels) -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = to_float(hundred), to_float(hundred).roll(50, 0)
    for kind in (no_digits.permuted, no_digits.patches, no_digits.rolled):  # the same pixels elsewhere
        made = kind(x, y, generator)
        torch.testing.assert_close(made.flatten(1).sort().values, x.flatten(1).sort().values)
        assert (made != x).flatten(1).any(1).all()
    pair = no_digits.pair(x, y, generator)
    torch.testing.assert_close(pair[..., :14].sum((1, 2, 3)), x.sum((1, 2, 3)) / 2)
    torch.testing.assert_close(pair[..., 14:].sum((1, 2, 3)), y.sum((1, 2, 3)) / 2)
    by = torch.tensor([3, -2]).expand(100, 28, 28, 2)
    torch.testing.assert_close(no_digits._moved(x, by)[:, :, 4:24, 4:24], x[:, :, 2:22, 7:27], atol=1e-4, rtol=0)
    before, after = (torch.fft.rfft2(each).abs() for each in (x, no_digits.scrambled(x, y, generator)))
    torch.testing.assert_close(after / after[..., :1, :1], before / before[..., :1, :1], atol=1e-3, rtol=0)


def test_as_many_of_each_kind_within_0_and_1(hundred: Pixels) -> None:
    kinds = {"zero": lambda x, y, _: 0 * x - 1, "one": lambda x, y, _: 0 * x + 2}
    made = no_digits.no_digits(to_float(hundred), LABELS, torch.Generator().manual_seed(0), kinds)
    assert made.shape == (100, 1, 28, 28)
    assert made.mean() == 0.5
    every = no_digits.no_digits(to_float(hundred), LABELS, torch.Generator().manual_seed(0))
    assert (every.min().item(), every.max().item(), len(every)) == (0, 1, 100)


# ---------------------------------------------------------------- the command


def numbers_of(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def test_digits_of_an_array(hundred: Pixels, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Three sevens, two ones and an inverted digit: the verdict, and the picture in its order."""
    pixels = np.concatenate([hundred[70:73], hundred[10:12], 255 - hundred[:1]])
    np.save(tmp_path / "a.npy", pixels)
    call = ["--json", str(tmp_path / "d.json"), "--out", str(tmp_path / "d.png")]
    main(["digits", str(tmp_path / "a.npy"), *call])
    said = capsys.readouterr().out
    numbers = numbers_of(tmp_path / "d.json")
    assert (numbers["n"], numbers["accepted"]) == (6, pytest.approx(5 / 6))
    assert numbers["histogram"] == [0, 2, 0, 0, 0, 0, 0, 3, 0, 0]
    assert numbers["distance_to_uniform"] == pytest.approx(0.8)
    assert numbers["real"]["accuracy"] > 0.99
    assert f"called a digit   83.33% ± {math.sqrt(6 / 8 * 2 / 8 / 8):.2%}" in said
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
    said = capsys.readouterr().err
    assert "takes images of 28 × 28 × 1 pixels, white on black as MNIST's; got 8 × 8 × 1" in said
    assert "sampling" not in said


def test_wrong_calls(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "a.npy", np.zeros((3, 28, 28, 3), np.uint8))
    checkpoint.write(tmp_path / "c.safetensors", {"x": torch.zeros(1)}, {"kind": "scorefield model"})
    with pytest.raises(ValueError, match="is no classifier of digits"):
        load_classifier(tmp_path / "c.safetensors")
    for call, words in (([], "got 28 × 28 × 3"), (["--out", "d.gif"], "--out FILE.png"), (["-n", "0"], "at least 1")):
        with pytest.raises(SystemExit) as stopped:
            main(["digits", str(tmp_path / "a.npy"), *call])
        assert stopped.value.code == 2
        assert words in capsys.readouterr().err
