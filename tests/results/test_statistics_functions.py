"""The statistics against tabled values, hand calculations and brute force."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from dare.diffusion.keys import RunKey
from dare.errors import UsageProblem
from dare.results import stats

# Quantiles of Student's t as printed in statistical tables, with more digits.
T_TABLE = [
    (0.975, 1, 12.7062047364),
    (0.975, 2, 4.30265272991),
    (0.975, 3, 3.18244630528),
    (0.975, 4, 2.7764451052),
    (0.975, 6, 2.44691185114),
    (0.975, 9, 2.26215716274),
    (0.975, 30, 2.04227245630),
    (0.975, 100, 1.98397151845),
    (0.95, 2, 2.91998558036),
    (0.95, 6, 1.94318028051),
    (0.995, 9, 3.24983554402),
    (0.9995, 1, 636.619248768),
    (0.8, 2, 1.06066017178),
]


@pytest.mark.parametrize(("p", "df", "expected"), T_TABLE)
def test_t_quantile_is_the_tables(p, df, expected):
    assert stats.t_quantile(p, df) == pytest.approx(expected, rel=1e-9)
    assert stats.t_quantile(1 - p, df) == pytest.approx(-expected, rel=1e-9)
    assert stats.t_cdf(expected, df) == pytest.approx(p, abs=1e-10)


@pytest.mark.parametrize("p", [0.55, 0.8, 0.975, 0.999])
def test_t_quantile_closed_forms(p):
    assert stats.t_quantile(p, 1) == pytest.approx(math.tan(math.pi * (p - 0.5)), rel=1e-9)
    two = (2 * p - 1) * math.sqrt(2 / (1 - (2 * p - 1) ** 2))
    assert stats.t_quantile(p, 2) == pytest.approx(two, rel=1e-9)
    assert stats.t_quantile(p, 1e7) == pytest.approx(stats.normal_quantile(p), abs=1e-6)
    assert stats.t_quantile(0.5, 3) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(("p", "df"), [(0, 3), (1, 3), (0.9, 0)])
def test_t_quantile_refuses(p, df):
    with pytest.raises(ValueError, match="no t quantile"):
        stats.t_quantile(p, df)


def test_wilson_by_hand():
    # 80 of 100 at z = 1.96: the textbook's 0.7112 to 0.8666.
    assert stats.wilson(80, 100) == pytest.approx((0.71117, 0.86663), abs=1e-5)
    z2 = stats.normal_quantile(0.975) ** 2
    assert stats.wilson(0, 10) == pytest.approx((0.0, z2 / (10 + z2)))
    assert stats.wilson(10, 10) == pytest.approx((10 / (10 + z2), 1.0))


@pytest.mark.parametrize(
    ("n", "share", "half"),
    [(1319, 0.8, 2.2), (500, 0.4, 4.3), (164, 0.45, 7.5), (256, 0.45, 6.0), (30, 0.13, 12.2)],
)
def test_wilson_half_widths_of_the_benchmarks(n, share, half):
    lo, hi = stats.wilson(round(share * n), n)
    assert 50 * (hi - lo) == pytest.approx(half, abs=0.15)


@pytest.mark.parametrize(("successes", "n"), [(1, 0), (5, 4), (-1, 4)])
def test_wilson_refuses(successes, n):
    with pytest.raises(ValueError, match="successes"):
        stats.wilson(successes, n)


def test_t_and_prediction_intervals_by_hand():
    # Mean 2, SD 1, t(.975, 2) = 4.30265.
    lo, hi = stats.t_interval([1.0, 2.0, 3.0])
    assert (lo, hi) == pytest.approx((2 - 4.3026527 / math.sqrt(3), 2 + 4.3026527 / math.sqrt(3)))
    lo, hi = stats.prediction_interval([1.0, 2.0, 3.0])
    assert hi - 2 == pytest.approx(4.3026527 * math.sqrt(1 + 1 / 3))
    lo, hi = stats.prediction_interval([1.0, 2.0, 3.0], 0.9, m_new=4)
    assert 2 - lo == pytest.approx(2.9199856 * math.sqrt(1 / 4 + 1 / 3))
    for too_few in ([], [1.0]):
        with pytest.raises(ValueError, match="2 values"):
            stats.t_interval(too_few)
        with pytest.raises(ValueError, match="2 values"):
            stats.prediction_interval(too_few)


def test_t_test_agrees_with_the_interval():
    values = [0.3, 1.9, 2.2, 0.8]
    p = stats.t_test(values)
    lo, _ = stats.t_interval(values, 1 - p)
    assert lo == pytest.approx(0, abs=1e-9)
    assert stats.t_test([0.0, 0.0]) == 1.0
    assert stats.t_test([2.0, 2.0]) == 0.0


def test_mcnemar_mid_p_by_hand():
    # n = 4, small = 1: 2 P(X <= 1) - P(X = 1) = 2 * 5/16 - 4/16 = 6/16.
    assert stats.mcnemar(3, 1) == pytest.approx(6 / 16)
    # n = 6, small = 0: 2/64 - 1/64.
    assert stats.mcnemar(0, 6) == pytest.approx(1 / 64)
    assert stats.mcnemar(0, 0) == 1.0
    assert stats.mcnemar(5, 5) == pytest.approx(1.0)
    assert stats.mcnemar(30, 10) == stats.mcnemar(10, 30)


def test_mcnemar_mid_p_by_enumeration():
    only_a, only_b = 7, 2
    n = only_a + only_b
    tails = [sum(row) for row in itertools.product((0, 1), repeat=n)]
    at_most = sum(t <= min(only_a, only_b) for t in tails) / 2**n
    equal = sum(t == min(only_a, only_b) for t in tails) / 2**n
    assert stats.mcnemar(only_a, only_b) == pytest.approx(2 * at_most - equal)


def test_sign_flip_by_enumeration():
    differences = [1.2, -0.3, 0.7, 2.0, 0.1]
    observed = abs(sum(differences))
    extreme = sum(
        abs(sum(s * d for s, d in zip(signs, differences, strict=True))) >= observed - 1e-12
        for signs in itertools.product((1, -1), repeat=5)
    )
    found = stats.sign_flip(differences)
    assert found.p == pytest.approx(extreme / 32)
    assert found.smallest == 2 / 32


def test_smallest_sign_flip_p():
    assert stats.sign_flip([1.0, 2.0, 3.0]) == stats.SignFlip(p=0.25, smallest=0.25)
    assert stats.sign_flip([1.0] * 6).p == 2 / 64 < 0.05
    assert stats.sign_flip([0.0, 0.0]).p == 1.0
    for count in (0, 21):
        with pytest.raises(ValueError, match="pairs"):
            stats.sign_flip([1.0] * count)


def test_bootstrap_interval_of_one_seed_is_the_normal_one():
    # 400 items, 60 only a, 30 only b: SD of d is sqrt(.225 - .075^2).
    d = np.array([1] * 60 + [-1] * 30 + [0] * 310, dtype=float)
    found = stats.paired_bootstrap(d[None], np.zeros((1, 400)))
    half = 1.959964 * math.sqrt(0.225 - 0.075**2) / math.sqrt(400)
    assert found.estimate == pytest.approx(0.075)
    assert (found.lo, found.hi) == pytest.approx((0.075 - half, 0.075 + half), abs=0.004)


def test_bootstrap_by_enumeration():
    """Two seeds and two items: all 4 x 4 resamples are equally likely."""
    a = np.array([[1.0, 0.0], [1.0, 1.0]])
    outcomes = [
        np.mean([a[s, i] for s in seeds for i in items])
        for seeds in itertools.product((0, 1), repeat=2)
        for items in itertools.product((0, 1), repeat=2)
    ]
    means, estimate = stats.bootstrap_differences(a, np.zeros((1, 2)), draws=20_000)
    assert estimate == pytest.approx(0.75)
    for value in sorted(set(outcomes)):
        expected = np.mean(np.isclose(outcomes, value))
        assert np.mean(np.isclose(means, value)) == pytest.approx(expected, abs=0.012)


def test_bootstrap_stream_is_fixed_and_keyed():
    rng = RunKey(3).at("data").numpy()
    a, b = rng.random((3, 50)), rng.random((3, 50))
    again = [stats.paired_bootstrap(a, b, draws=500) for _ in range(2)]
    assert again[0] == again[1]
    other = stats.paired_bootstrap(a, b, draws=500, key=RunKey(1).at("bootstrap"))
    assert other.lo != again[0].lo
    assert other.estimate == again[0].estimate


def test_bootstrap_pools_points_by_weight():
    a = np.array([[8.0, 1.0]])
    found = stats.paired_bootstrap(a, np.zeros((1, 2)), np.array([8.0, 2.0]), draws=200)
    assert found.estimate == pytest.approx(0.9)
    assert found.hi == pytest.approx(1.0)
    assert found.lo == pytest.approx(0.5)
    with pytest.raises(ValueError, match="seeds, items"):
        stats.paired_bootstrap(np.zeros((0, 2)), np.zeros((1, 2)))


def test_bootstrap_p_is_never_zero():
    assert stats.bootstrap_p(np.ones(99)) == pytest.approx(2 / 100)
    assert stats.bootstrap_p(np.zeros(99)) == 1.0


def test_holm_by_hand():
    assert stats.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert stats.holm([0.5, 0.6]) == pytest.approx([1.0, 1.0])
    assert stats.holm([0.02]) == [0.02]
    assert stats.holm([]) == []


@pytest.mark.parametrize(
    ("n", "share", "unpaired", "tenth", "fifth"),
    [
        (1319, 0.80, 4.4, 2.4, 3.4),
        (500, 0.40, 8.7, 4.0, 5.6),
        (164, 0.45, 15.4, 6.9, 9.8),
        (256, 0.45, 12.3, 5.5, 7.8),
        (256, 0.30, 11.3, 5.5, 7.8),
        (30, 0.13, 24.3, 16, 23),
    ],
)
def test_detectable_differences_of_the_benchmarks(n, share, unpaired, tenth, fifth):
    assert 100 * stats.detectable_unpaired(share, n) == pytest.approx(unpaired, abs=0.06)
    assert 100 * stats.detectable_paired(0.1, n) == pytest.approx(tenth, abs=0.2)
    assert 100 * stats.detectable_paired(0.2, n) == pytest.approx(fifth, abs=0.2)


def test_detectable_over_seeds_by_hand():
    # t(.975, 2) + t(.8, 2) = 4.30265 + 1.06066.
    expected = (4.3026527 + 1.0606602) * 2 / math.sqrt(3)
    assert stats.detectable_over_seeds(2.0, 3) == pytest.approx(expected)
    assert stats.detectable_over_seeds(2.0, 1) == math.inf


def test_pass_at_k_by_enumeration():
    samples = [1, 1, 0, 0, 0]
    for k in (1, 2, 3, 5):
        subsets = list(itertools.combinations(samples, k))
        expected = sum(any(s) for s in subsets) / len(subsets)
        assert stats.pass_at_k(5, 2, k) == pytest.approx(expected)
    assert stats.pass_at_k(1, 1, 1, greedy=True) == 1.0
    assert stats.pass_at_k(4, 0, 4) == 0.0


def test_pass_at_k_refuses():
    with pytest.raises(UsageProblem, match="from 4 samples"):
        stats.pass_at_k(4, 1, 5)
    with pytest.raises(UsageProblem, match="greedy"):
        stats.pass_at_k(8, 8, 2, greedy=True)
    with pytest.raises(ValueError, match="correct of"):
        stats.pass_at_k(4, 5, 1)


def test_iqm():
    assert stats.iqm([1, 2, 3, 4, 5, 6, 7, 100]) == pytest.approx(4.5)
    assert stats.iqm([0, 10, 20]) == pytest.approx(10)
    assert stats.iqm([5, 1, 3, 900]) == pytest.approx(4)
    with pytest.raises(ValueError, match="no values"):
        stats.iqm([])
