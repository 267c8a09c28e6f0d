"""scripts/train_digit_classifier.py: its training on made-up digits, and its images that are not digits."""

from __future__ import annotations

import gzip
import importlib.util
import struct
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import Tensor

from evaluation.easy_digits import LABELS, bars
from evaluation.easy_digits import hundred as hundred
from evaluation.easy_digits import store as store
from scorefield.data.images import Pixels
from scorefield.evaluation.digits import NO_DIGIT, classify, load_classifier
from scorefield.images import to_float


def load_script() -> ModuleType:
    path = Path(__file__).parents[2] / "scripts" / "train_digit_classifier.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


script = load_script()


def test_training_learns_and_is_reproducible() -> None:
    pixels, labels = bars(320, 0)
    first, again = (script.train(pixels, labels, passes=4, batch_size=32, seed=3) for _ in range(2))
    for a, b in zip(first.state_dict().values(), again.state_dict().values(), strict=True):
        assert torch.equal(a, b)
    other, truth = bars(200, 1)
    found, _ = classify(first, other)
    assert (found == truth).double().mean() > 0.6  # by chance: 0.1
    noise = np.random.default_rng(2).integers(0, 256, (50, 28, 28, 1), dtype=np.uint8)
    with torch.no_grad():
        assert (first(to_float(noise)).argmax(1) == NO_DIGIT).double().mean() > 0.9


def test_too_few_images_are_refused() -> None:
    pixels, labels = bars(20, 0)
    with pytest.raises(ValueError, match="too few"):
        script.train(pixels, labels, batch_size=32)


def write_idx(folder: Path, name: str, pixels: Pixels, labels: Tensor | None) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    images = struct.pack(">4I", 0x803, len(pixels), 28, 28) + pixels.tobytes()
    (folder / f"{name}-images-idx3-ubyte").write_bytes(images)
    if labels is not None:
        content = struct.pack(">2I", 0x801, len(labels)) + labels.byte().numpy().tobytes()
        (folder / f"{name}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(content))


def test_the_script_writes_a_classifier_and_its_test(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_idx(store / "mnist", "train", *bars(256, 0))
    pixels, labels = bars(48, 1)
    write_idx(store / "mnist", "t10k", pixels, labels)
    out = tmp_path / "c.safetensors"
    script.main(["--out", str(out), "--seed", "4"])
    printed = capsys.readouterr()
    assert printed.out.strip() == str(out)
    made = load_classifier(out)
    found, confidence = made(pixels)
    assert made.test.n == 48
    assert made.test.accuracy == pytest.approx((found == labels).double().mean().item())
    assert made.test.accepted == pytest.approx((confidence > 0.9).double().mean().item())
    assert set(made.test.rejected) == set(script.SEEN)
    assert set(made.test.rejected_unseen) == set(script.UNSEEN)
    assert f"accuracy {made.test.accuracy:.2%}" in printed.err


def test_labels_are_necessary(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from scorefield.data import named

    def offline(url: str, **_: object) -> bytes:
        raise OSError("no network")

    monkeypatch.setattr(named, "download", offline)
    for name in ("train", "t10k"):
        write_idx(store / "mnist", name, bars(20, 0)[0], None)
    with pytest.raises(FileNotFoundError, match="the labels of mnist are missing"):
        script.make(tmp_path / "c.safetensors")


def test_the_scripts_file_must_be_safetensors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        script.main(["--out", str(tmp_path / "d.npy")])
    assert stopped.value.code == 2
    assert "FILE.safetensors" in capsys.readouterr().err


# ---------------------------------------------------------------- images that are not digits


def test_pairs_are_of_different_classes() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(10, (500,), generator=generator)
    x, y = script._pairs(labels, labels, generator)
    assert (x != y).all()
    assert torch.equal(x.sort().values, labels.sort().values)


def test_kinds_by_what_they_keep(hundred: Pixels) -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = to_float(hundred), to_float(hundred).roll(50, 0)
    for kind in (script.permuted, script.patches, script.rolled):  # the same pixels elsewhere
        made = kind(x, y, generator)
        torch.testing.assert_close(made.flatten(1).sort().values, x.flatten(1).sort().values)
        assert (made != x).flatten(1).any(1).all()
    pair = script.pair(x, y, generator)
    torch.testing.assert_close(pair[..., :14].sum((1, 2, 3)), x.sum((1, 2, 3)) / 2)
    torch.testing.assert_close(pair[..., 14:].sum((1, 2, 3)), y.sum((1, 2, 3)) / 2)
    by = torch.tensor([3, -2]).expand(100, 28, 28, 2)
    torch.testing.assert_close(script._moved(x, by)[:, :, 4:24, 4:24], x[:, :, 2:22, 7:27], atol=1e-4, rtol=0)
    before, after = (torch.fft.rfft2(each).abs() for each in (x, script.scrambled(x, y, generator)))
    torch.testing.assert_close(after / after[..., :1, :1], before / before[..., :1, :1], atol=1e-3, rtol=0)


def test_kinds_come_in_equal_numbers_and_are_clipped(hundred: Pixels) -> None:
    kinds = {"zero": lambda x, y, _: 0 * x - 1, "one": lambda x, y, _: 0 * x + 2}
    made = script.no_digits(to_float(hundred), LABELS, torch.Generator().manual_seed(0), kinds)
    assert made.shape == (100, 1, 28, 28)
    assert made.mean() == 0.5
    every = script.no_digits(to_float(hundred), LABELS, torch.Generator().manual_seed(0))
    assert (every.min().item(), every.max().item(), len(every)) == (0, 1, 100)
