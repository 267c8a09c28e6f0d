"""The trainer: each update against one made by hand."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from labelled import Labelled
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import scorefield.training.run as run_module
from scorefield import acceleration
from scorefield.models.recipes import Recipe
from scorefield.networks import RefineNet
from scorefield.noise import SampleNoise, sample_seeds
from scorefield.objectives import sliced
from scorefield.training.run import uses_fused_kernels
from scorefield.training.trainer import (
    Batch,
    Losses,
    RecordedTrainer,
    Trainer,
    exponential,
    held_out_losses,
    learning_rates,
    mean_losses,
    new_average,
    prepare,
    score_matching,
)
from training.small_runs import ALONE, Small

PIXELS = torch.randint(0, 256, (6, 4, 4, 1), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


SIGMAS = torch.tensor([1.0, 0.1])


def fresh(
    kind: type[Trainer] = Trainer,
    *,
    network: nn.Module | None = None,
    fused: bool = False,
    **settings: Any,  # noqa: ANN401
) -> Trainer:
    torch.manual_seed(0)
    network = network or RefineNet(channels=1, width=2, sigmas=SIGMAS)
    optimizer = torch.optim.Adam(network.parameters(), fused=fused)
    return kind(network, score_matching(network, SIGMAS), optimizer, learning_rates(1e-2), seed=3, **settings)


def run(trainer: Trainer, *, steps: int = 3) -> list[Losses]:
    return [trainer.step(Batch(PIXELS), n) for n in range(trainer.steps_done, steps)]


def weights(trainer: Trainer) -> Tensor:
    return torch.cat([p.detach().flatten() for p in trainer.network.parameters()])


def gradient(trainer: Trainer) -> Tensor:
    """Of the last update. (The weights are no measure: Adam makes a full step of a gradient that is all rounding.)"""
    return torch.cat([p.grad.flatten() for p in trainer.network.parameters() if p.grad is not None])


def test_an_update_is_adams_step_along_the_gradient_of_equation_6() -> None:
    """Compared with a step made by hand from the same noise."""
    trainer, other = fresh(), fresh()
    (update,) = run(trainer, steps=1)
    noise = SampleNoise.at_step(3, 0, range(6))
    x = (PIXELS.permute(0, 3, 1, 2).float() + noise.rand_like(torch.empty(6, 1, 4, 4))) / 256
    levels = (noise.rand_like(torch.empty(6)) * 2).long()
    sigma, z = torch.tensor([1.0, 0.1])[levels], noise.randn_like(x)
    s = other.network(x + sigma[:, None, None, None] * z, sigma)
    losses = (sigma[:, None, None, None] * s + z).square().flatten(1).sum(1) / 2
    losses.mean().backward()
    torch.testing.assert_close(update.values, losses.detach(), rtol=1e-4, atol=1e-4)
    assert torch.equal(update.sigmas, sigma)
    assert not update.values.requires_grad
    assert trainer.steps_done == 1
    assert (gradient(trainer) - gradient(other)).norm() < 1e-4 * gradient(other).norm()
    for parameter, before in zip(trainer.network.parameters(), fresh().network.parameters(), strict=True):
        g = parameter.grad
        assert g is not None
        torch.testing.assert_close(parameter, before - 1e-2 * g / (g.abs() + 1e-8))  # Adam's first step


def test_a_batch_in_parts_is_the_same_batch() -> None:
    whole, parts = fresh(), fresh(micro_batch=4)
    (one,), (other,) = run(whole, steps=1), run(parts, steps=1)
    torch.testing.assert_close(one.values, other.values, rtol=1e-4, atol=1e-4)
    assert torch.equal(one.sigmas, other.sigmas)
    assert (gradient(whole) - gradient(parts)).norm() < 1e-4 * gradient(whole).norm()


LABELS = torch.tensor([4, 0, 1, 1, 3, 0])


def labelled(kind: type[Trainer] = Trainer, **settings: Any) -> tuple[Trainer, Labelled]:  # noqa: ANN401
    network = Labelled()
    loss = score_matching(network, SIGMAS)
    return kind(network, loss, torch.optim.Adam(network.parameters()), seed=3, **settings), network


@pytest.mark.parametrize("micro_batch", [0, 1, 4, 6])
def test_every_part_of_a_batch_has_its_own_labels(micro_batch: int) -> None:
    """s = (μ_y − x̃)/(1 + σ²): losses and gradients of the class means by hand."""
    trainer, network = labelled(micro_batch=micro_batch)
    label = torch.tensor([4, 0, 1, 1, 3, 0])
    mean = network.means.weight.detach().clone().requires_grad_()
    losses = trainer.step(Batch(PIXELS, label), 0)
    noise = SampleNoise.at_step(3, 0, range(6))
    x = (PIXELS.permute(0, 3, 1, 2).float() + noise.rand_like(torch.empty(6, 1, 4, 4))) / 256
    sigma = SIGMAS[(noise.rand_like(torch.empty(6)) * 2).long()]
    s, z = sigma[:, None, None, None], noise.randn_like(x)
    score = (mean[label][:, :, None, None] - x - s * z) / (1 + s**2)
    expected = (s * score + z).square().flatten(1).sum(1) / 2
    torch.testing.assert_close(losses.values, expected.detach())
    (by_hand,) = torch.autograd.grad(expected.mean(), mean)
    torch.testing.assert_close(network.means.weight.grad, by_hand)
    assert by_hand[2] == 0  # no example of class 2
    assert (by_hand[[0, 1, 3, 4]] != 0).all()


def test_part_of_a_batch() -> None:
    batch = Batch(PIXELS, torch.arange(6))
    part = batch.part(slice(2, 4))
    assert torch.equal(part.pixels, PIXELS[2:4])
    assert part.labels is not None
    assert part.labels.tolist() == [2, 3]
    assert Batch(PIXELS).part(slice(2, 4)).labels is None


class NoLooks(TorchDispatchMode):
    """An error where a tensor's value is looked at, which a recording on a GPU cannot do."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        assert func is not torch.ops.aten._local_scalar_dense.default, "looks at a value"
        return func(*args, **(kwargs or {}))


def test_a_loss_looks_at_no_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """While PyTorch records, the checks of σ are left out; no other look may be left."""
    trainer, _ = labelled()
    noise = SampleNoise.at_step(3, 0, range(6))
    with pytest.raises(AssertionError, match="looks at a value"), NoLooks():  # type: ignore[no-untyped-call]
        assert PIXELS.float().mean() > 0
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    with NoLooks():  # type: ignore[no-untyped-call]
        each, _ = trainer.loss(Batch(PIXELS, torch.arange(6) % 5), noise)
        each.mean().backward()


@pytest.fixture
def direct_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU: calls in the place of recordings."""
    monkeypatch.setattr("scorefield.training.trainer.warm_up", lambda work: work())
    monkeypatch.setattr("scorefield.training.trainer.recorded", lambda work: work)


@pytest.mark.usefixtures("direct_calls")
@pytest.mark.parametrize("clip", [0.0, 0.1])
def test_an_update_that_would_be_recorded_is_the_plain_one(clip: float) -> None:
    """Labels, noise and images of each step reach the recording's memory."""
    (recorded, network), (plain, other) = labelled(RecordedTrainer, clip=clip), labelled(clip=clip)
    for n, labels in enumerate(([0, 1, 2, 3, 4, 0], [4, 4, 0, 1, 1, 1], [3, 2, 1, 0, 0, 0])):
        batch = Batch(PIXELS.roll(n, 0), torch.tensor(labels))
        one, two = recorded.step(batch, n), plain.step(batch, n)
        torch.testing.assert_close(one.values, two.values)
        assert torch.equal(one.sigmas, two.sigmas)
    torch.testing.assert_close(network.means.weight, other.means.weight)
    with pytest.raises(ValueError, match="recorded for"):
        recorded.step(Batch(PIXELS[:2], torch.tensor([0, 1])), 3)


@pytest.mark.usefixtures("direct_calls")
@pytest.mark.parametrize("overflow", [False, True])
def test_recorded_updates_of_two_processes_are_those_of_one(overflow: bool) -> None:
    """Each has half of the batch, with the noise of its places. If one has too large gradients, none makes a step."""
    whole, network = labelled()
    given, both = list[list[Tensor]](), Barrier(2)

    def share(tensors: list[Tensor]) -> None:
        given.append(tensors)
        both.wait(60)
        means = [(a + b) / 2 for a, b in zip(*given[-2:], strict=True)]
        both.wait(60)
        for tensor, mean in zip(tensors, means, strict=True):
            tensor.copy_(mean)

    def train(rank: int) -> Tensor:
        trainer, mine = labelled(RecordedTrainer, rank=rank, share=share, bad=torch.zeros(()))
        plain = trainer.loss

        def loss(batch: Batch, noise: SampleNoise) -> tuple[Tensor, Losses]:
            trainer.bad.fill_(overflow and rank == 1)  # type: ignore[attr-defined]
            return plain(batch, noise)

        trainer.loss = loss
        rows = slice(3 * rank, 3 * rank + 3)
        for n in range(2):
            trainer.step(Batch(PIXELS[rows], LABELS[rows]), n)
        return mine.means.weight.detach()

    before = network.means.weight.detach().clone()
    with ThreadPoolExecutor(2) as threads:
        one, other = threads.map(train, range(2))
    for n in range(2):
        whole.step(Batch(PIXELS, LABELS), n)
    assert torch.equal(one, other)
    torch.testing.assert_close(one, before if overflow else network.means.weight.detach())


def test_step_n_is_a_function_of_the_seed_and_n_alone() -> None:
    """Stopped after two steps, and gone on with by another generator: bit for bit the same."""
    one, two = fresh(), fresh()
    run(one, steps=4)
    run(two, steps=2)
    torch.manual_seed(99)
    run(two, steps=4)
    assert torch.equal(weights(one), weights(two))


def test_sliced_score_matching_trains_too() -> None:
    trainer = fresh()
    trainer.loss = score_matching(trainer.network, SIGMAS, objective=sliced)
    before = weights(trainer)
    assert all(losses.values.isfinite().all() for losses in run(trainer))
    assert not torch.equal(before, weights(trainer))


def test_the_learning_rate_warms_up() -> None:
    trainer, rates = fresh(), []
    trainer.rate = learning_rates(1e-2, warmup=4)
    for n in range(5):
        trainer.step(Batch(PIXELS), n)
        rates.append(trainer.optimizer.param_groups[0]["lr"])
    assert rates == pytest.approx([0.0025, 0.005, 0.0075, 0.01, 0.01])


def test_long_gradients_are_shortened() -> None:
    trainer = fresh(clip=1e-3)
    run(trainer, steps=1)
    torch.testing.assert_close(gradient(trainer).norm(), torch.tensor(1e-3), rtol=1e-3, atol=0)


@pytest.mark.parametrize("micro_batch", [0, 4])
@pytest.mark.parametrize("fused", [False, True])
def test_an_update_without_a_finite_gradient_is_skipped(micro_batch: int, fused: bool) -> None:
    """The loss is finite, with a derivative of 0 · ∞ in the second of two parts. Often enough, and it is NaN."""
    trainer, good = fresh(network=Small(), fused=fused, micro_batch=micro_batch, clip=1.0), torch.ones(())
    plain = trainer.loss

    def loss(batch: Batch, noise: SampleNoise) -> tuple[Tensor, Losses]:
        each, (values, sigmas) = plain(batch, noise)
        second = torch.equal(batch.pixels[-1], PIXELS[-1])
        return each + ((good if second else 1) + 0 * each).sqrt(), Losses(values, sigmas)

    trainer.loss = loss
    for value, many in ((1, 2), (0, 2), (1, 2), (0, 12)):
        good.fill_(value)
        for _ in range(many):
            before, count = weights(trainer), [float(each["step"]) for each in trainer.optimizer.state.values()]
            losses = trainer.step(Batch(PIXELS), trainer.steps_done)
            assert torch.equal(before, weights(trainer)) == (value == 0)
            after = [float(each["step"]) for each in trainer.optimizer.state.values()]
            assert (count == after) == (value == 0)
            assert losses.values.isfinite().all() or many == 12
    assert weights(trainer).isfinite().all()
    assert losses.values.isnan().all()


def test_the_moving_average_by_hand() -> None:
    """Decay min(0.5, n/(n + 9)): 0.1, 2/11, 0.25, ... Whole numbers are copied."""
    trainer = fresh()
    trainer.network.register_buffer("counter", torch.tensor(3))
    trainer.averages["ema"] = new_average(trainer.network, exponential(0.5))
    average = trainer.averages["ema"][0]
    expected = average["end.weight"].clone()
    for n in range(12):
        trainer.network.get_buffer("counter").add_(1)
        trainer.step(Batch(PIXELS), n)
        decay = min(0.5, (n + 1) / (n + 10))
        expected = decay * expected + (1 - decay) * trainer.network.state_dict()["end.weight"]
    torch.testing.assert_close(average["end.weight"], expected)
    torch.testing.assert_close(average["sigmas"], SIGMAS)
    assert average["counter"] == 15


def test_dequantised_images_fill_the_gaps_between_grey_values() -> None:
    pixels = torch.arange(256, dtype=torch.uint8).reshape(1, 16, 16, 1).expand(200, -1, -1, -1)
    x = prepare(pixels, SampleNoise(range(200)), flip=False, dequantise=True)
    u = (x * 256 - pixels.permute(0, 3, 1, 2)).flatten()
    assert 0 <= u.min() <= u.max() <= 1
    assert abs(u.mean() - 0.5) < 5 / (12 * len(u)) ** 0.5
    plain = prepare(pixels, SampleNoise(range(200)), flip=False, dequantise=False)
    assert torch.equal(plain, pixels.permute(0, 3, 1, 2).float() / 255)


def test_half_of_the_images_are_mirrored() -> None:
    pixels = torch.tensor([[0, 255]], dtype=torch.uint8).reshape(1, 1, 2, 1).expand(2000, -1, -1, -1)
    x = prepare(pixels, SampleNoise(range(2000)), flip=True, dequantise=False)
    mirrored = x[:, 0, 0, 0] == 1
    assert ((x[:, 0, 0, 1] == 1) != mirrored).all()
    assert abs(mirrored.float().mean() - 0.5) < 4.5 * 0.5 / 2000**0.5


GREYS = torch.tensor([0, 51, 102, 255], dtype=torch.uint8)[:, None, None, None].expand(-1, 1, 2, 1)
"""Four images of 1 × 2 pixels with values of 0, 1/5, 2/5 and 1."""


def towards_black(x: Tensor, sigma: Tensor) -> Tensor:
    """s(x̃, σ) = −x̃/σ², so that λℓ = ½‖σs + z‖² = ½‖x/σ‖² whatever z is."""
    return -x / sigma[:, None, None, None].square()


@pytest.mark.parametrize("batch_size", [1, 3, 4])
def test_every_held_out_image_is_measured_at_every_level(batch_size: int) -> None:
    """λℓ = x₁²/σ² by hand. Where every image is at one level only, the means are those of two images each."""
    sigmas = torch.tensor([1.0, 0.5])
    losses = held_out_losses(towards_black, Batch(GREYS), sigmas, dequantise=False, batch_size=batch_size)
    torch.testing.assert_close(losses, torch.tensor([[0.0, 0.04, 0.16, 1.0], [0.0, 0.16, 0.64, 4.0]]))
    found = mean_losses(losses)
    error = (((0.3**2 + 0.26**2 + 0.14**2 + 0.7**2) / 3) / 4) ** 0.5
    assert found.n == 4
    assert found.by_level == pytest.approx([0.3, 1.2])
    assert found.errors_by_level == pytest.approx([error, 4 * error])
    assert (found.mean, found.error) == pytest.approx((0.75, 2.5 * error))
    assert mean_losses(losses[:, :1])[1:] == (0.0, None, [0.0, 0.0], [None, None])


def test_held_out_images_are_dequantised_but_not_mirrored() -> None:
    """(value + u)/256 with the u of an image at a level, which never changes, in the image's own orientation."""
    pixels = torch.tensor([[[0], [255]]], dtype=torch.uint8)[None].expand(5, -1, -1, -1)
    seen = list[Tensor]()

    def score(x: Tensor, sigma: Tensor) -> Tensor:
        seen.append(x)
        return torch.zeros_like(x)

    sigmas = torch.tensor([1e-3, 1e-4])
    for batch_size in (5, 2):
        held_out_losses(score, Batch(pixels), sigmas, dequantise=True, batch_size=batch_size)
    for level, (x, parts) in enumerate(zip(seen[:2], (seen[2:5], seen[5:]), strict=True)):
        noise = SampleNoise(sample_seeds(level, range(5)))
        u = noise.rand_like(torch.empty(5, 1, 1, 2))
        z = noise.randn_like(torch.empty(5, 1, 1, 2))
        expected = (torch.tensor([0.0, 255.0]) + u) / 256 + sigmas[level] * z
        torch.testing.assert_close(x, expected)
        torch.testing.assert_close(torch.cat(parts), expected)


def test_held_out_images_keep_their_labels() -> None:
    labels, seen = torch.tensor([4, 0, 2]), list[tuple[float, int]]()

    def score(x: Tensor, sigma: Tensor, *, label: Tensor) -> Tensor:
        seen.extend(zip(sigma.tolist(), label.tolist(), strict=True))
        return torch.zeros_like(x)

    held_out_losses(score, Batch(PIXELS[:3], labels), torch.tensor([1.0, 0.5]), dequantise=True, batch_size=2)
    assert seen == [(1.0, 4), (1.0, 0), (1.0, 2), (0.5, 4), (0.5, 0), (0.5, 2)]


class UniformGrid(SampleNoise):
    """Uniform numbers (k + ½)/N for the N examples, instead of random ones."""

    def rand_like(self, x: Tensor) -> Tensor:
        return ((torch.arange(len(x)) + 0.5) / len(x)).reshape(-1, *[1] * (x.ndim - 1)).expand_as(x)


@pytest.mark.parametrize("levels", [2, 3, 10])
def test_every_noise_level_is_trained_equally_often(levels: int) -> None:
    """Exactly, for uniform numbers in equal steps; and by χ² for the trainer's own (4.5 standard deviations)."""
    sigmas = torch.linspace(1, 0.1, levels)
    loss, pixels = score_matching(lambda x, sigma: x, sigmas, dequantise=False), torch.zeros(60, 1, 1, 1).byte()
    drawn = loss(Batch(pixels), UniformGrid(range(60)))[1].sigmas
    assert [(drawn == sigma).sum().item() for sigma in sigmas] == [60 // levels] * levels
    pixels, n = pixels[:1].expand(6000, -1, -1, -1), 6000
    drawn = loss(Batch(pixels), SampleNoise.at_step(0, 0, range(n)))[1].sigmas
    counts = torch.stack([(drawn == sigma).sum() for sigma in sigmas]).double()
    chi_square = ((counts - n / levels) ** 2 / (n / levels)).sum().item()
    assert chi_square < (levels - 1) + 4.5 * (2 * (levels - 1)) ** 0.5


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
    trainer, untouched = fresh(RecordedTrainer), fresh()
    assert isinstance(trainer, RecordedTrainer)
    plain = Trainer(trainer.network, trainer.loss, trainer.optimizer, learning_rates(1e-2), seed=3)
    for each in (plain, untouched):
        run(each, steps=steps)
    plain.loss(Batch(PIXELS), SampleNoise.at_step(3, 0, range(6)))[0].sum().backward()
    trainer._start_optimizer()
    assert all({"exp_avg", "exp_avg_sq"} <= kinds.keys() for kinds in trainer.optimizer.state.values())
    assert len(trainer.optimizer.state) == len(list(trainer.network.parameters()))
    assert torch.equal(weights(trainer), weights(untouched))
    for each in (plain, untouched):
        run(each, steps=steps + 2)
    assert torch.equal(weights(trainer), weights(untouched))


def test_second_derivatives_do_not_go_through_the_fused_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scorefield.acceleration.kernels.usable", lambda x: True)
    network = RefineNet(channels=1, width=2, sigmas=[1.0, 0.1])
    recipe = Recipe(precision="bfloat16")
    assert uses_fused_kernels(recipe, network)
    assert not uses_fused_kernels(replace(recipe, objective="sliced"), network)
    assert not uses_fused_kernels(replace(recipe, precision="float32"), network)
    assert not uses_fused_kernels(replace(recipe, compile=True), network)
    assert not uses_fused_kernels(recipe, Labelled())


def test_the_trainer_of_a_recipe_with_fused_kernels_is_the_recorded_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Made without a GPU: the recorded form gets the score's flag, and the same settings as the plain form."""
    network, bad = RefineNet(channels=1, width=2, sigmas=[1.0, 0.1]), torch.zeros(())
    recipe = Recipe(learning_rate=0.02, warmup=3, clip=4.0, ema=0.5, seed=6)
    plain = run_module._trainer(recipe, ALONE, network)
    monkeypatch.setattr(acceleration, "has_fused_kernels", lambda network: True)
    monkeypatch.setattr(acceleration, "fused", lambda network, dtype: SimpleNamespace(bad=bad, dtype=dtype))
    recorded = run_module._trainer(recipe, ALONE, network)
    recorded.normalise()  # this network has no weights of unit size
    assert type(plain) is Trainer
    assert isinstance(recorded, RecordedTrainer)
    assert recorded.bad is bad
    for name in ("clip", "seed"):
        assert getattr(recorded, name) == getattr(plain, name) == getattr(recipe, name)
    assert [recorded.rate(n) for n in range(4)] == pytest.approx([0.02 / 3, 0.04 / 3, 0.02, 0.02])
    assert recorded.network is network
    ((average, decay),) = recorded.averages.values()
    assert average.keys() == network.state_dict().keys()
    assert decay(1000) == 0.5
    assert type(run_module._trainer(replace(recipe, micro_batch=2), ALONE, network)) is Trainer
