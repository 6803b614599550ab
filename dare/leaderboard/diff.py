"""What changed on a board, as a remark under a proposed change would say it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from dare.leaderboard.build import Table
from dare.leaderboard.render import escape, matrix, number, tasks_of

What = Literal["added", "removed", "withdrawn", "value", "rank", "state", "protocol"]


@dataclass(frozen=True)
class Change:
    """One change of one row; ``cell`` is empty for a change of the board itself."""

    what: What
    row: str
    cell: str
    before: str
    after: str


def diff(old: Table | None, new: Table) -> list[Change]:
    """The changes from ``old`` to ``new``; without an old table every row is new."""
    changes: list[Change] = []
    if old is not None and old.protocol != new.protocol:
        changes.append(
            Change("protocol", new.protocol.name, "", old.protocol.version, new.protocol.version)
        )
    before = _rows(old) if old is not None else {}
    after = _rows(new)
    gone = {row.entry: row.reason for row in new.withdrawn}
    for key in [*before, *(key for key in after if key not in before)]:
        changes += _changes(key, before.get(key), after.get(key), gone.get(key[0]))
    return changes


@dataclass(frozen=True)
class _Shown:
    name: str
    value: str
    rank: int | None
    state: str


def _rows(table: Table) -> dict[tuple[str, str], _Shown]:
    rows = {
        (row.entry, part.cell.id): _Shown(
            row.algorithm, f"{number(row.estimate.value, 2)} %", row.rank, row.state
        )
        for part in table.cells
        for row in part.rows
    }
    for told in table.reported:
        numbers = zip(tasks_of(table.protocol), matrix(table.protocol, told.values), strict=True)
        text = "; ".join(f"{task} {values}" for task, values in numbers)
        rows[told.entry, "all"] = _Shown(told.algorithm, text, None, "reported")
    return rows


def _changes(
    key: tuple[str, str], old: _Shown | None, new: _Shown | None, reason: str | None
) -> Iterator[Change]:
    _, cell = key
    if old is None and new is not None:
        yield Change("added", new.name, cell, "", _shown(new))
    elif old is not None and new is None:
        what: What = "removed" if reason is None else "withdrawn"
        yield Change(what, old.name, cell, _shown(old), reason or "")
    elif old is not None and new is not None:
        if old.value != new.value:
            yield Change("value", new.name, cell, old.value, new.value)
        if old.rank != new.rank:
            yield Change("rank", new.name, cell, str(old.rank), str(new.rank))
        if old.state != new.state:
            yield Change("state", new.name, cell, old.state, new.state)


def _shown(row: _Shown) -> str:
    rank = f", rank {row.rank}" if row.rank is not None else ""
    return f"{row.value}{rank} ({row.state})"


def as_markdown(name: str, changes: list[Change]) -> str:
    """The changes as a Markdown table under a heading."""
    lines = [f"### {name}", ""]
    if not changes:
        return "\n".join([*lines, "No row changed.", ""])
    lines += ["| change | row | cell | before | after |", "| --- | --- | --- | --- | --- |"]
    for change in changes:
        cells = (change.what, change.row, change.cell, change.before, change.after)
        lines.append(f"| {' | '.join(escape(cell) or '–' for cell in cells)} |")
    return "\n".join([*lines, ""])
