"""What only a GPU can show. Run with: pytest -m gpu  (CIFAR-10 and the FID network must be in $SCOREFIELD_DATA)"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gpu import GPU, rel
from gpu import without_tf32 as without_tf32
from labelled import Labelled

from scorefield import data
from scorefield.acceleration.graphs import Recorded
from scorefield.distributed import Group, joined
from scorefield.evaluation.features import measure
from scorefield.evaluation.inception import load_inception
from scorefield.metrics import Statistics, frechet_distance
from scorefield.models import checkpoint
from scorefield.models.build import build_network
from scorefield.models.model import Model
from scorefield.models.recipes import RECIPES, Recipe
from scorefield.networks import RefineNet
from scorefield.noise import SampleNoise, geometric
from scorefield.samplers import AnnealedLangevin, last
from scorefield.training import train
from scorefield.training.history import read_log

pytestmark = GPU


def test_a_seed_gives_the_same_noise_on_a_gpu() -> None:
    here, there = (SampleNoise(range(100, 108)) for _ in range(2))
    for draw in ("rand_like", "randn_like", "randn_like"):
        a = getattr(here, draw)(torch.empty(8, 3, 33, 47))
        b = getattr(there, draw)(torch.empty(8, 3, 33, 47, device="cuda")).cpu()
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_the_networks_score_and_its_gradients_are_the_same_on_a_gpu() -> None:
    network = build_network(Recipe(width=32), channels=3)
    sigma = geometric(1.0, 0.01, 10)[[0, 3, 6, 9]]
    x, weight = torch.rand(4, 3, 33, 47), torch.randn(4, 3, 33, 47)
    found = []
    for device in ("cpu", "cuda"):
        y = network.to(device)(x.to(device), sigma.to(device))
        gradients = torch.autograd.grad(y, list(network.parameters()), weight.to(device))
        found.append((y.cpu(), torch.cat([g.flatten() for g in gradients]).cpu()))
    for here, there in zip(*found, strict=True):
        assert rel(there, here) < 1e-4


@pytest.mark.parametrize("precision", ["auto", "float32"])
def test_the_same_seed_gives_the_same_images_for_any_batch_size(precision: str) -> None:
    sigmas = geometric(1.0, 0.1, 3)
    network = RefineNet(channels=1, width=16, sigmas=sigmas).cuda().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    model = Model(
        network.requires_grad_(False), (1, 28, 28), AnnealedLangevin(tuple(sigmas.tolist()), step_size=1e-3, steps=5)
    )
    one = last(model.states(range(6), precision=precision))
    parts = [last(model.states(part, precision=precision)) for part in (range(2), range(2, 6))]
    tolerance = 1e-3 if precision == "float32" else 1e-2
    torch.testing.assert_close(one, torch.cat(parts), rtol=tolerance, atol=tolerance)
    if precision == "auto":
        assert isinstance(model.fast_score(6), Recorded)
        torch.testing.assert_close(model.sample(6, batch_size=4), one.clamp(0, 1), rtol=tolerance, atol=tolerance)


def test_a_model_samples_on_a_gpu_what_it_samples_on_a_cpu() -> None:
    """With classes, completions, and cut and padded batches; in float32."""
    sampler = AnnealedLangevin((1.0, 0.1), step_size=1e-3, steps=5)
    here, there = (
        Model(Labelled().to(device), (1, 8, 8), sampler, labels=tuple("abcde")) for device in ("cpu", "cuda")
    )
    choices: list[dict[str, Any]] = [{}, {"label": "c"}, {"label": [4, 0, 1, 2, 3]}, {"batch_size": 2}]
    for options in choices:
        found = there.sample(5, seed=2, **options)
        assert found.is_cuda
        torch.testing.assert_close(found.cpu(), here.sample(5, seed=2, **options), rtol=1e-4, atol=1e-4)
    image, mask = torch.rand(1, 8, 8), (torch.rand(8, 8) < 0.5).float()
    found = there.inpaint(image, mask, n=3, seed=2).cpu()
    torch.testing.assert_close(found, here.inpaint(image, mask, n=3, seed=2), rtol=1e-4, atol=1e-4)


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


def unet_recipe(folder: Path) -> Recipe:
    """12 steps of a small U-Net with everything: classes, dropout, attention, learned weights, two averages."""
    pixels = np.random.default_rng(0).integers(0, 256, (50, 12, 14, 3), dtype=np.uint8)
    np.savez(folder / "dots.npz", images=pixels, labels=np.arange(50) % 3)
    recipe = replace(RECIPES["unet-cifar10"], data=str(folder / "dots.npz"), width=32, blocks=(1, 1, 1), steps=12)
    return replace(recipe, batch_size=8, previews=0, checkpoint_every=5, evaluate_every=5, log_every=1, held_out=5)


@pytest.mark.parametrize("precision", ["auto", "float32", "bfloat16"])
def test_a_resumed_run_of_a_unet_is_the_uninterrupted_one_bit_for_bit(precision: str, tmp_path: Path) -> None:
    recipe = replace(unet_recipe(tmp_path), deterministic=True, precision=precision)  # type: ignore[arg-type]

    def stop(until: int) -> Callable[[int, object], None]:
        def log(step: int, numbers: object) -> None:
            if step == 7:
                raise KeyboardInterrupt

        return log

    with joined("cuda") as group:
        train(recipe, tmp_path / "whole", group)
        with pytest.raises(KeyboardInterrupt):
            train(recipe, tmp_path / "parts", group, extra_logs=[stop])
        train(recipe, tmp_path / "parts", group, resume=True)
    whole, parts = (
        checkpoint.read(tmp_path / n / "checkpoints/model-00000012.safetensors")[0] for n in ("whole", "parts")
    )
    for name in whole:
        assert torch.equal(whole[name], parts[name]), name


TWO = """
import sys, torch, torch.distributed as dist
from pathlib import Path
from scorefield.distributed import Group
from scorefield.models.model import recipe_from_json
from scorefield.training import train

rank, folder = int(sys.argv[1]), Path(sys.argv[2])
dist.init_process_group("gloo", init_method=f"file://{folder / 'meet'}", rank=rank, world_size=2)
torch.cuda.set_device(0)
train(recipe_from_json((folder / "recipe.json").read_text()), folder / "two", Group(rank, 2, torch.device("cuda", 0)))
dist.destroy_process_group()
"""


def test_two_processes_with_recorded_updates_compute_what_one_does(tmp_path: Path) -> None:
    """Both on this GPU, joined by gloo: NCCL wants a GPU for each. In float32 numbers would agree to rounding; in
    float16 losses agree, and Adam's means of the gradients nearly."""
    recipe = replace(unet_recipe(tmp_path), steps=3, checkpoint_every=3)
    (tmp_path / "recipe.json").write_text(json.dumps(asdict(recipe)))
    with joined("cuda") as group:
        train(recipe, tmp_path / "one", group)
    processes = [
        subprocess.Popen([sys.executable, "-c", TWO, str(rank), str(tmp_path)], stderr=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    for process in processes:
        said = process.communicate(timeout=300)[1]
        assert process.returncode == 0, said
    logs = [read_log(tmp_path / name / "log.csv") for name in ("one", "two")]
    losses = [[row[log.columns.index("loss")] for row in log.rows] for log in logs]
    assert losses[0] == pytest.approx(losses[1], rel=2e-2)
    means = []
    for name in ("one", "two"):
        moments = checkpoint.read(tmp_path / name / "checkpoints" / "optimizer-00000003.safetensors")[0]
        means.append(torch.cat([value.flatten() for key, value in moments.items() if key.endswith("exp_avg")]))
    assert rel(means[1], means[0]) < 0.1


def test_fid_of_cifar10s_training_set_against_its_test_set() -> None:
    """3.151 in the world's own code; whatever the batch size, and by however many processes."""
    train, test = data.load("cifar10"), data.load("cifar10:test")
    network = load_inception(device="cuda")
    group = Group(0, 1, torch.device("cuda", 0))
    reference = measure(train.pixels, 50_000, network, group, batch_size=500).statistics
    halves = Statistics.empty(2048)
    for rank in range(2):
        part = test.pixels[5000 * rank : 5000 * (rank + 1)]
        halves.merge(measure(part, 5000, network, group, batch_size=99).statistics)
    whole = measure(test.pixels, 10_000, network, group, batch_size=256).statistics
    assert frechet_distance(reference, whole) == pytest.approx(3.151, abs=0.005)
    assert frechet_distance(reference, halves) == pytest.approx(frechet_distance(reference, whole), abs=1e-4)
