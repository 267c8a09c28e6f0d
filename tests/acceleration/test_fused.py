"""Scores and updates of the fused network that are recorded on a GPU. Run with: pytest -m gpu tests/acceleration"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import pytest
import torch
from gpu import GPU, rel
from gpu import without_tf32 as without_tf32
from labelled import Labelled

from scorefield import acceleration
from scorefield.acceleration.graphs import Recorded
from scorefield.models.build import build_network
from scorefield.models.recipes import Recipe
from scorefield.networks import RefineNet
from scorefield.noise import SampleNoise
from scorefield.training.trainer import (
    Batch,
    Losses,
    RecordedTrainer,
    Trainer,
    adam,
    exponential,
    new_average,
    score_matching,
)

if TYPE_CHECKING:
    from scorefield.acceleration.refinenet import FusedRefineNet

pytestmark = GPU


def small_network(*, width: int, channels: int) -> RefineNet:
    """The paper's network with few filters, on the GPU."""
    network = build_network(Recipe(width=width), channels=channels).cuda()
    assert isinstance(network, RefineNet)
    return network


def fused(network: RefineNet, dtype: torch.dtype = torch.float16) -> FusedRefineNet:
    """Its fused form, which must not be the plain network, as it would be where the kernels are switched off."""
    from scorefield.acceleration.refinenet import FusedRefineNet

    score = acceleration.fused(network, dtype=dtype)
    assert isinstance(score, FusedRefineNet)
    return score


def test_a_recorded_score_serves_any_number_of_images() -> None:
    network = small_network(width=16, channels=1)
    score, recorded = fused(network), acceleration.for_sampling(network, (1, 28, 28), size=8)
    assert isinstance(recorded, Recorded)
    x = torch.rand(21, 1, 28, 28, device="cuda")
    for n, sigma in ((8, network.sigmas[0]), (3, network.sigmas[9]), (21, network.sigmas[[0, 5, 9] * 7])):
        with torch.no_grad():
            assert rel(recorded(x[:n], sigma), score(x[:n], sigma)) < 5e-3
    with pytest.raises(ValueError, match="knows the noise levels"):
        recorded(x, torch.tensor(0.5, device="cuda"))


def training_pixels(n: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (n, 28, 28, 1), dtype=torch.uint8, generator=generator).cuda()


@pytest.mark.parametrize("recorded", [True, False])
def test_an_update_without_a_finite_gradient_is_skipped(recorded: bool) -> None:
    network = small_network(width=16, channels=1)
    score, good = fused(network), torch.ones((), device="cuda")
    plain = score_matching(score, network.sigmas)

    def loss(batch: Batch, noise: SampleNoise) -> tuple[torch.Tensor, Losses]:
        each, losses = plain(batch, noise)
        return each + (good + 0 * each).sqrt(), losses  # of 0, a finite number, with a derivative of 0 · ∞

    optimizer = adam(network, 1e-3)
    trainer = (
        RecordedTrainer(network, loss, optimizer, seed=1, clip=1.0, bad=score.bad)
        if recorded
        else Trainer(network, loss, optimizer, seed=1, clip=1.0, micro_batch=2)
    )
    batch, done = Batch(training_pixels(4)), 0
    for value, many in ((1, 2), (0, 1), (1, 1), (0, 12)):
        good.fill_(value)
        for _ in range(many):
            before = network.end.weight.detach().clone()
            losses = trainer.step(batch, trainer.steps_done)
            assert torch.equal(before, network.end.weight) == (value == 0)
            done += value
            assert optimizer.state[network.end.weight]["step"] == done
            assert all(p.isfinite().all() for p in network.parameters())
            if many < 12:
                assert losses.values.isfinite().all()
    assert losses.values.isnan().all()  # since more than half of the last updates were skipped


@pytest.mark.parametrize("clip", [0.0, 1.0])
@pytest.mark.parametrize("ema", [0.0, 0.9])
def test_a_recorded_update_is_the_update(clip: float, ema: float) -> None:
    """Three steps: recorded, and launched one by one."""
    ends = []
    for kind in (RecordedTrainer, Trainer):
        network = small_network(width=16, channels=1)
        start = torch.cat([p.detach().flatten() for p in network.parameters()])
        averages = {"ema": new_average(network, exponential(ema))} if ema else {}
        loss = score_matching(fused(network), network.sigmas)
        trainer = kind(network, loss, adam(network, 1e-3), averages=averages, seed=1, clip=clip)
        losses = [trainer.step(Batch(training_pixels(16)), n) for n in range(3)]
        assert trainer.steps_done == 3
        ends.append((torch.cat([p.detach().flatten() for p in network.parameters()]) - start, losses, averages))
    (one, losses, averages), (other, others, plain_averages) = ends
    assert rel(one, other) < 0.1  # of the way gone, some of it along gradients that are almost 0
    for a, b in zip(losses, others, strict=True):
        assert torch.equal(a.sigmas, b.sigmas)
        torch.testing.assert_close(a.values, b.values, rtol=2e-2, atol=1.0)
    for (average, _), (plain_average, _) in zip(averages.values(), plain_averages.values(), strict=True):
        assert rel(average["end.weight"], plain_average["end.weight"]) < 1e-2


def test_a_recorded_update_gets_the_labels_of_its_batch() -> None:
    """Recorded with the first batch's labels, and replayed with others."""
    network, sigmas = Labelled().cuda(), torch.tensor([1.0, 0.1], device="cuda")
    other = copy.deepcopy(network)
    recorded = RecordedTrainer(network, score_matching(network, sigmas), adam(network, 1e-2), seed=1)
    plain = Trainer(other, score_matching(other, sigmas), adam(other, 1e-2), seed=1)
    for n, labels in enumerate(([0, 1, 2, 3], [4, 4, 0, 1], [3, 2, 1, 0])):
        batch = Batch(training_pixels(4), torch.tensor(labels, device="cuda"))
        torch.testing.assert_close(recorded.step(batch, n).values, plain.step(batch, n).values, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(network.means.weight, other.means.weight, rtol=1e-4, atol=1e-5)


def test_a_recorded_update_takes_batches_of_one_shape() -> None:
    network, sigmas = Labelled().cuda(), torch.tensor([1.0, 0.1], device="cuda")
    trainer = RecordedTrainer(network, score_matching(network, sigmas), adam(network, 1e-2))
    trainer.step(Batch(training_pixels(4), torch.zeros(4, dtype=torch.long, device="cuda")), 0)
    with pytest.raises(ValueError, match="recorded for"):
        trainer.step(Batch(training_pixels(3), torch.zeros(3, dtype=torch.long, device="cuda")), 1)
