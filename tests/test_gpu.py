"""What only a GPU can show. Run with: pytest -m gpu  (CIFAR-10 and the FID network must be in $SCOREFIELD_DATA)"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gpu import GPU, rel
from gpu import without_tf32 as without_tf32

from scorefield import data
from scorefield.models import checkpoint
from scorefield.distributed import Group, joined
from scorefield.evaluation import measured
from scorefield.paper import fig1
from scorefield.models.generate import generate
from scorefield.evaluation.inception import load_inception
from scorefield.metrics import Statistics, frechet_distance
from scorefield.networks import RefineNet
from scorefield.noise import SampleNoise, geometric
from scorefield.models.recipes import Recipe, network_of
from scorefield.training import train
from scorefield.samplers import last

pytestmark = GPU


def test_a_seed_gives_the_same_noise_on_a_gpu() -> None:
    here, there = (SampleNoise(range(100, 108)) for _ in range(2))
    for draw in ("rand_like", "randn_like", "randn_like"):
        a = getattr(here, draw)(torch.empty(8, 3, 33, 47))
        b = getattr(there, draw)(torch.empty(8, 3, 33, 47, device="cuda")).cpu()
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_the_networks_score_and_its_gradients_are_the_same_on_a_gpu() -> None:
    network = network_of(Recipe(width=32), channels=3)
    x, sigma, weight = torch.rand(4, 3, 33, 47), network.sigmas[[0, 3, 6, 9]], torch.randn(4, 3, 33, 47)
    found = []
    for device in ("cpu", "cuda"):
        y = network.to(device)(x.to(device), sigma.to(device))
        gradients = torch.autograd.grad(y, list(network.parameters()), weight.to(device))
        found.append((y.cpu(), torch.cat([g.flatten() for g in gradients]).cpu()))
    for here, there in zip(*found, strict=True):
        assert rel(there, here) < 1e-4


def test_figure_1s_recorded_training_is_the_plain_one() -> None:
    """The first losses; later ones drift apart, because rounding grows."""
    pixels = np.random.default_rng(0).integers(0, 256, (40, 32, 32, 3), dtype=np.uint8)
    images = data.Images(pixels, "noise", "0" * 64)
    settings = fig1.Settings(iterations=6, batch_size=8, filters=(8, 8, 8, 16, 16))
    for sigma in (0.0, 0.01):
        here, there = (fig1.train(images, sigma, settings, device=torch.device(name)).curve for name in ("cpu", "cuda"))
        np.testing.assert_allclose(there, here, rtol=1e-2, atol=0.05)


def test_figure_1_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (40, 32, 32, 3), dtype=np.uint8)
    images, cuda, kept = data.Images(pixels, "noise", "0" * 64), torch.device("cuda"), tmp_path / "kept.safetensors"
    settings = fig1.Settings(iterations=6, batch_size=8, filters=(8, 8, 8, 16, 16))
    whole, done = fig1.train(images, 0.01, settings, device=cuda).curve, list[int]()
    monkeypatch.setattr(fig1, "SECONDS", -1.0)

    def first_three(items: Iterable[Any], what: str, total: int) -> Iterator[Any]:
        done.append(total)
        return islice(items, 3)

    for expected in (3, 6):
        curve = fig1.train(images, 0.01, settings, device=cuda, kept=kept, track=first_three).curve
        np.testing.assert_allclose(curve, whole[:expected], rtol=1e-3, atol=5e-3)
    assert done == [6, 3]


def test_figure_1_as_it_is_made_is_near_to_float32() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (40, 32, 32, 3), dtype=np.uint8)
    images = data.Images(pixels, "noise", "0" * 64)
    settings = fig1.Settings(iterations=3, batch_size=32)
    curves = []
    for allowed in (False, True):
        torch.backends.cudnn.allow_tf32 = allowed
        curves.append(fig1.train(images, 0.01, settings, device=torch.device("cuda")).curve)
    np.testing.assert_allclose(curves[1], curves[0], rtol=5e-2, atol=0.5)


def test_the_same_seed_gives_the_same_images_for_any_batch_size() -> None:
    network = RefineNet(channels=1, width=16, sigmas=geometric(1.0, 0.1, 3)).cuda()
    one = last(generate(network, network.sigmas, (1, 28, 28), range(6), step_size=1e-3, steps=5))
    parts = [
        last(generate(network, network.sigmas, (1, 28, 28), part, step_size=1e-3, steps=5))
        for part in (range(2), range(2, 6))
    ]
    torch.testing.assert_close(one, torch.cat(parts), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("precision", ["auto", "float32", "bfloat16"])
def test_a_resumed_run_is_the_uninterrupted_one_bit_for_bit(precision: str, tmp_path: Path) -> None:
    np.save(tmp_path / "dots.npy", np.random.default_rng(0).integers(0, 256, (50, 12, 14, 3), dtype=np.uint8))
    recipe = Recipe(data=str(tmp_path / "dots.npy"), width=8, steps=12, batch_size=8, ema=0.9, previews=0)
    recipe = replace(recipe, deterministic=True, precision=precision, checkpoint_every=5, held_out=5)  # type: ignore[arg-type]
    with joined("cuda") as group:
        train(recipe, tmp_path / "whole", group)
        train(replace(recipe, steps=7), tmp_path / "parts", group)
        train(recipe, tmp_path / "parts", group, resume=True)
    whole, parts = (
        checkpoint.read(tmp_path / n / "checkpoints/model-00000012.safetensors")[0] for n in ("whole", "parts")
    )
    for name in whole:
        assert torch.equal(whole[name], parts[name]), name


def test_fid_of_cifar10s_training_set_against_its_test_set() -> None:
    """3.151 in the world's own code; whatever the batch size, and by however many processes."""
    train, test = data.load("cifar10"), data.load("cifar10:test")
    network = load_inception(device="cuda")
    group = Group(0, 1, torch.device("cuda", 0))
    reference = measured(train.pixels, 50_000, network, group, batch_size=500).statistics
    halves = Statistics.empty(2048)
    for rank in range(2):
        part = test.pixels[5000 * rank : 5000 * (rank + 1)]
        halves.merge(measured(part, 5000, network, group, batch_size=99).statistics)
    whole = measured(test.pixels, 10_000, network, group, batch_size=256).statistics
    assert frechet_distance(reference, whole) == pytest.approx(3.151, abs=0.005)
    assert frechet_distance(reference, halves) == pytest.approx(frechet_distance(reference, whole), abs=1e-4)
