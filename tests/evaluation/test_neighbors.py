"""Whether samples are copies of training images."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from scorefield.evaluation.neighbors import _probability_of_at_least, measure_memorisation
from scorefield.evaluation.records import Copy
from scorefield.metrics import Neighbors, nearest


def points(n: int, d: int, seed: int = 0) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def neighbors_of(images: Tensor, training: Tensor) -> Neighbors:
    return nearest([images], [(0, training)], k=50)


def test_planted_copies_are_found_and_held_out_images_raise_no_alarm() -> None:
    training, held_out, fresh = points(2000, 30), points(300, 30, 1), points(100, 30, 2)
    usual = neighbors_of(held_out, training)
    clean = measure_memorisation(neighbors_of(fresh, training), usual)
    assert (clean.alarm, clean.copies) == (False, ())
    assert clean.ratio["0.5"] == pytest.approx(1, abs=0.05)
    fresh[[3, 70]] = training[[1234, 5]] + 0.01 * points(2, 30, 3)
    planted = measure_memorisation(neighbors_of(fresh, training), usual)
    assert planted.alarm
    assert planted.copies == (Copy(sample=3, training_image=1234), Copy(sample=70, training_image=5))
    assert planted.ratio["0"] < 0.02


def test_duplicates_among_the_held_out_images_are_no_evidence() -> None:
    """Every tenth test image is in the training set too: as many copies among the samples are no reason for alarm."""
    training, held_out, samples = points(2000, 30), points(300, 30, 1), points(100, 30, 2)
    held_out[::10] = training[:30]
    samples[::10] = training[100:110]
    found = measure_memorisation(neighbors_of(samples, training), neighbors_of(held_out, training))
    assert (len(found.copies), found.held_out_copies, found.alarm) == (10, 30, False)


def test_a_single_blatant_copy_is_alarming_and_a_doubtful_one_among_many_is_not() -> None:
    training, held_out, samples = points(2000, 30), points(300, 30, 1), points(300, 30, 2)
    samples[7] = training[3] + 1.6 / math.sqrt(30)
    near = measure_memorisation(neighbors_of(samples, training), neighbors_of(held_out, training))
    assert (len(near.copies), near.alarm) == (1, False)
    assert near.chance == pytest.approx(0.5)
    samples[7] = training[3] + 0.01
    assert measure_memorisation(neighbors_of(samples, training), neighbors_of(held_out, training)).alarm


def test_many_doubtful_copies_are_alarming_where_held_out_images_have_none() -> None:
    """Eight among 300, none among 300 others: p = (300 ... 293)/(600 ... 593) = 0.0037. None of them is blatant."""
    training, held_out, samples = points(2000, 30), points(300, 30, 1), points(300, 30, 2)
    samples[:8] = training[:8] + 1.6 / math.sqrt(30)
    usual = neighbors_of(held_out, training)
    found = measure_memorisation(neighbors_of(samples, training), usual)
    assert (len(found.copies), found.held_out_copies, found.alarm) == (8, 0, True)
    assert found.chance == pytest.approx(math.prod((300 - k) / (600 - k) for k in range(8)))
    assert usual.distances[:, 0].min() / 3 < 1.6


def test_quantiles_are_the_nearest_of_the_values() -> None:
    """Of four values: 0.25 · 3 = 0.75 is nearest to number 1, 0.75 · 3 = 2.25 to number 2."""
    distances = torch.tensor([[4.0], [1.0], [3.0], [2.0]])
    given = Neighbors(distances, torch.zeros(4, 1, dtype=torch.int64))
    found = measure_memorisation(given, given)
    quantiles = {q: value * found.held_out_distance for q, value in found.ratio.items()}
    assert quantiles == {"0": 1, "0.01": 1, "0.05": 1, "0.25": 2, "0.5": 3, "0.75": 3, "0.95": 4, "1": 4}


def test_copies_of_an_image_that_is_there_many_times_are_found() -> None:
    training, held_out, samples = points(2000, 30), points(300, 30, 1), points(20, 30, 2)
    training[100:160] = training[100]
    samples[:2] = training[100] + 1e-3
    found = measure_memorisation(neighbors_of(samples, training), neighbors_of(held_out, training))
    assert [copy.sample for copy in found.copies] == [0, 1]
    assert found.alarm


def test_distances_to_the_median_held_out_image() -> None:
    given = Neighbors(torch.tensor([[1.0, 4.0], [2.0, 5.0], [6.0, 9.0]]), torch.zeros(3, 2, dtype=torch.int64))
    found = measure_memorisation(given, given)
    assert (found.held_out_distance, found.ratio["0"], found.ratio["1"]) == (2.0, 0.5, 3.0)
    assert [copy.sample for copy in found.copies] == [0]  # 1/4 is below a third, 2/5 is not


@settings(deadline=None)
@given(n=st.integers(1, 1000), others=st.integers(1, 1000), k=st.integers(0, 40), h=st.integers(0, 40))
def test_the_probability_of_this_many_copies(n: int, others: int, k: int, h: int) -> None:
    k, h = min(k, n), min(h, others)
    assert _probability_of_at_least(k, n, k + h, n + others) == pytest.approx(
        stats.hypergeom.sf(k - 1, n + others, k + h, n), abs=1e-9
    )
