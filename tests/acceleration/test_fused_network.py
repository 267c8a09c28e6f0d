"""The fused network against the plain one: on a CPU with plain PyTorch in its kernels' places, and once by Triton's
interpreter; on a GPU as it is. Run the latter with: pytest -m gpu tests/acceleration"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
import torch
from gpu import GPU, rel
from gpu import without_tf32 as without_tf32
from torch import Tensor
from torch.nn import functional as F

from acceleration import plain_kernels
from scorefield import acceleration
from scorefield.models.build import build_network
from scorefield.models.recipes import Recipe
from scorefield.networks import RefineNet

if sys.platform != "linux":  # there Triton comes with the dev extra, so that these tests are never skipped
    pytest.importorskip("triton")
if TYPE_CHECKING:
    from scorefield.acceleration.refinenet import FusedRefineNet

DEVICES = ["cpu", pytest.param("cuda", marks=GPU)]


@pytest.fixture(autouse=True)
def _plain_kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "device" in request.fixturenames and request.getfixturevalue("device") == "cpu":
        plain_kernels.use(monkeypatch)


def small_network(device: str, *, channels: int) -> RefineNet:
    """The paper's network with few filters."""
    network = build_network(Recipe(width=8 if device == "cpu" else 32), channels=channels).to(device)
    assert isinstance(network, RefineNet)
    return network


def fused(network: RefineNet, dtype: torch.dtype = torch.float16) -> FusedRefineNet:
    """Its fused form, which on a GPU must not be the plain network, as where the kernels are switched off."""
    from scorefield.acceleration.refinenet import FusedRefineNet

    if not network.sigmas.is_cuda:
        return FusedRefineNet(network, dtype=dtype)
    score = acceleration.fused(network, dtype=dtype)
    assert isinstance(score, FusedRefineNet)
    return score


def all_of(gradients: tuple[Tensor, ...]) -> Tensor:
    return torch.cat([gradient.flatten() for gradient in gradients])


@pytest.mark.parametrize(
    ("device", "size", "dtype", "error"),
    [
        ("cpu", (8, 10), torch.float32, 1e-4),  # as exact as the plain network
        ("cpu", (9, 7), torch.float32, 1e-4),
        ("cpu", (17, 15), torch.float16, 0.01),
        *(
            pytest.param("cuda", size, *precision, marks=GPU)
            for size in [(28, 28), (33, 47)]
            for precision in [(torch.bfloat16, 0.05), (torch.float16, 0.005)]
        ),
    ],
)
def test_the_fused_network_is_the_network(device: str, size: tuple[int, int], dtype: torch.dtype, error: float) -> None:
    """And its gradients are, however large or small: float16 alone would overflow at 65,504 and vanish below 1e-7."""
    network = small_network(device, channels=3)
    x = torch.rand(6, 3, *size, device=device, requires_grad=True)
    sigma = network.sigmas[[0, 2, 4, 6, 8, 9]]
    plain, found = network(x, sigma), fused(network, dtype)(x, sigma)
    assert rel(found, plain) < error
    for size_of_gradient in (1.0, 1e-7, 1e7):
        weight = size_of_gradient * torch.randn_like(plain)
        wanted = [x, *network.parameters()]
        true, mine = (torch.autograd.grad(y, wanted, weight, retain_graph=True) for y in (plain, found))
        assert rel(mine[0], true[0]) < 4 * error
        assert rel(all_of(mine[1:]), all_of(true[1:])) < 2 * error


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("longer", "least"), [(1, 65_504), (300, 4_200_000)])
def test_residual_paths_may_pass_float16s_largest_number(device: str, longer: float, least: float) -> None:
    """65,504 is passed after 20,000 steps on MNIST, 64 times that after 48,000 on CIFAR-10; and a score that is not
    finite does not look as if it were."""
    network = small_network(device, channels=1)
    weights, largest = dict(network.named_parameters()), list[float]()
    network.blocks[7].register_forward_hook(lambda module, given, made: largest.append(made.abs().max().item()))
    with torch.no_grad():
        weights["blocks.4.shortcut.weight"].mul_(longer)
        weights["blocks.6.shortcut.weight"].mul_(3e5)
    x, sigma = torch.rand(4, 1, 28, 28, device=device), network.sigmas[[0, 3, 6, 9]]
    scores = fused(network)(x, sigma), network(x, sigma)
    assert rel(*scores) < 0.005
    assert largest[0] > least
    weight = torch.randn_like(x)
    gradients = [torch.autograd.grad(score, list(weights.values()), weight) for score in scores]
    for part in ("", "blocks.4.", "blocks.5.", "blocks.6."):  # those of later ones are lost behind so long a path
        mine, true = (
            all_of(tuple(g for name, g in zip(weights, each, strict=True) if name.startswith(part)))
            for each in gradients
        )
        assert rel(mine, true) < (0.1 if part else 0.02)
    with torch.no_grad():
        weights["blocks.6.conv1.weight"][0, 0, 0, 0] = float("nan")
        assert fused(network)(x, sigma).isnan().all()


@pytest.mark.parametrize("device", DEVICES)
def test_the_first_convolution_is_float32_and_the_last_may_be_tf32(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TF32 has float16's precision, for which the noise of the last levels is too small beside 1."""
    plain, seen = F.conv2d, list[tuple[torch.dtype, bool]]()

    def noted(x: Tensor, *others: object) -> Tensor:
        seen.append((x.dtype, torch.backends.cudnn.allow_tf32))
        return plain(x, *others)  # type: ignore[call-overload]

    network = small_network(device, channels=1)
    monkeypatch.setattr(F, "conv2d", noted)
    with torch.no_grad():
        fused(network)(torch.rand(1, 1, 8, 8, device=device), network.sigmas[:1])
    assert seen[0] == (torch.float32, False)
    assert seen[-1] == (torch.float32, True)
    assert {dtype for dtype, _ in seen[1:-1]} == {torch.float16}


@pytest.mark.skipif(torch.cuda.is_available(), reason="kernels are not interpreted where there is a GPU")
@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
def test_the_fused_network_by_tritons_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """The smallest network and image, with the kernels themselves, except for pooling, which would take most time."""
    monkeypatch.setattr("scorefield.acceleration.refinenet.pool", plain_kernels.pool)
    network = RefineNet(channels=1, width=2, sigmas=[1.0, 0.1])
    x, sigma = torch.rand(1, 1, 3, 4), torch.tensor([0.1])
    with torch.no_grad():
        assert rel(fused(network)(x, sigma), network(x, sigma)) < 0.005
