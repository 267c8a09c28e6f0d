"""Linear measurements: values computed by hand, and adjoints."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from scorefield.operators import Blur, Downsample, Function, Grayscale, Mask, Operator, check_linear

HALF = torch.arange(12).reshape(1, 12).expand(8, 12) >= 5


def image(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


OPERATORS: dict[str, Operator] = {
    "mask": Mask(HALF),
    "mask for each channel": Mask(torch.stack([HALF, ~HALF, HALF])),
    "downsample": Downsample(2),
    "downsample 4": Downsample(4),
    "blur": Blur(0.8),
    "grayscale": Grayscale(),
    "composition": Downsample(2) @ Blur(1.0) @ Mask(HALF),
    "gray and small": Grayscale() @ Downsample(4),
    "function": Function(lambda x: x.cumsum(2)[:, :2, 1:], (3, 8, 12)),
    "function with its adjoint": Function(lambda x: 3 * x, (3, 8, 12), lambda y: 3 * y),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_adjoint(name: str) -> None:
    """⟨A x, y⟩ = ⟨x, Aᵀ y⟩ to rounding, also without gradients, and A is linear."""
    operator, x = OPERATORS[name], image(2, 3, 8, 12)
    with torch.inference_mode():
        made = operator(x)
        y = image(*made.shape, seed=1)
        torch.testing.assert_close((made * y).sum(), (x * operator.adjoint(y)).sum(), rtol=1e-12, atol=1e-12)
    assert operator.measured(made).shape == made.shape
    check_linear(operator, x)


def test_values_by_hand() -> None:
    x = image(2, 3, 8, 12)
    assert torch.equal(Mask(HALF)(x), torch.cat([torch.zeros(2, 3, 8, 5), x[..., 5:]], -1))
    torch.testing.assert_close(Downsample(2)(x)[1, 2, 3, 4], x[1, 2, 6:8, 8:10].mean())
    grey = 0.299 * x[0, 0, 1, 1] + 0.587 * x[0, 1, 1, 1] + 0.114 * x[0, 2, 1, 1]
    torch.testing.assert_close(Grayscale()(x)[0, 0, 1, 1], grey)
    torch.testing.assert_close((Downsample(2) @ Blur(1.0))(x), Downsample(2)(Blur(1.0)(x)))


def test_blur_is_the_convolution_inside_and_keeps_flat_images() -> None:
    x = image(1, 1, 16, 16)
    line = torch.tensor([math.exp(-(d**2) / 2) for d in range(-3, 4)], dtype=torch.float64)
    kernel = torch.outer(line, line) / line.sum() ** 2
    inside = F.conv2d(x, kernel[None, None])
    torch.testing.assert_close(Blur(1.0)(x)[..., 3:-3, 3:-3], inside)
    torch.testing.assert_close(Blur(1.0)(torch.ones_like(x)), torch.ones_like(x))


def test_what_is_measured() -> None:
    made = torch.zeros(2, 3, 8, 12)
    assert Mask(HALF).measured(made).sum() == 2 * 3 * 8 * 7
    assert (Mask(HALF) @ Blur(0.5)).measured(made).sum() == 2 * 3 * 8 * 7
    assert (Blur(0.5) @ Mask(HALF)).measured(made).all()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: Downsample(0), "k must be a whole number from 1 on; got 0"),
        (lambda: Downsample(3)(image(1, 1, 8, 12)), "3 must divide height and width; got 8 × 12"),
        (lambda: Downsample(2)(image(1, 8, 12)), r"must have shape \(B, C, H, W\)"),
        (lambda: Blur(0.0), "sigma must be positive"),
        (lambda: Blur(1.4)(image(1, 1, 8, 12)), "kernel has 11 pixels for sigma 1.4, and the image only 8"),
        (lambda: Grayscale()(image(1, 1, 8, 8)), "must have 3 channels"),
        (lambda: Grayscale().adjoint(image(1, 3, 8, 8)), "must have 1 channel;"),
        (lambda: Mask(HALF)(image(1, 1, 8, 8)), r"mask \(8, 12\) does not fit images \(1, 1, 8, 8\)"),
        (lambda: Mask(255 * HALF), "only 0 .hidden. and 1"),
        (lambda: Function(lambda x: x.detach(), (1, 2, 2)).adjoint(image(1, 1, 2, 2)), "cannot be differentiated"),
        (lambda: check_linear(lambda x: x + 1, image(1, 1, 2, 2)), "not linear"),
        (lambda: check_linear(lambda x: x.clamp(0, 1), image(1, 1, 2, 2)), "not linear"),
        (lambda: check_linear(lambda x: x.square(), image(1, 1, 2, 2)), "not linear"),
    ],
)
def test_clear_errors(wrong: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        wrong()
