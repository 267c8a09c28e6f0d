"""Figure 1: its network, its training and its numbers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from scorefield import data
from scorefield.derivatives import forward_mode
from scorefield.networks import ResNet
from scorefield.networks.resnet import Block, Norm, Resize, double, half
from scorefield.noise import SampleNoise
from scorefield.objectives import sliced
from scorefield.paper import FIGURES, fig1

SMALL = fig1.Settings(iterations=4, batch_size=3, filters=(2, 4, 4, 4, 4), last=2)


def noise_images(n: int = 9) -> data.Images:
    pixels = np.random.default_rng(0).integers(0, 256, (n, 8, 8, 3), dtype=np.uint8)
    return data.Images(pixels, "noise", "0" * 64)


def test_the_settings_are_the_papers() -> None:
    """Appendix B.1, and Figure 1's N(0, 0.0001)."""
    assert asdict(fig1.Settings()) == {
        "iterations": 50_000,
        "batch_size": 128,
        "learning_rate": 1e-3,
        "filters": (32, 64, 64, 128, 128),
        "sigmas": (0.0, 0.01),
        "last": 10_000,
    }


def test_the_network_is_an_encoder_and_its_mirror_image() -> None:
    network = ResNet()
    x, sizes = network.begin(torch.rand(1, 3, 32, 32)), []
    for block in network.blocks:
        x = block(x)
        sizes.append(tuple(x.shape[1:]))
    encoder = [(32, 32, 32), (64, 16, 16), (64, 16, 16), (128, 8, 8), (128, 8, 8)]
    assert sizes[:5] == encoder
    assert sizes[5:] == [(128, 8, 8), (64, 16, 16), (64, 16, 16), (32, 32, 32), (32, 32, 32)]

    def count(n: int, m: int) -> int:
        """Two norms, two convolutions and the shortcut's."""
        shortcut = 0 if n == m else n * m + m
        return 2 * n + 2 * m + 9 * n * m + m + 9 * m * m + m + shortcut

    widths = [32, 32, 64, 64, 128, 128, 128, 64, 64, 32, 32]
    begin, end = 9 * 3 * 32 + 32, 2 * 32 + 9 * 32 * 3 + 3
    expected = begin + sum(count(n, m) for n, m in pairwise(widths)) + end
    assert sum(p.numel() for p in network.parameters()) == expected


@pytest.mark.parametrize("resize", [half, double])
def test_a_block_normalises_and_activates_before_it_convolves(resize: Resize) -> None:
    """With 3 × 3 kernels that copy the middle pixel, the block is resize(x) + ELU(n(resize(ELU(n(x))))), where n makes
    mean 0 and variance 1 of each of 8 groups of channels."""
    block = Block(16, 16, resize)
    for convolution in (block.first, block.second):
        torch.nn.init.dirac_(convolution.weight)
        torch.nn.init.zeros_(cast(Tensor, convolution.bias))

    def n(x: Tensor) -> Tensor:
        pairs = x.unflatten(1, (8, 2))
        apart = pairs - pairs.mean((2, 3, 4), keepdim=True)
        return (apart / apart.square().mean((2, 3, 4), keepdim=True).sqrt()).flatten(1, 2)

    x = 3 * torch.randn(3, 16, 4, 8, generator=torch.Generator().manual_seed(0)) + 1
    torch.testing.assert_close(block(x), resize(x) + F.elu(n(resize(F.elu(n(x))))), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("channels", "groups"), [(128, 8), (8, 8), (12, 4), (6, 2), (7, 1)])
def test_a_norm_is_a_group_norm_with_up_to_eight_groups(channels: int, groups: int) -> None:
    """Its derivative by forward mode as well, which PyTorch's own norm lacks for channels-last images."""
    norm, generator = Norm(channels).double(), torch.Generator().manual_seed(0)
    assert norm.num_groups == groups
    for parameter in norm.parameters():
        parameter.data.copy_(torch.randn(channels, generator=generator))
    x, v = torch.randn(2, 3, channels, 4, 6, generator=generator, dtype=torch.float64)
    plain = F.group_norm(x, groups, norm.weight, norm.bias)
    layout = torch.channels_last
    found, along = forward_mode(norm, x.contiguous(memory_format=layout), v.contiguous(memory_format=layout))
    torch.testing.assert_close(found, plain, check_stride=False)
    step = 1e-6
    two = [F.group_norm(x + side * step * v, groups, norm.weight, norm.bias) for side in (1, -1)]
    slope = (v * (two[0] - two[1])).flatten(1).sum(1) / (2 * step)
    torch.testing.assert_close(along, slope, rtol=1e-6, atol=1e-6)


def test_resizing_by_hand() -> None:
    x = torch.tensor([[[[1.0, 2.0], [3.0, 6.0]]]])
    assert half(x).tolist() == [[[[3.0]]]]
    assert double(x).tolist() == [[[[1, 1, 2, 2], [1, 1, 2, 2], [3, 3, 6, 6], [3, 3, 6, 6]]]]


@pytest.mark.parametrize("shape", [(3, 32, 32), (2, 1, 32, 32), (2, 3, 30, 32), (2, 3, 32, 31)])
def test_images_of_a_wrong_shape_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"x must have shape \(B, 3, H, W\), H and W multiples of 4"):
        ResNet()(torch.rand(shape))


def test_the_network_needs_five_numbers_of_filters() -> None:
    with pytest.raises(ValueError, match="five numbers"):
        ResNet(filters=(8, 8))


@pytest.mark.parametrize("sigma", [0.0, 0.01])
def test_the_first_loss_is_equation_3_on_the_first_batch(sigma: float) -> None:
    """The images are not dequantised: with σ = 0 nothing is added to them."""
    images = noise_images()
    curve = fig1.train(images, sigma, SMALL, seed=5).curve
    torch.manual_seed(5)
    network = ResNet(filters=SMALL.filters)
    noise = SampleNoise.at_step(5, 0, range(3))
    x = torch.tensor(data.batch(images, seed=5, step=0, size=3).pixels).permute(0, 3, 1, 2) / 255
    x = x + sigma * noise.randn_like(x)
    v = noise.randn_like(x)
    s, along = forward_mode(network, x, v)
    expected = (along + s.square().flatten(1).sum(1) / 2).mean()
    assert curve[0] == pytest.approx(expected.item(), rel=1e-4, abs=1e-4)
    assert len(curve) == 4


def test_training_lowers_the_loss_and_leaves_the_global_random_state_alone() -> None:
    before = torch.get_rng_state()
    settings = replace(SMALL, iterations=60, batch_size=8, filters=(8, 16, 16, 16, 16))
    one = fig1.train(noise_images(), 0.1, settings, seed=3).curve
    two = fig1.train(noise_images(), 0.1, replace(settings, iterations=10), seed=3).curve
    assert torch.equal(before, torch.get_rng_state())
    assert np.array_equal(one[:10], two)
    assert one[-10:].mean() < one[:10].mean() - 5


def test_without_noise_the_loss_has_no_minimum() -> None:
    """On a single image x₀, s(x) = −c (x − x₀) has tr ∇s = −cD and s(x₀) = 0: a larger c gives a smaller loss."""
    x = torch.rand(1, 3, 4, 4)

    def loss(c: float) -> float:
        return sliced(lambda y, _: -c * (y - x), x, 0.0, randn_like=torch.ones_like).item()

    assert [loss(c) for c in (1, 10, 100)] == pytest.approx([-48, -480, -4800])


def test_the_spread_by_hand() -> None:
    curve = np.array([100.0, 1.0, 2.0, 3.0, 4.0])
    told = fig1.spread(curve, 4)
    assert told["iterations"] == 4
    assert told["mean"] == 2.5
    assert told["std"] == pytest.approx(1.25**0.5)
    assert told["std_over_mean"] == pytest.approx(1.25**0.5 / 2.5)
    assert (told["min"], told["max"]) == (1, 4)
    assert told["quantiles"] == pytest.approx({"5": 1.15, "25": 1.75, "50": 2.5, "75": 3.25, "95": 3.85})
    steps = np.repeat([1.0, 3.0], 100)
    assert fig1.spread(steps + np.tile([-5.0, 5.0], 100), 200)["wander"] == pytest.approx(1)
    assert told["wander"] is None
    assert fig1.smooth(np.arange(7.0), 3).tolist() == [1, 4]


def test_the_picture_leaves_out_the_start_and_extreme_losses() -> None:
    curve = np.full(10_000, -5.0)
    curve[:150], curve[5000:5100], curve[7000:7030] = 1e6, 40.0, 1e9  # the start, a part to show, and 3 in 1,000
    low, high = fig1._window(curve)
    assert low < -5 < 40 < high < 100


def test_large_losses_are_given_in_millions() -> None:
    assert fig1.words_of(fig1.spread(np.array([-3e6, -1e6]), 2)) == "last 2 iterations: -2 million ± 1 million"
    assert fig1.amount(-86430797.1) == "-86.43 million"
    assert fig1.amount(553124154.7) == "553.1 million"
    assert fig1.amount(-999_999.4) == "-999,999"
    assert fig1.amount(-15_147_064_320.0) == "-15,150 million"


def test_a_loss_that_is_not_finite_is_reported() -> None:
    assert fig1.spread(np.array([1.0, np.nan, 2.0, np.inf]), 3) == {"iterations": 3, "not_finite_from": 2}


def test_a_curve_is_trained_once(tmp_path: Path) -> None:
    kept, seen = tmp_path / "kept.safetensors", list[str]()

    def record(items: Iterable[Any], what: str, total: int) -> Iterator[Any]:
        seen.append(what)
        return iter(items)

    whole = fig1.train(noise_images(), 0.01, SMALL)
    made, again = (fig1.train(noise_images(), 0.01, SMALL, kept=kept, track=record) for _ in range(2))
    assert np.array_equal(made.curve, whole.curve)
    assert np.array_equal(again.curve, whole.curve)
    assert len(seen) == 1
    assert 0 < again.seconds == pytest.approx(made.seconds, abs=0.2)


def test_the_key_of_a_curve_depends_on_what_changes_it_and_on_nothing_else() -> None:
    cpu, settings = torch.device("cpu"), replace(SMALL, last=1, sigmas=(1.0, 2.0))  # these do not change a curve
    key = fig1.key_of(noise_images(), 0.01, SMALL, seed=0, device=cpu)
    assert fig1.key_of(noise_images(), 0.01, settings, seed=0, device=cpu) == key
    other = replace(noise_images(), digest="1" * 64)
    keys = [
        fig1.key_of(noise_images(), 0.02, SMALL, seed=0, device=cpu),
        fig1.key_of(noise_images(), 0.01, SMALL, seed=1, device=cpu),
        fig1.key_of(noise_images(), 0.01, replace(SMALL, batch_size=2), seed=0, device=cpu),
        fig1.key_of(noise_images(), 0.01, replace(SMALL, iterations=5), seed=0, device=cpu),
        fig1.key_of(other, 0.01, SMALL, seed=0, device=cpu),
    ]
    assert len({key, *keys}) == 6


@pytest.mark.parametrize("change", ["none", "damage", "seed"])
def test_an_interrupted_training_goes_on(change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if it had not been interrupted; from the start if the file is damaged or belongs to another seed."""
    seed = 3 if change == "seed" else 0
    settings, kept = replace(SMALL, iterations=12), tmp_path / "new" / "kept.safetensors"
    seen = list[tuple[str, int]]()
    whole = fig1.train(noise_images(), 0.01, settings, seed=seed).curve
    monkeypatch.setattr(fig1, "SECONDS", -1.0)

    def stopping(items: Iterable[Any], what: str, total: int) -> Iterator[Any]:
        for k, item in enumerate(items):
            if k == 7:
                raise KeyboardInterrupt
            yield item

    with pytest.raises(KeyboardInterrupt):
        fig1.train(noise_images(), 0.01, settings, kept=kept, track=stopping)
    if change == "damage":
        kept.write_bytes(b"half of i")

    def record(items: Iterable[Any], what: str, total: int) -> Iterator[Any]:
        seen.append((what, total))
        return iter(items)

    with pytest.warns(UserWarning, match="starts again") if change == "damage" else nullcontext():
        curve = fig1.train(noise_images(), 0.01, settings, seed=seed, kept=kept, track=record).curve
    assert np.array_equal(curve, whole)
    ((what, total),) = seen
    assert total == (5 if change == "none" else 12)
    assert ("from iteration 7" in what) == (change == "none")


def test_if_progress_cannot_be_saved_the_curve_is_made_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fig1, "SECONDS", -1.0)
    (tmp_path / "file").write_bytes(b"")
    with pytest.warns(UserWarning, match="cannot be saved"):
        made = fig1.train(noise_images(), 0.01, SMALL, kept=tmp_path / "file" / "kept.safetensors")
    assert np.array_equal(made.curve, fig1.train(noise_images(), 0.01, SMALL).curve)


def test_the_whole_figure_without_a_gpu_gives_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCOREFIELD_DATA", str(tmp_path / "store"))
    monkeypatch.setattr(data, "load", lambda source, **_: noise_images())
    monkeypatch.setattr(fig1, "Settings", lambda: SMALL)
    monkeypatch.setattr(fig1, "pick_device", lambda _: torch.device("cpu"))
    with pytest.warns(UserWarning, match="days without a GPU"):
        FIGURES["fig1"](tmp_path / "out")


def test_the_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCOREFIELD_DATA", str(tmp_path / "store"))
    monkeypatch.setattr(data, "load", lambda source, **_: noise_images())
    monkeypatch.setattr(fig1, "QUICK", SMALL)
    monkeypatch.setattr(fig1, "pick_device", lambda _: torch.device("cpu"))
    result = FIGURES["fig1"](tmp_path / "out", quick=True)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["fig1.json", "fig1.png"]
    numbers = json.loads((tmp_path / "out" / "fig1.json").read_text())
    assert set(numbers["spread"]) == set(numbers["curves"]) == {"0", "0.01"}
    assert all(told["iterations"] == 2 for told in numbers["spread"].values())
    assert all(len(curve) == 4 for curve in numbers["curves"].values())
    assert len(list((tmp_path / "store" / "cache").glob("fig1-*.safetensors"))) == 2
    assert numbers["seconds"] >= 0
    curve = fig1.train(noise_images(), 0.01, SMALL).curve
    assert numbers["curves"]["0.01"] == pytest.approx(curve.tolist(), abs=1e-3)
    with Image.open(result.picture) as picture:
        assert picture.width >= 1000
