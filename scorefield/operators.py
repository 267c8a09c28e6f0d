"""Linear measurements of images, y = A x: hidden pixels, fewer pixels, blur, brightness alone.

    A = Downsample(2) @ Blur(1.0)        # the blur first, then every 2 × 2 pixels become one
    y = A(x) + noise * torch.randn_like(A(x))

Images are floats (B, C, H, W) in [0, 1]. `A.adjoint` is the transpose:  ⟨A x, y⟩ = ⟨x, Aᵀ y⟩  for all x and y.
`posterior` takes these, and any function of one's own.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

LUMA = (0.299, 0.587, 0.114)
"""What red, green and blue add to the brightness (ITU-R BT.601, as in Pillow's mode L)."""
ROUNDING = 2e-3
"""The error of a linear operator in low precision."""
REACH = 3
"""A blur's kernel ends at so many standard deviations."""


class Operator(ABC):
    """A linear map of batches."""

    @abstractmethod
    def __call__(self, x: Tensor) -> Tensor:
        """A x."""

    @abstractmethod
    def adjoint(self, y: Tensor) -> Tensor:
        """Aᵀ y."""

    def measured(self, y: Tensor) -> Tensor:
        """Which entries of y are measurements, in y's shape: all, except where pixels are hidden."""
        return torch.ones_like(y, dtype=torch.bool)

    def __matmul__(self, first: Operator) -> Operator:
        """A @ B:  x ↦ A(B(x))."""
        return Composition(self, first) if isinstance(first, Operator) else NotImplemented


@dataclass(frozen=True)
class Composition(Operator):
    """x ↦ A(B(x))."""

    then: Operator
    first: Operator

    def __call__(self, x: Tensor) -> Tensor:
        return self.then(self.first(x))

    def adjoint(self, y: Tensor) -> Tensor:
        return self.first.adjoint(self.then.adjoint(y))

    def measured(self, y: Tensor) -> Tensor:
        return self.then.measured(y)


@dataclass(frozen=True, eq=False)
class Mask(Operator):
    """m ⊙ x:  the pixels where the mask is 1 (or True). It broadcasts to the images: (H, W) for all, or (C, H, W)."""

    mask: Tensor

    def __post_init__(self) -> None:
        if not ((self.mask == 0) | (self.mask == 1)).all():
            raise ValueError("mask must hold only 0 (hidden) and 1 (known); for one of 0 ... 255 pass mask > 127")
        object.__setattr__(self, "mask", self.mask.bool())

    def __call__(self, x: Tensor) -> Tensor:
        return x * self.measured(x)

    def adjoint(self, y: Tensor) -> Tensor:
        return y * self.measured(y)

    def measured(self, y: Tensor) -> Tensor:
        try:
            return self.mask.to(y.device).expand_as(y)
        except RuntimeError:
            raise ValueError(
                f"the mask {tuple(self.mask.shape)} does not fit images {tuple(y.shape)} (give one of shape (H, W))"
            ) from None


@dataclass(frozen=True)
class Downsample(Operator):
    """The mean of every k × k pixels, (B, C, H/k, W/k)."""

    k: int

    def __post_init__(self) -> None:
        if not isinstance(self.k, int) or self.k < 1:
            raise ValueError(f"k must be a whole number from 1 on; got {self.k} (2 halves height and width)")

    def __call__(self, x: Tensor) -> Tensor:
        height, width = _size(x)
        if height % self.k or width % self.k:
            raise ValueError(f"{self.k} must divide height and width; got {height} × {width} (crop, or use another k)")
        return F.avg_pool2d(x, self.k)

    def adjoint(self, y: Tensor) -> Tensor:
        _size(y)
        return y.repeat_interleave(self.k, -2).repeat_interleave(self.k, -1) / self.k**2


@dataclass(frozen=True)
class Blur(Operator):
    """A Gaussian blur with standard deviation `sigma`, in pixels. The kernel is cut off at 3σ, and at the border its
    weights are normalised over the pixels that are there, so that a flat image stays as it is."""

    sigma: float

    def __post_init__(self) -> None:
        if not 0 < self.sigma < math.inf:
            raise ValueError(f"sigma must be positive and finite; got {self.sigma} (in pixels; 1.5 blurs visibly)")

    def __call__(self, x: Tensor) -> Tensor:
        height, width = _size(x)
        return self._matrix(height, x) @ x @ self._matrix(width, x).T

    def adjoint(self, y: Tensor) -> Tensor:
        height, width = _size(y)
        return self._matrix(height, y).T @ y @ self._matrix(width, y)

    def _matrix(self, n: int, x: Tensor) -> Tensor:
        """The blur along one side of n pixels, (n, n)."""
        reach = math.ceil(REACH * self.sigma)
        if 2 * reach + 1 > n:
            raise ValueError(
                f"the kernel has {2 * reach + 1} pixels for sigma {self.sigma:g}, and the image only {n} (use a "
                "smaller sigma)"
            )
        at = torch.arange(n, device=x.device, dtype=x.dtype)
        offset = at[:, None] - at
        weight = (-(offset**2) / (2 * self.sigma**2)).exp() * (offset.abs() <= reach)
        return weight / weight.sum(1, keepdim=True)


@dataclass(frozen=True)
class Grayscale(Operator):
    """The brightness 0.299 R + 0.587 G + 0.114 B, (B, 1, H, W)."""

    def __call__(self, x: Tensor) -> Tensor:
        _channels(x, 3)
        return (x * self._weights(x)).sum(1, keepdim=True)

    def adjoint(self, y: Tensor) -> Tensor:
        _channels(y, 1)
        return y * self._weights(y)

    def _weights(self, x: Tensor) -> Tensor:
        return x.new_tensor(LUMA).reshape(3, 1, 1)


@dataclass(frozen=True)
class Function(Operator):
    """Any linear function of batches with examples of this shape. Its adjoint is computed by autograd unless given."""

    function: Callable[[Tensor], Tensor]
    shape: tuple[int, ...]
    transpose: Callable[[Tensor], Tensor] | None = None

    def __call__(self, x: Tensor) -> Tensor:
        return self.function(x)

    def adjoint(self, y: Tensor) -> Tensor:
        if self.transpose is not None:
            return self.transpose(y)
        with torch.inference_mode(False), torch.enable_grad():
            x = y.new_zeros(len(y), *self.shape).requires_grad_()
            made = self.function(x)
            if not made.requires_grad:
                raise ValueError("the operator cannot be differentiated (write it with PyTorch's functions of x)")
            return torch.autograd.grad(made, x, y.clone())[0]


def check_linear(operator: Callable[[Tensor], Tensor], x: Tensor) -> None:
    """Raise an error unless A(u − 2v) = A u − 2 A v for two random batches like x, up to rounding, even TF32's."""
    draws = torch.Generator().manual_seed(0)
    u, v = (torch.randn(x.shape, generator=draws).to(x) for _ in range(2))
    parts = operator(u), 2 * operator(v)
    error = (operator(u - 2 * v) - parts[0] + parts[1]).abs().max()
    size = max(part.abs().max() for part in parts)
    if not error <= ROUNDING * size:
        raise ValueError("the operator is not linear: A(u − 2v) differs from A u − 2 A v (use the method dps)")


def _size(x: Tensor) -> tuple[int, int]:
    if x.ndim != 4:
        raise ValueError(f"images must have shape (B, C, H, W); got {tuple(x.shape)} (image[None] for one)")
    return x.shape[2], x.shape[3]


def _channels(x: Tensor, wanted: int) -> None:
    _size(x)
    if x.shape[1] != wanted:
        raise ValueError(f"these images must have {wanted} channel{'s' * (wanted > 1)}; got shape {tuple(x.shape)}")
