from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from scorefield import annealed_langevin, geometric, known_pixels, langevin, last


def test_inpainting_a_correlated_gaussian_gives_its_conditional_law() -> None:
    """x ~ N(0, C), x₁ and x₂ known as y. At the last level the known entries are y + σz, and given them x₃ is normal.

    With K = C + σ²I and weights w = K₃ₖ Kₖₖ⁻¹:  E x₃ = w·y,  var x₃ = K₃₃ − w·Kₖ₃ + σ²‖w‖²  (the last for the z), and
    the finite step makes v/(1 − α/(4v)) of the conditional v. As σ → 0 these are the conditional mean and variance.
    """
    c = torch.tensor([[1.0, 0.5, 0.6], [0.5, 2.0, 0.9], [0.6, 0.9, 1.5]], dtype=torch.float64)
    y, n = torch.tensor([1.5, -1.0], dtype=torch.float64), 20_000
    sigmas, epsilon = geometric(2.0, 0.1, 4).double(), 0.02

    def score(x: Tensor, sigma: Tensor) -> Tensor:
        return -x @ torch.linalg.inv(c + sigma**2 * torch.eye(3, dtype=torch.float64))

    known = torch.cat([y, torch.tensor([math.nan], dtype=torch.float64)]).expand(n, 3)
    mask = torch.tensor([1, 1, 0])
    start = torch.randn(n, 3, dtype=torch.float64)
    x = last(
        annealed_langevin(score, start, sigmas, step_size=epsilon, steps=500, constraint=known_pixels(known, mask))
    )
    w0 = torch.linalg.solve(c[:2, :2], c[:2, 2])
    k = c + sigmas[-1] ** 2 * torch.eye(3, dtype=torch.float64)
    w = torch.linalg.solve(k[:2, :2], k[:2, 2])
    inner = k[2, 2] - w @ k[:2, 2]
    mean, variance = w @ y, inner / (1 - epsilon / (4 * inner)) + sigmas[-1] ** 2 * w @ w
    assert abs(x[:, 2].mean() - mean) < 4.5 * math.sqrt(variance / n)
    assert abs(x[:, 2].var() / variance - 1) < 4.5 * math.sqrt(2 / n)
    # near the textbook's law: the last level's noise and step move its mean by 0.0051, its variance by 2.3 %
    assert abs(x[:, 2].mean() - w0 @ y) < 0.0052 + 4.5 * math.sqrt(variance / n)
    assert abs(x[:, 2].var() / (c[2, 2] - w0 @ c[:2, 2]) - 1) < 0.024 + 4.5 * math.sqrt(2 / n)
    # the known entries are y within the last level's noise
    assert abs((x[:, :2] - y).std() / sigmas[-1] - 1) < 4.5 / math.sqrt(2 * 2 * n)


def test_known_pixels_are_drawn_once_per_level_and_kept_through_it() -> None:
    y, mask = torch.full((4, 1, 3, 3), 0.5), torch.zeros(3, 3)
    mask[:, 0] = 1
    draws = []

    def counted(x: Tensor) -> Tensor:
        draws.append(torch.randn_like(x))
        return draws[-1]

    states = annealed_langevin(
        lambda x, sigma: -x,
        torch.rand(4, 1, 3, 3),
        [1.0, 0.1],
        step_size=1e-3,
        steps=3,
        constraint=known_pixels(y, mask, randn_like=counted),
    )
    assert next(states).step == 0  # the start, which is not constrained
    assert not draws
    for state in states:
        z = draws[(state.step - 1) // 3]
        torch.testing.assert_close(state.x[..., 0], (0.5 + state.sigma * z)[..., 0])
    assert len(draws) == 2


def test_a_final_denoising_step_leaves_what_is_known_as_it_is() -> None:
    y = torch.tensor([[0.5, 0.0]]).expand(6, 2)
    states = annealed_langevin(
        lambda x, sigma: -x / (1 + sigma**2),
        torch.rand(6, 2),
        [1.0, 0.3],
        step_size=0.05,
        steps=3,
        constraint=known_pixels(y, torch.tensor([1, 0])),
        denoise=True,
    )
    *_, noisy, final = states
    assert torch.equal(final.x[:, 0], y[:, 0])
    torch.testing.assert_close(final.x[:, 1], noisy.x[:, 1] * (1 - 0.09 / 1.09))


def test_y_may_be_of_another_precision() -> None:
    constraint = known_pixels(torch.zeros(2, 2, dtype=torch.float64), torch.tensor([1, 0]))
    assert constraint(torch.tensor(1.0))(torch.zeros(2, 2)).dtype == torch.float32


def test_everything_known_is_y_and_its_noise_and_nothing_known_is_no_constraint() -> None:
    y, x = torch.rand(2, 5), torch.rand(2, 5)
    at_level = known_pixels(y, torch.ones(5), randn_like=torch.ones_like)(torch.tensor(0.25))
    torch.testing.assert_close(at_level(x), y + 0.25)
    assert torch.equal(known_pixels(y, torch.zeros(5))(torch.tensor(0.25))(x), x)


def test_a_constraint_holds_in_plain_langevin_dynamics_too() -> None:
    y = torch.tensor([[2.0, 0.0]]).expand(10, 2)
    constraint = known_pixels(y, torch.tensor([True, False]))
    x = torch.zeros(10, 2)
    start, *states = langevin(lambda x, sigma: -x, x, 0.0, step_size=0.1, steps=5, constraint=constraint)
    assert start.x is x
    assert len(states) == 5
    for state in states:
        assert (state.x[:, 0] == 2).all()
        assert (state.x[:, 1] != 0).all()


@given(
    leading=st.integers(0, 2),
    kept=st.lists(st.booleans(), min_size=4, max_size=4),
    kind=st.sampled_from([torch.bool, torch.uint8, torch.float32, torch.int64]),
    seed=st.integers(0, 99),
)
def test_any_mask_that_broadcasts(leading: int, kept: list[bool], kind: torch.dtype, seed: int) -> None:
    torch.manual_seed(seed)
    full = (2, 3, 4, 5)
    shape = [n if keep else 1 for n, keep in zip(full, kept, strict=True)][leading:]
    mask = (torch.rand(shape) < 0.5).to(kind)
    y, x = torch.randn(full), torch.randn(full)
    result = known_pixels(y, mask)(torch.tensor(0.0))(x)
    m = mask.expand(full).float()
    assert torch.equal(result, x * (1 - m) + y * m)


@pytest.mark.parametrize("shape", [(5,), (2, 2, 4, 4), (3, 3, 4, 4), (1, 2, 3, 4, 4), (4, 3)])
def test_a_mask_that_does_not_broadcast_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"mask must broadcast to y's shape, \(2, 3, 4, 4\)"):
        known_pixels(torch.zeros(2, 3, 4, 4), torch.ones(shape))


def test_a_mask_of_grey_values_is_refused() -> None:
    with pytest.raises(ValueError, match="pass mask > 127"):
        known_pixels(torch.zeros(2, 4), torch.tensor([0, 255, 255, 0]))


def test_integer_images_are_refused() -> None:
    with pytest.raises(ValueError, match=r"y.float\(\) / 255"):
        known_pixels(torch.zeros(2, 4, dtype=torch.uint8), torch.ones(4))


def test_known_pixels_must_be_known() -> None:
    y = torch.tensor([[0.5, math.nan]])
    with pytest.raises(ValueError, match="NaN or infinite entries where mask says it is known"):
        known_pixels(y, torch.tensor([1, 1]))
    known_pixels(y, torch.tensor([1, 0]))


def test_y_must_have_the_samples_shape() -> None:
    constraint = known_pixels(torch.zeros(1, 2), torch.tensor([1, 0]))
    states = langevin(lambda x, sigma: -x, torch.zeros(8, 2), 1.0, step_size=0.1, steps=1, constraint=constraint)
    with pytest.raises(ValueError, match=r"y.expand_as\(x\)"):
        last(states)
