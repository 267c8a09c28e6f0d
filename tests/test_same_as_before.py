"""The same numbers as before the second edition: samples, completions and a training run against recorded ones.

tests/golden holds what the commit before it made of these commands. Where PyTorch and the CPU's instructions are those
of the recording, everything must be the same bit for bit. Elsewhere sums are taken in another order: images may differ
by one grey level in 99.9 % of their pixels, and a tensor of weights by 1e-4 of its norm.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

import scorefield
from scorefield.cli import main
from scorefield.models.checkpoint import read

GOLDEN = Path(__file__).parent / "golden"
RECORDED = json.loads((GOLDEN / "golden.json").read_text())
SAME_MACHINE = (torch.__version__, torch.backends.cpu.get_cpu_capability()) == (RECORDED["torch"], RECORDED["cpu"])
PACKAGE = Path(scorefield.__file__).parent
WEIGHTS = PACKAGE.parent / "weights"
UNSTABLE = pytest.mark.filterwarnings("ignore:step_size:UserWarning")
"""Few and long steps were recorded, to be quick, and a warning comes with them."""


def run(*words: object) -> None:
    main([str(word) for word in words])


def assert_same_images(name: str, images: NDArray[np.uint8]) -> None:
    """Those recorded under that name."""
    expected = np.load(GOLDEN / "golden.npz")[name]
    assert (images.shape, images.dtype) == (expected.shape, expected.dtype)
    if SAME_MACHINE:
        assert hashlib.sha256(np.ascontiguousarray(images).tobytes()).hexdigest() == RECORDED["digests"][name]
    else:
        apart = np.abs(images.astype(int) - expected.astype(int))
        assert (apart <= 1).mean() >= 0.999


def assert_same_weights(tensors: Mapping[str, torch.Tensor]) -> None:
    """Those of the recorded training run; not all of them are in the file, but the digest is of all."""
    if SAME_MACHINE:
        digest = hashlib.sha256()
        for name in sorted(tensors):
            digest.update(name.encode())
            digest.update(tensors[name].contiguous().numpy().tobytes())
        assert digest.hexdigest() == RECORDED["digests"]["train_tiny"]
    recorded = np.load(GOLDEN / "golden.npz")
    for name in ("raw/begin.weight", "ema/end.weight", "raw/norm.gamma"):
        found, expected = tensors[name].numpy(), recorded["train_" + name.replace("/", "_")]
        assert np.linalg.norm(found - expected) < 1e-4 * np.linalg.norm(expected)


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("model:mnist-small", ["-n", 6, "--steps", 4, "--step-size", 5e-4]),
        ("model:mnist", ["-n", 2, "--steps", 2]),
        (WEIGHTS / "cifar10.safetensors", ["-n", 2, "--steps", 1, "--denoise"]),
        (WEIGHTS / "celeba.safetensors", ["-n", 2, "--steps", 1]),
    ],
    ids=["mnist-small", "mnist", "cifar10", "celeba"],
)
@UNSTABLE
def test_samples(model: str | Path, options: list[object], tmp_path: Path) -> None:
    if isinstance(model, Path) and not model.is_file():
        pytest.skip(f"no {model.name}: it comes with a checkout")
    out = tmp_path / "samples.npy"
    run("sample", model, *options, "--seed", 3, "--batch-size", 4, "--device", "cpu", "--out", out)
    assert_same_images(f"sample_{Path(str(model).removeprefix('model:')).stem}", np.load(out))


@UNSTABLE
def test_completions(tmp_path: Path) -> None:
    image, out = PACKAGE / "paper" / "digit.png", tmp_path / "completions.npy"
    options = ["-n", 3, "--steps", 4, "--step-size", 5e-4, "--seed", 5, "--device", "cpu"]
    run("inpaint", "model:mnist-small", "--image", image, "--mask", "left", *options, "--out", out)
    assert_same_images("inpaint_mnist-small", np.load(out))


def test_a_training_run(tmp_path: Path) -> None:
    """Its weights, raw and averaged, and the samples that it draws."""
    pixels, made = np.random.default_rng(0).integers(0, 256, (60, 16, 16, 3), dtype=np.uint8), tmp_path / "run"
    np.save(tmp_path / "dots.npy", pixels)
    options = ["--width", 8, "--steps", 12, "--checkpoint-every", 12, "--evaluate-every", 12, "--warmup", 5, "--flip"]
    options += ["--previews", 2, "--device", "cpu"]
    run("train", "tiny", "--data", tmp_path / "dots.npy", *options, "--out", made)
    assert_same_weights(read(made / "checkpoints" / "model-00000012.safetensors")[0])
    assert_same_images("train_preview", np.asarray(Image.open(made / "samples" / "00000012.png")))
