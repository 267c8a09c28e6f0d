"""Recorded scores: how batches are cut and padded (on a CPU, without a recording), and on a GPU with one."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from gpu import GPU
from labelled import Labelled, labelled_batch
from torch import Tensor

from scorefield.acceleration.graphs import Recorded

SIZE = 4


class DirectCall:
    """In a CUDA graph's place: a replay calls the score on the same memory."""

    def __init__(self, recorded: Recorded) -> None:
        self.recorded, self.replays = recorded, 0

    def replay(self) -> None:
        assert self.recorded._out is not None
        self.recorded._out.copy_(self.recorded._call())
        self.replays += 1


@pytest.fixture
def without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def record(self: Recorded) -> None:
        self._out = torch.full_like(self._x, math.nan)
        self._graph = DirectCall(self)  # type: ignore[assignment]

    monkeypatch.setattr(Recorded, "_record", record)


def recorded_labels(device: str) -> Recorded:
    return Recorded(Labelled().requires_grad_(False).to(device), (1, 3, 2), size=SIZE, device=torch.device(device))


@pytest.mark.usefixtures("without_a_gpu")
@pytest.mark.parametrize("sizes", [[4], [1, 3], [4, 11, 2], [9, 8, 1, 4]])
def test_batches_of_any_size_are_cut_and_padded_with_their_conditions(sizes: list[int]) -> None:
    """The padding of a part holds an older batch's labels and sigmas, which must not matter."""
    recorded = recorded_labels("cpu")
    for n in sizes:
        score, x, sigma = labelled_batch(n)
        bound = partial(recorded, label=score.keywords["label"])
        assert torch.equal(bound(x, sigma), score(x, sigma))
        assert torch.equal(bound(x, sigma[-1]), score(x, sigma[-1]))
    replays = recorded._graph.replays  # type: ignore[union-attr]
    assert replays == 2 * sum(math.ceil(n / SIZE) for n in sizes)


@pytest.mark.usefixtures("without_a_gpu")
def test_conditions_may_be_bound_to_the_score_that_is_recorded() -> None:
    score, x, sigma = labelled_batch(11)
    recorded = Recorded(score, (1, 3, 2), size=SIZE, device=torch.device("cpu"))
    assert torch.equal(recorded(x, sigma), score(x, sigma))


@pytest.mark.usefixtures("without_a_gpu")
def test_a_result_stays_when_the_next_batch_comes() -> None:
    recorded, (score, x, sigma) = recorded_labels("cpu"), labelled_batch(3)
    first = recorded(x, sigma, **score.keywords)
    kept = first.clone()
    recorded(x + 1, sigma, **score.keywords)
    assert torch.equal(first, kept)


@pytest.mark.usefixtures("without_a_gpu")
def test_other_conditions_than_the_recorded_ones_are_an_error() -> None:
    recorded, (score, x, sigma) = recorded_labels("cpu"), labelled_batch(3)
    recorded(x, sigma, **score.keywords)
    with pytest.raises(ValueError, match=r"recorded with the conditions \['label'\]; got \[\]"):
        recorded(x, sigma)


@pytest.mark.usefixtures("without_a_gpu")
def test_padding_never_asks_for_a_sigma_of_its_own() -> None:
    """A network that knows one noise level gets no other, not even in the rows that pad a batch."""
    seen = set[float]()

    def score(x: Tensor, sigma: Tensor) -> Tensor:
        seen.update(sigma.tolist())
        return -x

    recorded = Recorded(score, (2,), size=SIZE, device=torch.device("cpu"))
    assert torch.equal(recorded(torch.ones(3, 2), torch.tensor(0.25)), -torch.ones(3, 2))
    assert seen == {0.25}


@pytest.mark.usefixtures("without_a_gpu")
def test_sigma_is_checked_once_for_each_level() -> None:
    checked = list[float]()

    def check(sigma: Tensor, x: Tensor) -> None:
        checked.append(sigma.item())
        if sigma > 1:
            raise ValueError("no such level")

    recorded = Recorded(lambda x, sigma: -x, (2,), size=SIZE, device=torch.device("cpu"), check=check)
    one, other = torch.tensor(1.0), torch.tensor(0.5)
    for sigma in (one, one, other, other, one):
        recorded(torch.ones(9, 2), sigma)
    assert checked == [1.0, 0.5, 1.0]
    with pytest.raises(ValueError, match="no such level"):
        recorded(torch.ones(9, 2), torch.tensor(2.0))


@pytest.mark.parametrize(("limit", "overflows"), [(0.05, False), (0.5, True)])
def test_a_score_that_overflows_at_one_of_the_probed_levels_is_noticed(limit: float, overflows: bool) -> None:
    def score(x: Tensor, sigma: Tensor) -> Tensor:
        return -x / (sigma > limit)  # infinite at small levels

    probe = torch.tensor([1.0, 0.1])
    recorded = Recorded(score, (2,), size=SIZE, device=torch.device("cpu"), probe=probe)
    recorded._x.fill_(1.0)
    assert recorded._overflows() == overflows


class TestOnAGpu:
    pytestmark = GPU

    @pytest.mark.parametrize("sizes", [[4], [1, 3], [4, 11, 2], [9, 8, 1, 4]])
    def test_batches_of_any_size_are_cut_and_padded_with_their_conditions(self, sizes: list[int]) -> None:
        recorded = recorded_labels("cuda")
        for n in sizes:
            score, x, sigma = labelled_batch(n)
            bound = partial(recorded, label=score.keywords["label"].cuda())
            torch.testing.assert_close(bound(x.cuda(), sigma.cuda()).cpu(), score(x, sigma))
            torch.testing.assert_close(bound(x.cuda(), sigma[-1].cuda()).cpu(), score(x, sigma[-1]))

    def test_the_fallback_is_recorded_where_the_score_overflows(self) -> None:
        def overflows(x: Tensor, sigma: Tensor) -> Tensor:
            return x / (sigma[0] if sigma.ndim else sigma - sigma)

        recorded = Recorded(
            overflows,
            (2,),
            size=SIZE,
            device=torch.device("cuda"),
            probe=torch.ones(1, device="cuda"),
            fallback=lambda: lambda x, sigma: -x,
        )
        x = torch.ones(3, 2, device="cuda")
        assert torch.equal(recorded(x, torch.tensor(1.0, device="cuda")), -x)
