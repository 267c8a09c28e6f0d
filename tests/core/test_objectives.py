from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from core.derivative_modes import MODES
from scorefield import GaussianMixture, from_energy
from scorefield.derivatives import QuadraticForm
from scorefield.networks import MLP
from scorefield.noise import every_level, geometric, one_level, rademacher
from scorefield.objectives import annealed, denoising, explicit, sliced

GAUSSIAN = GaussianMixture(torch.tensor([[1.0, -0.5]], dtype=torch.float64), [[0.6, 1.2]], [1.0])
MIXTURE = GaussianMixture(torch.tensor([[-1.0, -1.0], [1.0, 0.5]], dtype=torch.float64), [0.5, 0.8], [0.3, 0.7])
OBJECTIVES = {
    "explicit": explicit,
    "denoising": denoising,
    "sliced": sliced,
    "sliced, rademacher": partial(sliced, direction=rademacher),
}


# ---------------------------------------------------------------- values that can be computed by hand


def replay(*draws: Tensor) -> Callable[[Tensor], Tensor]:
    """A randn_like that gives these draws, one after the other."""
    rest: Iterator[Tensor] = iter(draws)
    return lambda x: next(rest)


@given(shape=st.lists(st.integers(1, 3), min_size=1, max_size=3), seed=st.integers(0, 1000))
@pytest.mark.parametrize("mode", MODES)
def test_values_for_a_linear_score(mode: QuadraticForm, shape: list[int], seed: int) -> None:
    """s(x) = Ax has ∇s = A: all three equations are plain arithmetic, for vectors and images, with A not symmetric."""
    generator = torch.Generator().manual_seed(seed)
    randn = partial(torch.randn, generator=generator, dtype=torch.float64)
    size = math.prod(shape)
    a, x, z, v = randn(size, size), randn(4, *shape), randn(4, *shape), randn(4, *shape)
    sigma = 0.1 + torch.rand(4, generator=generator, dtype=torch.float64)

    def score(x: Tensor, sigma: Tensor) -> Tensor:
        return (x.flatten(1) @ a.T).reshape(x.shape)

    std = sigma[:, None]
    noisy, flat_v = x.flatten(1) + std * z.flatten(1), v.flatten(1)
    s = noisy @ a.T
    half = s.square().sum(1) / 2
    torch.testing.assert_close(explicit(score, x, sigma, randn_like=replay(z), quadratic_form=mode), a.trace() + half)
    torch.testing.assert_close(
        sliced(score, x, sigma, randn_like=replay(z, v), quadratic_form=mode), ((flat_v @ a) * flat_v).sum(1) + half
    )
    torch.testing.assert_close(
        denoising(score, x, sigma, randn_like=replay(z)), (s + z.flatten(1) / std).square().sum(1) / 2
    )


@pytest.mark.parametrize("objective", [explicit, sliced])
def test_without_noise_they_are_equations_1_and_3_of_the_data_itself(objective: Callable[..., Tensor]) -> None:
    """s(x) = −x at σ = 0:  tr ∇s + ½‖s‖² = −D + ½‖x‖²; any rademacher v gives the same trace."""
    x = torch.tensor([[3.0, 4.0], [0.0, 0.0]])
    kwargs = {"direction": rademacher} if objective is sliced else {}
    assert objective(lambda x, sigma: -x, x, 0.0, **kwargs).tolist() == [-2 + 12.5, -2.0]


def test_denoising_of_a_silent_score_is_the_noise_itself() -> None:
    """s = 0, z = 1:  ½‖z/σ‖² = D/(2σ²)."""
    x, sigma = torch.rand(3, 1, 2, 2), torch.tensor([0.5, 1.0, 2.0])
    loss = denoising(lambda x, sigma: torch.zeros_like(x), x, sigma, randn_like=torch.ones_like)
    assert loss.tolist() == [8.0, 2.0, 0.5]


def test_any_layout_and_single_numbers() -> None:
    """s(x) = −x: −D + ½‖x‖² for images in channels-last layout, and for a batch of numbers, (B,)."""
    x = torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last)
    expected = -48 + x.square().flatten(1).sum(1) / 2
    torch.testing.assert_close(explicit(lambda x, sigma: -x, x, 0.0), expected)
    torch.testing.assert_close(sliced(lambda x, sigma: -x, x, 0.0, direction=rademacher), expected)
    numbers = torch.tensor([1.0, 2.0])
    assert explicit(lambda x, sigma: -x, numbers, 0.0).tolist() == [-0.5, 1.0]
    assert denoising(lambda x, sigma: -x, numbers, 1.0, randn_like=torch.zeros_like).tolist() == [0.5, 2.0]


# ---------------------------------------------------------------- one gradient, one minimiser


def true_loss(score: Callable[[Tensor, Tensor], Tensor], x: Tensor, sigma: Tensor, data: GaussianMixture) -> Tensor:
    """½‖s − ∇log q_σ‖² at x̃ ~ q_σ: what the objectives equal up to a constant."""
    x = x + sigma * torch.randn_like(x)
    return (score(x, sigma) - data.score(x, sigma)).square().sum(1) / 2


@pytest.mark.parametrize("data", [GAUSSIAN, MIXTURE], ids=["gaussian", "mixture"])
@pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES)
def test_all_objectives_have_the_gradient_of_the_true_loss(
    data: GaussianMixture, objective: Callable[..., Tensor]
) -> None:
    """Means over 40 batches agree within 4.5 standard errors, for each parameter of a network with random weights."""
    torch.manual_seed(2)
    network, sigma = MLP(width=3).double(), torch.tensor(0.5, dtype=torch.float64)
    parameters = list(network.parameters())

    def gradients(loss: Callable[..., Tensor]) -> tuple[Tensor, Tensor]:
        batches = []
        for _ in range(40):
            grad = torch.autograd.grad(loss(network, data.sample(4000), sigma).mean(), parameters)
            batches.append(torch.cat([g.flatten() for g in grad]))
        stacked = torch.stack(batches)
        return stacked.mean(0), stacked.var(0) / len(stacked)

    (mean, var), (expected, expected_var) = gradients(objective), gradients(partial(true_loss, data=data))
    assert expected.norm() > 0.3  # far from a minimum, so that a wrong factor would show
    assert ((mean - expected).abs() < 4.5 * (var + expected_var).sqrt()).all()


@pytest.mark.parametrize("sigma", [0.3, 1.0])
@pytest.mark.parametrize("data", [GAUSSIAN, MIXTURE], ids=["gaussian", "mixture"])
@pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES)
def test_the_minimiser_is_the_score_of_the_perturbed_data(
    data: GaussianMixture, objective: Callable[..., Tensor], sigma: float
) -> None:
    """Among θ₀ ∇log q_σ + θ₁ x + θ₂ + θ₃ tanh x, the least loss is at ∇log q_σ. The loss is quadratic in θ, so one
    Newton step from θ = 0 goes there; what is left is Monte-Carlo error."""
    x = data.sample(100_000)

    def model(theta: Tensor, x: Tensor, sigma: Tensor | float) -> Tensor:
        return theta[0] * data.score(x, sigma) + theta[1] * x + theta[2] + theta[3] * x.tanh()

    def loss(theta: Tensor) -> Tensor:
        torch.manual_seed(5)
        return objective(partial(model, theta), x, sigma).mean()

    zero = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(loss(zero), zero)
    hessian = torch.autograd.functional.hessian(loss, zero)
    theta = -torch.linalg.solve(hessian, gradient)
    test, truth = data.sample(10_000, sigma), partial(data.score, sigma=sigma)
    assert (model(theta, test, sigma) - truth(test)).norm() < 0.02 * truth(test).norm()


# ---------------------------------------------------------------- energies


@pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES)
@pytest.mark.parametrize("mode", MODES)
def test_an_energy_gets_the_same_gradient_as_its_score(objective: Callable[..., Tensor], mode: QuadraticForm) -> None:
    """E = ½a‖x − m‖² + b Σ x⁴/4 and s = −a(x − m) − b x³ are one model: losses and gradients are equal, to rounding."""
    kwargs = {} if objective is denoising else {"quadratic_form": mode}
    a, m, b = (torch.tensor(p, dtype=torch.float64, requires_grad=True) for p in (0.7, [0.3, -1.0], 0.2))
    x = torch.randn(16, 2, dtype=torch.float64)

    def energy(x: Tensor, sigma: Tensor) -> Tensor:
        return a * (x - m).square().sum(1) / 2 + b * x.pow(4).sum(1) / 4

    def score(x: Tensor, sigma: Tensor) -> Tensor:
        return -a * (x - m) - b * x.pow(3)

    results = []
    for model in (from_energy(energy), score):
        torch.manual_seed(1)
        loss = objective(model, x, 0.4, **kwargs).mean()
        results.append([loss, *torch.autograd.grad(loss, [a, m, b])])
    torch.testing.assert_close(*results)


def test_an_energy_based_model_learns_a_gaussian() -> None:
    """E = ½ Σ c(x − m)² trained by sliced score matching on N(1, 0.6²) × N(−0.5, 1.2²) finds m and the precisions."""
    m, log_c = (torch.zeros(2, dtype=torch.float64, requires_grad=True) for _ in range(2))
    score = from_energy(lambda x, sigma: (log_c.exp() * (x - m).square()).sum(1) / 2)
    optimizer = torch.optim.Adam([m, log_c], lr=0.05)
    x = GAUSSIAN.sample(20_000)
    for _ in range(200):
        optimizer.zero_grad()
        sliced(score, x, 0.0, direction=rademacher).mean().backward()
        optimizer.step()
    torch.testing.assert_close(m, x.mean(0), atol=0.01, rtol=0)
    torch.testing.assert_close(log_c.exp(), 1 / x.var(0), atol=0, rtol=0.01)


# ---------------------------------------------------------------- all levels together


def test_annealed_over_every_level_is_equation_6() -> None:
    sigmas, x = geometric(1.0, 0.1, 4), torch.randn(8, 2)
    network = MLP(width=4)
    loss = annealed(
        network, x, objective=partial(denoising, randn_like=torch.ones_like), draw_sigma=every_level(sigmas)
    )
    by_hand = [s**2 * denoising(network, x, s, randn_like=torch.ones_like).mean() for s in sigmas]
    torch.testing.assert_close(loss, sum(by_hand) / 4)


def test_one_random_level_per_example_has_the_same_expectation() -> None:
    sigmas, x = geometric(1.0, 0.1, 4), torch.zeros(100_000, 1)

    def level_itself(score: object, x: Tensor, sigma: Tensor) -> Tensor:
        return 1 / sigma

    loss = annealed(MLP(), x, objective=level_itself, draw_sigma=one_level(sigmas))  # the mean of σ²/σ
    assert abs(loss - sigmas.mean()) < 5 * sigmas.std() / math.sqrt(len(x))


def test_the_default_weight_makes_all_levels_alike() -> None:
    """With s = 0, σ² ½‖z/σ‖² = ½‖z‖² whatever the level; another λ changes that."""
    x, draw = torch.rand(5, 3, 4, 4), every_level(geometric(1.0, 0.01, 10))
    silent, ones = torch.zeros_like, partial(denoising, randn_like=torch.ones_like)
    loss = annealed(lambda x, sigma: silent(x), x, objective=ones, draw_sigma=draw)
    torch.testing.assert_close(loss, torch.tensor(24.0))
    flat = annealed(
        lambda x, sigma: silent(x), x, objective=ones, draw_sigma=lambda x: torch.tensor(0.5), weight=torch.ones_like
    )
    torch.testing.assert_close(flat, torch.tensor(96.0))


def test_sliced_score_matching_trains_through_annealed_as_well() -> None:
    network = nn.Linear(2, 2)
    draw = one_level(geometric(1.0, 0.1, 4))
    annealed(lambda x, sigma: network(x), torch.randn(8, 2), objective=sliced, draw_sigma=draw).backward()
    assert network.weight.grad is not None
    assert network.weight.grad.abs().sum() > 0


# ---------------------------------------------------------------- wrong calls


@pytest.mark.parametrize("objective", [explicit, denoising, sliced])
@pytest.mark.parametrize(
    ("x", "sigma", "message"),
    [
        (torch.ones(2, 3, dtype=torch.uint8), 0.1, r"x.float\(\) / 255"),
        (torch.ones(2, 3), torch.ones(3), r"shape \(2,\)"),
        (torch.ones(2, 3), torch.ones(2, 1), r"shape \(2,\)"),
        (torch.ones(2, 3), -0.1, "not negative"),
        (torch.ones(2, 3), torch.tensor([1, 2]), "not the index"),
        (torch.tensor(1.0), 0.1, "x must be a batch"),
        (torch.ones(0, 3), 0.1, "x is empty"),
    ],
)
def test_wrong_calls_are_refused(
    objective: Callable[..., Tensor], x: Tensor, sigma: Tensor | float, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        objective(lambda x, sigma: -x, x, sigma)


def test_denoising_needs_noise() -> None:
    with pytest.raises(ValueError, match="sliced and explicit allow it"):
        denoising(lambda x, sigma: -x, torch.ones(2, 3), 0.0)


@pytest.mark.parametrize("objective", [explicit, denoising, sliced])
def test_a_score_of_a_wrong_shape_is_refused(objective: Callable[..., Tensor]) -> None:
    with pytest.raises(ValueError, match=r"a score must return x's shape, \(2, 3\); got \(2, 1\)"):
        objective(lambda x, sigma: x.sum(1, keepdim=True), torch.ones(2, 3), 0.5)
