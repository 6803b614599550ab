"""Score stored generations again: no model, no GPU.

    result = rescore_file(Path("gsm8k_256.parquet"), "gsm8k", "d1")
    result.points, result.out_of         # 863, 1130
    result.agreement                     # (1130, 1130) with the reference columns
    result.differing                     # rows that the strict grader sees otherwise

A file has one generation per row: ``question`` as shown to the model, ``generation`` raw with
special tokens, ``ground_truth`` as JSON, and optionally what somebody else made of it
(``reference_correct``, or ``reference_correct_cells`` and ``reference_empty_cells``).
Imports no torch and no pandas.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from dare import tasks
from dare.errors import UsageProblem
from dare.evaluation.metrics import STRICT, score_name, task_metrics
from dare.evaluation.outcomes import outcome_of
from dare.grading import strict
from dare.grading.text import MAX_OUTPUT
from dare.results.record import Metric, Outcome
from dare.results.summary import share_metric
from dare.tasks import protocols
from dare.tasks.base import Grade, Item, Task
from dare.tasks.tables import BadRow, Row, bad_row, read_rows

Progress = Callable[[int], None]


@runtime_checkable
class Rescorable(Protocol):
    """A task whose problems can be read out of a file of generations."""

    def scored_item(self, question: str, ground_truth: Any) -> Item: ...


@dataclass(frozen=True, slots=True)
class Scored:
    """One completion: the protocol's grade, the strict one, and somebody else's points.

    ``row`` counts from 1.  ``strict`` is None where the task has no strict protocol or the
    protocol is the strict one; ``reference`` is None where the file has no such column or the
    protocol is not the one that such columns are about.
    """

    row: int
    item: Item
    output: str
    grade: Grade
    strict: Grade | None = None
    reference: int | None = None

    @property
    def differs(self) -> bool:
        """Whether the two graders disagree on right or wrong."""
        return self.strict is not None and self.strict.correct != self.grade.correct

    @property
    def unjudged(self) -> bool:
        """Whether either grader gave up: counted as not right, and listed."""
        return self.why_unjudged is not None

    @property
    def why_unjudged(self) -> str | None:
        """Why a grader gave up, the protocol's before the strict one; None where none did."""
        for grade in (self.grade, self.strict):
            if grade is not None and grade.status in ("timeout", "error"):
                return _why_unjudged(self.item, self.output, grade)
        return None


def _why_unjudged(item: Item, output: str, grade: Grade) -> str:
    if grade.status == "timeout":
        return "the comparison took too long"
    if isinstance(item.gold, dict) and "answer" in item.gold and item.gold["answer"] is None:
        return "no ground truth"
    if grade.extracted is None and len(output) > MAX_OUTPUT:
        return "the output is too long"
    if grade.extracted is not None and len(grade.extracted) >= strict.MAX_ANSWER:
        return "the answer is too long"
    if isinstance(item.gold, dict) and "numbers" in item.gold:
        return "the value is too large to compute"
    return "the answer cannot be compared"


@dataclass(frozen=True, slots=True)
class Rescore:
    """The scores of one file or run.  Shares are pooled: points / out_of over all rows."""

    source: str
    task: str
    protocol: str
    rows: tuple[Scored, ...]

    @property
    def n(self) -> int:
        return len(self.rows)

    @property
    def points(self) -> int:
        return sum(row.grade.points for row in self.rows)

    @property
    def out_of(self) -> int:
        return sum(row.grade.out_of for row in self.rows)

    @property
    def strict_correct(self) -> int | None:
        """How many the strict grader accepts; None where it was not asked."""
        if not self.rows or self.rows[0].strict is None:
            return None
        return sum(row.strict is not None and row.strict.correct for row in self.rows)

    @property
    def differing(self) -> tuple[Scored, ...]:
        """The rows on which the two graders disagree."""
        return tuple(row for row in self.rows if row.differs)

    @property
    def unjudged(self) -> tuple[Scored, ...]:
        """The rows without a verdict (timeout, error): in the denominator, never hidden."""
        return tuple(row for row in self.rows if row.unjudged)

    @property
    def agreement(self) -> tuple[int, int] | None:
        """(rows equal to the reference columns, rows that have them); None without any."""
        known = [row for row in self.rows if row.reference is not None]
        equal = sum(row.reference == row.grade.points for row in known)
        return (equal, len(known)) if known else None

    @property
    def disagreeing(self) -> tuple[Scored, ...]:
        """The rows whose points differ from the reference columns."""
        rows = (row for row in self.rows if row.reference is not None)
        return tuple(row for row in rows if row.reference != row.grade.points)

    def statuses(self) -> dict[str, dict[str, int]]:
        """How many rows have each status, per grader."""
        counts = {self.protocol: Counter(row.grade.status for row in self.rows)}
        if self.strict_correct is not None:
            counts[STRICT] = Counter(row.strict.status for row in self.rows if row.strict)
        return {name: dict(sorted(count.items())) for name, count in counts.items()}

    def score(self) -> Metric:
        """The protocol's score with its Wilson interval, in percent."""
        name = score_name(tasks.get(self.task), self.protocol)
        return share_metric(name, self.points, self.out_of, self.n)

    def strict_score(self) -> Metric | None:
        """The strict accuracy with its Wilson interval, in percent."""
        if self.strict_correct is None:
            return None
        return share_metric("strict_accuracy", self.strict_correct, self.n, self.n)

    def metrics(self) -> list[Metric]:
        """All metrics of a record: the task's own and the strict accuracy."""
        items = [row.item for row in self.rows]
        task = tasks.get(self.task)
        strict = self.strict_score()
        own = task_metrics(task, items, self.to_outcomes(), self.protocol)
        return own if strict is None else [*own, strict]

    def to_outcomes(self) -> list[Outcome]:
        """The rows as lines of outcomes.jsonl; tokens and NFE are not known and 0."""
        return [outcome_of(row.item, row.item.question, row.output, row.grade) for row in self.rows]


def rescore_file(
    path: Path,
    task: str,
    protocol: str,
    limit: int | None = None,
    progress: Progress | None = None,
) -> Rescore:
    """Grade every row of ``path`` (JSON lines, CSV or parquet) under ``protocol`` and strictly.

    The file's reference columns are compared under the task's first protocol only: they hold
    what the published evaluation counted.

    ``progress`` is called with the number of rows done after each one.  Raises
    ``UsageProblem`` naming the first row that lacks a column or has a gold of the wrong kind.
    """
    benchmark = tasks.get(task)
    protocols.get(task, protocol)
    if not isinstance(benchmark, Rescorable):
        raise UsageProblem(
            f"{task} cannot be scored from a file", "its problems are generated", "dare list tasks"
        )
    rows: list[Scored] = []
    seen: Counter[str] = Counter()
    for number, row in islice(read_rows(path), limit):
        item = _item(path, number, row, benchmark)
        seen[item.id] += 1
        if seen[item.id] > 1:
            item = Item(f"{item.id}#{seen[item.id]}", item.question, item.gold, item.meta)
        # A lone surrogate has no UTF-8 form; the record could not hold it.
        output = row["generation"].encode("utf-8", "replace").decode()
        reference = _reference(path, number, row)
        if protocol != benchmark.protocols[0]:
            reference = None
        if not rows and STRICT in benchmark.protocols:
            strict.warm_up(task)
        rows.append(score(benchmark, item, output, protocol, number, reference))
        if progress:
            progress(number)
    if not rows:
        raise UsageProblem(f"{path} has no rows", "there is nothing to score", "give another file")
    return Rescore(str(path), task, protocol, tuple(rows))


def score(
    task: Task, item: Item, output: str, protocol: str, number: int, reference: int | None = None
) -> Scored:
    """Both grades of one completion."""
    second = None
    if protocol != STRICT and STRICT in task.protocols:
        second = task.grade(item, output, STRICT)
    return Scored(number, item, output, task.grade(item, output, protocol), second, reference)


def _item(path: Path, number: int, row: Row, task: Rescorable) -> Item:
    for name in ("question", "generation", "ground_truth"):
        if name not in row:
            have = ", ".join(map(str, row)) or "none"
            raise bad_row(path, number, f"it has no column '{name}' (columns: {have})"[:500])
        if name != "ground_truth" and not isinstance(row[name], str):
            raise bad_row(path, number, f"column '{name}' is not text")
    problem = BadRow("no ground truth")
    for value in _readings(row["ground_truth"]):
        try:
            return task.scored_item(row["question"], value)
        except BadRow as error:
            problem = error
    raise bad_row(path, number, str(problem)) from problem


def _readings(value: Any) -> Iterator[Any]:
    """A ground truth as JSON text, or as the plain value it is."""
    if isinstance(value, str):
        with contextlib.suppress(ValueError, RecursionError):
            yield json.loads(value)
    yield value


_REFERENCES = ("reference_correct", "reference_correct_cells")
_BOOLEANS = {"true": 1, "false": 0, "1": 1, "0": 0}


def _reference(path: Path, number: int, row: Mapping[str, Any]) -> int | None:
    """The points that the file's own columns give, or None."""
    for name in _REFERENCES:
        value = row.get(name)
        if value in (None, ""):
            continue
        if isinstance(value, bool | int):
            return int(value)
        text = str(value).strip().lower()
        if name == "reference_correct" and text in _BOOLEANS:
            return _BOOLEANS[text]
        if name == "reference_correct_cells" and text.isdecimal() and len(text) < 9:
            return int(text)
        raise bad_row(path, number, f"column '{name}' is neither true nor false nor a count")
    return None


def item_lines(rows: Sequence[Scored]) -> Iterator[bytes]:
    """The problems as lines of items.jsonl, so that a record can be scored again on its own."""
    for item in {row.item.id: row.item for row in rows}.values():
        line = {"id": item.id, "question": item.question, "gold": item.gold}
        yield (json.dumps(line) + "\n").encode()
