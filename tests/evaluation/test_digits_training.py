"""The judge of digits: its training, and the labels it learns from."""

from __future__ import annotations

import gzip
import hashlib
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from easy_digits import bars
from easy_digits import store as store
from torch import Tensor

from scorefield.cli import main
from scorefield.data import named
from scorefield.data.images import Pixels
from scorefield.paper import digits as judging
from scorefield.evaluation.digits import Classifier, labels_of, load_classifier, train
from scorefield.images import to_float


def test_training_learns_and_is_reproducible() -> None:
    pixels, labels = bars(320, 0)
    first, again = (train(pixels, labels, passes=4, batch_size=32, seed=3) for _ in range(2))
    for a, b in zip(first.state_dict().values(), again.state_dict().values(), strict=True):
        assert torch.equal(a, b)
    other, truth = bars(200, 1)
    found, _ = Classifier(first, {})(other)
    assert (found == truth).double().mean() > 0.6  # by chance: 0.1
    noise = np.random.default_rng(2).integers(0, 256, (50, 28, 28, 1), dtype=np.uint8)
    with torch.no_grad():
        assert (first(to_float(noise)).argmax(1) == judging.NO_DIGIT).double().mean() > 0.9
    with pytest.raises(ValueError, match="too few"):
        train(pixels[:20], labels[:20], batch_size=32)


def idx(folder: Path, name: str, pixels: Pixels, labels: Tensor) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    images = struct.pack(">4I", 0x803, len(pixels), 28, 28) + pixels.tobytes()
    (folder / f"{name}-images-idx3-ubyte").write_bytes(images)
    content = struct.pack(">2I", 0x801, len(labels)) + labels.byte().numpy().tobytes()
    (folder / f"{name}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(content))


def test_the_training_command(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    idx(store / "mnist", "train", *bars(256, 0))
    test = bars(48, 1)
    idx(store / "mnist", "t10k", *test)
    main(["train-digits", "--out", str(tmp_path / "c.safetensors"), "--seed", "4"])
    said = capsys.readouterr()
    assert said.out.strip() == str(tmp_path / "c.safetensors")
    made = load_classifier(tmp_path / "c.safetensors")
    found, confidence = made(test[0])
    assert made.real["accuracy"] == pytest.approx((found == test[1]).double().mean().item())
    assert made.real["accepted"] == pytest.approx((confidence > 0.9).double().mean().item())
    assert f"accuracy {made.real['accuracy']:.2%}" in said.err
    (store / "mnist" / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(b"\0\0\x08\x01\0\0\0\x01\x05"))
    with pytest.raises(SystemExit) as stopped:
        main(["train-digits", "--out", str(tmp_path / "d.safetensors")])
    assert stopped.value.code == 2
    assert "48 images, but 1 labels" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["train-digits", "--out", str(tmp_path / "d.npy")])
    assert "FILE.safetensors" in capsys.readouterr().err


def test_labels_plain_packed_fetched_and_damaged(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = b"\0\0\x08\x01\0\0\0\x03\x05\x00\x09"
    plain = store / "mnist" / "t10k-labels-idx1-ubyte"
    asked: list[str] = []

    def offline(url: str, **_: object) -> bytes:
        asked.append(url)
        raise OSError("no network")

    monkeypatch.setattr(named, "download", offline)
    with pytest.raises(FileNotFoundError, match="there, or set SCOREFIELD_DATA"):
        labels_of("test")
    assert asked == ["https://ossci-datasets.s3.amazonaws.com/mnist/t10k-labels-idx1-ubyte.gz"]
    for wrong in (gzip.compress(content), gzip.compress(content)[:-9]):
        monkeypatch.setattr(named, "download", lambda url, wrong=wrong, **_: wrong)
        with pytest.raises(ValueError, match="did not give the file expected"):
            labels_of("test")
    assert not plain.exists()
    monkeypatch.setattr(named, "download", lambda url, **_: gzip.compress(content))
    monkeypatch.setitem(judging.LABEL_SHA256, plain.name, hashlib.sha256(content).hexdigest())
    assert labels_of("test").tolist() == [5, 0, 9]
    assert plain.read_bytes() == content
    plain.unlink()
    packed = plain.with_name(f"{plain.name}.gz")
    packed.write_bytes(gzip.compress(content))
    assert labels_of("test").tolist() == [5, 0, 9]
    packed.write_bytes(gzip.compress(content)[:-9])
    with pytest.raises(ValueError, match="is damaged"):
        labels_of("test")
    plain.write_bytes(content)
    assert labels_of("test").tolist() == [5, 0, 9]
    for broken in (content[:5], content[:-1], content[:-1] + b"\x0a", b"\1" + content[1:], content[:7] + b"\0"):
        plain.write_bytes(broken)
        with pytest.raises(ValueError, match="no IDX file of labels"):
            labels_of("test")
