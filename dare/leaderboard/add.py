"""New rows: from run folders, from rescored generations, from a paper's claims.

Everything is checked before a file is written.  The order of writing (entry, lock, table)
is such that ``dare leaderboard build`` completes what a crash left half done.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from dare.errors import Missing, NotComparable, UsageProblem, unknown_name
from dare.leaderboard import facts
from dare.leaderboard.build import build
from dare.leaderboard.check import duplicates, entry_problems, unequal, untrusted
from dare.leaderboard.files import (
    ENTRIES,
    LOCK,
    README,
    WITHDRAWALS,
    Board,
    read_board,
    write_json,
)
from dare.leaderboard.mend import refuse_untrusted
from dare.leaderboard.render import render
from dare.leaderboard.schema import (
    Entry,
    Evidence,
    Lock,
    Protocol,
    Reported,
    Source,
    State,
    Withdrawal,
    pack_bits,
)
from dare.results.claims import Claim, Paper
from dare.results.files import write_atomic
from dare.results.record import Record


def from_runs(
    protocol: Protocol,
    folders: Sequence[Path],
    algorithm: str | None,
    state: State | None,
    today: str,
    note: str = "",
    challenges: str | None = None,
) -> Entry:
    """One row from the run folders of its seeds (and cells); outcomes are verified and counted.

    ``algorithm`` None: the row is named after the model, as a baseline is.  ``state`` None: the
    completions are graded again here; "rescored" when every grade comes out as stored,
    "submitted" when their problems are not here.
    """
    evidence = tuple(_evidence(protocol, folder) for folder in folders)
    if not evidence:
        raise UsageProblem("no run is named", "a row rests on the records of its runs", "")
    model = str(evidence[0].record.model.get("name") or "not recorded")
    name = algorithm or model
    ids = sorted(run.record.id for run in evidence)
    digest = hashlib.sha256("".join(ids).encode()).hexdigest()[:8]
    return Entry(
        id=f"{slug(name)}-{digest}",
        board=protocol.name,
        kind="challenge" if challenges else "result",
        target=challenges,
        state=state or _graded_again(folders),
        algorithm=name,
        model=model,
        added=today,
        note=note,
        evidence=tuple(sorted(evidence, key=lambda run: (run.cell, run.seed))),
    )


def _evidence(protocol: Protocol, folder: Path) -> Evidence:
    from dare.results.rundir import read_outcomes, read_record

    record = read_record(folder)
    cell = facts.cell_of(record, protocol)
    if cell is None:
        known = ", ".join(f"{cell.task} at {cell.gen_length}" for cell in protocol.cells)
        raise NotComparable(
            f"{folder} does not belong on the board {protocol.name}",
            f"it is a run of {facts.task(record)} at {facts.gen_length(record)} tokens; "
            f"the board ranks {known}",
            "dare list runs",
        )
    bits: list[bool] = []
    if record.status == "complete":
        outcomes = read_outcomes(folder, record)
        bits = [outcome.correct for outcome in outcomes]
    return Evidence(
        seed=facts.seed(record),
        cell=cell.id,
        record=_without_host(record),
        correct=pack_bits(bits),
    )


def _graded_again(folders: Sequence[Path]) -> State:
    """What grading the stored completions again allows to say; ``NotComparable`` if it differs."""
    from dare.evaluation.regrade import regrade_run
    from dare.results.rundir import read_record

    for folder in folders:
        if read_record(folder).status != "complete":
            continue
        try:
            changes = regrade_run(folder).changes
        except Missing:
            return "submitted"
        if changes:
            first = changes[0]
            raise NotComparable(
                f"the completions in {folder} are graded differently now",
                f"{len(changes)} differences, first {first.where}: "
                f"{first.stored!r} stored, {first.now!r} now",
                f"dare rescore {folder} --check",
            )
    return "rescored"


def _without_host(record: Record) -> Record:
    """Boards are public; which machine of whom it was is no part of the record's id."""
    return record.model_copy(update={"host": {}})


def slug(text: str) -> str:
    """``text`` as a file name: lower case, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:60] or "row"


def from_paper(protocol: Protocol, name: str, today: str) -> list[Entry]:
    """The rows that the paper ``name`` reports for the cells of this board."""
    from dare.reproductions import load

    reproduction = load(name)
    entries = from_claims(protocol, reproduction.paper, reproduction.claims, today)
    if not entries:
        raise UsageProblem(
            f"'{name}' reports nothing for the board {protocol.name}",
            "none of its claims is of a task and length that the board has",
            f"dare show {name} --claims",
        )
    return entries


def from_claims(
    protocol: Protocol, paper: Paper, claims: Iterable[Claim], today: str
) -> list[Entry]:
    """One entry per row of the paper's table, in the order of ``claims``.

    Only absolute claims in the unit of a cell count; a claim for a task and length that the
    board does not have is left out.
    """
    source = Source(
        paper=paper.id,
        title=paper.title,
        arxiv=paper.arxiv,
        date=paper.date,
        repo=paper.code.repo,
        commit=paper.code.commit,
    )
    rows: dict[tuple[str, str], list[Reported]] = {}
    for claim in claims:
        cell = protocol.cell(claim.task, claim.gen_length)
        if cell is None or claim.kind != "absolute":
            continue
        if (claim.metric, claim.unit) != (cell.metric, cell.unit):
            continue
        rows.setdefault((claim.row, claim.model), []).append(
            Reported(
                cell=cell.id,
                claim=claim.id,
                value=claim.value,
                source=claim.source,
                protocol=claim.protocol,
                selection=claim.selection,
                n_items=claim.n_items,
                n_seeds=claim.n_seeds,
                note=claim.note,
            )
        )
    return [
        Entry(
            id=f"reported-{slug(paper.id)}-{slug(row)}",
            board=protocol.name,
            state="reported",
            algorithm=row,
            model=model,
            added=today,
            source=source,
            reported=tuple(numbers),
        )
        for (row, model), numbers in rows.items()
    ]


def insert(folder: Path, entries: Sequence[Entry]) -> list[Path]:
    """Put ``entries`` on the board in ``folder`` and build its table; the files written.

    Raises ``UsageProblem`` for a row that is there already and ``NotComparable`` for one that
    breaks a gate, ``Untrusted`` when the board itself is broken; then nothing is written.
    """
    board = read_board(folder)
    refuse_untrusted(folder)
    _refuse(board, entries)
    written = []
    for entry in entries:
        path = folder / f"{ENTRIES}{entry.id}.json"
        write_json(path, entry.dumped())
        written.append(path)
    rebuild(folder)
    return written


def _refuse(board: Board, entries: Sequence[Entry]) -> None:
    for entry in entries:
        if entry.id in board.entries or entry.id in board.lock.entries:
            raise UsageProblem(
                f"the row {entry.id} is on the board {board.protocol.name} already",
                "a row is never overwritten",
                f"to take it back: dare leaderboard withdraw {board.protocol.board} {entry.id}",
            )
        problems = list(entry_problems(board.protocol, entry))
        if entry.target is not None and entry.target not in board.lock.entries:
            problems.append(f"challenges '{entry.target}', which is no row")
        if problems:
            raise NotComparable(
                f"'{entry.algorithm}' cannot stand on the board {board.protocol.name}",
                "; ".join(problems[:6]),
                f"the rules: {board.protocol.name}/{README}",
            )
    counted = [e for name, e in board.entries.items() if name not in board.withdrawals]
    together = [*counted, *entries]
    problems = [*duplicates(together), *unequal(board.protocol, together)]
    if problems:
        raise NotComparable(
            f"the new row does not go with the board {board.protocol.name}",
            "; ".join(problems[:6]),
            "dare leaderboard check",
        )


def rebuild(folder: Path) -> bool:
    """Lock entries that are not locked yet and write the table; True when a file changed.

    Raises ``Untrusted``, and writes nothing, when an entry fails its checks, differs from the
    lock or is missing.
    """
    refuse_untrusted(folder)
    board = read_board(folder)
    lock = Lock(entries=board.hashes | board.lock.entries)
    changed = lock != board.lock
    if changed or not (folder / LOCK).exists():
        write_json(folder / LOCK, lock.model_dump(mode="json", by_alias=True))
    text = render(build(board))
    if text != board.readme:
        write_atomic(folder / README, text.encode())
        changed = True
    return changed


def withdraw(folder: Path, name: str, reason: str, today: str) -> Path:
    """Take the row ``name`` back: it stays, struck through, with the reason; the file written.

    While other rows of the board are broken the table is left as it is; ``check`` names them.
    """
    board = read_board(folder)
    if name not in board.lock.entries:
        raise unknown_name("row", name, board.lock.entries, "")
    if name in board.withdrawals:
        raise UsageProblem(f"the row {name} is withdrawn already", board.withdrawals[name].reason)
    notice = Withdrawal(entry=name, sha256=board.lock.entries[name], date=today, reason=reason)
    path = folder / f"{WITHDRAWALS}{name}.json"
    write_json(path, notice.model_dump(mode="json", by_alias=True))
    if not untrusted(read_board(folder), folder):
        rebuild(folder)
    return path
