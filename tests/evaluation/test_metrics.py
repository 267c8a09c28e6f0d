"""Metrics against closed forms, brute force and scipy."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import linalg, stats
from torch import Tensor

from scorefield.metrics import (
    ClassScore,
    Statistics,
    frechet_distance,
    kernel_distance,
    nearest,
    precision_recall,
)


def points(n: int, d: int, seed: int = 0, *, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def seen(*batches: Tensor) -> Statistics:
    statistics = Statistics.empty(batches[0].shape[1])
    for batch in batches:
        statistics.add(batch)
    return statistics


@settings(deadline=None, max_examples=30)
@given(cuts=st.lists(st.integers(1, 39), max_size=5), offset=st.sampled_from([0.0, 1e6]))
def test_statistics_do_not_depend_on_the_batches(cuts: list[int], offset: float) -> None:
    x = points(40, 3) + offset
    edges = [0, *sorted(set(cuts)), 40]
    statistics = seen(*(x[a:b] for a, b in pairwise(edges)))
    assert statistics.n == 40
    np.testing.assert_allclose(statistics.mean, x.mean(0), rtol=1e-12)
    np.testing.assert_allclose(statistics.covariance, np.cov(x.numpy(), rowvar=False), rtol=1e-7, atol=1e-7)


def test_merged_statistics_are_those_of_all() -> None:
    x = points(30, 4)
    a, b = seen(x[:7]), seen(x[7:])
    a.merge(b)
    a.merge(Statistics.empty(4))
    torch.testing.assert_close(a.covariance, seen(x).covariance)
    with pytest.raises(ValueError, match="at least 2 images"):
        _ = seen(x[:1]).covariance


@settings(deadline=None, max_examples=25)
@given(d=st.integers(1, 8), seed=st.integers(0, 1000))
def test_frechet_distance_agrees_with_the_matrix_root_of_scipy(d: int, seed: int) -> None:
    a, b = seen(points(5 * d + 5, d, seed)), seen(points(5 * d + 5, d, seed + 1) * 1.5 + 0.3)
    root = linalg.sqrtm(a.covariance.numpy() @ b.covariance.numpy()).real
    expected = (a.mean - b.mean).square().sum() + (a.covariance + b.covariance).trace() - 2 * np.trace(root)
    assert frechet_distance(a, b) == pytest.approx(float(expected), rel=1e-6, abs=1e-8)
    assert frechet_distance(a, b) == pytest.approx(frechet_distance(b, a), rel=1e-8)


def test_frechet_distance_in_closed_form() -> None:
    """For Gaussians with diagonal covariances, which may be singular: Σ (m − m')² + (s − s')²."""
    one = seen(torch.tensor([[-1.0, 0.0], [1.0, 0.0]]))  # mean 0, variances 2 and 0
    two = seen(torch.tensor([[3.0, 5.0], [3.0, 9.0]]))  # mean (3, 7), variances 0 and 8
    assert frechet_distance(one, two) == pytest.approx(9 + 49 + 2 + 8)
    assert frechet_distance(two, two) == pytest.approx(0, abs=1e-12)
    few = seen(points(5, 20))  # rank 4 of 20
    assert frechet_distance(few, few) == pytest.approx(0, abs=1e-6)
    moved = seen(points(5, 20) + 2)
    assert frechet_distance(few, moved) == pytest.approx(80, rel=1e-6)


def test_kernel_distance_by_brute_force() -> None:
    """All pairs, and the jackknife over ten groups, of 4 points in one set and of 4 or 5 in the other."""
    a, b = points(40, 3), points(44, 3, 1) + 0.5

    def mmd2(x: Tensor, y: Tensor) -> float:
        def k(u: Tensor, v: Tensor) -> float:
            return (float(u @ v) / 3 + 1) ** 3

        own = [np.mean([k(u, v) for i, u in enumerate(z) for j, v in enumerate(z) if i != j]) for z in (x, y)]
        return float(own[0] + own[1] - 2 * np.mean([k(u, v) for u in x for v in y]))

    value, error = kernel_distance(a, b)
    assert value == pytest.approx(mmd2(a, b))
    xs, ys = (np.array_split(np.arange(n), 10) for n in (40, 44))
    left = [mmd2(a[np.setdiff1d(range(40), x)], b[np.setdiff1d(range(44), y)]) for x, y in zip(xs, ys, strict=True)]
    assert error == pytest.approx(math.sqrt(0.9 * sum((value - np.mean(left)) ** 2 for value in left)))


@pytest.mark.parametrize("apart", [0.0, 0.5])
def test_kernel_distance_is_unbiased_and_its_error_honest(apart: float) -> None:
    """For two sets with the same distribution it is 0 on average. Its standard error is the scatter of many such values
    or larger."""
    found = [kernel_distance(points(200, 4, 2 * s), points(150, 4, 2 * s + 1) + apart) for s in range(100)]
    values, errors = np.array(found).T
    scatter = values.std()
    if apart == 0:
        assert abs(values.mean()) < 4 * scatter / math.sqrt(100)
        assert scatter < math.sqrt((errors**2).mean()) < 2 * scatter
    else:
        assert values.mean() > 10 * scatter / math.sqrt(100)
        assert math.sqrt((errors**2).mean()) == pytest.approx(scatter, rel=0.25)


@settings(deadline=None, max_examples=20)
@given(n=st.integers(5, 30), m=st.integers(5, 30), block=st.integers(1, 40), seed=st.integers(0, 99))
def test_precision_and_recall_by_brute_force(n: int, m: int, block: int, seed: int) -> None:
    a, b = points(n, 2, seed), points(m, 2, seed + 1) * 1.5

    def share(x: Tensor, y: Tensor) -> float:
        radii = torch.cdist(y, y).sort(1).values[:, 3]
        return sum(bool((torch.cdist(p[None], y)[0] <= radii).any()) for p in x) / len(x)

    assert precision_recall(a, b, block=block) == pytest.approx((share(a, b), share(b, a)))


def test_a_collapsed_model_has_precision_but_no_recall() -> None:
    real = points(500, 2)
    collapsed = 0.05 * points(500, 2, 1)
    precision, recall = precision_recall(collapsed, real)
    assert precision > 0.98
    assert recall < 0.05


def test_inception_score_by_hand() -> None:
    sure = 50 * torch.eye(4).repeat(10, 1)  # ten splits, each with every class once
    score = ClassScore.empty(40, 4)
    score.add(sure, torch.arange(40))
    assert score.result() == pytest.approx((4.0, 0.0))
    blank = ClassScore.empty(40, 4)
    blank.add(torch.zeros(40, 4), torch.arange(40))
    assert blank.result() == pytest.approx((1.0, 0.0))


def test_inception_score_in_parts_is_that_of_the_whole() -> None:
    logits = points(103, 6) * 2
    p = logits.softmax(1).numpy()
    splits = [p[[k for k in range(103) if k * 10 // 103 == s]] for s in range(10)]
    each = [math.exp(np.mean([stats.entropy(row, part.mean(0)) for row in part])) for part in splits]
    one, two = ClassScore.empty(103, 6), ClassScore.empty(103, 6)
    one.add(logits[:20], torch.arange(20))
    one.add(logits[20:50], torch.arange(20, 50))
    two.add(logits[50:], torch.arange(50, 103))
    one.merge(two)
    assert one.result() == pytest.approx((np.mean(each), np.std(each)))


@settings(deadline=None, max_examples=20)
@given(n=st.integers(1, 40), block=st.integers(1, 45), k=st.integers(1, 10), seed=st.integers(0, 99))
def test_nearest_by_brute_force(n: int, block: int, k: int, seed: int) -> None:
    queries, mirrored, training = points(6, 5, seed), points(6, 5, seed + 1), points(n, 5, seed + 2)
    found = nearest([queries, mirrored], ((i, training[i : i + block]) for i in range(0, n, block)), k=k)
    distances = torch.minimum(torch.cdist(queries, training), torch.cdist(mirrored, training))
    expected = distances.sort(1)
    torch.testing.assert_close(found.distances, expected.values[:, :k])
    assert torch.equal(found.numbers, expected.indices[:, :k])


def test_large_numbers_do_not_blur_small_distances() -> None:
    base = torch.full((1, 3072), 200.0) / 255
    training = torch.cat([base + 1e-4, base + 2e-4, base + 3e-4]).float()
    found = nearest([base], [(0, training)], k=3)
    assert found.numbers.tolist() == [[0, 1, 2]]
    assert found.distances[0, 0].item() == pytest.approx(1e-4 * math.sqrt(3072), rel=1e-2)


def test_statistics_that_are_not_finite_are_an_error() -> None:
    a, b = seen(points(9, 2)), seen(points(9, 2, 1))
    a.mean[0] = torch.nan
    with pytest.raises(FloatingPointError, match="not finite"):
        frechet_distance(a, b)
    with pytest.raises(ValueError, match="cannot be compared"):
        frechet_distance(b, seen(points(9, 3)))


def test_precision_and_recall_far_from_the_origin_in_float32() -> None:
    a, b = points(60, 4, 1), points(60, 4, 2)
    assert precision_recall((a + 3000).float(), (b + 3000).float()) == precision_recall(a, b)
