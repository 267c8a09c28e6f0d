"""The fused kernels and the updates recorded with them, on a GPU. Run with: pytest -m gpu tests/acceleration"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
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
from scorefield.networks.refinenet import CondInstanceNorm
from scorefield.noise import SampleNoise
from scorefield.training.trainer import Batch, Losses, RecordedTrainer, Trainer, adam, score_matching

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


@pytest.mark.parametrize(("elu", "units"), [(True, (1.0, 1.0)), (True, (0.125, 0.25)), (False, (0.125, 1.0))])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    "shape", [(3, 5, 4, 6), (1, 8, 5, 5), (4, 128, 32, 32), (4, 256, 16, 16), (3, 128, 14, 14), (130, 8, 5, 5)]
)
def test_the_fused_norm_and_its_gradients(
    shape: tuple[int, ...], bias: bool, elu: bool, units: tuple[float, float]
) -> None:
    """Against the plain module in float64, with what else comes to x added to its gradient."""
    from scorefield.acceleration.kernels.norm import norm

    torch.manual_seed(sum(shape))
    b, c = shape[:2]
    plain = CondInstanceNorm(4, c).double().cuda()
    with torch.no_grad():
        for table in plain.parameters():
            table.add_(0.5 * torch.randn_like(table))
    level = torch.randint(4, (b,), device="cuda")
    offset = 3 * torch.randn(c, 1, 1, dtype=torch.float64, device="cuda")
    x = (2 * torch.randn(shape, dtype=torch.float64, device="cuda") + offset).requires_grad_()
    shift = torch.randn(c, dtype=torch.float64, device="cuda", requires_grad=True) if bias else None
    y = plain(x + shift[:, None, None] if shift is not None else x, level)
    y = torch.nn.functional.elu(y) if elu else y
    weight, more = torch.randn_like(y), torch.randn_like(y)
    ((y * weight).sum() + (x * more).sum()).backward()
    tables = [table.detach().float().requires_grad_() for table in (plain.gamma, plain.alpha, plain.beta)]
    x2 = x.detach().float().contiguous(memory_format=torch.channels_last).requires_grad_()
    shift2 = shift.detach().float().requires_grad_() if shift is not None else None
    gamma, alpha, beta = tables
    given, made = units
    inputs = (given * x2, given * shift2 if shift2 is not None else None, gamma, alpha, beta, level)
    z, same = norm(*inputs, elu=elu, dtype=torch.float32, units=units)
    ((z / made * weight.float()).sum() + (same / given * more.float()).sum()).backward()
    assert rel(z / made, y) < 1e-5
    pairs = [(x2, x), *zip(tables, (plain.gamma, plain.alpha, plain.beta), strict=True)]
    pairs += [(shift2, shift)] if shift is not None and shift2 is not None else []
    for fused, true in pairs:
        assert fused.grad is not None
        assert true.grad is not None
        assert rel(fused.grad, true.grad) < 1e-4


@pytest.mark.parametrize("shape", [(2, 5, 10, 8), (3, 128, 32, 32), (1, 20, 34, 48)])
@pytest.mark.parametrize("kernel", ["add", "add and ELU", "add and ELU by a unit", "pool", "halve", "double"])
def test_the_other_kernels_and_their_gradients(kernel: str, shape: tuple[int, ...]) -> None:
    """Against PyTorch in float64."""
    from scorefield.acceleration.kernels.add import add
    from scorefield.acceleration.kernels.pool import double, halve, pool

    torch.manual_seed(0)
    functional = torch.nn.functional
    a, b = (torch.randn(shape, dtype=torch.float64, device="cuda", requires_grad=True) for _ in range(2))
    bias = torch.randn(shape[1], dtype=torch.float64, device="cuda", requires_grad=True)
    inputs = [a, b, bias] if kernel.startswith("add") else [a]
    mine = [t.detach().float().requires_grad_() for t in inputs]
    cases: dict[str, tuple[Callable[..., torch.Tensor], Callable[..., torch.Tensor]]] = {
        "add": (lambda a, b, c: a + b + c[:, None, None], add),
        "add and ELU": (lambda a, b, c: functional.elu(a + b + c[:, None, None]), partial(add, elu=True)),
        "add and ELU by a unit": (
            lambda a, b, c: functional.elu(a + b + c[:, None, None]),
            lambda a, b, c: add(0.25 * a, 0.25 * b, 0.25 * c, elu=True, unit=0.25) / 0.25,
        ),
        "pool": (lambda a: functional.avg_pool2d(a, 5, stride=1, padding=2), pool),
        "halve": (lambda a: functional.avg_pool2d(a, 2), halve),
        "double": (lambda a: functional.interpolate(a, scale_factor=2), double),
    }
    plain, fused = cases[kernel]
    expected, found = plain(*inputs), fused(*mine)
    assert rel(found, expected) < 1e-5
    weight = torch.randn_like(expected)
    gradients = torch.autograd.grad(found, mine, weight.float())
    for one, other in zip(gradients, torch.autograd.grad(expected, inputs, weight), strict=True):
        assert rel(one, other) < 1e-4


def test_fused_noise_is_the_plain_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    fused = SampleNoise.at_step(5, 77, range(3, 11), device="cuda")
    monkeypatch.setenv("SCOREFIELD_PLAIN", "1")
    plain = SampleNoise.at_step(5, 77, range(3, 11), device="cuda")
    assert torch.equal(fused._key, plain._key)
    x = torch.empty(8, 3, 9, 7, device="cuda")
    for draw in ("rand_like", "randn_like", "rand_like"):
        expected = getattr(plain, draw)(x)
        monkeypatch.delenv("SCOREFIELD_PLAIN")
        torch.testing.assert_close(getattr(fused, draw)(x), expected, rtol=0, atol=2e-6)
        monkeypatch.setenv("SCOREFIELD_PLAIN", "1")


@pytest.mark.parametrize("size", [(28, 28), (33, 47)])
@pytest.mark.parametrize(("dtype", "error"), [(torch.bfloat16, 0.05), (torch.float16, 0.005)])
def test_the_fused_network_is_the_network(size: tuple[int, int], dtype: torch.dtype, error: float) -> None:
    """And its gradients are, however large or small: float16 alone would overflow at 65,504 and vanish below 1e-7."""
    torch.manual_seed(0)
    network = small_network(width=32, channels=3)
    x = torch.rand(6, 3, *size, device="cuda", requires_grad=True)
    sigma = network.sigmas[[0, 2, 4, 6, 8, 9]]
    plain, found = network(x, sigma), fused(network, dtype)(x, sigma)
    assert rel(found, plain) < error
    for size_of_gradient in (1.0, 1e-7, 1e7):
        weight = size_of_gradient * torch.randn_like(plain)
        wanted = [x, *network.parameters()]
        grads = [torch.autograd.grad(y, wanted, weight, retain_graph=True) for y in (plain, found)]
        assert rel(grads[1][0], grads[0][0]) < 4 * error
        one, other = (torch.cat([g.flatten() for g in each[1:]]) for each in grads)
        assert rel(other, one) < 2 * error


@pytest.mark.parametrize(("longer", "least"), [(1, 65_504), (300, 4_200_000)])
def test_the_fused_networks_residual_paths_may_pass_float16s_largest_number(longer: float, least: float) -> None:
    """65,504 is passed after 20,000 steps on MNIST, 64 times that after 48,000 on CIFAR-10; and a score that is not
    finite does not look as if it were."""
    torch.manual_seed(0)
    network = small_network(width=32, channels=1)
    weights, largest = dict(network.named_parameters()), list[float]()
    network.blocks[7].register_forward_hook(lambda module, given, made: largest.append(made.abs().max().item()))
    with torch.no_grad():
        weights["blocks.4.shortcut.weight"].mul_(longer)
        weights["blocks.6.shortcut.weight"].mul_(3e5)
    x, sigma = torch.rand(4, 1, 28, 28, device="cuda"), network.sigmas[[0, 3, 6, 9]]
    scores = fused(network)(x, sigma), network(x, sigma)
    assert rel(*scores) < 0.005
    assert largest[0] > least
    weight = torch.randn_like(x)
    gradients = [torch.autograd.grad(score, list(weights.values()), weight) for score in scores]
    for part in ("", "blocks.4.", "blocks.5.", "blocks.6."):  # those of later ones are lost behind so long a path
        parts = (
            [g.flatten() for name, g in zip(weights, each, strict=True) if name.startswith(part)] for each in gradients
        )
        assert rel(*map(torch.cat, parts)) < (0.1 if part else 0.02)
    with torch.no_grad():
        weights["blocks.6.conv1.weight"][0, 0, 0, 0] = float("nan")
        assert fused(network)(x, sigma).isnan().all()


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

    def loss(batch: Batch, noise: SampleNoise) -> Losses:
        each, sigmas = plain(batch, noise)
        return Losses(each + (good + 0 * each).sqrt(), sigmas)  # of 0, a finite number, with a derivative of 0 · ∞

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
        average = {name: value.clone() for name, value in network.state_dict().items()} if ema else None
        loss = score_matching(fused(network), network.sigmas)
        trainer = kind(network, loss, adam(network, 1e-3), average=average, seed=1, clip=clip, ema=ema)
        losses = [trainer.step(Batch(training_pixels(16)), n) for n in range(3)]
        assert trainer.steps_done == 3
        ends.append((torch.cat([p.detach().flatten() for p in network.parameters()]) - start, losses, average))
    (one, losses, average), (other, others, plain_average) = ends
    assert rel(one, other) < 0.1  # of the way gone, some of it along gradients that are almost 0
    for a, b in zip(losses, others, strict=True):
        assert torch.equal(a.sigmas, b.sigmas)
        torch.testing.assert_close(a.values, b.values, rtol=2e-2, atol=1.0)
    if average is not None and plain_average is not None:
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
