"""From entries to a table.  Pure: the same entries give the same table, in any order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from dare.leaderboard import facts
from dare.leaderboard.files import Board
from dare.leaderboard.ranking import Estimate, estimate, ranks
from dare.leaderboard.schema import Cell, Entry, Evidence, Protocol, Source


@dataclass(frozen=True)
class Training:
    """What a row's training spent, as a mean over its seeds; all 0 for a fixed checkpoint."""

    updates: float
    completions: float
    nfe: float


@dataclass(frozen=True)
class Row:
    """One measured row of one cell.  ``rank`` None: listed, not ranked, and ``why`` says why."""

    rank: int | None
    why: str
    entry: str
    algorithm: str
    model: str
    estimate: Estimate
    failed_seeds: int
    format_rate: float | None
    nfe: float | None
    training: Training
    hardware: str
    selection: str
    state: str
    records: tuple[str, ...]
    date: str
    version: str


@dataclass(frozen=True)
class CellTable:
    """The measured rows of a cell, best first; ``chance`` is what guessing scores."""

    cell: Cell
    rows: tuple[Row, ...]
    chance: float | None


@dataclass(frozen=True)
class Note:
    """A remark on some of a row's numbers."""

    text: str
    cells: tuple[str, ...]


@dataclass(frozen=True)
class ReportedRow:
    """One row of a paper's table; ``values`` maps cell ids to its numbers."""

    entry: str
    algorithm: str
    model: str
    values: dict[str, float]
    sources: tuple[str, ...]
    selections: tuple[str, ...]
    notes: tuple[Note, ...]
    source: Source


@dataclass(frozen=True)
class WithdrawnRow:
    """A row that no longer counts, with what it said; ``values`` is empty if its file is gone."""

    entry: str
    algorithm: str
    values: dict[str, float]
    date: str
    reason: str


@dataclass(frozen=True)
class Table:
    """A whole board, ready to be printed."""

    protocol: Protocol
    cells: tuple[CellTable, ...]
    reported: tuple[ReportedRow, ...]
    withdrawn: tuple[WithdrawnRow, ...]


def build(board: Board) -> Table:
    """The table of ``board``."""
    live = board.live()
    measured = [entry for entry in live if entry.state != "reported"]
    cells = tuple(_cell_table(measured, cell) for cell in board.protocol.cells)
    reported = [_reported(entry, board.protocol) for entry in live if entry.state == "reported"]
    return Table(
        board.protocol,
        cells,
        tuple(sorted(reported, key=lambda row: (row.source.date, row.entry))),
        _withdrawn(board),
    )


def _cell_table(entries: Sequence[Entry], cell: Cell) -> CellTable:
    rows = [row for entry in entries if (row := _row(entry, cell)) is not None]
    rows.sort(key=lambda row: (-row.estimate.value, row.entry))
    ranked = [row for row in rows if not row.why]
    found = dict(
        zip(
            (row.entry for row in ranked),
            ranks([row.estimate for row in ranked]),
            strict=True,
        )
    )
    placed = tuple(replace(row, rank=found.get(row.entry)) for row in rows)
    return CellTable(cell, placed, _chance(entries, cell))


def _row(entry: Entry, cell: Cell) -> Row | None:
    here = [run for run in entry.evidence if run.cell == cell.id]
    complete = [run for run in here if run.record.status == "complete"]
    if not complete:
        return None
    records = [run.record for run in complete]
    found = estimate(complete, cell)
    nfes = [nfe for record in records if (nfe := facts.nfe_per_answer(record)) is not None]
    return Row(
        rank=None,
        why=_why_unranked(entry, found, cell),
        entry=entry.id,
        algorithm=entry.algorithm,
        model=entry.model,
        estimate=found,
        failed_seeds=len(here) - len(complete),
        format_rate=_mean_metric(complete, "format_rate"),
        nfe=facts.mean(nfes) if nfes else None,
        training=Training(
            facts.mean([record.budget.updates for record in records]),
            facts.mean([record.budget.completions for record in records]),
            facts.mean([record.budget.nfe_train for record in records]),
        ),
        hardware=facts.one_or_all([facts.hardware(record) for record in records]),
        selection=facts.one_or_all([facts.selection(record) for record in records]),
        state=entry.state,
        records=tuple(record.id for record in records),
        date=max(record.created[:10] for record in records),
        version=facts.one_or_all([facts.version(record) for record in records]),
    )


def _why_unranked(entry: Entry, found: Estimate, cell: Cell) -> str:
    if entry.kind == "challenge":
        return f"challenges {entry.target}"
    if entry.state == "disputed":
        return "disputed"
    if found.n_items != cell.n_items:
        return f"{found.n_items} of {cell.n_items} items"
    return ""


def _mean_metric(runs: Sequence[Evidence], name: str) -> float | None:
    values = [m.value for run in runs for m in run.record.metrics if m.name == name]
    return facts.mean(values) if values else None


def _chance(entries: Sequence[Entry], cell: Cell) -> float | None:
    runs = [run for entry in entries for run in entry.evidence if run.cell == cell.id]
    return _mean_metric(runs, "chance_floor")


def _reported(entry: Entry, protocol: Protocol) -> ReportedRow:
    assert entry.source is not None  # the schema asks for it
    return ReportedRow(
        entry=entry.id,
        algorithm=entry.algorithm,
        model=entry.model,
        values={number.cell: number.value for number in entry.reported},
        sources=_distinct(number.source for number in entry.reported),
        selections=_distinct(number.selection or "not stated" for number in entry.reported),
        notes=_notes(entry, protocol),
        source=entry.source,
    )


def _notes(entry: Entry, protocol: Protocol) -> tuple[Note, ...]:
    """Remarks on single numbers: the paper's own, and where its protocol is not the board's."""
    cells = {cell.id: cell for cell in protocol.cells}
    notes: dict[str, list[str]] = {}
    for number in entry.reported:
        asked = cells[number.cell].protocol if number.cell in cells else None
        if number.note:
            notes.setdefault(number.note, []).append(number.cell)
        if number.protocol != asked:
            what = f"the paper's protocol is {number.protocol or 'not stated'}, the board's {asked}"
            notes.setdefault(what, []).append(number.cell)
    return tuple(Note(text, tuple(where)) for text, where in notes.items())


def _distinct(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))


def _withdrawn(board: Board) -> tuple[WithdrawnRow, ...]:
    rows = []
    for name, notice in sorted(board.withdrawals.items()):
        entry = board.entries.get(name)
        rows.append(
            WithdrawnRow(
                entry=name,
                algorithm=entry.algorithm if entry else name,
                values=_values(entry, board.protocol) if entry else {},
                date=notice.date,
                reason=notice.reason,
            )
        )
    return tuple(rows)


def _values(entry: Entry, protocol: Protocol) -> dict[str, float]:
    if entry.reported:
        return {number.cell: number.value for number in entry.reported}
    rows = {cell.id: _row(entry, cell) for cell in protocol.cells}
    return {name: row.estimate.value for name, row in rows.items() if row is not None}
