"""Figure 1 on a GPU: its kernels, its recorded updates and TF32. Run with: pytest -m gpu tests/paper/test_fig1_gpu.py

The gradient of sliced score matching jumps where an activation of the network crosses 0, because the second derivative
of ELU does. So a relative rounding error ε changes the gradient by about √ε of its size, and Adam turns the signs of
small gradients into whole steps. With the paper's learning rate, curves that differ only by rounding of 1e-6 are up to
3 apart after six iterations, and by TF32's rounding up to 10 after two (measured on a CPU). With a hundredth of that
learning rate they stay together, while training still changes the loss at least ten times as much as the tolerances
here.
"""

from __future__ import annotations

import copy
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
from torch import Tensor

from scorefield import data
from scorefield.acceleration import quadratic_form_of
from scorefield.derivatives import either_mode, forward_mode
from scorefield.networks import ResNet
from scorefield.noise import SampleNoise
from scorefield.paper import fig1
from scorefield.training.run import chosen_kernels
from scorefield.training.trainer import Batch, RecordedTrainer, Trainer, learning_rates

pytestmark = GPU

CUDA = torch.device("cuda")
SMALL = fig1.Settings(iterations=6, batch_size=8, filters=(8, 8, 8, 16, 16))
SLOW = replace(SMALL, learning_rate=1e-5)


def noise_images() -> data.Images:
    pixels = np.random.default_rng(0).integers(0, 256, (40, 32, 32, 3), dtype=np.uint8)
    return data.Images(pixels, "noise", "0" * 64)


def curve(settings: fig1.Settings, sigma: float, device: torch.device = CUDA) -> fig1.Curve:
    return fig1.train(noise_images(), sigma, settings, device=device).curve


@pytest.mark.parametrize(
    ("filters", "size"),
    [
        ((5, 6, 6, 7, 7), (16, 32)),
        ((8, 24, 24, 40, 40), (12, 20)),  # groups of 1, 3 and 5; tiles that end beyond the image
        ((32, 64, 64, 128, 128), (16, 32)),
    ],
)
def test_the_network_with_its_derivative_and_their_gradients(filters: tuple[int, ...], size: tuple[int, int]) -> None:
    """Against forward mode in float64. A norm over one channel removes the bias before it, whose gradient is 0."""
    torch.manual_seed(0)
    network = ResNet(filters=filters).cuda()
    for parameter in network.parameters():
        parameter.data.add_(0.05 * torch.randn_like(parameter))
    exact, form = copy.deepcopy(network).double(), quadratic_form_of(network)
    assert form is not either_mode
    x, v = torch.rand(3, 3, *size, device="cuda"), torch.randn(3, 3, *size, device="cuda")
    found, expected = form(network, x, v), forward_mode(exact, x.double(), v.double())
    weights = [torch.randn_like(each) for each in expected]
    gradients = []
    for each, model in ((found, network), (expected, exact)):
        total = sum((one * weight).sum() for one, weight in zip(each, weights, strict=True))
        assert isinstance(total, Tensor)
        gradients.append(torch.autograd.grad(total, list(model.parameters())))
    whole = torch.cat([each.flatten() for each in gradients[1]]).norm()
    for one, other in zip([*found, *gradients[0]], [*expected, *gradients[1]], strict=True):
        assert rel(one, other) < 1e-4 or (one - other).norm() < 1e-6 * whole


@pytest.mark.parametrize("sigma", [0.0, 0.01])
def test_training_on_a_gpu_is_training_on_a_cpu(sigma: float) -> None:
    """Six recorded updates with a small learning rate. Rounding of 1e-5 moves such a curve by up to 0.015."""
    here, there = curve(SLOW, sigma, torch.device("cpu")), curve(SLOW, sigma)
    untrained = curve(replace(SLOW, learning_rate=0.0), sigma)
    assert (untrained - there)[1:].min() > 0.5, f"training changes the loss by {there - untrained}"
    assert np.abs(there - here).max() < 0.1, f"the curves differ by {there - here}"


def test_tf32_is_near_to_float32() -> None:
    """The paper's network with a small learning rate. Rounding like TF32's, 2⁻¹¹, moves such a curve by up to 0.2, and
    twice as much by up to 0.4, of losses from 220 to 450."""
    settings = fig1.Settings(iterations=4, batch_size=8, learning_rate=1e-5)
    exact, untrained = curve(settings, 0.01), curve(replace(settings, learning_rate=0.0), 0.01)
    torch.backends.cudnn.allow_tf32 = True
    found = curve(settings, 0.01)
    assert (untrained - exact)[1:].min() > 40, f"training changes the loss by {exact - untrained}"
    assert np.abs(found - exact).max() < 2, f"the curves differ by {found - exact}"


@pytest.mark.parametrize(("tf32", "loss_error", "gradient_error"), [(False, 1e-4, 2e-2), (True, 1e-2, 0.1)])
def test_the_first_loss_and_gradient_of_the_papers_network(
    tf32: bool, loss_error: float, gradient_error: float
) -> None:
    """Against forward mode in float64, on the same images and noise.

    Measured on a CPU with 32 images: rounding of 1e-7 gives 2e-6 and 4e-4, TF32's rounding 2e-3 and 1e-2.
    """
    settings = fig1.Settings(batch_size=32)
    trainer = fig1.make_trainer(3, 0.01, settings, seed=0, device=CUDA)
    exact = copy.deepcopy(trainer.network).double()
    draw = data.batch(noise_images(), seed=0, step=0, size=32)
    batch = Batch(torch.tensor(draw.pixels, device="cuda"))
    torch.backends.cudnn.allow_tf32 = tf32
    losses = trainer.step(batch, 0).values
    found = [parameter.grad for parameter in trainer.network.parameters()]

    noise = SampleNoise.at_step(0, 0, range(32), device=CUDA)
    x = batch.pixels.permute(0, 3, 1, 2).float() / 255
    x = x + 0.01 * noise.randn_like(x)
    s, along = forward_mode(exact, x.double(), noise.randn_like(x).double())
    expected = along + s.square().flatten(1).sum(1) / 2
    gradients = torch.autograd.grad(expected.mean(), list(exact.parameters()))
    assert rel(losses, expected) < loss_error, f"relative error of the losses: {rel(losses, expected)}"
    whole = torch.cat([each.flatten() for each in gradients]).norm()
    for (name, _), one, other in zip(exact.named_parameters(), found, gradients, strict=True):
        assert one is not None
        error = (one.double() - other).norm() / other.norm().clamp(min=1e-2 * whole)
        assert error < gradient_error, f"relative error of the gradient of {name}: {error}"


def test_recorded_updates_are_plain_updates() -> None:
    """Three updates on the same GPU, with kernels that give the same bits every time: the errors should be 0, and those
    allowed are what other rounding could do."""
    images, allowed = noise_images(), {"gradients": 0.02, "exp_avg": 0.02, "exp_avg_sq": 0.04, "change": 0.25}
    recorded, other = (fig1.make_trainer(3, 0.01, SLOW, seed=0, device=CUDA) for _ in range(2))
    assert isinstance(recorded, RecordedTrainer)
    plain = Trainer(other.network, other.loss, other.optimizer, learning_rates(SLOW.learning_rate), seed=0)
    start = flat(p.detach().clone() for p in plain.network.parameters())
    with chosen_kernels(CUDA, deterministic=True):
        for n in range(3):
            batch = Batch(torch.tensor(data.batch(images, seed=0, step=n, size=8).pixels, device="cuda"))
            losses = [trainer.step(batch, n).values for trainer in (recorded, plain)]
            assert rel(*losses) < 1e-4, f"relative error of the losses of update {n}: {rel(*losses)}"
            one, two = (vectors(trainer, start) for trainer in (recorded, plain))
            errors = {kind: rel(one[kind], two[kind]) for kind in allowed}
            assert all(errors[kind] < allowed[kind] for kind in allowed), f"relative errors after update {n}: {errors}"


def vectors(trainer: Trainer, start: Tensor) -> dict[str, Tensor]:
    """The gradients, Adam's moments and the change of the weights since the start, as a vector each."""
    parameters = list(trainer.network.parameters())
    moments = {kind: flat(trainer.optimizer.state[p][kind] for p in parameters) for kind in ("exp_avg", "exp_avg_sq")}
    gradients = flat(p.grad for p in parameters if p.grad is not None)
    return {"gradients": gradients, "change": flat(p.detach() for p in parameters) - start, **moments}


def flat(tensors: Iterable[Tensor]) -> Tensor:
    return torch.cat([tensor.flatten() for tensor in tensors])


def test_an_interrupted_training_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, kept, totals = curve(SMALL, 0.01), tmp_path / "kept.safetensors", list[int]()
    monkeypatch.setattr(fig1, "SECONDS", -1.0)

    def first_three(items: Iterable[Any], what: str, total: int) -> Iterator[Any]:
        totals.append(total)
        return islice(items, 3)

    for expected in (3, 6):
        made = fig1.train(noise_images(), 0.01, SMALL, device=CUDA, kept=kept, track=first_three).curve
        np.testing.assert_allclose(made, whole[:expected], rtol=1e-3, atol=5e-3)
    assert totals == [6, 3]
