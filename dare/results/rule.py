"""``verdict/1``: the decision, on numbers alone.

A published value is one draw of somebody's run; ours are m draws.  The claim is compared
with the 95 % *prediction* interval of one more run, not with an interval of our mean, and a
margin says which differences matter.  Why not demand equivalence: of perfect reproductions
with three seeds (margin 5, run SD 2) strict equivalence accepts about one in five, this rule
97 in 100; a claim two margins too high it fails 96 times in 100 (``tests/results``).

Numbers are in points of the claim's metric.  d is ours minus claimed, positive = better.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, variance
from typing import Literal

from dare.results.stats import normal_quantile, t_quantile

RULE = "verdict/1"

Label = Literal["REPRODUCED", "PARTIAL", "FAILED", "INCONCLUSIVE", "NOT COMPARABLE"]

PRIOR_DF = 4
PRIOR_DIVISOR = 2.5
LEVEL = 0.95
_SEEDS_WORTH_NAMING = 30
# Differences are of the order of 1; this only absorbs how they were rounded in binary.
_SLACK = 1e-9


@dataclass(frozen=True, slots=True)
class Decision:
    """The label and every number behind it.

    ``lo``/``hi``: where the published value may lie if it is a run like ours.
    ``d_lo``/``d_hi``: 90 % interval of d.  ``more``: how many more seeds would settle an
    undecided case, None when none would.  ``sd``, ``df``: spread of one run; None where the
    half-width has another source.
    """

    label: Label
    ours: float
    claimed: float
    d: float
    delta: float
    half: float
    lo: float
    hi: float
    d_lo: float
    d_hi: float
    m: int
    sd: float | None
    df: int | None
    equivalent: bool
    exceeds: bool
    more: int | None


def pooled_spread(values: Sequence[float], prior_sd: float) -> tuple[float, int]:
    """(SD of one run, degrees of freedom): the seeds' variance pooled with a weak prior.

    The prior counts as ``PRIOR_DF`` degrees of freedom, so that three seeds which happen to
    agree cannot claim that runs never differ.
    """
    m = len(values)
    squares = (m - 1) * variance(values) if m > 1 else 0.0
    df = m - 1 + PRIOR_DF
    return math.sqrt((squares + PRIOR_DF * prior_sd**2) / df), df


def decide(
    claimed: float,
    values: Sequence[float],
    delta: float,
    *,
    prior_sd: float | None = None,
    claimed_runs: int = 1,
    direction: int = 1,
) -> Decision:
    """Judge a claim of the mean of ``claimed_runs`` runs by our ``values``, one per seed.

    ``prior_sd`` defaults to delta / 2.5.  ``direction`` -1: lower is better.
    """
    m = len(values)
    prior = delta / PRIOR_DIVISOR if prior_sd is None else prior_sd
    sd, df = pooled_spread(values, prior)
    error = sd * math.sqrt(1 / claimed_runs + 1 / m)
    half = t_quantile(0.5 + LEVEL / 2, df) * error
    d = direction * (fmean(values) - claimed)
    label, exceeds = _label(d, half, half, delta)
    more = None
    if label == "INCONCLUSIVE" or (label == "PARTIAL" and not exceeds):
        more = _more_seeds(d, delta, sd, m, claimed_runs)
    return _decision(
        label, exceeds, values, claimed, d, delta, half, (half, half), more,
        ninety=t_quantile(0.95, df) * error, sd=sd, df=df,
    )  # fmt: skip


def decide_frozen(
    claimed: float,
    values: Sequence[float],
    delta: float,
    *,
    resolution: float,
    repeat_sd: float = 0.0,
    direction: int = 1,
) -> Decision:
    """Judge the score of a fixed checkpoint at temperature 0, or of given generations.

    Nothing is drawn, so only numerics may differ: ``resolution`` is what cannot be told apart
    (one item, or the rounding of the published number), ``repeat_sd`` what repeats of ours
    differed by.  Equal within these is REPRODUCED.
    """
    m = len(values)
    noise = repeat_sd * math.sqrt(1 + 1 / m)
    half = max(resolution, normal_quantile(0.5 + LEVEL / 2) * noise)
    ninety = max(resolution, normal_quantile(0.95) * noise)
    d = direction * (fmean(values) - claimed)
    label, exceeds = _label(d, half, half, delta)
    return _decision(
        label, exceeds, values, claimed, d, delta, half, (half, half), None, ninety=ninety
    )


def decide_subset(
    claimed: float,
    value: float,
    interval: tuple[float, float],
    delta: float,
    *,
    m: int,
    direction: int = 1,
) -> Decision:
    """Judge a claim about a whole set by a declared part of it: at best PARTIAL.

    ``interval`` bounds our value at 95 % over items (and seeds).
    """
    below, above = value - interval[0], interval[1] - value
    d = direction * (value - claimed)
    towards = (above, below) if direction > 0 else (below, above)
    label, exceeds = _label(d, towards[0], towards[1], delta)
    if label == "REPRODUCED":
        label = "PARTIAL"
    half = (below + above) / 2
    ninety = half * normal_quantile(0.95) / normal_quantile(0.5 + LEVEL / 2)
    return _decision(
        label, exceeds, [value] * m, claimed, d, delta, half, (below, above), None, ninety=ninety
    )


def _label(d: float, above: float, below: float, delta: float) -> tuple[Label, bool]:
    """Label, and whether we exceed the claim suspiciously.

    ``above``: how far the claim may lie on the better side of ours (d = -above) before it is
    outside; ``below``: on the worse side.
    """
    outside = -d > above + _SLACK or d > below + _SLACK
    size = abs(d) - _SLACK
    if outside and d < -delta - _SLACK:
        return "FAILED", False
    if not outside and size <= delta and (above + below) / 2 <= 2 * delta:
        return "REPRODUCED", False
    exceeds = outside and d > delta + _SLACK
    if exceeds or size <= 2 * delta:
        return "PARTIAL", exceeds
    return "INCONCLUSIVE", False


def _decision(
    label: Label,
    exceeds: bool,
    values: Sequence[float],
    claimed: float,
    d: float,
    delta: float,
    half: float,
    sides: tuple[float, float],
    more: int | None,
    *,
    ninety: float,
    sd: float | None = None,
    df: int | None = None,
) -> Decision:
    ours = fmean(values)
    return Decision(
        label=label,
        ours=ours,
        claimed=claimed,
        d=d,
        delta=delta,
        half=half,
        lo=ours - sides[0],
        hi=ours + sides[1],
        d_lo=d - ninety,
        d_hi=d + ninety,
        m=len(values),
        sd=sd,
        df=df,
        equivalent=abs(d) + ninety <= delta + _SLACK,
        exceeds=exceeds,
        more=more,
    )


def _more_seeds(d: float, delta: float, sd: float, m: int, claimed_runs: int) -> int | None:
    """Seeds to add until the rule would decide, if mean and spread stayed as they are."""
    for total in range(m + 1, m + 1 + _SEEDS_WORTH_NAMING):
        t = t_quantile(0.5 + LEVEL / 2, total - 1 + PRIOR_DF)
        half = t * sd * math.sqrt(1 / claimed_runs + 1 / total)
        label, exceeds = _label(d, half, half, delta)
        if exceeds or label in ("REPRODUCED", "FAILED"):
            return total - m
    return None
