"""The ranking rule ``difference-interval/1``: values, intervals, differences, ranks.

* A row's value is the mean over its seeds; its 95 % interval is Student's t over the seeds.
  One evaluation of a fixed checkpoint has Wilson's interval over the items instead.
* Row A is *shown to be better* than row B when the 95 % interval of A - B lies above 0.
  Same seeds in both rows: t over the per-seed differences, widened to the normal interval over
  seeds and items where the items' verdicts are stored (``dare compare`` asks for both, too).
  One evaluation each: Agresti and Min's paired interval (2005).  Anything else: the two rows'
  own intervals combined by squares (Newcombe 1998; Zou and Donner 2008).
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

    ``verdicts`` are right/wrong per item, one sequence per seed, or empty; ``item_set`` names
    the items and their order.
    """

    value: float
    lo: float
    hi: float
    method: str
    per_seed: Mapping[int, float]
    n_items: int
    item_set: str = ""
    verdicts: Sequence[Sequence[bool]] = ()

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
    # A pooled score such as the share of cells is not the items' right or wrong.
    verdicts = [run.bits() for run in evidence] if metric.name == "accuracy" else []
    if not all(verdicts):
        verdicts = []
    if len(per_seed) > 1:
        from dare.results.stats import t_interval

        lo, hi = t_interval(list(per_seed.values()))
        return Estimate(value, lo, hi, "t over seeds", per_seed, metric.n, items, verdicts)
    lo, hi, method = single_interval(metric)
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
    paired = _item_gaps(a, b)
    if len(a.per_seed) > 1 and a.per_seed.keys() == b.per_seed.keys():
        return _paired_seeds(a, b, paired)
    if paired and len(a.verdicts) == len(b.verdicts) == 1:
        return _paired_items(a.verdicts[0], b.verdicts[0])
    gap = a.value - b.value
    lo = gap - math.hypot(a.value - a.lo, b.hi - b.value)
    hi = gap + math.hypot(a.hi - a.value, b.value - b.lo)
    return Difference(lo, hi, "combined intervals")


def _item_gaps(a: Estimate, b: Estimate) -> list[float]:
    """Per item the mean over ``a``'s runs minus that over ``b``'s; empty if not comparable."""
    if not a.item_set or a.item_set != b.item_set:
        return []
    lengths = {len(verdicts) for row in (a, b) for verdicts in row.verdicts}
    if not a.verdicts or not b.verdicts or len(lengths) != 1:
        return []
    of_a = [sum(item) / len(a.verdicts) for item in zip(*a.verdicts, strict=True)]
    of_b = [sum(item) / len(b.verdicts) for item in zip(*b.verdicts, strict=True)]
    return [x - y for x, y in zip(of_a, of_b, strict=True)]


def _paired_seeds(a: Estimate, b: Estimate, items: Sequence[float]) -> Difference:
    from dare.results.stats import t_interval

    gaps = [a.per_seed[seed] - b.per_seed[seed] for seed in sorted(a.per_seed)]
    lo, hi = t_interval(gaps)
    if len(items) < 2:
        return Difference(lo, hi, "paired seeds")
    half = Z * math.sqrt(_variance_of_mean(gaps) + 1e4 * _variance_of_mean(items))
    gap = a.value - b.value
    return Difference(min(lo, gap - half), max(hi, gap + half), "paired seeds and items")


def _variance_of_mean(values: Sequence[float]) -> float:
    mean = math.fsum(values) / len(values)
    squares = math.fsum((value - mean) ** 2 for value in values)
    return squares / (len(values) - 1) / len(values)


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
