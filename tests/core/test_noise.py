from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest

from scorefield.noise import (
    SampleNoise,
    as_schedule,
    every_level,
    geometric,
    level_at,
    one_level,
    philox,
    rademacher,
    sample_seeds,
)


def test_the_papers_schedule() -> None:
    expected = [1, 0.5994843, 0.3593814, 0.2154435, 0.1291550, 0.0774264, 0.0464159, 0.0278256, 0.0166810, 0.01]
    torch.testing.assert_close(geometric(1.0, 0.01, 10), torch.tensor(expected), rtol=1e-5, atol=0)


@given(st.floats(1e-4, 1e3), st.floats(1.01, 1e4), st.integers(2, 50))
def test_geometric_has_exact_ends_and_one_ratio(sigma_min: float, factor: float, levels: int) -> None:
    sigmas = geometric(sigma_min * factor, sigma_min, levels)
    assert sigmas.shape == (levels,)
    assert sigmas[0] == torch.tensor(sigma_min * factor)
    assert sigmas[-1] == torch.tensor(sigma_min)
    ratios = (sigmas[:-1] / sigmas[1:]).double()
    torch.testing.assert_close(ratios, torch.full_like(ratios, factor ** (1 / (levels - 1))), rtol=1e-5, atol=0)


def test_one_level_alone() -> None:
    assert geometric(0.01, 0.01, 1).tolist() == torch.tensor([0.01]).tolist()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.01, 1.0, 10), "swap them"),
        ((1.0, 1.0, 10), "or ask for one level"),
        ((math.nan, 1.0, 10), "positive and finite"),
        ((1.0, 0.0, 10), "positive and finite"),
        ((1.0, -1.0, 10), "positive and finite"),
        ((math.inf, 1.0, 10), "positive and finite"),
        ((1.0, 0.01, 0), "levels must be at least 1"),
        ((1.0, 0.01, 1), "make them equal"),
    ],
)
def test_impossible_schedules_are_refused(arguments: tuple[float, float, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        geometric(*arguments)


@pytest.mark.parametrize(
    ("sigmas", "message"),
    [
        ([0.01, 0.1, 1.0], r"sigmas must decrease; got 0.01 ... 1 \(flip them\)"),
        ([1.0, 0.1, 0.1], "drop repeated"),
        ([1.0, 0.1, 0.5], "sort them"),
        ([1.0, 0.0], "positive and finite"),
        ([math.nan, 1.0], "positive and finite"),
        ([math.inf, 1.0], "positive and finite"),
        ([], r"shape \(L,\)"),
        ([[1.0, 0.1]], r"shape \(L,\)"),
    ],
)
def test_a_schedule_must_decrease(sigmas: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        as_schedule(sigmas)


def test_one_level_draws_every_level_equally_often() -> None:
    sigmas, n = geometric(1.0, 0.01, 10), 100_000
    drawn = one_level(sigmas, generator=torch.Generator().manual_seed(3))(torch.empty(n, 2))
    counts = (drawn[:, None] == sigmas).sum(0).double()
    assert counts.sum() == n
    assert (counts - n / 10).abs().max() < 4.5 * math.sqrt(n * 0.1 * 0.9)


def test_uniform_numbers_choose_levels_by_their_thirds() -> None:
    u = torch.tensor([0.0, 0.33, 0.34, 0.66, 0.67, 0.999])
    assert level_at(torch.tensor([3.0, 2.0, 1.0]), u).tolist() == [3, 3, 2, 2, 1, 1]


def test_every_level_gives_all_levels_to_all_examples() -> None:
    rows = every_level(torch.tensor([3.0, 2.0, 1.0]))(torch.empty(2, 5))
    assert rows.tolist() == [[3, 3], [2, 2], [1, 1]]


def test_rademacher_is_plus_or_minus_one() -> None:
    assert rademacher(torch.tensor([-3.0, -0.1, 0.0, 0.2])).tolist() == [-1, -1, 1, 1]


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
)
def test_philox_gives_the_published_answers(counter: str, key: str, words: str) -> None:
    """The known answers for philox4x32-10 of Random123, the authors' library."""
    a, b, c, d, k, m = (torch.tensor(int(word, 16)) for word in f"{counter} {key}".split())
    assert " ".join(f"{int(word):08x}" for word in philox((a, b, c, d), (k, m))) == words


def test_normal_and_uniform_noise_have_their_distributions() -> None:
    noise = SampleNoise(range(100))
    z = torch.stack([noise.randn_like(torch.empty(100, 5, 7)) for _ in range(20)]).double()
    assert kstest(z.flatten().numpy(), "norm").pvalue > 0.01
    assert abs(z.pow(4).mean() - 3) < 5 * math.sqrt(96 / z.numel())  # the tails: E z⁴ = 3, var z⁴ = 96
    u = noise.rand_like(torch.empty(100, 700))
    assert kstest(u.flatten().numpy(), "uniform").pvalue > 0.01
    assert 0 <= u.min() <= u.max() < 1


def test_noise_of_neighbouring_seeds_draws_and_places_is_uncorrelated() -> None:
    noise = SampleNoise(range(50))
    z = torch.stack([noise.randn_like(torch.empty(50, 200)) for _ in range(10)]).double()  # (draw, seed, place)
    for a, b in ((z[1:], z[:-1]), (z[:, 1:], z[:, :-1]), (z[:, :, 1:], z[:, :, :-1])):
        assert abs((a * b).mean()) < 4.5 / math.sqrt(a.numel())


@given(
    seeds=st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=6, unique=True),
    shape=st.lists(st.integers(1, 5), min_size=1, max_size=3),
    data=st.data(),
)
def test_a_seed_gives_the_same_noise_in_any_batch(seeds: list[int], shape: list[int], data: st.DataObject) -> None:
    others = [*data.draw(st.permutations(seeds)), 7]
    a, b = SampleNoise(seeds), SampleNoise(others)
    for draw in ("rand_like", "randn_like", "randn_like"):
        x, y = (getattr(noise, draw)(torch.empty(n, *shape)) for noise, n in ((a, len(seeds)), (b, len(others))))
        for k, seed in enumerate(seeds):
            assert torch.equal(x[k], y[others.index(seed)])


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_uniform_noise_stays_below_one(kind: torch.dtype) -> None:
    assert SampleNoise(range(4)).rand_like(torch.empty(4, 20_000, dtype=kind)).max() < 1


def test_noise_follows_the_type_of_x() -> None:
    double = SampleNoise([1, 2]).randn_like(torch.empty(2, 3, dtype=torch.float64))
    single = SampleNoise([1, 2]).randn_like(torch.empty(2, 3))
    assert (double.dtype, single.dtype) == (torch.float64, torch.float32)
    torch.testing.assert_close(double.float(), single)


def test_runs_and_samples_have_seeds_of_their_own() -> None:
    seeds = [seed for run in range(4) for seed in sample_seeds(run, range(1000))]
    assert len(set(seeds)) == 4000
    assert sample_seeds(3, range(10, 12)) == sample_seeds(3, range(100))[10:12]
    assert sample_seeds(1, [0, 70_000, 2**32 - 1]) == [2**32, 2**32 + 70_000, 2**33 - 1]
    assert sample_seeds(np.int32(1), [0]) == [2**32]
    with pytest.raises(ValueError, match="whole numbers"):
        sample_seeds(0, [2**32])


def test_the_noise_of_two_runs_is_uncorrelated() -> None:
    """Both halves of a seed count: the run's number is the upper one."""
    one, two = (SampleNoise(sample_seeds(run, range(50))).randn_like(torch.empty(50, 400)).double() for run in (0, 1))
    assert abs((one * two).mean()) < 4.5 / math.sqrt(one.numel())
    assert not torch.isclose(one, two).all()


def test_normal_noise_has_unit_variance_to_a_part_in_two_hundred() -> None:
    z = SampleNoise(range(1000)).randn_like(torch.empty(1000, 2000)).double()
    assert abs(z.var() - 1) < 4.5 * math.sqrt(2 / z.numel())


@pytest.mark.parametrize("word", [0, 2**32 - 1])
@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_the_outermost_random_words(word: int, kind: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scorefield.noise.philox", lambda counter, key: [torch.full_like(counter[0], word)] * 4)
    x = torch.empty(2, 4, dtype=kind)
    assert SampleNoise([0, 1]).randn_like(x).isfinite().all()
    assert 0 <= SampleNoise([0, 1]).rand_like(x).min() <= SampleNoise([0, 1]).rand_like(x).max() < 1


def test_wrong_seeds_are_refused() -> None:
    with pytest.raises(ValueError, match="from 0 to"):
        SampleNoise([0, -1])
    with pytest.raises(ValueError, match="from 0 to"):
        sample_seeds(-1, range(3))
    with pytest.raises(ValueError, match="no seeds"):
        SampleNoise([])
    with pytest.raises(ValueError, match="3 seeds cannot serve a batch of 4"):
        SampleNoise(range(3)).randn_like(torch.empty(4, 2))


def test_seeds_may_be_numpy_integers() -> None:
    x = torch.empty(3, 4)
    assert torch.equal(SampleNoise(np.arange(3)).randn_like(x), SampleNoise(range(3)).randn_like(x))


def test_noise_of_a_shape_is_noise_like_a_tensor_of_that_shape() -> None:
    one, other = SampleNoise([3, 5]), SampleNoise([3, 5])
    assert torch.equal(one.rand((2, 3)), other.rand_like(torch.empty(2, 2, 3)))
    assert torch.equal(one.randn((4,)), other.randn_like(torch.empty(2, 4)))


def test_a_choice_depends_on_the_seed_alone_and_is_not_one_of_the_draws() -> None:
    seeds = sample_seeds(3, range(40))
    noise, untouched = SampleNoise(seeds), SampleNoise(seeds)
    before = noise.choice(10)
    noise.rand((5,))
    assert torch.equal(before, noise.choice(10))
    assert torch.equal(before[[7, 3]], SampleNoise([seeds[7], seeds[3]]).choice(10))
    untouched.rand((5,))
    assert torch.equal(noise.randn((5,)), untouched.randn((5,)))


def test_choices_are_uniform() -> None:
    n = 20_000
    chosen = SampleNoise(sample_seeds(1, range(n))).choice(7)
    counts = torch.bincount(chosen, minlength=7).double()
    assert len(counts) == 7
    assert (counts - n / 7).abs().max() < 4.5 * math.sqrt(n / 7 * 6 / 7)
