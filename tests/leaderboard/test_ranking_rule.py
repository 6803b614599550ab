"""The ranking rule on numbers computed by hand or published."""

from __future__ import annotations

import itertools

import pytest

from dare.leaderboard.ranking import Estimate, difference, ranks, single_interval
from dare.results.record import Metric
from dare.results.stats import t_interval


def seeds(*values: float) -> Estimate:
    lo, hi = t_interval(values)
    mean = sum(values) / len(values)
    return Estimate(mean, lo, hi, "t over seeds", dict(enumerate(values)), 1000)


def single(value: float, lo: float, hi: float) -> Estimate:
    return Estimate(value, lo, hi, "Wilson over items", {0: value}, 1000)


# Three published seeds per method (percent), with the half-widths printed beside them.
CJ = seeds(53.4, 51.0, 49.4)
DIFFU = seeds(49.1, 49.2, 48.7)
WD1 = seeds(46.4, 47.0, 47.0)


@pytest.mark.parametrize(("row", "half"), [(CJ, 5.0), (DIFFU, 0.7), (WD1, 0.9)])
def test_interval_over_seeds_is_students(row: Estimate, half: float) -> None:
    assert row.half_width == pytest.approx(half, abs=0.05)


@pytest.mark.parametrize(("a", "b", "gap", "half"), [(CJ, DIFFU, 2.3, 4.6), (DIFFU, WD1, 2.2, 1.2)])
def test_same_seeds_are_compared_in_pairs(
    a: Estimate, b: Estimate, gap: float, half: float
) -> None:
    found = difference(a, b)
    assert found.method == "paired seeds"
    assert (found.lo + found.hi) / 2 == pytest.approx(gap, abs=0.05)
    assert (found.hi - found.lo) / 2 == pytest.approx(half, abs=0.05)


def test_rows_that_cannot_be_told_apart_share_a_rank() -> None:
    # CJ - wd1 is 7.0, 4.0, 2.4: interval -1.3 to 10.2, so only diffu is shown to beat wd1.
    assert difference(CJ, WD1).lo == pytest.approx(-1.34, abs=0.01)
    assert ranks([CJ, DIFFU, WD1]) == [1, 1, 2]


def test_a_wide_interval_never_lifts_a_row_above_a_better_one() -> None:
    sure = [single(90, 89, 91), single(80, 79, 81)]
    vague = single(70, 40, 95)
    assert not difference(sure[0], vague).positive
    assert ranks([*sure, vague]) == [1, 2, 2]


def test_wilson_interval_of_one_evaluation() -> None:
    # Wilson's interval for 10 of 20 by hand: (.5 +- 1.96 sqrt(.25/20 + .0024)) / 1.19207.
    lo, hi, method = single_interval(
        Metric(name="accuracy", value=50.0, n=20, points=10, out_of=20)
    )
    assert (lo, hi) == (pytest.approx(29.93, abs=0.01), pytest.approx(70.07, abs=0.01))
    assert method == "Wilson over items"


def test_cells_of_one_item_do_not_narrow_the_interval() -> None:
    pooled = Metric(name="cells", value=50.0, n=20, points=80, out_of=160)
    assert single_interval(pooled)[:2] == (
        pytest.approx(29.93, abs=0.01),
        pytest.approx(70.07, abs=0.01),
    )


def test_intervals_of_unlike_rows_are_combined_by_squares() -> None:
    # 20 - sqrt(5^2 + 4^2) and 20 + sqrt(5^2 + 3^2)
    found = difference(single(50, 45, 55), single(30, 27, 34))
    assert found.method == "combined intervals"
    assert found.lo == pytest.approx(13.597, abs=1e-3)
    assert found.hi == pytest.approx(25.831, abs=1e-3)


def test_single_evaluations_of_the_same_items_are_compared_item_by_item() -> None:
    # a alone right on 10 of 48 items, b alone on none: with half an item added to each cell
    # the gap is 10/50 and its standard error sqrt((11/50 - .2^2) / 50) = .06.
    a_right = [True] * 30 + [False] * 18
    b_right = [True] * 20 + [False] * 28
    a = Estimate(62.5, 48, 75, "Wilson over items", {0: 62.5}, 48, "set", [a_right])
    b = Estimate(41.7, 29, 56, "Wilson over items", {0: 41.7}, 48, "set", [b_right])
    found = difference(a, b)
    assert found.method == "paired items"
    assert found.lo == pytest.approx(20 - 1.95996 * 6, abs=1e-3)
    assert found.hi == pytest.approx(20 + 1.95996 * 6, abs=1e-3)


def test_seeds_that_agree_by_luck_do_not_hide_the_items() -> None:
    # Both seeds differ by 10 of 100 items: t over seeds alone would have no width.  a alone is
    # right on 20 items and b alone on 10, so the gaps have mean .1 and mean square .3, and
    # 1.96 sqrt(.29 / 99) = .1061.
    a_right = [[True] * 60 + [False] * 40] * 2
    b_right = [[True] * 40 + [False] * 20 + [True] * 10 + [False] * 30] * 2
    a = Estimate(60, 60, 60, "t over seeds", {0: 60, 1: 60}, 100, "set", a_right)
    b = Estimate(50, 50, 50, "t over seeds", {0: 50, 1: 50}, 100, "set", b_right)
    found = difference(a, b)
    assert found.method == "paired seeds and items"
    assert (found.lo, found.hi) == pytest.approx((10 - 10.608, 10 + 10.608), abs=1e-3)
    assert ranks([a, b]) == [1, 1]


def test_other_items_are_not_paired() -> None:
    a = Estimate(50, 30, 70, "Wilson over items", {0: 50}, 2, "one set", [[True, False]])
    b = Estimate(50, 30, 70, "Wilson over items", {0: 50}, 2, "another set", [[True, False]])
    assert difference(a, b).method == "combined intervals"


def test_a_difference_changes_sign_with_its_rows() -> None:
    rows = [CJ, DIFFU, WD1, single(23.2, 20.7, 25.9)]
    for a, b in itertools.permutations(rows, 2):
        there, back = difference(a, b), difference(b, a)
        assert there.lo == pytest.approx(-back.hi)
        assert there.hi == pytest.approx(-back.lo)
