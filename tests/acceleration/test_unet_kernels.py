"""The U-Net's Triton kernels against plain PyTorch in float64: small images by Triton's interpreter on the CPU, and
large ones on a GPU. Run the latter with: pytest -m gpu tests/acceleration"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
import torch
from gpu import rel
from gpu import without_tf32 as without_tf32
from torch import Tensor

from acceleration import plain_kernels
from acceleration.compare import DEVICE, assert_same, drawn, in_float32, on_a_gpu, use_small_tiles
from scorefield.networks.unet import TINY
from scorefield.noise import SampleNoise

if sys.platform != "linux":  # there Triton comes with the dev extra, so that these tests are never skipped
    pytest.importorskip("triton")

pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")  # NumPy's, where numbers wrap around

LARGE = on_a_gpu((3, 128, 32, 32), (2, 256, 16, 16), (5, 24, 10, 12))


def downwards(kernels: ModuleType | Any, start: Tensor, *ys: Tensor) -> list[Tensor]:  # noqa: ANN401
    """Some blocks, each of which ends with the sum of a y and what the one before began with."""
    from scorefield.acceleration.kernels.residual import Sum

    how = {"around": 0.75, "eps": TINY, "dtype": start.dtype}
    x0, path, a0 = kernels.begin_down(Sum(start), **how)
    x1, path, a1 = kernels.begin_down(Sum(ys[0], path, 0.75, unit=True), **how)
    x2, path = kernels.total(Sum(ys[1], path, 0.75, unit=True), **how)
    x3, path, a3 = kernels.begin_down(Sum(ys[2], path, 0.75), **how)
    _, path, a4 = kernels.begin_down(Sum(ys[3], path, 0.75, unit=True), **how)  # nothing else uses this sum,
    x5, _ = kernels.total(Sum(ys[4], path, 0.75, unit=True), **how)  # and the path around attention has no other use
    return [x0, a0, x1, a1, x2, x3, a3, a4, x5]


@pytest.mark.parametrize("shape", [(2, 5, 3, 3), *LARGE])
def test_the_end_of_a_block_with_the_beginning_of_the_next(
    shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    from scorefield.acceleration.kernels import residual

    use_small_tiles(monkeypatch, residual, TILE=64)
    inputs = [drawn(*shape) for _ in range(6)]
    mine = in_float32(inputs)
    assert_same(downwards(residual, *mine), downwards(plain_kernels, *inputs), (mine, inputs))


@pytest.mark.parametrize(
    ("with_sum", "unit", "larger"),
    [(False, False, True), (True, True, True), (True, True, False), (True, False, False)],
)
@pytest.mark.parametrize("shape", [(2, 5, 4, 6), *LARGE])
def test_the_beginning_of_a_block_on_the_way_up(
    shape: tuple[int, ...], with_sum: bool, unit: bool, larger: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With fewer, or more, channels that were kept than others."""
    from scorefield.acceleration.kernels import residual
    from scorefield.acceleration.kernels.residual import Sum

    use_small_tiles(monkeypatch, residual, TILE=64)
    b, c, height, width = shape
    small = (b, c, height // 2, width // 2) if larger else shape
    kept = c + 2 if unit else 3
    inputs = [drawn(*small), drawn(*small), drawn(b, kept, height, width)]

    def up(kernels: ModuleType | Any, *tensors: Tensor) -> list[Tensor]:  # noqa: ANN401
        y, r, skip = tensors
        how = {"around": 0.75, "eps": TINY, "dtype": y.dtype}
        path = kernels.begin_down(Sum(r), **how)[1:] if unit else kernels.total(Sum(r), **how)[1:]
        s = Sum(y, path[0], 0.75, unit=unit) if with_sum else Sum(y)
        return [*path[1:], *kernels.begin_up(s, skip, shares=(0.8, 1.25), eps=TINY)]

    used = [0, *([1] if with_sum else []), 2]
    mine = in_float32(inputs)
    found, expected = up(residual, *mine), up(plain_kernels, *inputs)
    assert_same(found, expected, ([mine[k] for k in used], [inputs[k] for k in used]))


def test_the_first_sum_is_converted() -> None:
    """The first convolution is float32, the rest of the network is not."""
    from scorefield.acceleration.kernels.residual import Sum, begin_down

    y = torch.randn(1, 4, 2, 3, device=DEVICE, requires_grad=True)
    x, path, a = begin_down(Sum(y), around=0.75, eps=TINY, dtype=torch.float16)
    assert x.dtype == path.dtype == a.dtype == torch.float16
    assert torch.equal(x, y.half())
    (gradient,) = torch.autograd.grad([x, a], [y], [torch.ones_like(x), torch.zeros_like(a)])
    assert gradient.dtype == torch.float32
    assert torch.equal(gradient, torch.ones_like(y))


@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize("shape", [(2, 5, 3, 3), (1, 18, 2, 6), *LARGE])
def test_the_middle_of_a_block(shape: tuple[int, ...], dropout: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same entries left out: 9 pixels, so that channels begin inside of counters, and 12."""
    from scorefield.acceleration.kernels import modulate

    use_small_tiles(monkeypatch, modulate, TILE=32, BACK_TILE=32, STRIP=8)
    noise = SampleNoise(range(2**33, 2**33 + shape[0]))
    noise.rand([3])
    key, draw = noise.copy().reserve(torch.empty(shape, device=DEVICE))
    assert draw == 1
    inputs = [drawn(*shape), drawn(*shape[:2])]
    mine = in_float32(inputs)
    how: dict[str, Any] = {"key": key if dropout else None, "draw": draw, "dropout": dropout}
    found = modulate.modulate(mine[0], mine[1], **how)
    expected = plain_kernels.modulate(inputs[0], inputs[1], **how)
    if dropout:
        dropped = noise.rand_like(torch.empty(shape)).to(DEVICE) < dropout
        assert torch.equal(found == 0, dropped)
    assert_same([found], [expected], (mine, inputs))


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("shape", [(2, 18, 2, 3), *on_a_gpu((3, 384, 16, 16), (2, 96, 7, 5))])
def test_the_heads_of_attention(shape: tuple[int, ...], heads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from scorefield.acceleration.kernels import heads as kernels

    use_small_tiles(monkeypatch, kernels, TILE=16)
    inputs = [drawn(*shape)]
    mine = in_float32(inputs)
    found = kernels.unit_heads(mine[0], heads, eps=TINY)
    assert_same(list(found), list(plain_kernels.unit_heads(inputs[0], heads, eps=TINY)), (mine, inputs))


class TestWeights:
    SHAPES = ((3, 5, 3, 3), (2, 7), (4, 3, 1, 1), (2, 2, 3, 3))
    SIZES = (0.5, 1.0, 2.0, 1.0)

    def made(self, *, channels_last: bool, monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype = torch.float32) -> Any:  # noqa: ANN401
        from scorefield.acceleration.kernels import weights

        use_small_tiles(monkeypatch, weights, BLOCK=16)
        drawn = [torch.randn(shape, device=DEVICE) for shape in self.SHAPES]
        if channels_last:
            drawn[0] = drawn[0].contiguous(memory_format=torch.channels_last)
        return weights.Weights([w.requires_grad_() for w in drawn], self.SIZES, dtype=dtype, eps=TINY)

    @pytest.mark.parametrize("channels_last", [False, True])
    def test_those_that_are_used(self, channels_last: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        from scorefield.acceleration.scaled import Scale

        weights = self.made(channels_last=channels_last, monkeypatch=monkeypatch)
        scale = Scale(torch.zeros((), device=DEVICE))
        scale.value = torch.tensor(8.0, device=DEVICE)
        exact = [w.detach().double().requires_grad_() for w in weights.weights]
        found = list(weights.used(scale, None).values())
        assert found[0].is_contiguous(memory_format=torch.channels_last)
        torch.testing.assert_close(found[1].norm(dim=1), torch.ones(2, device=DEVICE))
        assert_same(found, plain_kernels.used_by(_Double(weights), scale, exact), (weights.weights, exact))
        assert scale.bad == 0

    def test_weights_of_another_type_are_refused(self) -> None:
        """A kernel would take their memory for float32."""
        from scorefield.acceleration.kernels.weights import Weights

        for weight in (torch.ones(2, 3, dtype=torch.float64), torch.ones(3, 2).T):
            with pytest.raises(ValueError, match="must be float32 and without gaps"):
                Weights([weight], [1.0], dtype=torch.float16, eps=TINY)

    def test_a_gradient_that_is_not_finite_is_noticed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from scorefield.acceleration.scaled import Scale

        weights = self.made(channels_last=False, monkeypatch=monkeypatch, dtype=torch.float16)
        scale = Scale(torch.zeros((), device=DEVICE))
        scale.value = torch.tensor(1.0, device=DEVICE)
        found = list(weights.used(scale, None).values())
        gradients = [torch.zeros_like(w) for w in found]
        gradients[2][1, 2] = float("inf")
        torch.autograd.grad(found, weights.weights, gradients)
        assert scale.bad == 1

    def test_they_are_normalised_where_they_are(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Also after they have moved."""
        weights = self.made(channels_last=False, monkeypatch=monkeypatch)
        for _ in range(2):
            before = [w.detach().double() for w in weights.weights]
            versions = [w._version for w in weights.weights]
            weights.normalise_()
            for found, w, version in zip(weights.weights, before, versions, strict=True):
                inside = tuple(range(1, w.ndim))
                assert rel(found, w / w.square().mean(inside, keepdim=True).sqrt()) < 1e-6
                assert found._version > version
            for w in weights.weights:
                w.data = 3 * w.detach()


class _Double:
    """Weights that are used in float64."""

    def __init__(self, of: Any) -> None:  # noqa: ANN401
        self.sizes, self.dtype = of.sizes, torch.float64
