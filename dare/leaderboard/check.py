"""Is a board what it says it is?

``dare leaderboard check`` fails when

* the README is not the function of the entries,
* a record does not hash to its id, breaks a gate, or does not belong to its cell,
* a run (configuration hash + seed) or its outcomes are counted twice,
* an entry was changed or removed since it was locked, without a withdrawal,
* a row of the last commit is missing from the lock, or its frozen protocol was changed.

``untrusted`` is the part of it that also keeps a table from being written: a table built from
forged or missing rows would look as good as any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from dare.errors import UsageProblem
from dare.leaderboard import facts
from dare.leaderboard.build import build
from dare.leaderboard.files import Board, git_files, parse, read_board
from dare.leaderboard.render import render
from dare.leaderboard.schema import Cell, Entry, Evidence, Protocol
from dare.results.record import Record
from dare.sampling.config import LATER

KINDS = ("train", "eval", "rescore")


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: which file, what, and what to do.

    ``by_build``: the files it follows from are sound, so building the board puts it right.
    """

    where: str
    what: str
    help: str = ""
    by_build: bool = False


def check(folder: Path, against: str = "HEAD") -> list[Problem]:
    """Everything wrong with the board in ``folder``, also since the commit ``against``."""
    name = f"{folder.parent.name}/{folder.name}"
    try:
        board = read_board(folder)
    except UsageProblem as error:
        return [Problem(name, f"{error.what}: {error.why}", error.help)]
    problems = list(judge(board))
    if board.protocol.name != name:
        why = f"protocol.toml is of {board.protocol.name}"
        problems.append(Problem(name, why, "move the folder, or correct board and version"))
    problems += _since(board, folder, against)
    # A broken entry may have no table; its own problem has been named.
    if not problems and board.readme != render(build(board)):
        problems.append(
            Problem(
                f"{name}/README.md",
                "the table is not the function of its entries",
                f"dare leaderboard build {board.protocol.board}",
                by_build=True,
            )
        )
    return problems


def untrusted(board: Board, folder: Path, against: str = "HEAD") -> list[Problem]:
    """Why no table may be built from ``board``: broken, changed or missing rows, by file."""
    problems = [problem for problem in judge(board) if not problem.by_build]
    old = _as_of(folder, against)
    return problems if old is None else [*problems, *_unlocked_since(board, old, against)]


def judge(board: Board) -> Iterator[Problem]:
    """What is wrong with the entries, the lock and the withdrawals, taken by themselves."""
    for name, entry in sorted(board.entries.items()):
        for what in entry_problems(board.protocol, entry):
            yield Problem(_file(board, name), what, _how(board, name))
        if entry.target is not None and entry.target not in {**board.lock.entries, **board.entries}:
            yield Problem(_file(board, name), f"challenges '{entry.target}', which is no row")
        if entry.state == "withdrawn" and name not in board.withdrawals:
            yield Problem(_file(board, name), "is withdrawn without a reason", _how(board, name))
    counted = [entry for entry in board.entries.values() if entry.id not in board.withdrawals]
    for what in duplicates(counted):
        yield Problem(board.protocol.name, what, "withdraw one of the two rows")
    for what in unequal(board.protocol, counted):
        yield Problem(board.protocol.name, what, "rows of one table must be measured alike")
    yield from _locked(board)


def entry_problems(protocol: Protocol, entry: Entry) -> Iterator[str]:
    """Why ``entry`` may not stand on the board; nothing when it may."""
    if entry.board != protocol.name:
        yield f"is an entry of {entry.board}, not of {protocol.name}"
    cells = {cell.id: cell for cell in protocol.cells}
    named = [number.cell for number in entry.reported]
    for cell in sorted(set(named) - set(cells)):
        yield f"reports a number for '{cell}', which this board does not have"
    if len(set(named)) < len(named):
        yield "reports two numbers for one cell"
    for run in entry.evidence:
        for what in run_problems(protocol, run):
            yield f"run {run.record.id[:8]}: {what}"
    for cell in dict.fromkeys(run.cell for run in entry.evidence):
        yield from _seed_problems(protocol, entry, cell)


def run_problems(protocol: Protocol, run: Evidence) -> Iterator[str]:
    """Why one run cannot be evidence on this board."""
    record = run.record
    if record.id != record.content_id():
        yield "the record was edited: its id is not the hash of its content"
    if record.kind not in KINDS:
        yield f"a '{record.kind}' record sums up others; name the runs of the seeds themselves"
    if record.status not in ("complete", "failed"):
        why = f" ({record.reason})" if record.reason else ""
        yield f"it is {record.status}{why}"
    if run.seed != facts.seed(record):
        yield f"it is entered as seed {run.seed}, the record says {facts.seed(record)}"
    cell = facts.cell_of(record, protocol)
    if cell is None or cell.id != run.cell:
        where = f"{facts.task(record)} at {facts.gen_length(record)} tokens"
        yield f"it is a run of {where}, which is not the cell '{run.cell}'"
    yield from _gate_problems(protocol.gates | (cell.gates if cell is not None else {}), record)
    if cell is not None and record.status == "complete":
        yield from _metric_problems(run, cell)


def _gate_problems(gates: Mapping[str, object], record: Record) -> Iterator[str]:
    for path, wanted in gates.items():
        found = facts.lookup(record, path)
        if found is facts.MISSING:
            yield f"gate {path}: not recorded, the board asks for {wanted!r}"
        elif found != wanted:
            yield f"gate {path}: {found!r}, the board asks for {wanted!r}"
    # Caches and adaptive rules cost and score otherwise; a board that allows one says so.
    for name in LATER:
        path = f"decode.{name}"
        if path not in gates and (found := facts.lookup(record, path)) is not facts.MISSING:
            yield f"{path} is {found!r}: this board is for the plain sampler"


def _metric_problems(run: Evidence, cell: Cell) -> Iterator[str]:
    try:
        metric = run.record.metric(cell.metric)
    except KeyError as error:
        yield str(error.args[0])
        return
    if metric.unit != cell.unit:
        yield f"its {metric.name} is in {metric.unit}, the board's in {cell.unit}"
    if metric.points is not None and metric.out_of:
        recounted = 100 * metric.points / metric.out_of
        if abs(recounted - metric.value) > 1e-6:
            yield f"{metric.points} of {metric.out_of} is not {metric.value} percent"
    if not run.correct:
        return
    if len(run.correct) != 2 * ((run.lines + 7) // 8):
        yield f"the stored verdicts are not those of {run.lines} outcomes"
    elif metric.name == "accuracy" and metric.points not in (None, sum(run.bits())):
        yield f"the stored verdicts count {sum(run.bits())} right, the record {metric.points}"


def _seed_problems(protocol: Protocol, entry: Entry, cell: str) -> Iterator[str]:
    runs = [run for run in entry.evidence if run.cell == cell]
    complete = [run for run in runs if run.record.status == "complete"]
    if not complete:
        yield f"no run of {cell} is complete"
    if len({run.seed for run in runs}) < len(runs):
        yield f"two runs of {cell} have the same seed"
    trained = any(run.record.budget.updates > 0 for run in complete)
    limit = protocol.max_nfe_train
    for run in complete:
        if limit is not None and run.record.budget.nfe_train > limit:
            spent = run.record.budget.nfe_train
            yield f"run {run.record.id[:8]} spent {spent} NFE in training, the board allows {limit}"
    if trained and len(complete) < protocol.min_seeds:
        yield (
            f"{len(complete)} complete seeds of {cell}; "
            f"a trained row needs {protocol.min_seeds} or more"
        )
    metrics = {known.metric for known in protocol.cells if known.id == cell}
    counts = {m.n for run in complete for m in run.record.metrics if m.name in metrics}
    if len(counts) > 1:
        yield f"the runs of {cell} were measured on different numbers of items: {sorted(counts)}"


def duplicates(entries: Iterable[Entry]) -> Iterator[str]:
    """Runs that are counted twice: one configuration and seed, or one file of outcomes.

    Copies of a run under another seed would narrow an interval without any new evidence.
    """
    seen: dict[tuple[str, str, str], str] = {}
    for entry in sorted(entries, key=lambda entry: entry.id):
        for run in entry.evidence:
            record = run.record
            keys = [("configuration and seed", run.cell, f"{record.config_hash} {run.seed}")]
            if record.outcomes.get("lines"):
                keys.append(("outcomes", run.cell, str(record.outcomes.get("sha256"))))
            for key in keys:
                if key in seen:
                    yield f"{seen[key]} and {entry.id} count the same {key[0]} ({record.id[:8]})"
                seen.setdefault(key, entry.id)


def unequal(protocol: Protocol, entries: Iterable[Entry]) -> Iterator[str]:
    """Fields that must agree within a cell and do not; runs on part of the items are unranked."""
    cells = {cell.id: cell for cell in protocol.cells}
    seen: dict[tuple[str, str], tuple[object, str]] = {}
    for entry in sorted(entries, key=lambda entry: entry.id):
        for run in entry.evidence:
            if not _on_all_items(run, cells.get(run.cell)):
                continue
            for path in protocol.same:
                found = facts.lookup(run.record, path)
                value = None if found is facts.MISSING else found
                first, owner = seen.setdefault((run.cell, path), (value, entry.id))
                if first != value:
                    yield f"{run.cell}: {path} is {value!r} in {entry.id}, {first!r} in {owner}"


def _on_all_items(run: Evidence, cell: Cell | None) -> bool:
    return cell is not None and any(
        metric.name == cell.metric and metric.n == cell.n_items for metric in run.record.metrics
    )


def _locked(board: Board) -> Iterator[Problem]:
    for name, sha in board.lock.entries.items():
        if name in board.withdrawals:
            if board.withdrawals[name].sha256 != sha:
                yield Problem(_file(board, name), "the withdrawal is of another entry")
        elif name not in board.entries:
            yield Problem(_file(board, name), "the row was removed", _how(board, name))
        elif board.hashes[name] != sha:
            yield Problem(
                _file(board, name), "the row was changed after it was added", _how(board, name)
            )
    for name in sorted(set(board.entries) - set(board.lock.entries)):
        help = f"dare leaderboard build {board.protocol.board}"
        yield Problem(_file(board, name), "the row is not in entries.lock.json", help, True)
    for name in sorted(set(board.withdrawals) - set(board.lock.entries)):
        yield Problem(f"{board.protocol.name}/withdrawals/{name}.json", "withdraws no row")


def _since(board: Board, folder: Path, ref: str) -> Iterator[Problem]:
    """What changed since the commit ``ref`` although it may not."""
    old = _as_of(folder, ref)
    if old is None:
        return
    yield from _unlocked_since(board, old, ref)
    if old.protocol.name == board.protocol.name:
        for what in _frozen(old, board.protocol):
            yield Problem(
                f"{board.protocol.name}/protocol.toml",
                f"{what} changed since {ref}",
                f"open v{board.protocol.major + 1} beside it, with the baseline run again",
            )


def _as_of(folder: Path, ref: str) -> Board | None:
    """The board at the commit ``ref``; one that was broken then cannot bind this one: None."""
    files = git_files(folder, ref)
    if files is None:
        return None
    try:
        return parse(files, folder)
    except UsageProblem:
        return None


def _unlocked_since(board: Board, old: Board, ref: str) -> Iterator[Problem]:
    for name, sha in old.lock.entries.items():
        if board.lock.entries.get(name) != sha:
            yield Problem(
                f"{board.protocol.name}/entries.lock.json",
                f"'{name}' was locked at {ref} and is not any more, or not as it was",
                "restore the line; to take a row back, withdraw it",
            )


def _frozen(old: Board, new: Protocol) -> Iterator[str]:
    """Rules that rows of the old board rest on: all for measured ones, else the cells alone."""
    if any(entry.evidence for entry in old.entries.values()):
        for name in ("gates", "same", "ranking", "min_seeds", "max_nfe_train"):
            if getattr(old.protocol, name) != getattr(new, name):
                yield name
    for cell in old.protocol.cells if old.entries else ():
        if cell not in new.cells:
            yield f"the cell {cell.id}"


def _file(board: Board, name: str) -> str:
    return f"{board.protocol.name}/entries/{name}.json"


def _how(board: Board, name: str) -> str:
    return (
        "restore the file, or take the row back with a reason: "
        f'dare leaderboard withdraw {board.protocol.board} {name} --reason "..."'
    )
