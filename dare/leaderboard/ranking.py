"""The ranking rule ``difference-interval/1``: values, intervals, differences, ranks.

* A row's value is the mean over its seeds; its 95 % interval is Student's t over the seeds.
  One evaluation of a fixed checkpoint has Wilson's interval over the items instead.
* Row A is *shown to be better* than row B when the 95 % interval of A - B lies above 0.
  Same seeds in both rows: t over the per-seed differences.  One evaluation each, with the
  items' verdicts stored: the paired interval of Agresti and Min (2005).  Anything else: the
  two rows' own intervals combined by squares (Newcombe 1998; Zou and Donner 2008).
* A row's rank is 1 + the number of rows shown to be better, and never above that of a row
  with a higher value.  So rows that cannot be told apart share a rank.

All values are percentages.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dare.leaderboard.schema import Cell, Evidence
from dare.results.record import Metric

Z = 1.959963984540054  # the normal quantile at .975


@dataclass(frozen=True)
class Estimate:
    """What a row knows about one number.

    ``verdicts`` are right/wrong per item of a single evaluation, or empty; ``item_set`` names
    the items and their order.
    """

    value: float
    lo: float
    hi: float
    method: str
    per_seed: Mapping[int, float]
    n_items: int
    item_set: str = ""
    verdicts: Sequence[bool] = ()

    @property
    def half_width(self) -> float:
        return (self.hi - self.lo) / 2


@dataclass(frozen=True)
class Difference:
    """The 95 % interval of one row's value minus another's."""

    lo: float
    hi: float
    method: str

    @property
    def positive(self) -> bool:
        return self.lo > 0


def estimate(evidence: Sequence[Evidence], cell: Cell) -> Estimate:
    """The value and interval of a row in ``cell``, from its complete runs (at least one)."""
    per_seed = {run.seed: run.record.metric(cell.metric).value for run in evidence}
    first = evidence[0]
    metric = first.record.metric(cell.metric)
    items = str(first.record.data.get("item_ids_sha256", ""))
    value = math.fsum(per_seed.values()) / len(per_seed)
    if len(per_seed) > 1:
        from dare.results.stats import t_interval

        lo, hi = t_interval(list(per_seed.values()))
        return Estimate(value, lo, hi, "t over seeds", per_seed, metric.n, items)
    lo, hi, method = single_interval(metric)
    # A pooled score such as the share of cells is not the items' right or wrong.
    verdicts = first.bits() if metric.name == "accuracy" else []
    return Estimate(value, lo, hi, method, per_seed, metric.n, items, verdicts)


def single_interval(metric: Metric) -> tuple[float, float, str]:
    """The 95 % interval of one evaluation.

    Parts of one item (the cells of a grid) stand or fall together, so in a pooled score each
    item counts once and the interval is the wide one.
    """
    from dare.results.stats import wilson

    pooled = metric.out_of is not None and metric.out_of != metric.n
    counted = metric.points if not pooled else None
    right = counted if counted is not None else round(metric.value / 100 * metric.n)
    lo, hi = wilson(right, metric.n)
    return 100 * lo, 100 * hi, "Wilson over items"


def difference(a: Estimate, b: Estimate) -> Difference:
    """The interval of ``a`` minus ``b`` under the rule above."""
    if len(a.per_seed) > 1 and a.per_seed.keys() == b.per_seed.keys():
        from dare.results.stats import t_interval

        lo, hi = t_interval([a.per_seed[seed] - b.per_seed[seed] for seed in sorted(a.per_seed)])
        return Difference(lo, hi, "t over paired seeds")
    same_items = a.item_set == b.item_set != "" and len(a.verdicts) == len(b.verdicts) > 0
    if same_items:
        return _paired_items(a.verdicts, b.verdicts)
    gap = a.value - b.value
    lo = gap - math.hypot(a.value - a.lo, b.hi - b.value)
    hi = gap + math.hypot(a.hi - a.value, b.value - b.lo)
    return Difference(lo, hi, "combined intervals")


def _paired_items(a: Sequence[bool], b: Sequence[bool]) -> Difference:
    """Agresti and Min's adjusted Wald interval: half an item is added to each of four cells."""
    only_a = 0.5 + sum(1 for x, y in zip(a, b, strict=True) if x and not y)
    only_b = 0.5 + sum(1 for x, y in zip(a, b, strict=True) if y and not x)
    n = len(a) + 2
    gap = (only_a - only_b) / n
    half = Z * math.sqrt((only_a + only_b) / n - gap * gap) / math.sqrt(n)
    return Difference(100 * (gap - half), 100 * (gap + half), "paired items")


def ranks(estimates: Sequence[Estimate]) -> list[int]:
    """Ranks of ``estimates``, which must be sorted by falling value."""
    found: list[int] = []
    for place, row in enumerate(estimates):
        better = sum(difference(other, row).positive for other in estimates[:place])
        found.append(max(better + 1, found[-1] if found else 1))
    return found
