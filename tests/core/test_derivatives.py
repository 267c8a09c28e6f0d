"""Objectives by forward and by reverse mode: what they agree on, and where one takes the other's place."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from core.derivative_modes import MODES
from scorefield import from_energy
from scorefield.derivatives import QuadraticForm, forward_mode, reverse_mode
from scorefield.networks import MLP
from scorefield.noise import rademacher
from scorefield.objectives import explicit, sliced


class _Cube(torch.autograd.Function):
    """x³ in the old style: knows its backward, nothing of forward mode."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, g: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors  # type: ignore[attr-defined]
        return 3 * x**2 * g


def test_forward_and_reverse_mode_agree_to_the_gradient() -> None:
    torch.manual_seed(3)
    network = MLP(width=8).double()
    x = torch.randn(16, 2, dtype=torch.float64)
    results = []
    for mode in (forward_mode, reverse_mode):
        torch.manual_seed(4)
        loss = sliced(network, x, 0.3, quadratic_form=mode)
        results.append([loss, *torch.autograd.grad(loss.mean(), list(network.parameters()))])
    torch.testing.assert_close(*results)


def test_a_layer_without_forward_mode_falls_back_to_reverse_mode_and_says_so() -> None:
    """s(x) = −w x³:  −3w Σ x² + ½w²‖x³‖² at σ = 0 with rademacher v, and its derivative by w."""
    cube: Callable[[Tensor], Tensor] = _Cube.apply
    w = torch.tensor(0.5, requires_grad=True)
    x = torch.tensor([[1.0, -2.0], [0.5, 1.0]])
    with pytest.warns(UserWarning, match="no forward-mode derivative"):
        loss = sliced(lambda x, sigma: -w * cube(x), x, 0.0, direction=rademacher)
    torch.testing.assert_close(loss, -1.5 * x.square().sum(1) + 0.125 * x.pow(6).sum(1))
    (grad,) = torch.autograd.grad(loss.sum(), w)
    torch.testing.assert_close(grad, -3 * x.square().sum() + 0.5 * x.pow(6).sum())


def test_an_energy_with_such_a_layer_trains_too() -> None:
    """E = w Σ x⁴/4 by the old-style cube: s = −w x³, as above."""
    cube: Callable[[Tensor], Tensor] = _Cube.apply
    w = torch.tensor(0.5, requires_grad=True)
    x = torch.tensor([[1.0, -2.0], [0.5, 1.0]])
    score = from_energy(lambda x, sigma: w * (x * cube(x)).sum(1) / 4)
    with torch.no_grad():
        torch.testing.assert_close(score(x, torch.tensor(0.0)), -0.5 * x**3)
    with pytest.warns(UserWarning, match="no forward-mode derivative"):
        loss = sliced(score, x, 0.0, direction=rademacher)
    torch.testing.assert_close(loss, -1.5 * x.square().sum(1) + 0.125 * x.pow(6).sum(1))
    (grad,) = torch.autograd.grad(loss.sum(), w)
    torch.testing.assert_close(grad, -3 * x.square().sum() + 0.5 * x.pow(6).sum())


@pytest.mark.parametrize("mode", MODES)
def test_gradients_flow_into_x_itself(mode: QuadraticForm) -> None:
    """x = a·data with s(x) = −x: d/da Σ ½‖x‖² = a Σ data²."""
    a, data = torch.tensor(2.0, requires_grad=True), torch.randn(4, 3)
    loss = sliced(lambda x, sigma: -x, a * data, 0.0, quadratic_form=mode).sum()
    (grad,) = torch.autograd.grad(loss, a)
    torch.testing.assert_close(grad, 2 * data.square().sum())


def test_an_operator_without_forward_mode_falls_back_too() -> None:
    points = torch.zeros(1, 2)
    with pytest.warns(UserWarning, match="forward AD"):
        loss = explicit(lambda x, sigma: -x * torch.cdist(x, points).square(), torch.tensor([[1.0, 2.0]]), 0.0)
    torch.testing.assert_close(loss, torch.tensor([-4 * 5.0 + 125 / 2]))  # s = −x‖x‖²: tr = −(D + 2)‖x‖², ‖s‖² = ‖x‖⁶


def test_a_mistake_in_the_score_is_not_taken_for_a_missing_derivative() -> None:
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        sliced(lambda x, sigma: x @ torch.ones(3, 3), torch.ones(2, 2), 0.0)


@pytest.mark.parametrize("mode", MODES)
def test_objectives_can_be_measured_without_gradients(mode: QuadraticForm) -> None:
    network, x = MLP(width=4), torch.randn(3, 2)
    with torch.no_grad():
        loss = sliced(network, x, 0.1, quadratic_form=mode)
    assert not loss.requires_grad


@pytest.mark.parametrize("mode", MODES)
def test_objectives_are_right_in_inference_mode(mode: QuadraticForm) -> None:
    network, x = MLP(width=4), torch.randn(5, 2)
    losses = []
    for context in (torch.enable_grad(), torch.inference_mode()):
        torch.manual_seed(1)
        with context:
            losses.append(explicit(network, x, 0.5, quadratic_form=mode).sum().item())
    assert losses[0] == pytest.approx(losses[1])


@pytest.mark.parametrize("mode", MODES)
def test_a_constant_score_has_no_trace(mode: QuadraticForm) -> None:
    constant = torch.tensor([3.0, 4.0])
    loss = explicit(lambda x, sigma: constant.expand_as(x), torch.ones(2, 2), 0.0, quadratic_form=mode)
    assert loss.tolist() == [12.5, 12.5]
