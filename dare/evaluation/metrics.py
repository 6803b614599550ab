"""All metrics of an evaluation: those of the outcomes, and those that need the problems."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from dare.results.record import Metric, Outcome
from dare.results.summary import metrics_of, share_metric
from dare.tasks.base import Item, Task

STRICT = "strict"


def score_name(task: Task, protocol: str) -> str:
    """What the score of ``protocol`` is called: the strict one counts right answers always."""
    return "accuracy" if protocol == STRICT else task.metric


@runtime_checkable
class CountsCells(Protocol):
    """A task that also scores single cells, whatever its main metric is."""

    def cells(self, item: Item, completion: str) -> tuple[int, int]: ...


def task_metrics(
    task: Task, items: Sequence[Item], outcomes: Sequence[Outcome], protocol: str
) -> list[Metric]:
    """Accuracy, score, format rate, cells where the task counts them, and the chance floor.

    ``items`` are the problems of ``outcomes`` in the same order.
    """
    metrics = metrics_of(outcomes, score_name(task, protocol))
    n = len(outcomes)
    if isinstance(task, CountsCells):
        counts = [task.cells(i, o.output) for i, o in zip(items, outcomes, strict=True)]
        right, blanks = (sum(pair[k] for pair in counts) for k in (0, 1))
        metrics.append(share_metric("cells", right, blanks, n))
    floor = 100.0 * task.chance_floor(items, protocol)
    metrics.append(Metric(name="chance_floor", value=floor, n=n, aggregation="expectation"))
    return metrics
