"""Recorded scores: how batches are cut and padded (on a CPU, without a recording), and on a GPU with one."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from gpu import GPU
from labelled import Labelled, labelled_batch
from torch import Tensor

from acceleration import direct_calls
from scorefield.acceleration.graphs import Recorded
from scorefield.score import ConditionalScore, expand

SIZE = 4


@pytest.fixture
def without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    direct_calls.use(monkeypatch)


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


class Fragile:
    """The score −x, infinite in entries above a limit, and in negative ones above a σ; a stand-in for float16."""

    def __init__(self, *, x: float = math.inf, sigma: float = math.inf) -> None:
        self.limits, self.calls = (x, sigma), 0

    def __call__(self, x: Tensor, sigma: Tensor) -> Tensor:
        self.calls += 1
        too_large = (x.abs() > self.limits[0]) | ((expand(sigma, x) > self.limits[1]) & (x < 0))
        return torch.where(too_large, math.inf, -x)


def minus_two_x(x: Tensor, sigma: Tensor) -> Tensor:
    return -2 * x


def recorded_with_fallback(score: ConditionalScore, fallback: ConditionalScore = minus_two_x) -> Recorded:
    probe = torch.tensor([1.0, 0.1])
    return Recorded(score, (2,), size=SIZE, device=torch.device("cpu"), probe=probe, fallback=lambda: fallback)


OVERFLOW = "overflowed float16, so it computes in bfloat16 from here on.*--precision float32"
X, SIGMA = torch.tensor([[1.0, -1.0], [1.0, 1.0], [1.0, 1.0]]), torch.tensor(0.1)


@pytest.mark.usefixtures("without_a_gpu")
def test_a_first_batch_that_overflows_at_one_of_the_probed_levels_is_computed_by_the_fallback() -> None:
    recorded = recorded_with_fallback(Fragile(sigma=0.5))
    with pytest.warns(UserWarning, match=OVERFLOW) as notices:
        assert torch.equal(recorded(X, SIGMA), -2 * X)
    assert len(notices) == 1
    assert torch.equal(recorded(3 * X, SIGMA), -6 * X)
    assert not recorded.fall_back()  # a second time


@pytest.mark.usefixtures("without_a_gpu")
def test_a_score_that_does_not_overflow_stays() -> None:
    recorded = recorded_with_fallback(Fragile(sigma=2.0))
    assert not recorded.fall_back()  # nothing was computed yet
    assert torch.equal(recorded(X, SIGMA), -X)
    assert not recorded.fall_back()
    assert torch.equal(recorded(X, SIGMA), -X)


@pytest.mark.usefixtures("without_a_gpu")
@pytest.mark.parametrize("entry", [(0, 0), (2, 1), (8, 0)])
def test_a_later_batch_that_overflows_in_one_entry_falls_back(entry: tuple[int, int]) -> None:
    """Also where the batch is cut into parts, of which only one overflows."""
    score = Fragile(x=10.0)
    recorded = recorded_with_fallback(score)
    x = torch.ones(9, 2)
    recorded(x, SIGMA)
    before = score.calls
    assert torch.equal(recorded(x, SIGMA), -x)
    assert score.calls == before + 3  # one for each part: scores are not looked at
    x[entry] = 11.0
    assert recorded(x, SIGMA)[entry] == math.inf
    with pytest.warns(UserWarning, match=OVERFLOW) as notices:
        assert recorded.fall_back()
    assert len(notices) == 1
    assert torch.equal(recorded(x, SIGMA), -2 * x)
    assert torch.equal(recorded(X, SIGMA), -2 * X)


@pytest.mark.usefixtures("without_a_gpu")
@pytest.mark.parametrize(("size", "fallback"), [(2e6, minus_two_x), (math.nan, minus_two_x), (11.0, Fragile(x=10.0))])
def test_no_other_precision_helps_a_sampler_that_diverged_or_a_broken_network(
    size: float, fallback: ConditionalScore
) -> None:
    recorded = recorded_with_fallback(Fragile(x=10.0), fallback)
    recorded(X, SIGMA)
    recorded(torch.tensor([[1.0, size]]), SIGMA)
    assert not recorded.fall_back()
    assert torch.equal(recorded(X, SIGMA), -X)


@pytest.mark.usefixtures("without_a_gpu")
@pytest.mark.parametrize("deterministic", [False, True])
def test_kernels_are_chosen_by_trial_while_recording_unless_they_must_be_deterministic(deterministic: bool) -> None:
    seen, before = list[bool](), torch.backends.cudnn.benchmark

    def score(x: Tensor, sigma: Tensor) -> Tensor:
        seen.append(torch.backends.cudnn.benchmark)
        return -x

    recorded = Recorded(score, (2,), size=SIZE, device=torch.device("cpu"))
    torch.use_deterministic_algorithms(deterministic)
    try:
        recorded(X, SIGMA)
    finally:
        torch.use_deterministic_algorithms(False)
    assert seen[0] is not deterministic
    assert torch.backends.cudnn.benchmark is before


@pytest.mark.usefixtures("without_a_gpu")
def test_without_a_fallback_there_is_none() -> None:
    recorded = Recorded(Fragile(x=10.0), (2,), size=SIZE, device=torch.device("cpu"))
    recorded(20 * X, SIGMA)
    assert not recorded.fall_back()


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
        with pytest.warns(UserWarning, match=OVERFLOW):
            assert torch.equal(recorded(x, torch.tensor(1.0, device="cuda")), -x)
