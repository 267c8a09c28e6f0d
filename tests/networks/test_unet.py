"""The U-Net: its score against formulas worked out by hand, its magnitudes, labels, sizes, and what it can learn."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from scorefield.acceleration.threads import pytorch_threads
from scorefield.models.build import build_network, sized
from scorefield.models.recipes import RECIPES, Recipe
from scorefield.networks import UNet
from scorefield.networks.unet import Attention, Block, Conv, _attend, unit
from scorefield.noise import SampleNoise, log_normal_at
from scorefield.objectives import denoising, uncertain, unit_weight, weighted
from scorefield.training.bench import forward_flop
from scorefield.training.trainer import (
    Batch,
    Losses,
    Trainer,
    adam,
    learning_rates,
    new_average,
    power_function,
)


def small(**settings: Any) -> UNet:  # noqa: ANN401
    """A small network whose output depends on everything: gains start at 0."""
    torch.manual_seed(0)
    usual: dict[str, Any] = {"channels": 1, "width": 8, "stages": (1, 2), "blocks": (1, 1), "attention": (1,)}
    network = UNet(**usual | settings)
    for name, parameter in network.named_parameters():
        if name.endswith("gain") or name == "u":
            parameter.data.normal_()
    network.gain.data.fill_(1.0)
    return network.eval()


def test_stages_that_begin_wider() -> None:
    network = small(stages=(2, 3), blocks=(1, 2), attention=())
    assert network(torch.rand(1, 1, 4, 4), torch.tensor(0.3)).shape == (1, 1, 4, 4)


@pytest.mark.parametrize("shape", [(2, 1, 8, 8), (3, 1, 5, 6), (1, 1, 2, 9), (2, 1, 7, 7)])
def test_any_size(shape: tuple[int, ...]) -> None:
    """Images are padded on the right and below with their last column and row, and the output is cut off again."""
    network, x = small(stages=(1, 1, 2), blocks=(1, 1, 1), attention=(2,)), torch.rand(shape)
    s = network(x, torch.tensor(0.3))
    assert s.shape == shape
    assert s.isfinite().all()
    rows, columns = (torch.arange(n + -n % 4).clamp(max=n - 1) for n in shape[2:])
    padded = network(x[:, :, rows][..., columns], torch.tensor(0.3))
    torch.testing.assert_close(s, padded[..., : shape[2], : shape[3]], rtol=1e-4, atol=1e-4)


def test_the_score_before_training_is_that_of_a_gaussian() -> None:
    """F starts at 0: the score is that of N(½, σ_d² + σ²)."""
    network = UNet(channels=3, width=8, sigma_data=0.3).eval()
    x = torch.rand(2, 3, 8, 8)
    expected = (0.5 - x) / (0.3**2 + torch.tensor([0.1, 7.0])[:, None, None, None] ** 2)
    torch.testing.assert_close(network(x, torch.tensor([0.1, 7.0])), expected)


SIGMAS = (0.001, 0.01, 0.1, 1.0, 10.0, 50.0)


@pytest.mark.parametrize("sigma", SIGMAS)
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 3e-7), (torch.bfloat16, 5e-3), (torch.float16, 6e-4)])
def test_the_score_is_the_denoisers_and_nothing_cancels(
    sigma: float, dtype: torch.dtype, bound: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """s = (D − x)/σ², D = ½ + c_skip (x − ½) + c_out F(c_in (x − ½)), for a given F, against float64.

    Computed as it is written there, in float32, it loses two digits at σ = 0.001.
    """
    network, noise = UNet(channels=1, width=8).eval(), torch.Generator().manual_seed(0)
    z, f = (torch.randn(4, 1, 4, 4, generator=noise, dtype=torch.float64) for _ in range(2))
    x, seen = (0.5 + 0.25 * z + sigma * f).float(), list[Tensor]()

    def raw(scaled: Tensor, *others: object) -> Tensor:
        seen.append(scaled)
        return f.to(dtype)

    monkeypatch.setattr(network, "raw", raw)
    s = network(x, torch.tensor(sigma))

    def denoised(x: Tensor, f: Tensor) -> Tensor:
        level = torch.tensor(sigma, dtype=x.dtype)
        total = level**2 + 0.25**2
        return 0.5 + 0.25**2 / total * (x - 0.5) + level * 0.25 / total.sqrt() * f

    std = torch.tensor(sigma, dtype=torch.float32).double()
    exact = (denoised(x.double(), f) - x.double()) / std**2
    assert s.dtype == torch.float32
    assert ((s - exact).norm() / exact.norm()).item() < bound + 1e-6
    torch.testing.assert_close(seen[0].double(), (x.double() - 0.5) / (sigma**2 + 0.25**2) ** 0.5)
    if dtype is torch.float32 and sigma == 0.001:
        naive = (denoised(x, f.float()) - x) / sigma**2
        assert ((naive - exact).norm() / exact.norm()).item() > 50 * bound


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-5), (torch.bfloat16, 4e-2), (torch.float16, 5e-3)])
def test_the_whole_network_in_lower_precision(dtype: torch.dtype, bound: float) -> None:
    network, exact = small(sigma_range=(0.001, 50)), small(sigma_range=(0.001, 50)).double()
    x = torch.rand(4, 1, 8, 8)
    for sigma in SIGMAS:
        expected = exact(x.double(), torch.tensor(sigma, dtype=torch.float64))
        with torch.autocast("cpu", dtype=dtype, enabled=dtype is not torch.float32), torch.no_grad():
            s = network(x, torch.tensor(sigma))
        assert ((s - expected).norm() / expected.norm()).item() < bound, sigma


@pytest.mark.parametrize(("dtype", "bound"), [(torch.bfloat16, 1e-2), (torch.float16, 1e-3)])
def test_attention_in_16_bits_on_a_cpu(dtype: torch.dtype, bound: float) -> None:
    """Queries, keys and values of unit size, of 3 examples, 2 heads, 40 places and 64 channels, and their gradients."""
    given = [unit(torch.randn(3, 2, 40, 64), -1).to(dtype) for _ in range(3)]
    weight = torch.randn(3, 2, 40, 64)
    made = []
    for each in ([x.double() for x in given], given):
        q, k, v = (x.clone().requires_grad_() for x in each)
        y = _attend(q, k, v)
        (y * weight.to(y.dtype)).sum().backward()
        made.append([y, q.grad, k.grad, v.grad])
    for exact, rounded in zip(*made, strict=True):
        assert rounded.dtype == dtype
        assert ((rounded.double() - exact).norm() / exact.norm()).item() < bound


def reference(network: UNet, x: Tensor, sigma: Tensor, label: list[int]) -> Tensor:
    """The score by the formulas of Karras et al. (2022, 2024), layer by layer."""
    weights = {name: value.double() for name, value in network.state_dict().items()}

    def unit_rows(name: str) -> Tensor:
        w = weights[f"{name}.weight"]
        return w / w.flatten(1).norm(dim=1).reshape(-1, *[1] * (w.ndim - 1))

    def conv(name: str, x: Tensor) -> Tensor:
        return torch.nn.functional.conv2d(x, unit_rows(name), padding="same")

    def mp_silu(x: Tensor) -> Tensor:
        return x / (1 + (-x).exp()) / 0.596

    def mp_sum(a: Tensor, b: Tensor, t: float) -> Tensor:
        return ((1 - t) * a + t * b) / ((1 - t) ** 2 + t**2) ** 0.5

    def mp_cat(a: Tensor, b: Tensor) -> Tensor:
        n, m = a.shape[1], b.shape[1]
        return ((n + m) / 0.5) ** 0.5 * torch.cat([0.5 / n**0.5 * a, 0.5 / m**0.5 * b], 1)

    def attend(name: str, x: Tensor) -> Tensor:
        n, (height, width) = x.shape[1], x.shape[2:]
        qkv, outs = conv(f"{name}.qkv", x).flatten(2).chunk(3, 1), []
        for first in range(0, n, 64):
            q, k, v = (each[:, first : first + 64] for each in qkv)
            q, k, v = (each / each.square().mean(1, keepdim=True).sqrt() for each in (q, k, v))
            pairs = torch.einsum("bdi,bdj->bij", q, k) / q.shape[1] ** 0.5
            outs.append(torch.einsum("bij,bdj->bdi", pairs.exp() / pairs.exp().sum(2, keepdim=True), v))
        return mp_sum(x, conv(f"{name}.out", torch.cat(outs, 1).unflatten(2, (height, width))), 0.3)

    def block(name: str, x: Tensor, skip: Tensor | None) -> Tensor:
        narrow = f"{name}.shortcut.weight" in weights
        if skip is None:
            x = conv(f"{name}.shortcut", x) if narrow else x
            x = x / x.square().mean(1, keepdim=True).sqrt()
        else:
            x = mp_cat(x, skip)
        scale = 1 + weights[f"{name}.gain"] * e @ unit_rows(f"{name}.scale").T
        y = conv(f"{name}.conv2", mp_silu(scale[..., None, None] * conv(f"{name}.conv1", mp_silu(x))))
        x = mp_sum(x if skip is None else conv(f"{name}.shortcut", x), y, 0.3)
        return attend(f"{name}.attention", x) if f"{name}.attention.qkv.weight" in weights else x

    def fourier(name: str) -> Tensor:
        angle = sigma.log()[:, None] / 4 * weights[f"{name}.frequency"] + weights[f"{name}.phase"]
        return 2**0.5 * (2 * torch.pi * angle).cos()

    one_hot = torch.eye(network.labels + 1, dtype=torch.float64)[label] * (network.labels + 1) ** 0.5
    e = mp_silu(mp_sum(fourier("fourier") @ unit_rows("embed").T, one_hot @ unit_rows("classes").T, 0.5))
    std, x = sigma[:, None, None, None], x - 0.5
    skip, out = (0.25**2 / (std**2 + 0.25**2), std * 0.25 / (std**2 + 0.25**2) ** 0.5)
    h, kept, number = x / (std**2 + 0.25**2) ** 0.5, list[Tensor](), 0
    h = conv("begin", torch.cat([h, torch.ones_like(h[:, :1])], 1))
    for stage, blocks in enumerate(network.blocks):
        if stage:
            h = (h[..., ::2, ::2] + h[..., 1::2, ::2] + h[..., ::2, 1::2] + h[..., 1::2, 1::2]) / 4
        for _ in range(blocks):
            h, number = block(f"down.{number}", h, None), number + 1
            kept.append(h)
    h, number = block("middle", h, None), 0
    for stage, blocks in reversed(list(enumerate(network.blocks))):
        for _ in range(blocks):
            h, number = block(f"up.{number}", h, kept.pop()), number + 1
        h = h.repeat_interleave(2, 2).repeat_interleave(2, 3) if stage else h
    return (skip * x + out * weights["gain"] * conv("end", h) - x) / std**2


def test_against_an_independent_program() -> None:
    """With two attention heads, labels and none, several blocks, and weights that are not of unit size."""
    network = small(width=32, stages=(1, 4), blocks=(1, 2), attention=(1,), labels=3).double()
    x, sigma = torch.rand(3, 1, 4, 6, dtype=torch.float64), torch.tensor([0.01, 0.4, 20.0], dtype=torch.float64)
    assert [block.attention is not None for block in (*network.down, network.middle, *network.up)] == [
        False,
        *[True] * 5,
        False,
    ]
    expected = reference(network, x, sigma, [2, 0, 3])
    torch.testing.assert_close(network(x, sigma, label=torch.tensor([2, 0, -1])), expected, rtol=1e-5, atol=1e-6)


def size(x: Tensor) -> float:
    return x.square().mean().sqrt().item()


def test_layers_preserve_magnitudes() -> None:
    """On independent inputs of mean square 1 each layer's output has mean square 1 in the mean over random weights."""
    torch.manual_seed(0)
    x, e = torch.randn(16, 64, 8, 8), torch.randn(16, 32)
    assert size(Conv(64, 256, 3)(x)[..., 1:-1, 1:-1]) == pytest.approx(1, abs=0.03)
    assert size(Conv(32, 256, 0)(e)) == pytest.approx(1, abs=0.05)
    for layer in (Conv(7, 5, 3, gain=2.0), Conv(6, 4, 0, gain=2.0)):  # the length of the weights of each output
        torch.testing.assert_close(layer.effective().flatten(1).norm(dim=1), torch.full((len(layer.weight),), 2.0))
    down = Block(64, 64, 32, attention=False, dropout=0.0)
    up = Block(64, 64, 32, skip=32, attention=False, dropout=0.0)
    # the convolutions see zeros beyond the border: a little less than 1
    assert size(down(3 * x, e, None, None)) == pytest.approx(1, abs=0.05)
    assert size(up(x, e, torch.randn(16, 32, 8, 8), None)) == pytest.approx(1, abs=0.05)
    same = x[..., :1, :1].expand(-1, -1, 8, 8)  # equal values everywhere: attention averages nothing away
    assert size(Attention(64)(same)) == pytest.approx(1, abs=0.05)


def test_unit_size() -> None:
    x = torch.tensor([[3.0, 4.0], [0.3, 0.4]])
    torch.testing.assert_close(unit(x, 1), torch.tensor([[0.6, 0.8]]).expand(2, 2) * 2**0.5, rtol=1e-5, atol=1e-5)
    assert torch.equal(unit(torch.zeros(2, 2), 1), torch.zeros(2, 2))


def test_only_the_direction_of_weights_matters() -> None:
    network = small()
    x, sigma = torch.rand(2, 1, 8, 8), torch.tensor(0.2)
    before = network(x, sigma)
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, Conv):
                module.weight.mul_(torch.rand(len(module.weight), *[1] * (module.weight.ndim - 1)) + 0.5)
    torch.testing.assert_close(network(x, sigma), before, rtol=1e-4, atol=1e-4)
    network.normalise_()
    torch.testing.assert_close(network(x, sigma), before, rtol=1e-4, atol=1e-4)
    for module in network.modules():
        if isinstance(module, Conv):
            squares = module.weight.flatten(1).square().mean(1)
            torch.testing.assert_close(squares, torch.ones_like(squares), rtol=1e-4, atol=1e-4)


def test_weights_that_are_kept_follow_the_learned_ones() -> None:
    network = small().requires_grad_(False)
    x, sigma = torch.rand(2, 1, 8, 8), torch.tensor(0.2)
    before, other = network(x, sigma), copy.deepcopy(network)
    torch.manual_seed(1)
    other.begin.weight.normal_()
    assert not torch.equal(other(x, sigma), before)
    assert torch.equal(network(x, sigma), before)
    network.load_state_dict(other.state_dict())
    torch.testing.assert_close(network(x, sigma), other(x, sigma))
    assert not any("kept" in name for name in network.state_dict())
    assert network.double()(x.double(), sigma.double()).dtype == torch.float64


def test_making_the_kept_weights_is_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """If it were, two threads could wait for each other for ever: one would hold Python's lock while it looks at the
    weights, the other the weights' lock."""
    made, recorded = Conv._effective, list[bool]()

    def watched(self: Conv) -> Tensor:
        recorded.append(torch.is_grad_enabled())
        return made(self)

    monkeypatch.setattr(Conv, "_effective", watched)
    for context in (torch.no_grad(), torch.inference_mode()):
        conv = Conv(2, 3, 3)
        with context:
            weight = conv.effective()
            assert conv.effective() is weight
        assert not weight.is_inference()
    assert recorded == [False, False]


def test_weights_that_are_kept_serve_gradients_too() -> None:
    """Those of a call in inference mode, and those of a network that was made there."""
    network, x, sigma = small().requires_grad_(False), torch.rand(2, 1, 8, 8), torch.tensor(0.2)
    expected = small()(x, sigma)
    with torch.inference_mode():
        torch.testing.assert_close(network(x, sigma), expected)
        torch.testing.assert_close(small()(x, sigma), expected)
    x.requires_grad_()
    (gradient,) = torch.autograd.grad(network(x, sigma).sum(), x)
    torch.testing.assert_close(gradient, torch.autograd.grad(small()(x, sigma).sum(), x)[0])


def test_labels() -> None:
    """Each label has a score of its own, which does not depend on those of the others in the batch; −1 is none."""
    network, sigma = small(labels=3), torch.tensor(0.2)
    x = torch.rand(1, 1, 8, 8).expand(4, -1, -1, -1)
    label = torch.tensor([0, 1, 2, -1])
    s = network(x, sigma, label=label)
    for k in range(4):
        alone = network(x[:1], sigma, label=label[k : k + 1])
        torch.testing.assert_close(s[k : k + 1], alone, rtol=1e-4, atol=1e-4)
        assert all(not torch.allclose(s[k], s[j], rtol=1e-2) for j in range(k))
    torch.testing.assert_close(network(x[:2], sigma), s[3:].expand(2, -1, -1, -1), rtol=1e-4, atol=1e-4)
    own = network(x, torch.tensor([0.1, 0.2, 0.3, 0.4]), label=label)  # with a noise level of its own for each
    torch.testing.assert_close(own[1], s[1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda net, x: net(x, torch.tensor(0.0005)), r"from 0.001 to 50; got sigma 0.0005 \(sigma.clamp\(0.001, 50\)"),
        (lambda net, x: net(x, torch.tensor([1.0, 51.0])), "got sigma 51"),
        (lambda net, x: net(x, torch.tensor(float("nan"))), "got sigma nan"),
        (lambda net, x: net(x, torch.tensor(1)), "standard deviation"),
        (lambda net, x: net(x[:, 0], torch.tensor(1.0)), r"shape \(B, 1, H, W\)"),
        (lambda net, x: net(x.expand(-1, 3, -1, -1), torch.tensor(1.0)), r"shape \(B, 1, H, W\).*got \(2, 3, 8, 8\)"),
        (lambda net, x: net(x[..., :1, :1], torch.tensor(1.0)), "at least 2 × 2"),
        (lambda net, x: net(x, torch.tensor(1.0), label=torch.tensor([0, 3])), r"from 0 to 2, or −1.*got \[0, 3\]"),
        (lambda net, x: net(x, torch.tensor(1.0), label=torch.tensor([0, -2])), r"got \[-2, 0\]"),
        (lambda net, x: net(x, torch.tensor(1.0), label=torch.tensor([0, 1, 2])), r"shape \(2,\); got"),
        (lambda net, x: net(x, torch.tensor(1.0), label=torch.tensor([0.0, 1.0])), "whole number for each image"),
        (lambda net, x: small()(x, torch.tensor(1.0), label=torch.tensor([0, 1])), "no classes"),
    ],
)
def test_wrong_calls(call: Any, words: str) -> None:  # noqa: ANN401
    with pytest.raises(ValueError, match=words):
        call(small(labels=3), torch.rand(2, 1, 8, 8))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"channels": 0}, "at least 1"),
        ({"labels": -1}, "labels at least 0"),
        ({"blocks": (1,)}, "for each of the 2 stages"),
        ({"blocks": (1, 0)}, "at least 1"),
        ({"attention": (2,)}, "from 0 to 1"),
        ({"width": 72, "stages": (1, 1)}, "multiple of 64"),
        ({"dropout": 1.0}, "dropout must be"),
        ({"sigma_range": (1.0, 0.1)}, "the smaller first"),
        ({"sigma_data": 0.0}, "positive"),
    ],
)
def test_wrong_sizes(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        small(**settings)


def test_dropout() -> None:
    """Entries are left out in training where the random numbers are below the rate; the others make up for them."""
    block = Block(4, 4, 8, attention=False, dropout=0.25)
    x, e, numbers = torch.randn(2, 4, 6, 6), torch.randn(2, 8), torch.rand(2, 4, 6, 6)
    seen = list[Tensor]()
    block.conv2.register_forward_pre_hook(lambda module, given: seen.append(given[0]))
    block(x, e, None, None)
    block(x, e, None, lambda h: numbers)
    whole, part = seen
    torch.testing.assert_close(part, torch.where(numbers < 0.25, 0, whole / 0.75))
    network = small(dropout=0.5)
    first, second = (network(torch.rand(2, 1, 8, 8).fill_(0.3), torch.tensor(0.2)) for _ in range(2))
    assert torch.equal(first, second)
    network.train()
    noises = (SampleNoise([1, 2]) for _ in range(2))
    first, second = (network(torch.full((2, 1, 8, 8), 0.3), torch.tensor(0.2), rand_like=n.rand_like) for n in noises)
    assert torch.equal(first, second)
    assert not torch.equal(first[0], first[1])


def cost(name: str, shape: tuple[int, int, int]) -> tuple[float, float]:
    """GFLOP for one image, and megabytes of weights in 16 bit."""
    network = build_network(RECIPES[name], channels=shape[0], labels=10).eval()
    return forward_flop(network, shape, 0.5) / 1e9, sum(p.numel() for p in network.parameters()) * 2 / 1e6


def test_sizes() -> None:
    """At most 20 GFLOP and 64 MB, and 0.35 GFLOP and 2 MB: the numbers of docs/unet.md."""
    assert cost("unet-cifar10", (3, 32, 32)) == pytest.approx((15.97, 59.33), rel=1e-3)
    assert cost("unet-mnist", (1, 28, 28)) == pytest.approx((0.3425, 1.726), rel=1e-3)


@pytest.mark.parametrize(
    ("height", "width", "expected"),
    [
        (28, 28, (128, (1, 2, 2), (1,))),
        (32, 48, (128, (1, 2, 2), (1,))),
        (64, 64, (96, (1, 2, 2, 2), (2,))),
        (128, 130, (64, (1, 2, 2, 2, 2), (3,))),
        (9, 9, (128, (1, 2), (0,))),
        (2, 3, (128, (1, 2), (0,))),
        (40, 40, (128, (1, 2, 2), (1,))),
        (16, 1000, (64, (1, 2), ())),  # attention among 16,000 pixels would be slow
        (512, 512, (64, (1, 2, 2, 2, 2, 2), ())),
    ],
)
def test_the_size_follows_from_the_images(
    height: int, width: int, expected: tuple[int, tuple[int, ...], tuple[int, ...]]
) -> None:
    """About 8 pixels at the last stage, attention at the one before if it is not too large."""
    recipe = sized(RECIPES["unet"], height, width)
    assert (recipe.width, recipe.stages, recipe.attention) == expected
    assert recipe.blocks == (3,) * len(recipe.stages)
    assert sized(recipe, 500, 500) == recipe
    assert sized(replace(RECIPES["unet"], attention=(1,)), height, width).attention == (1,)
    assert sized(RECIPES["mnist"], 500, 500) == RECIPES["mnist"]
    build_network(sized(Recipe(network="unet", width=8), height, width), channels=1)


MEANS = torch.rand(2, 1, 4, 4, generator=torch.Generator().manual_seed(0))
PRIOR, STD, LEVELS = torch.tensor([0.3, 0.7]), 0.3, torch.logspace(-1.2, 0.9, 9)


def exact_score(x: Tensor, sigma: Tensor, classes: list[int]) -> Tensor:
    """The score of Gaussians around these means at noise level σ."""
    variance, apart = STD**2 + sigma**2, MEANS[classes] - x[:, None]
    weights = torch.softmax(PRIOR[classes].log() - apart.square().sum((2, 3, 4)) / (2 * variance), 1)
    return (weights[..., None, None, None] * apart / variance).sum(1)


def test_it_learns_the_score_of_a_mixture_with_and_without_labels() -> None:
    """Two Gaussians in 16 dimensions, one for each class; half of the labels are left out in training.

    The score is then within 3 % of the exact one, in the median over σ: of each class, and of both without a label.
    That tests the preconditioning, the learned weights, the labels, the normalised updates and the average together.
    """
    torch.manual_seed(0)
    ends, steps, n = (0.05, 10.0), 700, 128
    network = UNet(channels=1, width=16, stages=(1,), blocks=(1,), attention=(), labels=2, sigma_range=ends)
    generator = torch.Generator().manual_seed(1)

    def randn_like(x: Tensor) -> Tensor:
        return torch.randn(x.shape, generator=generator)

    def loss(batch: Batch, noise: SampleNoise) -> tuple[Tensor, Losses]:
        label = torch.multinomial(PRIOR, n, replacement=True, generator=generator)
        x = MEANS[label] + STD * randn_like(MEANS[label])
        sigma = log_normal_at(torch.randn(n, generator=generator), -0.7, 1.5, ends)
        known = torch.where(torch.rand(n, generator=generator) < 0.5, -1, label)
        objective = partial(denoising, randn_like=randn_like)
        each = weighted(partial(network, label=known), x, sigma, objective=objective, weight=unit_weight(0.25))
        return uncertain(each, network.log_variance(sigma), 16), Losses(each.detach(), sigma)

    rate = learning_rates(0.03, warmup=50, cooldown=0.5, steps=steps)
    averages = {"ema": new_average(network, power_function(0.1))}
    trainer = Trainer(network, loss, adam(network, 0.03, beta2=0.99), rate, averages, normalise=network.normalise_)
    with pytorch_threads(1):
        for step in range(steps):
            trainer.step(Batch(torch.zeros(n, 4, 4, 1, dtype=torch.uint8)), step)
    network.load_state_dict(averages["ema"][0])
    network.eval().requires_grad_(False)
    for label, classes in {-1: [0, 1], 0: [0], 1: [1]}.items():
        errors = []
        for sigma in LEVELS:
            chosen = torch.tensor(classes)[
                torch.multinomial(PRIOR[classes], 1000, replacement=True, generator=generator)
            ]
            x = MEANS[chosen] + (STD**2 + sigma**2).sqrt() * randn_like(MEANS[chosen])
            exact = exact_score(x, sigma, classes)
            found = network(x, sigma, label=torch.full((1000,), label))
            errors.append(((found - exact).norm() / exact.norm()).item())
        assert torch.tensor(errors).median() < 0.03, (label, errors)
