"""Threads on CPUs: the rule, the threads that share a batch, and that a user's own setting is left alone."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import torch
from labelled import Labelled, labelled_batch
from torch import Tensor, nn

from scorefield import AnnealedLangevin, Model, load
from scorefield.acceleration.threads import (
    in_threads,
    multiplications,
    on_one_thread,
    pytorch_threads,
    shares,
    training_threads,
)
from scorefield.models.build import build_network
from scorefield.models.recipes import Recipe
from scorefield.noise import geometric
from scorefield.samplers import last

OWN = 3
"""A user's number of threads."""


@pytest.fixture
def three_threads() -> Iterator[None]:
    torch.set_num_threads(OWN)
    yield
    assert torch.get_num_threads() == OWN
    with ThreadPoolExecutor(1) as pool:  # a thread that begins afterwards has it too
        assert pool.submit(torch.get_num_threads).result() == OWN
    torch.set_num_threads(1)


@pytest.mark.parametrize(
    ("threads", "examples", "work", "expected"),
    [
        (2, 600, 0.0, (1, 1)),  # points by a formula
        (2, 1, 4e8, (1, 1)),  # one digit by the small network
        (2, 8, 4e8, (1, 1)),
        (2, 15, 4e8, (2, 1)),
        (8, 64, 4e8, (8, 1)),
        (2, 1, 3e10, (1, 1)),  # one photograph by the large network: two threads gain too little
        (2, 2, 3e10, (2, 1)),
        (8, 1, 3e10, (1, 8)),  # eight gain enough
        (8, 2, 3e10, (2, 4)),
        (8, 3, 3e10, (3, 1)),
        (8, 1, 9e9, (1, 1)),
        (4, 5, math.inf, (4, 1)),
        (1, 5, math.inf, (1, 1)),
    ],
)
def test_the_rule(threads: int, examples: int, work: float, expected: tuple[int, int]) -> None:
    assert shares(threads, examples, work) == expected


def test_the_work_is_estimated_by_parameters_and_pixels() -> None:
    assert multiplications(nn.Conv2d(2, 3, 5), (2, 6, 7)) == (2 * 3 * 25 + 3) * 42
    assert multiplications(nn.Linear(2, 2), (2,)) == 6
    assert multiplications(nn.Identity(), (1, 28, 28)) == 0
    small = load("model:mnist-small")
    assert multiplications(small.network, small.shape) == 518_817 * 784


@pytest.mark.parametrize("n", [1, 2, 5])
def test_the_score_is_the_same(n: int) -> None:
    network = build_network(Recipe(width=4, levels=3), channels=1).requires_grad_(False)
    sigmas = geometric(1.0, 0.01, 3)
    x, level = torch.rand(n, 1, 8, 8), sigmas[1]
    shared = in_threads(network, threads=2)
    torch.testing.assert_close(shared(x, level), network(x, level), rtol=1e-4, atol=1e-5)
    each = sigmas[torch.arange(n) % 3]
    torch.testing.assert_close(shared(x, each), network(x, each), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("threads", [2, 3, 4])
@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_conditions_are_split_along_with_x(n: int, threads: int) -> None:
    """Five examples for four threads make parts of 2, 2 and 1."""
    score, x, sigma = labelled_batch(n)
    network, label = score.func, score.keywords["label"]
    shared = partial(in_threads(network, threads=threads), label=label)
    assert torch.equal(shared(x, sigma), score(x, sigma))
    assert torch.equal(shared(x, sigma[0]), score(x, sigma[0]))
    bound_inside = in_threads(score, threads=threads)
    assert torch.equal(bound_inside(x, sigma), score(x, sigma))


def test_every_condition_is_split() -> None:
    def score(x: Tensor, sigma: Tensor, *, label: Tensor, shift: Tensor) -> Tensor:
        return x * label[:, None] + shift

    x, label, shift = torch.rand(5, 2), torch.arange(5), torch.rand(5, 2)
    shared = in_threads(score, threads=2)
    assert torch.equal(shared(x, torch.tensor(1.0), label=label, shift=shift), x * label[:, None] + shift)


def test_every_part_has_a_thread_of_its_own_that_has_no_others() -> None:
    both = threading.Barrier(2, timeout=60)  # passed only by two threads at once
    before, seen = torch.get_num_threads(), []

    def score(x: Tensor, sigma: Tensor) -> Tensor:
        seen.append((torch.get_num_threads(), torch.is_grad_enabled(), len(x)))
        both.wait()
        return -x / sigma.square()[:, None]

    x = torch.ones(5, 2)
    assert torch.equal(in_threads(score, threads=2)(x, torch.tensor(2.0)), -x / 4)
    assert sorted(seen) == [(1, False, 2), (1, False, 3)]
    assert torch.get_num_threads() == before


@pytest.mark.usefixtures("three_threads")
@pytest.mark.parametrize(("examples", "work", "expected"), [(5, 0.0, {(True, 1)}), (2, math.inf, {(False, 1)})])
def test_small_work_stays_in_its_thread(examples: int, work: float, expected: set[tuple[bool, int]]) -> None:
    caller, seen = threading.get_ident(), set[tuple[bool, int]]()

    def score(x: Tensor, sigma: Tensor) -> Tensor:
        seen.add((threading.get_ident() == caller, torch.get_num_threads()))
        return -x

    in_threads(score, work=work)(torch.ones(examples, 2), torch.tensor(1.0))
    assert seen == expected


@pytest.mark.usefixtures("three_threads")
def test_pytorchs_threads_help_with_few_large_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scorefield.acceleration.threads.HELPERS", 3)
    seen = list[int]()

    def score(x: Tensor, sigma: Tensor) -> Tensor:
        seen.append(torch.get_num_threads())
        return -x

    in_threads(score)(torch.ones(1, 2), torch.tensor(1.0))
    assert seen == [3]


@pytest.mark.usefixtures("three_threads")
def test_a_setting_for_a_while() -> None:
    with pytorch_threads(1):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == OWN
    with pytest.raises(ZeroDivisionError), pytorch_threads(1):
        _ = 1 / 0
    assert torch.get_num_threads() == OWN


@pytest.mark.usefixtures("three_threads")
def test_items_are_made_on_one_thread_and_used_on_the_callers() -> None:
    seen = list[int]()

    def items() -> Iterator[int]:
        for k in range(3):
            seen.append(torch.get_num_threads())
            yield k

    for k in on_one_thread(items()):
        assert torch.get_num_threads() == OWN, k
    assert seen == [1, 1, 1]


class Counting(nn.Module):
    """The score −x. It notes PyTorch's number of threads at every call, and may fail."""

    def __init__(self) -> None:
        super().__init__()
        self.seen, self.fails = list[int](), False

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        self.seen.append(torch.get_num_threads())
        if self.fails:
            raise RuntimeError("no score")
        return -x


@pytest.mark.usefixtures("three_threads")
def test_a_model_samples_on_one_thread_and_leaves_the_callers_setting_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its start, the noise and the sampler's own arithmetic too."""
    network, noise = Counting(), list[int]()
    plain = torch.Tensor.cos

    def counted(x: Tensor) -> Tensor:
        noise.append(torch.get_num_threads())
        return plain(x)

    monkeypatch.setattr(torch.Tensor, "cos", counted)  # of the method of Box and Muller
    monkeypatch.setattr(AnnealedLangevin, "start", lambda sampler, noise, shape: noise.randn(shape))
    model = Model(network, (1, 2, 2), AnnealedLangevin((1.0, 0.1), step_size=1e-3, steps=2, denoise=True))
    for _ in model.states(range(5)):
        assert torch.get_num_threads() == OWN
    for _ in model.draw(range(5), batch_size=3):
        assert torch.get_num_threads() == OWN
    model.sample(5)
    model.inpaint(torch.zeros(1, 2, 2), torch.ones(2, 2), n=2)
    assert set(network.seen) == set(noise) == {1}
    network.fails = True
    with pytest.raises(RuntimeError, match="no score"):
        last(model.states(range(5)))


def test_a_models_threads_are_those_of_the_moment() -> None:
    model = Model(Counting(), (1, 2, 2), AnnealedLangevin((1.0,), steps=1))
    assert model.fast_score(5) is model.network
    with pytorch_threads(2):
        assert model.fast_score(5) is not model.network


def test_one_thread_is_left_as_it_is_and_errors_come_through() -> None:
    def broken(x: Tensor, sigma: Tensor) -> Tensor:
        raise ValueError("no such level")

    assert in_threads(broken, threads=1) is broken
    with pytest.raises(ValueError, match="no such level"):
        in_threads(broken, threads=2)(torch.ones(4, 2), torch.tensor(1.0))


def test_a_label_that_does_not_exist_comes_through_as_an_error() -> None:
    shared = in_threads(Labelled(3).requires_grad_(False), threads=2)
    with pytest.raises(IndexError):
        shared(torch.rand(4, 1, 2, 2), torch.tensor(1.0), label=torch.tensor([0, 1, 2, 3]))


def test_image_k_is_the_same_up_to_rounding_for_any_batch_size_and_number_of_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In float32 on a CPU, where libraries may choose another algorithm for another batch size."""
    monkeypatch.setattr("scorefield.acceleration.threads.PART", 1.0)  # every example is worth a thread
    network = build_network(Recipe(width=8, levels=2, sigma_min=0.1), channels=1).requires_grad_(False)
    model = Model(network, (1, 8, 8), AnnealedLangevin((1.0, 0.1), step_size=1e-3, steps=2))
    whole = model.sample(5, seed=3)
    for threads, size in ((1, 1), (1, 2), (1, 3), (2, 5), (3, 5), (2, 3)):
        with pytorch_threads(threads):
            found = model.sample(5, seed=3, batch_size=size)
        torch.testing.assert_close(found, whole, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("threads", "examples", "work", "expected"),
    [
        (2, 16, 2.5e7, 1),  # unet-tiny: 1.2e9 multiplications for an update
        (2, 16, 1.3e8, 2),  # tiny: 6e9
        (8, 32, 1.3e8, 6),
        (8, 32, 1e12, 8),
        (1, 32, 1e12, 1),
        (4, 1, 1.0, 1),
    ],
)
def test_small_training_updates_use_few_threads(threads: int, examples: int, work: float, expected: int) -> None:
    """One for each 2e9 multiplications of an update, three times those of a call."""
    assert training_threads(threads, examples, work) == expected
