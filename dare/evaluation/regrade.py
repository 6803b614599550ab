"""Grade a run again from its stored outputs, and compare with what it says of itself.

    result = regrade_run(Path("runs/2026-12-01-d1-sudoku4-1a2b3c4d"))
    result.changes                       # () when every stored grade and metric is recreated

The problems come from ``items.jsonl`` beside the record if it is there, else from the task's
own data; either way they must have the hashes that the outcomes name.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dare import tasks
from dare.errors import Missing, UsageProblem
from dare.evaluation.outcomes import item_sha
from dare.evaluation.rescore import Progress, Rescore, score
from dare.results.record import Metric, Outcome, Record
from dare.results.rundir import read_outcomes, read_record
from dare.tasks import protocols
from dare.tasks.base import Item

ITEMS = "items.jsonl"
GRADED = ("extracted", "correct", "points", "out_of", "well_formed", "status")


@dataclass(frozen=True, slots=True)
class Change:
    """A stored value that grading again does not give."""

    where: str
    stored: Any
    now: Any


@dataclass(frozen=True, slots=True)
class Regrade:
    """A run graded again.  ``not_recomputed`` names metrics that need more than the outputs."""

    record: Record
    rescore: Rescore
    changes: tuple[Change, ...]
    not_recomputed: tuple[str, ...]


def regrade_run(
    folder: Path,
    protocol: str | None = None,
    data: Path | None = None,
    progress: Progress | None = None,
) -> Regrade:
    """Grade the outputs of the run in ``folder`` again, under its own or another protocol.

    Under another protocol nothing is compared.  Raises ``UsageProblem`` for a damaged run and
    ``Missing`` when its problems are not here (``data`` names a file that has them).
    """
    record = read_record(folder)
    outcomes = read_outcomes(folder, record)
    name, stored_protocol = _task_and_protocol(record)
    task = tasks.get(name)
    chosen = protocol or stored_protocol
    protocols.get(name, chosen)
    items = _items(folder, record, name, outcomes, data)
    rows = []
    for number, outcome in enumerate(outcomes, 1):
        item = items[outcome.item]
        if item_sha(item) != outcome.item_sha:
            raise UsageProblem(
                f"problem {outcome.item} is not the one that was graded",
                "its question or gold differs from what the outcome names",
                "give the data that the run used: --data FILE",
            )
        rows.append(score(task, item, outcome.output, chosen, number))
        if progress:
            progress(number)
    rescore = Rescore(str(folder), name, chosen, tuple(rows))
    if chosen != stored_protocol:
        return Regrade(record, rescore, (), ())
    changes = [*_grade_changes(outcomes, rescore)]
    metric_changes, not_recomputed = _metric_changes(record.metrics, rescore.metrics())
    return Regrade(record, rescore, (*changes, *metric_changes), not_recomputed)


def _task_and_protocol(record: Record) -> tuple[str, str]:
    task, protocol = record.data.get("task"), record.prompt.get("protocol")
    if not isinstance(task, str) or not isinstance(protocol, str):
        raise UsageProblem(
            "the run does not say by which task and protocol it was graded",
            "its record has no data.task or prompt.protocol",
            "grade its outputs from a file: dare rescore FILE --task TASK",
        )
    return task, protocol


def _items(
    folder: Path, record: Record, task: str, outcomes: Sequence[Outcome], data: Path | None
) -> dict[str, Item]:
    if data is None and (folder / ITEMS).is_file():
        items = {item.id: item for item in _stored_items(folder / ITEMS)}
    else:
        split = str(record.data.get("split", "test"))
        benchmark: Any = tasks.get(task)
        loaded = benchmark.load(split) if data is None else benchmark.load(split, data=data)
        items = {item.id: item for item in loaded}
    missing = [outcome.item for outcome in outcomes if outcome.item not in items]
    if missing:
        raise Missing(
            f"{len(missing)} problems of the run are not in the data, the first is {missing[0]}",
            "grades cannot be recomputed without question and gold",
            "give the data that the run used: --data FILE",
        )
    return items


def _stored_items(path: Path) -> list[Item]:
    items = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            row = json.loads(line)
            items.append(Item(str(row["id"]), str(row["question"]), row["gold"]))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise UsageProblem(
                f"line {number} of {path} is no problem",
                f"{type(error).__name__}: {error}"[:200],
                "restore the original file, or give the data: --data FILE",
            ) from error
    return items


def _grade_changes(outcomes: Sequence[Outcome], rescore: Rescore) -> list[Change]:
    changes = []
    for stored, now in zip(outcomes, rescore.to_outcomes(), strict=True):
        for field in GRADED:
            was, is_now = getattr(stored, field), getattr(now, field)
            if was != is_now:
                changes.append(Change(f"{stored.item} {field}", was, is_now))
    return changes


def _metric_changes(
    stored: Sequence[Metric], now: Sequence[Metric]
) -> tuple[list[Change], tuple[str, ...]]:
    recomputed = {metric.name: metric for metric in now}
    changes, not_recomputed = [], []
    for metric in stored:
        again = recomputed.get(metric.name)
        if again is None:
            not_recomputed.append(metric.name)
        elif again != metric:
            changes.append(Change(f"metric {metric.name}", metric.value, again.value))
    return changes, tuple(not_recomputed)
