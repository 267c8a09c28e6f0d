"""The Triton kernels against plain PyTorch in float64: small images by Triton's interpreter on the CPU, and large ones
on a GPU. Run the latter with: pytest -m gpu tests/acceleration"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

import pytest
import torch
from gpu import GPU, rel
from gpu import without_tf32 as without_tf32
from torch import Tensor
from torch.nn import functional as F

from acceleration.compare import DEVICE, assert_same, drawn, in_float32, on_a_gpu, use_small_tiles
from scorefield.derivatives import forward_mode
from scorefield.networks import ResNet
from scorefield.networks.refinenet import CondInstanceNorm
from scorefield.networks.resnet import Norm
from scorefield.noise import SampleNoise

if sys.platform != "linux":  # there Triton comes with the dev extra, so that these tests are never skipped
    pytest.importorskip("triton")

pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")  # NumPy's, where numbers wrap around


@pytest.mark.parametrize(
    ("elu", "bias", "units"),
    [(True, True, (0.125, 0.25)), (True, False, (1.0, 1.0)), (False, True, (1.0, 1.0)), (False, False, (0.125, 1.0))],
)
@pytest.mark.parametrize(
    "shape",
    [(2, 5, 3, 5), *on_a_gpu((3, 5, 4, 6), (1, 8, 5, 5), (4, 128, 32, 32), (4, 256, 16, 16), (130, 8, 5, 5))],
)
def test_the_norm(
    shape: tuple[int, ...], elu: bool, bias: bool, units: tuple[float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """CondInstanceNorm++ with the bias before and the ELU after it; x, which it returns as well, has other uses."""
    from scorefield.acceleration.kernels import norm

    use_small_tiles(monkeypatch, norm, TILE=32, MEAN_TILE=64, BACK_TILE=32)
    b, c = shape[:2]
    plain = CondInstanceNorm(4, c).double().to(DEVICE)
    with torch.no_grad():
        for table in plain.parameters():
            table.add_(0.5 * torch.randn_like(table))
    level = torch.arange(b, device=DEVICE) % 3
    x = (2 * drawn(*shape) + 3 * drawn(c, 1, 1)).detach().requires_grad_()
    inputs = [x, plain.gamma, plain.alpha, plain.beta, *([drawn(c)] if bias else [])]
    y = plain(x + inputs[4][:, None, None] if bias else x, level)
    mine = in_float32(inputs)
    x2, gamma, alpha, beta, *rest = mine
    given, made = units
    shift = given * rest[0] if bias else None
    z, same = norm.norm(given * x2, shift, gamma, alpha, beta, level, elu=elu, dtype=torch.float32, units=units)
    assert_same([z / made, same / given], [F.elu(y) if elu else y, x], (mine, inputs))


def test_the_norms_tables_of_many_samples_and_channels() -> None:
    """Sums over the samples of a level, and for the bias over all; more of both than one program takes at once."""
    from scorefield.acceleration.kernels.norm import _tables

    samples, channels, levels = 130, 34, 2
    parts = torch.randn(4, samples, channels, device=DEVICE)
    level = torch.arange(samples, device=DEVICE) % levels
    tables, bias = parts.new_full((3, levels, channels), torch.nan), parts.new_full((channels,), torch.nan)
    _tables[2, 3 * levels + 1](parts, level, tables, bias, samples, channels, levels, ROWS=128, COLUMNS=32)
    expected = torch.stack([parts[:3, level == each].double().sum(1) for each in range(levels)], 1)
    torch.testing.assert_close(tables.double(), expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(bias.double(), parts[3].double().sum(0), rtol=1e-4, atol=1e-4)


def test_the_norm_of_many_channels_and_of_nan() -> None:
    """Statistics come in strips of channels; and what is not a number does not look as if it were."""
    from scorefield.acceleration.kernels.norm import norm

    plain, x = CondInstanceNorm(1, 18).to(DEVICE), torch.randn(1, 18, 2, 3, device=DEVICE)
    level = torch.zeros(1, dtype=torch.long, device=DEVICE)
    gamma, alpha, beta = (table.detach() for table in (plain.gamma, plain.alpha, plain.beta))
    z, _ = norm(x, None, gamma, alpha, beta, level, elu=False, dtype=torch.float32)
    torch.testing.assert_close(z, plain(x, level).detach(), rtol=1e-4, atol=1e-5)
    x[0, 3, 0, 0] = torch.nan
    z, _ = norm(x, None, gamma, alpha, beta, level, elu=True, dtype=torch.float32)
    assert z[0, 3].isnan().all()


def add_and_elu(unit: float) -> Callable[..., Tensor]:
    from scorefield.acceleration.kernels.add import add

    return lambda a, b, c: add(unit * a, unit * b, unit * c, elu=True, unit=unit) / unit


@pytest.mark.parametrize("elu", [False, True])
@pytest.mark.parametrize("shape", [(2, 5, 25, 24), *on_a_gpu((2, 5, 10, 8), (3, 128, 32, 32), (1, 20, 34, 48))])
def test_the_sum_with_a_bias(shape: tuple[int, ...], elu: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two programs for three tiles: one of them takes a second tile."""
    from scorefield.acceleration.kernels import add

    use_small_tiles(monkeypatch, add, PROGRAMS=2)
    inputs = [drawn(*shape), drawn(*shape), drawn(shape[1])]
    mine = in_float32(inputs)
    total = inputs[0] + inputs[1] + inputs[2][:, None, None]
    found = [add_and_elu(0.25)(*mine), add_and_elu(1.0)(*mine)] if elu else [add.add(*mine)]
    assert_same(found, [F.elu(total)] * 2 if elu else [total], (mine, inputs))


def test_the_sum_of_nan() -> None:
    x = torch.tensor([torch.nan, 1.0, -1.0], device=DEVICE).reshape(1, 1, 1, 3)
    found = add_and_elu(0.5)(x, torch.zeros_like(x), x.new_zeros(1)).flatten()
    assert found[0].isnan()
    torch.testing.assert_close(found[1:], F.elu(x.flatten()[1:]))


@pytest.mark.parametrize("kernel", ["pool", "halve", "double"])
@pytest.mark.parametrize("shape", [(1, 2, 4, 6), *on_a_gpu((2, 5, 10, 8), (3, 128, 32, 32), (1, 20, 34, 48))])
def test_pooling_and_resizing(shape: tuple[int, ...], kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from scorefield.acceleration.kernels import pool

    use_small_tiles(monkeypatch, pool, ROWS=2)
    plain: dict[str, Callable[[Tensor], Tensor]] = {
        "pool": partial(F.avg_pool2d, kernel_size=5, stride=1, padding=2),
        "halve": partial(F.avg_pool2d, kernel_size=2),
        "double": partial(F.interpolate, scale_factor=2),
    }
    inputs = [drawn(*shape)]
    mine = in_float32(inputs)
    assert_same([getattr(pool, kernel)(*mine)], [plain[kernel](*inputs)], (mine, inputs))


def test_resizing_of_rows_longer_than_a_block_and_pooling_of_many_channels(monkeypatch: pytest.MonkeyPatch) -> None:
    from scorefield.acceleration.kernels import pool

    x = torch.randn(1, 3, 2, 400, device=DEVICE)
    torch.testing.assert_close(pool.halve(x), F.avg_pool2d(x, 2))
    monkeypatch.setattr(pool, "ROWS", 1)
    x = torch.randn(1, 18, 1, 70, device=DEVICE)
    torch.testing.assert_close(pool.pool(x), F.avg_pool2d(x, 5, stride=1, padding=2))


@pytest.mark.parametrize("seed", [5, 2**32 - 3])
def test_the_noise_is_the_plain_noise(seed: int) -> None:
    """Keys bit for bit; uniform and normal numbers but for the last bits of log and cos."""
    from scorefield.acceleration.kernels import philox

    plain = SampleNoise.at_step(seed, 77, range(3, 6))
    key = philox.keys(seed, 77, range(3, 6), DEVICE)
    assert torch.equal(key.cpu(), plain._key)
    x = torch.empty(3, 2, 23, 23)
    for draw, normal in enumerate((False, True)):
        expected = plain.randn_like(x) if normal else plain.rand_like(x)
        torch.testing.assert_close(philox.noise(key, draw, x.shape, normal=normal).cpu(), expected, rtol=0, atol=2e-6)


def test_uniform_noise_is_below_1() -> None:
    """The first four words of these seeds hold one that a float32 rounds to 2³², found by a search: number 2 and 3."""
    from scorefield.acceleration.kernels import philox

    plain = SampleNoise([2871038, 16958703])
    found = philox.noise(plain._key.to(DEVICE), 0, torch.Size([2, 4]), normal=False).cpu()
    assert found[0, 2] == found[1, 3] == found.max() == 1 - 2**-24
    assert torch.equal(found, plain.rand_like(found))


class TestOnAGpu:
    pytestmark = GPU

    def test_the_noise_is_the_plain_noise(self, monkeypatch: pytest.MonkeyPatch) -> None:
        fused = SampleNoise.at_step(5, 77, range(3, 11), device="cuda")
        monkeypatch.setenv("SCOREFIELD_PLAIN", "1")
        plain = SampleNoise.at_step(5, 77, range(3, 11), device="cuda")
        assert torch.equal(fused._key, plain._key)
        x = torch.empty(8, 3, 9, 7, device="cuda")
        for draw in ("rand_like", "randn_like", "rand_like"):
            expected = getattr(plain, draw)(x)
            monkeypatch.delenv("SCOREFIELD_PLAIN")
            torch.testing.assert_close(getattr(fused, draw)(x), expected, rtol=0, atol=2e-6)
            monkeypatch.setenv("SCOREFIELD_PLAIN", "1")


@pytest.mark.parametrize("more", [False, True])
def test_the_norm_of_values_with_their_derivatives(more: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values, derivatives along a direction, and the gradients of both, against PyTorch's forward mode. Without `more`,
    nothing else uses the sum."""
    from scorefield.acceleration.kernels import dual

    use_small_tiles(monkeypatch, dual, TILE=32)
    plain = Norm(4).double().to(DEVICE)
    plain.num_groups = 2
    with torch.no_grad():
        for parameter in plain.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
    inputs = [drawn(2, 4, 3, 3), drawn(4), plain.weight, plain.bias, *([drawn(2, 4, 3, 3)] if more else [])]
    x, bias = inputs[:2]
    whole = x + inputs[4] if more else x
    total = torch.cat([whole[:1] + bias[:, None, None], whole[1:]])
    z, along = torch.func.jvp(lambda y: F.elu(plain(y)), (total[:1],), (total[1:],))[:2]
    mine, module = in_float32(inputs), torch.nn.GroupNorm(2, 4)
    module.weight, module.bias = (torch.nn.Parameter(each) for each in mine[2:4])
    mine[2:4] = module.weight, module.bias
    summed, found = dual.norm_elu(mine[0], mine[1], module, mine[4] if more else None)
    assert rel(summed, total) < 1e-6
    pairs = [(found, torch.cat([z, along])), *([(summed, total)] if more else [])]
    assert_same([one for one, _ in pairs], [other for _, other in pairs], (mine, inputs))


def test_figure_1s_network_with_its_derivative() -> None:
    from scorefield.acceleration.dual import Dual

    network = ResNet(channels=1, filters=(3, 6, 6, 6, 6)).to(DEVICE).requires_grad_(False)  # groups of three channels
    x, v = torch.rand(1, 1, 8, 8, device=DEVICE), torch.randn(1, 1, 8, 8, device=DEVICE)
    for found, expected in zip(Dual(network)(network, x, v), forward_mode(network, x, v), strict=True):
        assert rel(found, expected) < 1e-4
