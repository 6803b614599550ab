"""From outcomes to metrics: a pure function, so that a stored record can be re-computed.

Accuracy, score and format rate are different numbers, and problems that got no verdict
(timeout, error) are counted apart while staying in the denominator.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from dare.results.record import Interval, Metric, Outcome
from dare.results.stats import wilson


def share_metric(name: str, points: int, out_of: int, n: int) -> Metric:
    """``points`` of ``out_of`` as a percentage with its Wilson 95 % interval."""
    value = 100.0 * points / out_of if out_of else 0.0
    lo, hi = wilson(points, out_of) if out_of else (0.0, 1.0)
    interval = Interval(method="wilson", level=0.95, lo=100 * lo, hi=100 * hi)
    return Metric(name=name, value=value, n=n, points=points, out_of=out_of, ci=interval)


def metrics_of(outcomes: Sequence[Outcome], score_name: str) -> list[Metric]:
    """Accuracy, the protocol's pooled score if it is another number, format rate, status counts.

    ``score_name`` is the name of the protocol's score ("accuracy", "cells").
    """
    n = len(outcomes)
    correct = sum(outcome.correct for outcome in outcomes)
    metrics = [share_metric("accuracy", correct, n, n)]
    if score_name != "accuracy":
        points = sum(outcome.points for outcome in outcomes)
        metrics.append(share_metric(score_name, points, sum(o.out_of for o in outcomes), n))
    metrics.append(share_metric("format_rate", sum(o.well_formed for o in outcomes), n, n))
    statuses = Counter(outcome.status for outcome in outcomes)
    for status in ("no_answer", "truncated", "timeout", "error"):
        if statuses[status]:
            metrics.append(
                Metric(name=f"status_{status}", value=statuses[status], n=n, unit="count")
            )
    return metrics
