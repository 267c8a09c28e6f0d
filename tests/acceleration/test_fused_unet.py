"""The fused U-Net against the plain one: on a CPU with plain PyTorch in its kernels' places, and once by Triton's
interpreter; on a GPU as it is, and recorded. Run the latter with: pytest -m gpu tests/acceleration"""

from __future__ import annotations

import copy
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch
from gpu import GPU, rel
from gpu import without_tf32 as without_tf32
from torch import Tensor
from torch.nn import functional as F

from acceleration import plain_kernels
from scorefield import acceleration
from scorefield.acceleration.graphs import Recorded, recorded, warm_up
from scorefield.networks import UNet
from scorefield.noise import SampleNoise

if sys.platform != "linux":  # there Triton comes with the dev extra, so that these tests are never skipped
    pytest.importorskip("triton")
if TYPE_CHECKING:
    from scorefield.acceleration.unet import FusedUNet

DEVICES = ["cpu", pytest.param("cuda", marks=GPU)]


@pytest.fixture(autouse=True)
def _plain_kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "device" in request.fixturenames and request.getfixturevalue("device") == "cpu":
        plain_kernels.use(monkeypatch)


def small_network(device: str = "cpu", **options: Any) -> UNet:  # noqa: ANN401
    """A trained network's stand-in: its gains are not 0, and its weights not of unit size."""
    sizes: dict[str, Any] = {"channels": 3, "width": 4 if device == "cpu" else 32, "stages": (1, 2), "blocks": (2, 1)}
    network = UNet(**(sizes | {"attention": (1,), "labels": 3, "dropout": 0.3} | options)).to(device)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(0.5 + 0.3 * torch.rand(())) if parameter.ndim == 0 else parameter.mul_(1.3)
    return network


def fused(network: UNet, dtype: torch.dtype = torch.float16) -> FusedUNet:
    """Its fused form, which on a GPU must not be the plain network, as where the kernels are switched off."""
    from scorefield.acceleration.unet import FusedUNet

    if not network.end.weight.is_cuda:
        return FusedUNet(network, dtype=dtype)
    score = acceleration.fused(network, dtype=dtype)
    assert isinstance(score, FusedUNet)
    return score


def all_of(gradients: tuple[Tensor, ...]) -> Tensor:
    return torch.cat([gradient.flatten() for gradient in gradients])


def assert_same_score(
    network: UNet, score: FusedUNet, size: tuple[int, int], error: float, gradients: tuple[float, ...]
) -> None:
    """The score, and its gradients by x and all weights; of the plain network in float64, and in training with the same
    entries left out. `gradients`: the sizes of those at the output."""
    device = network.end.weight.device
    x = torch.rand(3, 3, *size, device=device, requires_grad=True)
    sigma, label = torch.tensor([0.002, 0.3, 20.0], device=device), torch.tensor([2, -1, 0], device=device)
    exact, given = copy.deepcopy(network).double(), x.detach().double().requires_grad_()
    found = score(x, sigma, label, rand_like=SampleNoise(range(7, 10)).rand_like)
    plain = exact(given, sigma.double(), label, rand_like=SampleNoise(range(7, 10)).rand_like)
    assert rel(found, plain) < error
    names = [name for name, _ in network.named_parameters() if name != "u"]
    for size_of_gradient in gradients:
        weight = size_of_gradient * torch.randn_like(plain) * sigma[:, None, None, None]  # as a loss of F has it
        true = torch.autograd.grad(plain, [given, *map(exact.get_parameter, names)], weight, retain_graph=True)
        mine = torch.autograd.grad(found, [x, *map(network.get_parameter, names)], weight.float(), retain_graph=True)
        assert rel(mine[0], true[0]) < 2 * error
        assert rel(all_of(mine[1:]), all_of(true[1:])) < 2 * error
        for name, one, other in zip(names, mine[1:], true[1:], strict=True):
            assert (one.double() - other).norm() < 10 * error * (other.norm() + all_of(true[1:]).norm() / 100), name
    assert score.bad == 0


@pytest.mark.parametrize(
    ("device", "size", "dtype", "error"),
    [
        ("cpu", (5, 7), torch.float32, 1e-5),
        ("cpu", (8, 6), torch.float16, 0.005),
        *(
            pytest.param("cuda", size, *precision, marks=GPU)
            for size in [(32, 32), (33, 47)]
            for precision in [(torch.bfloat16, 0.03), (torch.float16, 0.004)]
        ),
    ],
)
@pytest.mark.parametrize("training", [False, True])
def test_the_fused_network_is_the_network(
    device: str, size: tuple[int, int], dtype: torch.dtype, error: float, training: bool
) -> None:
    """And its gradients are, however large or small: float16 alone would overflow at 65,504 and vanish below 1e-7."""
    network = small_network(device, stages=(1, 2, 2), blocks=(2, 2, 1)).train(training)
    assert_same_score(network, fused(network, dtype), size, error, (1.0, 1e-7, 1e7))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "options",
    [
        {"stages": (1, 2, 1), "blocks": (1, 1, 1)},
        {"attention": ()},
        {"blocks": (1, 2), "attention": (0,)},
    ],
)
def test_other_sizes(device: str, options: dict[str, Any]) -> None:
    """A narrower stage below; no attention, or attention above."""
    network = small_network(device, **options).eval()
    score = fused(network, torch.float32 if device == "cpu" else torch.float16)
    assert_same_score(network, score, (6, 4), 1e-5 if device == "cpu" else 0.004, (1.0,))


@pytest.mark.skipif(torch.cuda.is_available(), reason="kernels are not interpreted where there is a GPU")
@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
def test_the_fused_network_by_tritons_interpreter() -> None:
    """The kernels themselves, in a small network that has all of them; dropout with 6 pixels in the second stage."""
    network = small_network(width=2).train()
    assert_same_score(network, fused(network, torch.float32), (3, 5), 1e-5, (1.0,))


@pytest.mark.parametrize("device", DEVICES)
def test_dropout_without_a_seed(device: str) -> None:
    """It leaves out other entries at each call; random numbers of other kinds are refused."""
    network = small_network(device, dropout=0.5).train()
    score, x, sigma = fused(network), torch.rand(2, 3, 4, 4, device=device), torch.tensor([0.1, 1.0], device=device)
    assert not torch.equal(score(x, sigma), score(x, sigma))
    with pytest.raises(ValueError, match=r"torch\.rand_like or the method of a SampleNoise"):
        score(x, sigma, rand_like=lambda h: torch.rand_like(h))
    network.eval()
    assert torch.equal(score(x, sigma), score(x, sigma))


@pytest.mark.parametrize("device", DEVICES)
def test_what_the_network_refuses(device: str) -> None:
    network = small_network(device, labels=0).eval()
    score, x = fused(network), torch.rand(2, 3, 4, 4, device=device)
    with pytest.raises(ValueError, match="accepts noise levels"):
        score(x, torch.tensor(1000.0))
    with pytest.raises(ValueError, match="x must have shape"):
        score(x[:, :2], torch.tensor(1.0))
    with pytest.raises(ValueError, match="has no classes"):
        score(x, torch.tensor(1.0), torch.tensor([0, 0]))


@pytest.mark.parametrize("device", DEVICES)
def test_the_first_convolution_is_float32_and_the_others_are_16_bit(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, seen = F.conv2d, list[tuple[torch.dtype, bool]]()

    def noted(x: Tensor, *others: Any, **more: Any) -> Tensor:  # noqa: ANN401
        seen.append((x.dtype, torch.backends.cudnn.allow_tf32))
        return plain(x, *others, **more)

    network = small_network(device).eval()
    monkeypatch.setattr(F, "conv2d", noted)
    with torch.no_grad():
        fused(network)(torch.rand(1, 3, 4, 4, device=device), torch.tensor(0.5, device=device))
    assert seen[0] == (torch.float32, False)
    assert {dtype for dtype, _ in seen[1:]} == {torch.float16}


def test_all_weights_are_normalised() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    network = small_network(device)
    plain, score = copy.deepcopy(network), fused(network)
    score.normalise_()
    plain.normalise_()
    for found, expected in zip(network.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


class TestOnAGpu:
    pytestmark = GPU

    def test_a_recorded_score_serves_any_number_of_images(self) -> None:
        network = small_network("cuda").eval().requires_grad_(False)
        score, recorded = fused(network), acceleration.for_sampling(network, (3, 28, 28), size=8)
        assert isinstance(recorded, Recorded)
        x, label = torch.rand(21, 3, 28, 28, device="cuda"), torch.arange(21, device="cuda") % 4 - 1
        for n, sigma in ((8, torch.tensor(0.01)), (3, torch.tensor(40.0)), (21, torch.logspace(-2, 1, 21))):
            with torch.no_grad():
                one = recorded(x[:n], sigma.cuda(), label=label[:n])
                assert rel(one, score(x[:n], sigma.cuda(), label[:n])) < 5e-3
        with pytest.raises(ValueError, match="accepts noise levels"):
            recorded(x, torch.tensor(1000.0, device="cuda"), label=label)

    def test_a_recorded_update_is_the_update(self) -> None:
        """Three updates with dropout and normalised weights, recorded; and by the plain network in float32."""
        from scorefield.training.trainer import adam

        network = small_network("cuda").train()
        plain = copy.deepcopy(network)
        start = all_of(tuple(p.detach() for p in plain.parameters()))
        score, x = fused(network), torch.rand(8, 3, 28, 28, device="cuda")
        sigma, label = torch.logspace(-2, 1, 8, device="cuda"), torch.arange(8, device="cuda") % 3
        noises = [SampleNoise.at_step(1, n, range(8), device="cuda") for n in range(3)]
        now, optimizers = noises[0].copy(), [adam(each, 1e-2) for each in (network, plain)]

        def update(of: Any, optimizer: torch.optim.Optimizer, noise: SampleNoise) -> None:  # noqa: ANN401
            optimizer.zero_grad(set_to_none=True)
            z = noise.randn_like(x)
            s = of(x + sigma[:, None, None, None] * z, sigma, label, rand_like=noise.rand_like)
            (sigma[:, None, None, None] * s + z).square().mean().backward()

        def applied(of: Any, optimizer: torch.optim.Optimizer) -> None:  # noqa: ANN401
            optimizer.step()
            of.normalise_()

        for noise in noises:
            update(plain, optimizers[1], noise.copy())
            applied(plain, optimizers[1])
        before = {name: value.clone() for name, value in network.state_dict().items()}
        warm_up(lambda: update(score, optimizers[0], now.copy()))
        applied(score, optimizers[0])
        network.load_state_dict(before)
        for state in optimizers[0].state.values():
            for value in state.values():
                value.zero_()

        def both() -> None:
            update(score, optimizers[0], now.copy())
            applied(score, optimizers[0])

        replay = recorded(both)
        for noise in noises:
            now.renew(noise)
            replay()
        found, expected = (all_of(tuple(p.detach() for p in each.parameters())) for each in (network, plain))
        assert rel(found - start, expected - start) < 0.1  # of the way gone, some of it along gradients near 0
        assert score.bad == 0
