"""The difference of two arms that answered the same problems under the same seeds.

Two-level bootstrap over seeds and items gives the interval.  With a handful of seeds that
interval is too narrow (three seeds have two degrees of freedom), and a t interval over seeds
ignores that other problems could have been asked; so "A > B" needs both, and p is the larger
of the two.  With one seed each the exact McNemar test decides, and speaks of these two runs
only.  The sign-flip test over seeds is always shown with the smallest p it can give.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import stdev
from typing import TYPE_CHECKING, Any

from dare._lazy import lazy
from dare.results import stats
from dare.results.record import Outcome

if TYPE_CHECKING:
    import numpy as np
else:
    np = lazy("numpy")

Scores = Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """a - b in points (percent).

    ``lo``/``hi`` bound it by bootstrap over seeds and items, ``seed_lo``/``seed_hi`` by
    Student's t over the per-seed differences (None with one seed), both at 95 %.
    ``within`` is the half-width that contains both 90 % intervals: the arms are equivalent
    within any margin at least that large (two one-sided tests at 5 %).
    ``detectable`` is the true difference that would have been seen 80 % of the time.
    """

    difference: float
    lo: float
    hi: float
    seed_lo: float | None
    seed_hi: float | None
    within: float
    per_seed: tuple[float, ...]
    p: float
    test: str
    sign_flip_p: float | None
    smallest_p: float | None
    detectable: float
    n_items: int

    @property
    def wider(self) -> tuple[float, float]:
        """From the lower of the lower ends to the higher of the higher ends: what p goes by."""
        ends = [end for end in (self.seed_lo, self.seed_hi) if end is not None]
        return min([self.lo, *ends]), max([self.hi, *ends])


def item_scores(outcomes: Sequence[Outcome], metric: str) -> dict[str, tuple[int, int]]:
    """(points, possible points) per item; several samples of an item are pooled.

    ``accuracy`` counts right answers, ``format_rate`` well-formed ones, any other metric is
    the protocol's points.
    """
    scores: dict[str, tuple[int, int]] = {}
    for outcome in outcomes:
        if metric == "accuracy":
            points, out_of = int(outcome.correct), 1
        elif metric == "format_rate":
            points, out_of = int(outcome.well_formed), 1
        else:
            points, out_of = outcome.points, outcome.out_of
        before = scores.get(outcome.item, (0, 0))
        scores[outcome.item] = (before[0] + points, before[1] + out_of)
    return scores


def paired_difference(
    a: Sequence[Scores], b: Sequence[Scores], *, draws: int = stats.DRAWS
) -> PairedDifference:
    """a - b, one mapping of item -> (points, possible) per seed, in the same order of seeds.

    ``b`` may hold one run against all seeds of ``a``.  Raises ValueError when the items or
    their possible points differ: callers gate that first.
    """
    points_a, weights = as_arrays(a)
    points_b, weights_b = as_arrays(b)
    if sorted(a[0]) != sorted(b[0]) or (weights != weights_b).any():
        raise ValueError("the arms were not scored on the same items")
    means, share = stats.bootstrap_differences(points_a, points_b, weights, draws=draws)
    lo, lo90, hi90, hi = (100 * float(q) for q in np.quantile(means, [0.025, 0.05, 0.95, 0.975]))
    gaps = points_a - points_b
    per_seed = tuple(100 * float(gap) for gap in gaps.sum(axis=1) / weights.sum())
    within = max(abs(lo90), abs(hi90))
    seed_lo = seed_hi = flips = None
    if len(per_seed) > 1:
        seed_lo, seed_hi = stats.t_interval(per_seed)
        within = max(within, *map(abs, stats.t_interval(per_seed, 0.9)))
        flips = stats.sign_flip(per_seed) if len(per_seed) <= stats.MOST_PAIRS else None
    p, test = _p_value(per_seed, gaps, stats.bootstrap_p(means))
    return PairedDifference(
        difference=100 * share,
        lo=lo,
        hi=hi,
        seed_lo=seed_lo,
        seed_hi=seed_hi,
        within=within,
        per_seed=per_seed,
        p=p,
        test=test,
        sign_flip_p=flips.p if flips else None,
        smallest_p=flips.smallest if flips else None,
        detectable=_detectable(per_seed, gaps, weights),
        n_items=len(weights),
    )


def as_arrays(runs: Sequence[Scores]) -> tuple[np.ndarray, np.ndarray]:
    """(points (S, N), possible points (N,)) with the items in the order of their ids."""
    items = sorted(runs[0])
    if not items or any(sorted(run) != items for run in runs):
        raise ValueError("the runs were not scored on the same items")
    weights = np.array([[run[item][1] for item in items] for run in runs], dtype=float)
    if (weights != weights[0]).any():
        raise ValueError("the runs have different numbers of points per item")
    return np.array([[run[item][0] for item in items] for run in runs], dtype=float), weights[0]


def _p_value(per_seed: Sequence[float], gaps: Any, bootstrap: float) -> tuple[float, str]:
    if len(per_seed) > 1:
        return max(stats.t_test(per_seed), bootstrap), "larger of t over seeds and bootstrap"
    if np.isin(gaps, (-1, 0, 1)).all():
        p = stats.mcnemar(int((gaps > 0).sum()), int((gaps < 0).sum()))
        return p, "McNemar, exact mid-p, one seed"
    return bootstrap, "bootstrap over items, one seed"


def _detectable(per_seed: Sequence[float], gaps: Any, weights: Any) -> float:
    """The larger of what the items and what the seeds allow, in points."""
    per_item = gaps.mean(axis=0)
    n = len(weights)
    # With one right/wrong run each this is the square root of the discordant share.
    spread = math.sqrt(float((per_item**2).mean()))
    items = 100 * stats.z_sum() * spread / math.sqrt(n) * n / float(weights.sum())
    if len(per_seed) < 2:
        return items
    return max(items, stats.detectable_over_seeds(stdev(per_seed), len(per_seed)))
