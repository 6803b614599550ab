"""The rule ``verdict/1`` on numbers: properties and operating characteristics."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from dare.diffusion.keys import RunKey
from dare.results.rule import (
    decide,
    decide_frozen,
    decide_subset,
    pooled_spread,
)
from dare.results.stats import t_quantile

ORDER = ["FAILED", "INCONCLUSIVE", "PARTIAL", "REPRODUCED"]


def test_pooled_spread_by_hand():
    # Seeds 1, 2, 3: squares 2; prior 4 * 2^2 = 16; 6 degrees of freedom.
    sd, df = pooled_spread([1.0, 2.0, 3.0], prior_sd=2.0)
    assert (sd, df) == (pytest.approx(math.sqrt(18 / 6)), 6)
    # Three seeds that agree exactly still have the prior's spread.
    assert pooled_spread([5.0] * 3, 2.0)[0] == pytest.approx(math.sqrt(16 / 6))
    assert pooled_spread([5.0], 2.0) == (2.0, 4)


def test_decision_by_hand():
    # Margin 5, prior SD 2, seeds with SD 1: s^2 = (2 + 16) / 6 = 3.
    decision = decide(80.0, [78.0, 79.0, 80.0], 5.0)
    half = 2.4469118511 * math.sqrt(3) * math.sqrt(1 + 1 / 3)
    assert decision.half == pytest.approx(half)
    assert (decision.lo, decision.hi) == (pytest.approx(79 - half), pytest.approx(79 + half))
    assert decision.d == pytest.approx(-1.0)
    ninety = 1.9431802805 * 2
    assert (decision.d_lo, decision.d_hi) == pytest.approx((-1 - ninety, -1 + ninety))
    assert decision.label == "REPRODUCED"
    assert decision.equivalent == (1 + ninety <= 5)
    assert decide(79.0, [78.0, 79.0, 80.0], 5.0, claimed_runs=3).half == pytest.approx(
        half / math.sqrt(4 / 3) * math.sqrt(2 / 3)
    )


@pytest.mark.parametrize(
    ("claimed", "label", "exceeds"),
    [
        (80.0, "REPRODUCED", False),
        (90.0, "FAILED", False),
        # The half-width is 4.893: inside, between it and the margin, beyond both.
        (84.89, "REPRODUCED", False),
        (84.9, "PARTIAL", False),
        (85.05, "FAILED", False),
        (70.0, "PARTIAL", True),
    ],
)
def test_labels(claimed, label, exceeds):
    decision = decide(claimed, [79.0, 80.0, 81.0], 5.0, prior_sd=2.0)
    assert (decision.label, decision.exceeds) == (label, exceeds)


def test_lower_is_better():
    up, down = decide(10.0, [20.0] * 3, 2.0), decide(10.0, [20.0] * 3, 2.0, direction=-1)
    assert (up.label, up.exceeds) == ("PARTIAL", True)
    assert (down.label, down.exceeds) == ("FAILED", False)


def test_wide_spread_is_not_a_verdict_and_says_what_would_help():
    decision = decide(80.0, [40.0, 79.0, 100.0], 2.0)
    assert decision.label == "INCONCLUSIVE"
    partial = decide(80.0, [73.0, 80.0, 87.0], 5.0)
    assert partial.label == "PARTIAL"
    assert partial.half > 10
    m = 3 + partial.more
    df, sd = m + 3, partial.sd
    assert t_quantile(0.975, df) * sd * math.sqrt(1 + 1 / m) <= 10
    assert t_quantile(0.975, df - 1) * sd * math.sqrt(1 + 1 / (m - 1)) > 10


@pytest.mark.parametrize(
    ("claimed", "label"),
    [(26.0, "REPRODUCED"), (26.2, "REPRODUCED"), (26.21, "PARTIAL"), (28.9, "PARTIAL"),
     (29.1, "FAILED"), (22.9, "PARTIAL")],
)  # fmt: skip
def test_frozen_checkpoint_is_equal_within_one_item(claimed, label):
    decision = decide_frozen(claimed, [26.0], 3.0, resolution=0.2)
    assert decision.label == label
    assert decision.exceeds == (claimed == 22.9)


def test_frozen_checkpoint_with_repeats_that_flip():
    # 1.96 * 0.5 * sqrt(1 + 1/4) = 1.096
    decision = decide_frozen(27.0, [26.0] * 4, 3.0, resolution=0.2, repeat_sd=0.5)
    assert decision.half == pytest.approx(1.0957, abs=1e-3)
    assert decision.label == "REPRODUCED"
    assert decide_frozen(27.2, [26.0] * 4, 3.0, resolution=0.2, repeat_sd=0.5).label == "PARTIAL"


@pytest.mark.parametrize(
    ("claimed", "label"),
    [(76.7, "PARTIAL"), (76.4, "PARTIAL"), (79.5, "FAILED"), (78.4, "PARTIAL"), (72.0, "PARTIAL")],
)
def test_subset_is_at_best_partial(claimed, label):
    decision = decide_subset(claimed, 76.4, (73.8, 78.8), 2.0, m=1)
    assert decision.label == label
    assert decision.exceeds == (claimed == 72.0)
    assert (decision.lo, decision.hi) == (pytest.approx(73.8), pytest.approx(78.8))


def test_subset_with_a_wide_interval_is_inconclusive():
    assert decide_subset(85.0, 76.0, (60.0, 90.0), 2.0, m=1).label == "INCONCLUSIVE"


def random_cases(count: int) -> list[tuple[list[float], float, float, float]]:
    """(values, claimed, two margins): clustered and scattered seeds, near and far claims."""
    rng = RunKey(0).at("data").numpy()
    cases = []
    for _ in range(count):
        spread = float(rng.choice([0.0, 0.5, 3.0, 15.0]))
        values = (50 + spread * rng.standard_normal(rng.integers(1, 7))).tolist()
        claimed = 50 + float(rng.choice([1.0, 5.0, 20.0])) * float(rng.standard_normal())
        margins = sorted(rng.uniform(0.1, 10, size=2).tolist())
        cases.append((values, claimed, margins[0], margins[1]))
    return cases


CASES = random_cases(400)


def test_the_random_cases_reach_every_label():
    assert {decide(claimed, values, wide).label for values, claimed, _, wide in CASES} == set(ORDER)


def test_monotone_in_the_margin():
    """A wider margin never makes the verdict worse, the spread prior held fixed."""
    for values, claimed, narrow, wide in CASES:
        labels = [decide(claimed, values, delta, prior_sd=2.0).label for delta in (narrow, wide)]
        assert ORDER.index(labels[0]) <= ORDER.index(labels[1])
        frozen = [
            decide_frozen(claimed, values, delta, resolution=0.1).label for delta in (narrow, wide)
        ]
        assert ORDER.index(frozen[0]) <= ORDER.index(frozen[1])


def test_order_of_the_seeds_does_not_matter():
    for values, claimed, delta, _ in CASES:
        first, second = decide(claimed, values, delta), decide(claimed, values[::-1], delta)
        assert first.label == second.label
        assert first.half == pytest.approx(second.half)


def test_mirror_image():
    """Counting errors instead of successes changes nothing but the sign."""
    for values, claimed, delta, _ in CASES:
        up = decide(claimed, values, delta)
        down = decide(100 - claimed, [100 - value for value in values], delta, direction=-1)
        assert up.label == down.label
        assert up.d == pytest.approx(down.d, abs=1e-9)


DELTA, SD, DRAWS = 5.0, 2.0, 3000


def simulate(seeds: int, gap: float) -> tuple[Counter[str], float]:
    """Shares of labels, and how often strict equivalence would have said yes.

    The published value is one run of theirs, ``gap`` points above what ours scatter about.
    Strict equivalence: two one-sided t tests on the seeds alone, no prior.
    """
    rng = RunKey(0).at("bootstrap", step=seeds, sample=round(10 * gap)).numpy()
    ours = 50 + SD * rng.standard_normal((DRAWS, seeds))
    published = 50 + gap + SD * rng.standard_normal(DRAWS)
    labels = Counter(
        decide(claimed, values, DELTA).label
        for claimed, values in zip(published.tolist(), ours.tolist(), strict=True)
    )
    error = ours.std(axis=1, ddof=1) * math.sqrt(1 + 1 / seeds)
    reach = abs(ours.mean(axis=1) - published) + t_quantile(0.95, seeds - 1) * error
    shares = Counter({label: count / DRAWS for label, count in labels.items()})
    return shares, float((reach <= DELTA).mean())


def test_operating_characteristics_of_three_seeds():
    """Standard errors are below .01: 3000 draws."""
    exact, strict = simulate(3, 0.0)
    assert strict == pytest.approx(0.22, abs=0.03)
    assert exact["REPRODUCED"] == pytest.approx(0.967, abs=0.012)
    assert exact["FAILED"] <= 0.05
    border, _ = simulate(3, DELTA)
    assert border["REPRODUCED"] == pytest.approx(0.49, abs=0.04)
    too_high, _ = simulate(3, 2 * DELTA)
    assert too_high["FAILED"] == pytest.approx(0.96, abs=0.015)
    assert too_high["REPRODUCED"] <= 0.10


def test_operating_characteristics_of_eight_seeds():
    exact, strict = simulate(8, 0.0)
    assert strict == pytest.approx(0.42, abs=0.04)
    assert exact["REPRODUCED"] == pytest.approx(0.957, abs=0.015)
    assert exact["FAILED"] <= 0.05
    too_high, _ = simulate(8, 2 * DELTA)
    assert too_high["FAILED"] == pytest.approx(0.985, abs=0.012)
    assert too_high["REPRODUCED"] <= 0.10
