"""From a table to Markdown and to JSON.  Text from entries cannot break out of its cell."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dare.leaderboard.build import CellTable, ReportedRow, Row, Table
from dare.leaderboard.ranking import difference, single_interval
from dare.leaderboard.schema import Protocol
from dare.results.record import Metric

TEMPLATES = Path(__file__).resolve().parent / "templates"
NOTHING = "–"

COLUMNS = (
    "rank", "algorithm", "value, % [95 % interval]", "seeds", "items", "well-formed, %",
    "NFE per answer", "training budget", "hardware", "selection", "state", "record", "date",
    "dare",
)  # fmt: skip


def render(table: Table) -> str:
    """The board's README.md."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"md": escape, "row": _line, "rule": _rule}
    text = environment.get_template("board.md.j2").render(
        protocol=table.protocol,
        gates=_gates(table.protocol),
        columns=COLUMNS,
        overview=_overview(table),
        cells=[_cell(part) for part in table.cells if part.rows],
        empty=[part.cell.id for part in table.cells if not part.rows],
        reported=_reported(table),
        withdrawn=[_withdrawn_cells(table, row) for row in table.withdrawn],
    )
    return re.sub(r"\n{3,}", "\n\n", text).rstrip("\n") + "\n"


def _gates(protocol: Protocol) -> dict[str, str]:
    """Every rule that a record can break, by the field it is about."""
    shown = {path: f"`{value}`" for path, value in protocol.gates.items()}
    for cell in protocol.cells:
        for path, value in cell.gates.items():
            shown[path] = f"{shown[path]}, " if path in shown else ""
            shown[path] += f"`{value}` ({cell.id})"
    shown |= {path: "the same in all rows of a table" for path in protocol.same}
    if protocol.max_nfe_train is not None:
        shown["budget.nfe_train"] = f"at most {number(protocol.max_nfe_train, 0)}"
    return shown


def escape(text: object) -> str:
    """``text`` on one line with everything that Markdown or HTML would act on disarmed."""
    shown = "".join(c if c.isprintable() else " " for c in str(text))
    shown = " ".join(shown.split()).replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"([\\`*_\[\]|~#])", r"\\\1", shown)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _rule(cells: Sequence[str]) -> str:
    return _line(["---"] * len(cells))


def number(value: float | None, digits: int = 1) -> str:
    """A number for people: ``1234.0`` as "1 234"; None as a dash."""
    if value is None:
        return NOTHING
    return f"{value:,.{digits}f}".replace(",", " ")


def _interval(lo: float, hi: float) -> str:
    return f"[{number(max(lo, 0.0))}, {number(min(hi, 100.0))}]"


def _cell(part: CellTable) -> dict[str, Any]:
    cell = part.cell
    chance = f" Chance: {number(part.chance, 2)} %." if part.chance is not None else ""
    return {
        "title": f"{cell.task}, {cell.gen_length} tokens",
        "about": (
            f"Metric: `{cell.metric}` in {cell.unit}, higher is better, "
            f"over {cell.n_items} items.{chance}"
        ),
        "rows": [_row_cells(row) for row in part.rows],
        "remarks": _remarks(part),
    }


def _row_cells(row: Row) -> list[str]:
    found = row.estimate
    seeds = str(len(found.per_seed))
    if row.failed_seeds:
        seeds += f" (+ {row.failed_seeds} failed)"
    more = f" +{len(row.records) - 1}" if len(row.records) > 1 else ""
    return [
        str(row.rank) if row.rank is not None else NOTHING,
        escape(row.algorithm),
        f"{number(found.value)} {_interval(found.lo, found.hi)}",
        seeds,
        str(found.n_items),
        number(row.format_rate),
        number(row.nfe, 0),
        _budget(row),
        escape(row.hardware),
        escape(row.selection),
        row.state if not row.why else f"{row.state}; {escape(row.why)}",
        f"[`{row.records[0][:8]}`](entries/{row.entry}.json){more}",
        row.date,
        escape(row.version),
    ]


def _budget(row: Row) -> str:
    spent = row.training
    if not spent.updates:
        return "none"
    return (
        f"{number(spent.updates, 0)} updates, {number(spent.completions, 0)} completions, "
        f"{number(spent.nfe, 0)} NFE"
    )


def _remarks(part: CellTable) -> list[str]:
    """What decides the ranks, and how far other items would move the best row."""
    ranked = [row for row in part.rows if row.rank is not None]
    if not ranked:
        return []
    lines = [
        f"{escape(row.algorithm)} against {'; '.join(_against(row, ranked[:place]))}."
        for place, row in enumerate(ranked)
        if place
    ]
    best = ranked[0].estimate
    lo, hi, _ = single_interval(Metric(name="", value=best.value, n=best.n_items))
    lines.append(
        f"Another draw of {best.n_items} items would move the best row by about "
        f"± {number((hi - lo) / 2)} points (Wilson)."
    )
    return lines


def _against(row: Row, above: Sequence[Row]) -> list[str]:
    """``row`` minus each of the rows above it, with the interval that decides."""
    told = []
    for other in above:
        gap = difference(other.estimate, row.estimate)
        verdict = "shown to be lower" if gap.positive else "not told apart"
        told.append(
            f"{escape(other.algorithm)}: {number(row.estimate.value - other.estimate.value)} "
            f"[{number(-gap.hi)}, {number(-gap.lo)}], {verdict} ({gap.method})"
        )
    return told


def overview(table: Table) -> list[list[str]]:
    """One line per measured entry: its name, its numbers by task and length, its state."""
    rows: dict[str, tuple[str, str, dict[str, float]]] = {}
    for part in table.cells:
        for row in part.rows:
            values = rows.setdefault(row.entry, (row.algorithm, row.state, {}))[2]
            values[part.cell.id] = row.estimate.value
    return [[name, *matrix(table.protocol, values), state] for name, state, values in rows.values()]


def tasks_of(protocol: Protocol) -> list[str]:
    """The board's tasks in order, each once."""
    return list(dict.fromkeys(cell.task for cell in protocol.cells))


def _overview(table: Table) -> dict[str, Any]:
    """The overview of a board of several cells; a single cell needs none."""
    lengths = " / ".join(dict.fromkeys(str(cell.gen_length) for cell in table.protocol.cells))
    rows = overview(table) if len(table.cells) > 1 else []
    return {
        "head": ["algorithm", *tasks_of(table.protocol), "state"],
        "rows": [[escape(name), *rest] for name, *rest in rows],
        "legend": f"Completion lengths {lengths} tokens, in percent; {NOTHING}: no number.",
    }


def matrix(protocol: Protocol, values: dict[str, float]) -> list[str]:
    """For each task its numbers by length, as papers print them: "69.3 / 76.4 / –"."""
    by_task: dict[str, list[str]] = {}
    for cell in protocol.cells:
        by_task.setdefault(cell.task, []).append(number(values.get(cell.id)))
    return [" / ".join(shown) for shown in by_task.values()]


def _reported(table: Table) -> dict[str, Any]:
    return {
        "head": ["row", "paper", *tasks_of(table.protocol), "selection", "source"],
        "rows": [_reported_cells(table.protocol, row) for row in table.reported],
        "remarks": _notes(table),
    }


def _notes(table: Table) -> list[str]:
    """Remarks on single numbers, each said once for all the rows and cells it is about."""
    said: dict[tuple[str, str, str], list[str]] = {}
    for row in table.reported:
        for note in row.notes:
            where = _cells_in_words(table.protocol, note.cells)
            said.setdefault((row.source.paper, where, note.text), []).append(row.algorithm)
    lines = []
    for (paper, where, text), rows in said.items():
        of_paper = [row for row in table.reported if row.source.paper == paper]
        who = "all rows" if len(rows) == len(of_paper) > 1 else ", ".join(map(escape, rows))
        lines.append(f"{escape(paper)}, {who}, {escape(where)}: {escape(text)}.")
    return lines


def _cells_in_words(protocol: Protocol, cells: Sequence[str]) -> str:
    """``cells``, with a task's name standing for all of its cells."""
    words = []
    for task in tasks_of(protocol):
        whole = [cell.id for cell in protocol.cells if cell.task == task]
        here = [name for name in whole if name in cells]
        words += [task] if here == whole else here
    return ", ".join(words)


def _reported_cells(protocol: Protocol, row: ReportedRow) -> list[str]:
    source = row.source
    return [
        f"[{escape(row.algorithm)}](entries/{row.entry}.json)",
        f"{escape(source.paper)}, arXiv {escape(source.arxiv)}",
        *matrix(protocol, row.values),
        escape("; ".join(row.selections)),
        escape("; ".join(row.sources)),
    ]


def _withdrawn_cells(table: Table, row: Any) -> list[str]:
    said = "; ".join(
        f"{cell.id} {number(row.values[cell.id])}"
        for cell in table.protocol.cells
        if cell.id in row.values
    )
    return [
        f"~~{escape(row.algorithm)}~~",
        f"~~{said}~~" if said else NOTHING,
        row.date,
        escape(row.reason),
    ]


def as_json(table: Table) -> dict[str, Any]:
    """The table as one JSON-serialisable value; item verdicts stay in the entries."""
    cells = []
    for part in table.cells:
        rows = [asdict(row) for row in part.rows]
        for row in rows:
            del row["estimate"]["verdicts"]
        cells.append({"cell": part.cell.model_dump(), "chance": part.chance, "rows": rows})
    return {
        "board": table.protocol.name,
        "version": table.protocol.version,
        "title": table.protocol.title,
        "note": table.protocol.note,
        "cells": cells,
        "reported": [asdict(row) | {"source": row.source.model_dump()} for row in table.reported],
        "withdrawn": [asdict(row) for row in table.withdrawn],
    }
