from __future__ import annotations

import threading

import pytest
import torch
from torch import Tensor

from scorefield.models.recipes import Recipe, network_of
from scorefield.acceleration.threads import in_threads


@pytest.mark.parametrize("n", [1, 2, 5])
def test_the_score_is_the_same(n: int) -> None:
    network = network_of(Recipe(width=4, levels=3), channels=1).requires_grad_(False)
    x, level = torch.rand(n, 1, 8, 8), network.sigmas[1]
    shared = in_threads(network, threads=2)
    torch.testing.assert_close(shared(x, level), network(x, level), rtol=1e-4, atol=1e-5)
    each = network.sigmas[torch.arange(n) % 3]
    torch.testing.assert_close(shared(x, each), network(x, each), rtol=1e-4, atol=1e-5)


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
