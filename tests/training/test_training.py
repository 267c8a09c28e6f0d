from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from scorefield.acceleration.fast import RecordedUpdate
from scorefield.networks import RefineNet
from scorefield.noise import SampleNoise
from scorefield.objectives import sliced
from scorefield.models.recipes import Recipe
from scorefield.training.run import _fused as fused_is_chosen
from scorefield.training.steps import (
    StepLoss,
    TrainingState,
    Update,
    descent,
    example_losses,
    fit,
    measure,
    prepared,
    step_loss,
)

PIXELS = torch.randint(0, 256, (6, 4, 4, 1), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def fresh(learning_rate: float = 1e-2) -> TrainingState:
    torch.manual_seed(0)
    network = RefineNet(channels=1, width=2, sigmas=[1.0, 0.1])
    return TrainingState(network, torch.optim.Adam(network.parameters(), lr=learning_rate))


def loss_of(state: TrainingState, **kwargs: object) -> StepLoss:
    return step_loss(example_losses(state.network, state.network.sigmas, **kwargs), seed=3)  # type: ignore[arg-type]


def run(state: TrainingState, *, steps: int = 3, loss: StepLoss | None = None, **kwargs: object) -> list[Update]:
    step = descent(state, loss or loss_of(state), **kwargs)  # type: ignore[arg-type]
    return list(fit(state, lambda step: PIXELS, step, steps=steps, learning_rate=1e-2))


def weights(state: TrainingState) -> Tensor:
    return torch.cat([p.detach().flatten() for p in state.network.parameters()])


def gradient(state: TrainingState) -> Tensor:
    """Of the last update. (The weights are no measure: Adam makes a full step of a gradient that is all rounding.)"""
    return torch.cat([p.grad.flatten() for p in state.network.parameters() if p.grad is not None])


def test_an_update_is_adams_step_along_the_gradient_of_equation_6() -> None:
    """Compared with a step made by hand from the same noise."""
    state, other = fresh(), fresh()
    (update,) = run(state, steps=1)
    noise = SampleNoise.at_step(3, 0, range(6))
    x = (PIXELS.permute(0, 3, 1, 2).float() + noise.rand_like(torch.empty(6, 1, 4, 4))) / 256
    levels = (noise.rand_like(torch.empty(6)) * 2).long()
    sigma, z = torch.tensor([1.0, 0.1])[levels], noise.randn_like(x)
    s = other.network(x + sigma[:, None, None, None] * z, sigma)
    losses = (sigma[:, None, None, None] * s + z).square().flatten(1).sum(1) / 2
    losses.mean().backward()
    torch.testing.assert_close(update.losses, losses.detach(), rtol=1e-4, atol=1e-4)
    assert torch.equal(update.levels, levels)
    assert (gradient(state) - gradient(other)).norm() < 1e-4 * gradient(other).norm()
    for parameter, before in zip(state.network.parameters(), fresh().network.parameters(), strict=True):
        g = parameter.grad
        assert g is not None
        torch.testing.assert_close(parameter, before - 1e-2 * g / (g.abs() + 1e-8))  # Adam's first step


def test_a_batch_in_parts_is_the_same_batch() -> None:
    whole, parts = fresh(), fresh()
    (one,), (other,) = run(whole, steps=1), run(parts, steps=1, micro_batch=4)
    torch.testing.assert_close(one.losses, other.losses, rtol=1e-4, atol=1e-4)
    assert torch.equal(one.levels, other.levels)
    assert (gradient(whole) - gradient(parts)).norm() < 1e-4 * gradient(whole).norm()


def test_step_n_is_a_function_of_the_seed_and_n_alone() -> None:
    """Stopped after two steps, and gone on with by another generator: bit for bit the same."""
    one, two = fresh(), fresh()
    run(one, steps=4)
    run(two, steps=2)
    torch.manual_seed(99)
    run(two, steps=4)
    assert torch.equal(weights(one), weights(two))


def test_sliced_score_matching_trains_too() -> None:
    state = fresh()
    before = weights(state)
    updates = run(state, loss=loss_of(state, objective=sliced))
    assert all(u.losses.isfinite().all() for u in updates)
    assert not torch.equal(before, weights(state))


def test_the_learning_rate_warms_up() -> None:
    state, rates = fresh(), []
    for _ in fit(state, lambda step: PIXELS, descent(state, loss_of(state)), steps=5, learning_rate=1e-2, warmup=4):
        rates.append(state.optimizer.param_groups[0]["lr"])
    assert rates == pytest.approx([0.0025, 0.005, 0.0075, 0.01, 0.01])


def test_long_gradients_are_shortened() -> None:
    state = fresh()
    run(state, steps=1, clip=1e-3)
    norm = torch.cat([p.grad.flatten() for p in state.network.parameters() if p.grad is not None]).norm()
    torch.testing.assert_close(norm, torch.tensor(1e-3), rtol=1e-3, atol=0)


@pytest.mark.parametrize("micro_batch", [0, 4])
@pytest.mark.parametrize("fused", [False, True])
def test_an_update_without_a_finite_gradient_is_left_out(micro_batch: int, fused: bool) -> None:
    """The loss is finite, with a derivative of 0 · ∞ in the second of two parts. Often enough, and it is NaN."""
    state, good = fresh(), torch.ones(())
    state.optimizer = torch.optim.Adam(state.network.parameters(), lr=1e-2, fused=fused)
    plain = loss_of(state)

    def loss(step: int, pixels: Tensor, places: range) -> tuple[Tensor, Tensor]:
        losses, levels = plain(step, pixels, places)
        return losses + ((good if 5 in places else 1) + 0 * losses).sqrt(), levels

    step = descent(state, loss, micro_batch=micro_batch, clip=1.0)
    for value, many in ((1, 2), (0, 2), (1, 2), (0, 12)):
        good.fill_(value)
        for _ in range(many):
            before, count = weights(state), [float(each["step"]) for each in state.optimizer.state.values()]
            told, _ = step(state.step, PIXELS)
            assert torch.equal(before, weights(state)) == (value == 0)
            assert (count == [float(each["step"]) for each in state.optimizer.state.values()]) == (value == 0)
            assert told.isfinite().all() or many == 12
    assert weights(state).isfinite().all()
    assert told.isnan().all()


def test_the_moving_average_by_hand() -> None:
    """Decay min(0.5, n/(n + 9)): 0.1, 2/11, 0.25, ..."""
    state = fresh()
    state.average = {name: value.clone() for name, value in state.network.state_dict().items()}
    expected = state.average["end.weight"].clone()
    for update in fit(
        state, lambda step: PIXELS, descent(state, loss_of(state)), steps=12, learning_rate=1e-2, ema=0.5
    ):
        decay = min(0.5, update.step / (update.step + 9))
        expected = decay * expected + (1 - decay) * state.network.state_dict()["end.weight"]
    torch.testing.assert_close(state.average["end.weight"], expected)
    torch.testing.assert_close(state.average["sigmas"], torch.tensor([1.0, 0.1]))


def test_dequantised_images_fill_the_gaps_between_grey_values() -> None:
    pixels = torch.arange(256, dtype=torch.uint8).reshape(1, 16, 16, 1).expand(200, -1, -1, -1)
    x = prepared(pixels, SampleNoise(range(200)), flip=False, dequantise=True)
    u = (x * 256 - pixels.permute(0, 3, 1, 2)).flatten()
    assert 0 <= u.min() <= u.max() <= 1
    assert abs(u.mean() - 0.5) < 5 / (12 * len(u)) ** 0.5
    plain = prepared(pixels, SampleNoise(range(200)), flip=False, dequantise=False)
    assert torch.equal(plain, pixels.permute(0, 3, 1, 2).float() / 255)


def test_half_of_the_images_are_mirrored() -> None:
    pixels = torch.tensor([[0, 255]], dtype=torch.uint8).reshape(1, 1, 2, 1).expand(2000, -1, -1, -1)
    x = prepared(pixels, SampleNoise(range(2000)), flip=True, dequantise=False)
    mirrored = x[:, 0, 0, 0] == 1
    assert ((x[:, 0, 0, 1] == 1) != mirrored).all()
    assert abs(mirrored.float().mean() - 0.5) < 4.5 * 0.5 / 2000**0.5


def test_held_out_loss_of_a_silent_score() -> None:
    """s = 0: λℓ = ½‖z‖² has mean D/2 at every level, always with the same z."""
    pixels = torch.zeros(3000, 4, 4, 1, dtype=torch.uint8)
    each = measure(lambda x, sigma: torch.zeros_like(x), pixels, torch.tensor([1.0, 0.1, 0.01]), batch_size=700)
    torch.testing.assert_close(each, torch.full((3,), 8.0), atol=5 * (8 / 1000) ** 0.5, rtol=0)
    assert len(set(each.tolist())) == 3
    again = measure(lambda x, sigma: torch.zeros_like(x), pixels, torch.tensor([1.0, 0.1, 0.01]), batch_size=3000)
    torch.testing.assert_close(each, again)


def test_few_held_out_images_see_every_level() -> None:
    """s = 0 and λ = σ²: two images make ½‖z‖² of five levels, each of noise of its own, in three rounds."""
    pixels, sigmas = torch.zeros(2, 4, 4, 1, dtype=torch.uint8), torch.linspace(1, 0.1, 5)
    each = measure(lambda x, sigma: torch.zeros_like(x), pixels, sigmas, batch_size=4)
    halves = [SampleNoise([k]).randn_like(torch.empty(1, 1, 4, 4)).square().sum().item() / 2 for k in range(6)]
    expected = [(halves[0] + halves[5]) / 2, *halves[1:5]]
    torch.testing.assert_close(each, torch.tensor(expected))


def test_the_noise_of_a_place_does_not_depend_on_its_neighbours() -> None:
    whole = SampleNoise.at_step(1, 7, range(10)).randn_like(torch.empty(10, 5))
    part = SampleNoise.at_step(1, 7, range(4, 6)).randn_like(torch.empty(2, 5))
    assert torch.equal(whole[4:6], part)
    for other in (SampleNoise.at_step(2, 7, range(10)), SampleNoise.at_step(1, 8, range(10))):
        assert not torch.isclose(whole, other.randn_like(torch.empty(10, 5))).any()


def test_noise_that_is_recorded_can_be_renewed_in_its_place() -> None:
    noise, other = SampleNoise.at_step(1, 2, range(3)), SampleNoise.at_step(1, 3, range(3))
    recorded, x = noise.copy(), torch.empty(3, 2, 2)
    assert torch.equal(recorded.copy().randn_like(x), noise.copy().randn_like(x))
    place = recorded._key.data_ptr()
    recorded.renew(other)
    assert recorded._key.data_ptr() == place
    assert torch.equal(recorded.copy().randn_like(x), other.copy().randn_like(x))


@pytest.mark.parametrize("steps", [0, 2])
def test_the_optimizer_is_started_without_a_trace(steps: int) -> None:
    """What a recording does before it begins: Adam's moments are there, and all is as it was."""
    state, untouched = fresh(), fresh()
    for each in (state, untouched):
        run(each, steps=steps)
    losses = example_losses(state.network, torch.tensor([1.0, 0.1]))
    update = RecordedUpdate(losses, state, seed=3, clip=0.0)
    loss_of(state)(0, PIXELS, range(6))[0].sum().backward()
    update._start_optimizer()
    assert torch.equal(weights(state), weights(untouched))
    for each in (state, untouched):
        run(each, steps=steps + 2)
    assert torch.equal(weights(state), weights(untouched))


def test_second_derivatives_do_not_go_through_the_fused_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scorefield.acceleration.kernels.usable", lambda x: True)
    network = RefineNet(channels=1, width=2, sigmas=[1.0, 0.1])
    recipe = Recipe(precision="bfloat16")
    assert fused_is_chosen(recipe, network)
    assert not fused_is_chosen(replace(recipe, objective="sliced"), network)
    assert not fused_is_chosen(replace(recipe, precision="float32"), network)
    assert not fused_is_chosen(replace(recipe, compile=True), network)
