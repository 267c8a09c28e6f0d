"""The quadratic form vᵀ∇s(x)v of a vector field's Jacobian, by forward-mode and by reverse-mode differentiation."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from scorefield.score import same_shape

Field = Callable[[Tensor], Tensor]
QuadraticForm = Callable[[Field, Tensor, Tensor], tuple[Tensor, Tensor]]
"""(s, x, v) -> s(x) and vᵀ∇s(x)v, (B,), both differentiable with respect to the parameters of s."""


def forward_mode(s: Field, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """vᵀ(∇s v), from one pass that carries the derivative along v with it."""
    value, along_v = torch.func.jvp(s, (x,), (v,))  # type: ignore[misc]  # 3 values with has_aux only
    return same_shape(value, x), dot(v, along_v)


def reverse_mode(s: Field, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """(vᵀ∇s)v, by backpropagation, which training differentiates once more: nearly every layer can do that."""
    training = torch.is_grad_enabled()
    with torch.inference_mode(False), torch.enable_grad():
        x, v = x if x.requires_grad else x.detach().clone().requires_grad_(), v.clone()
        value = same_shape(s(x), x)
        if not value.requires_grad:  # a constant field
            return value, torch.zeros(len(x), dtype=x.dtype, device=x.device)
        (from_v,) = torch.autograd.grad(value, x, v, create_graph=training, materialize_grads=True)
    return (value if training else value.detach()), dot(from_v, v)


def either_mode(s: Field, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Forward mode, or reverse mode where a layer of s has no forward derivative."""
    try:
        return forward_mode(s, x, v)
    except RuntimeError as error:
        # PyTorch says so in two ways: for an operator, and for code that its transforms (functorch) cannot handle
        if not (isinstance(error, NotImplementedError) or "functorch" in str(error)):
            raise
        warnings.warn(
            f"no forward-mode derivative, so reverse mode is used ({str(error).splitlines()[0]}); "
            "quadratic_form=derivatives.reverse_mode avoids the attempt",
            stacklevel=2,
        )
    return reverse_mode(s, x, v)


def dot(a: Tensor, b: Tensor) -> Tensor:
    """aᵀb for each example, (B,)."""
    return (a * b).reshape(len(a), -1).sum(1)
