"""How kernels are compared with plain PyTorch in float64."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import torch
from gpu import GPU, rel
from torch import Tensor

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
"""Where small images are computed. On the CPU it is by Triton's interpreter, which conftest.py switches on."""


def on_a_gpu(*shapes: tuple[int, ...]) -> list[Any]:
    return [pytest.param(shape, marks=GPU) for shape in shapes]


def use_small_tiles(monkeypatch: pytest.MonkeyPatch, module: ModuleType, **sizes: int) -> None:
    """By the interpreter, so that a small image has many tiles, the last of which ends beyond it."""
    if DEVICE == "cpu":
        for name, size in sizes.items():
            monkeypatch.setattr(module, name, size)


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, device=DEVICE, requires_grad=True)


def in_float32(tensors: list[Tensor]) -> list[Tensor]:
    return [tensor.detach().float().requires_grad_() for tensor in tensors]


def assert_same(found: list[Tensor], expected: list[Tensor], inputs: tuple[list[Tensor], list[Tensor]]) -> None:
    """Values, and gradients by all inputs of a random weighting of the values."""
    for one, other in zip(found, expected, strict=True):
        assert rel(one, other) < 1e-5
    weights = [torch.randn_like(each) for each in expected]
    gradients = torch.autograd.grad(found, inputs[0], [each.float() for each in weights])
    for one, other in zip(gradients, torch.autograd.grad(expected, inputs[1], weights), strict=True):
        assert rel(one, other) < 1e-4
