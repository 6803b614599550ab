"""What the benchmark tasks have in common: loading, prompting, looking up the grader.

A task is a short subclass: its sources, how a row becomes an item, its graders and rewards.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from dare.errors import UsageProblem, unknown_name
from dare.tasks import protocols
from dare.tasks.base import Grade, Item, RewardFunction, Split
from dare.tasks.sources import FileSource, HubSource
from dare.tasks.tables import BadRow, Row, bad_row, read_rows

Grader = Callable[[Item, str], Grade]


class Benchmark(ABC):
    """A published benchmark."""

    name: ClassVar[str]
    protocols: tuple[str, ...]
    metric: str = "accuracy"
    sources: ClassVar[Mapping[str, HubSource | FileSource]]

    # ---- what a task says ----

    @abstractmethod
    def item(self, row: Row) -> Item:
        """The problem in a row of the canonical columns.  Raises ``BadRow``."""

    @abstractmethod
    def scored_item(self, question: str, ground_truth: Any) -> Item:
        """The problem behind a stored generation: the question shown and the gold as JSON."""

    @abstractmethod
    def graders(self) -> Mapping[str, Grader]:
        """One grader per protocol."""

    @abstractmethod
    def reward_functions(self) -> Mapping[str, Sequence[RewardFunction]]:
        """The training rewards per protocol that has some; training sums them."""

    def select(self, split: str, items: list[Item]) -> list[Item]:
        """Which of the source's rows belong to ``split``: all of them, unless a task says so."""
        return items

    # ---- the task contract ----

    def split(self, split: str) -> Split:
        """What ``split`` is made of, for the record."""
        return self._source(split).describe(split)

    def load(self, split: str, limit: int | None = None, data: Path | None = None) -> list[Item]:
        """The problems of ``split``, the first ``limit`` of them.

        From the hub or the authors' repository at a pinned revision, or from the local file
        ``data`` with the same columns: a copy of the source stands in for it, any other file
        gives all its rows in order.  Raises ``Missing`` (exit status 3, with the way to get
        them) when they are not here and cannot be fetched.
        """
        if limit is not None and limit < 1:
            raise UsageProblem(f"cannot load {limit} problems of {self.name}", "limit must be > 0")
        source = self._source(split)
        if data is None:
            items = list(numbered(self.item(row) for row in source.read(self.name)))
        else:
            items = list(self._from_file(data))
        if data is None or source.is_copy(data, len(items)):
            items = self.select(split, items)
        return items[:limit]

    def _from_file(self, path: Path) -> Iterator[Item]:
        def items() -> Iterator[Item]:
            for number, row in read_rows(path):
                try:
                    yield self.item(row)
                except (BadRow, KeyError) as error:
                    missing = isinstance(error, KeyError)
                    why = f"it has no column {error}" if missing else str(error)
                    raise bad_row(path, number, why) from error

        return numbered(items())

    def _source(self, split: str) -> HubSource | FileSource:
        if split not in self.sources:
            raise unknown_name(f"split of {self.name}", split, self.sources, "")
        return self.sources[split]

    def prompt(self, item: Item, protocol: str) -> str:
        """The user turn, in our own wording (``dare.tasks.protocols``)."""
        return protocols.get(self.name, protocol).render(item.question)

    def grade(self, item: Item, completion: str, protocol: str) -> Grade:
        """The verdict of ``protocol`` on one completion."""
        protocols.get(self.name, protocol)
        return self.graders()[protocol](item, completion)

    def rewards(self, protocol: str) -> Sequence[RewardFunction]:
        """The functions whose sum training maximises under ``protocol``."""
        protocols.get(self.name, protocol)
        functions = self.reward_functions()
        if protocol not in functions:
            raise UsageProblem(
                f"protocol '{protocol}' of {self.name} has no rewards",
                "it is for evaluation only",
                f"train with one of: {', '.join(functions)}",
            )
        return functions[protocol]

    def chance_floor(self, items: Sequence[Item], protocol: str) -> float:
        """What guessing scores, as a share: 0 for an open answer, which nobody can guess at."""
        protocols.get(self.name, protocol)
        return 0.0


def text_id(task: str, text: str) -> str:
    """An id made of the problem's own text, the same in every file that has the problem."""
    return f"{task}/{hashlib.sha256(text.strip().encode('utf-8', 'replace')).hexdigest()[:12]}"


def numbered(items: Iterable[Item]) -> Iterator[Item]:
    """``items`` with "#2", "#3" behind an id that was there before."""
    seen: dict[str, int] = {}
    for item in items:
        seen[item.id] = seen.get(item.id, 0) + 1
        count = seen[item.id]
        yield item if count == 1 else replace(item, id=f"{item.id}#{count}")


def text_of(row: Row, column: str) -> str:
    """Column ``column`` as text.  Raises ``BadRow`` or ``KeyError``."""
    value = row[column]
    if not isinstance(value, str) or not value.strip():
        raise BadRow(f"column '{column}' is {'empty' if value in ('', None) else 'not text'}")
    return value
