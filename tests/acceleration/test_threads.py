from __future__ import annotations

import threading
from functools import partial

import pytest
import torch
from labelled import Labelled, labelled_batch
from torch import Tensor

from scorefield.acceleration.threads import in_threads
from scorefield.models.build import build_network
from scorefield.models.recipes import Recipe
from scorefield.noise import geometric


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
    both = threading.Barrier(2, timeout=20)  # passed only by two threads at once
    before, seen = torch.get_num_threads(), []

    def score(x: Tensor, sigma: Tensor) -> Tensor:
        seen.append((torch.get_num_threads(), torch.is_grad_enabled(), len(x)))
        both.wait()
        return -x / sigma.square()[:, None]

    x = torch.ones(5, 2)
    assert torch.equal(in_threads(score, threads=2)(x, torch.tensor(2.0)), -x / 4)
    assert sorted(seen) == [(1, False, 2), (1, False, 3)]
    assert torch.get_num_threads() == before


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
