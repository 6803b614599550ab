"""Run folders: ``runs/<date>-<paper>-<task>-<hash8>/``.

    run.json         what the folder is for: {"schema", "run_key", "state", ...}; written first
    config.json      the resolved configuration
    events.jsonl     training curve (dare.results.events)
    outcomes.jsonl   one line per problem and sample
    record.json      the sealed record; written last, never overwritten

A run is found again by its *run key* (``dare.results.environment.run_key``), kept in
``run.json`` so that an interrupted run is found too.  A run is finished when its record is
there, is intact and says "complete"; ``state`` in ``run.json`` only tells how an unfinished
one ended.  Readers verify: the record's id is the hash of its content, and the hash of the
outcomes is in the record.  Links under the names of these files are refused.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from dare.errors import DareError, UsageProblem
from dare.results.environment import code_identity, environment, run_key
from dare.results.events import EVENTS, append_event, read_events, truncate_events
from dare.results.files import parse_object, pretty_json, read_plain, unreadable, write_atomic
from dare.results.record import SCHEMA, Outcome, Record

__all__ = [
    "EVENTS", "OUTCOMES", "RECORD", "RUN", "Locked", "RunRef", "append_event", "code_identity",
    "environment", "find_finished", "find_run", "find_runs", "lock", "mark_run", "read_events",
    "read_outcomes", "read_record", "run_key", "run_name", "start_run", "truncate_events",
    "write_run",
]  # fmt: skip

RUN, RECORD, OUTCOMES = "run.json", "record.json", "outcomes.jsonl"
RUN_SCHEMA = "dare.run/1"

State = Literal["complete", "partial", "failed", "invalidated", "broken"]

# What the files of a run are called; under these names a link is refused.
_OWN = (RUN, RECORD, OUTCOMES)
_EDITED_HELP = "restore the original file, or move the folder away and run dare reproduce again"


class Locked(UsageProblem):
    """Another process is working in this folder."""


@dataclass(frozen=True, slots=True)
class RunRef:
    """A folder that is, or was to be, a run.

    ``state`` is the record's status; without a record "partial" or "failed"; "broken" when a
    file in it cannot be trusted, and then ``problem`` says which and why.
    """

    path: Path
    state: State
    record: Record | None = None
    run_key: str | None = None
    problem: str = ""


def run_name(date: date | str, paper: str, task: str, digest: str) -> str:
    """``2026-12-01-d1-sudoku4-1a2b3c4d``; parts that would leave the folder are refused."""
    parts = [str(date), paper, task, digest[:8]]
    for part in parts:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", part):
            raise UsageProblem(
                f"'{part}' cannot be part of a run's name",
                "run folders are named with letters, digits, '.', '_' and '-'",
                "rename the paper or task",
            )
    return "-".join(parts)


def start_run(folder: Path, key: str, **about: Any) -> None:
    """Mark ``folder`` as the run ``key`` (made if needed); a folder of another run is refused.

    Starting the same run again (to resume it) is fine while it has no record.
    """
    folder = Path(folder)
    _make_folder(folder)
    if (folder / RUN).exists():
        owner = _read_run(folder)["run_key"]
        if owner != key:
            raise UsageProblem(
                f"{folder} belongs to another run",
                f"it was started for {owner[:8]}, this is {key[:8]}",
                "choose another folder; nothing was changed",
            )
    _refuse_existing(folder)
    mark = {"schema": RUN_SCHEMA, "run_key": key, "state": "started", **about}
    write_atomic(folder / RUN, pretty_json(mark))


def mark_run(folder: Path, state: Literal["started", "failed", "finished"], why: str = "") -> None:
    """Change the state in run.json, with the reason of a failure."""
    mark = _read_run(Path(folder)) | {"state": state, "reason": why}
    write_atomic(Path(folder) / RUN, pretty_json(mark))


def write_run(folder: Path, record: Record, outcomes: Iterable[Outcome]) -> Record:
    """Write outcomes, then the record sealed over their SHA-256; the sealed record.

    Raises ``UsageProblem`` when a record is there already (nothing is touched) and ``Missing``
    when the disk refuses.
    """
    folder = Path(folder)
    _make_folder(folder)
    _refuse_existing(folder)
    digest, lines = hashlib.sha256(), 0

    def chunks() -> Iterator[bytes]:
        nonlocal lines
        for outcome in outcomes:
            line = (json.dumps(outcome.model_dump(mode="json")) + "\n").encode()
            digest.update(line)
            lines += 1
            yield line

    write_atomic(folder / OUTCOMES, chunks())
    about = {"path": OUTCOMES, "sha256": digest.hexdigest(), "lines": lines}
    sealed = _as_read(record.model_copy(update={"outcomes": about})).sealed()
    write_atomic(folder / RECORD, pretty_json(sealed.model_dump(mode="json", by_alias=True)))
    if (folder / RUN).exists():
        mark_run(folder, "finished")
    return sealed


def _as_read(record: Record) -> Record:
    """What a reader will get, so that the id is computed over exactly that.

    JSON has no NaN: one in a free block becomes null, one in a metric is refused.
    """
    try:
        text = json.dumps(record.model_dump(mode="json", by_alias=True), allow_nan=False)
        return Record.model_validate(json.loads(text))
    except ValueError as error:
        why = f"a number in it may not be finite: {_first_problem(error)}"
        raise DareError("the record cannot be stored", why) from error


def read_record(path: Path | str) -> Record:
    """The record at ``path`` (a run folder or a record file), verified against its id."""
    path = _record_file(Path(path))
    help = "name a run folder or a record.json: dare list runs"
    raw = read_plain(path, "record", help, links=path.name not in _OWN)
    data = parse_object(raw, path, "record", help)
    if data.get("schema") != SCHEMA:
        raise UsageProblem(
            f"{path} is not a record this version reads",
            f"its schema is '{data.get('schema')}', not '{SCHEMA}'",
            "use the version of dare that wrote it, or move the folder away and run "
            "dare reproduce again",
        )
    try:
        record = Record.model_validate(data)
        expected = record.content_id()
    except (ValidationError, ValueError) as error:
        why = _first_problem(error)
        raise UsageProblem(f"{path} is not a valid record", why, _EDITED_HELP) from error
    if record.id != expected:
        raise UsageProblem(
            f"{path} was edited after it was written",
            f"its id is {record.id[:12] or 'empty'}, its content hashes to {expected[:12]}",
            _EDITED_HELP,
        )
    return record


def read_outcomes(path: Path | str, record: Record | None = None) -> list[Outcome]:
    """The outcomes at ``path`` (a run folder, record.json or outcomes.jsonl), verified.

    They must have the hash and line count in ``record`` (default: the record beside them).
    Only a lone outcomes file without any record is read unverified.
    """
    path = Path(path)
    folder = path if path.is_dir() else path.parent
    file = folder / OUTCOMES if path.is_dir() or path.name == RECORD else path
    if record is None and (folder / RECORD).is_file():
        record = read_record(folder)
    links = file.name not in _OWN
    raw = read_plain(file, "outcomes", "dare list runs", limit=2**32, links=links)
    if record is not None:
        _verify_outcomes(file, raw, record)
    elif raw and not raw.endswith(b"\n"):
        raise UsageProblem(f"{file} is truncated", "its last line is not whole", _EDITED_HELP)
    outcomes = []
    for number, line in enumerate(raw.split(b"\n")[:-1], 1):
        try:
            outcomes.append(Outcome.model_validate_json(line))
        except ValidationError as error:
            why = f"line {number}: {_first_problem(error)}"
            raise UsageProblem(f"{file} is not valid", why, _EDITED_HELP) from error
    return outcomes


def _verify_outcomes(file: Path, raw: bytes, record: Record) -> None:
    written, found = record.outcomes.get("sha256"), hashlib.sha256(raw).hexdigest()
    if found == written:
        return
    lines, expected = raw.count(b"\n"), record.outcomes.get("lines")
    what = "is truncated" if lines != expected else "was edited after it was written"
    why = (
        f"record {record.id[:12]} lists {expected} lines with SHA-256 {str(written)[:12]}; "
        f"the file has {lines} lines with {found[:12]}"
    )
    raise UsageProblem(f"{file} {what}", why, _EDITED_HELP)


def find_runs(root: Path | str) -> list[RunRef]:
    """Every run folder directly below ``root``, by name; damaged ones as "broken"."""
    refs = (_look(child) for child in _children(Path(root)))
    return [ref for ref in refs if ref is not None]


def _children(root: Path) -> list[Path]:
    if not root.exists():
        return []
    try:
        return sorted(child for child in root.iterdir() if not child.name.startswith("."))
    except OSError as error:
        raise unreadable(root, "folder of runs", error) from error


def _look(folder: Path) -> RunRef | None:
    key = None
    try:
        if not folder.is_dir():
            if folder.is_symlink():
                return RunRef(folder, "broken", problem=f"{folder} is a link to nowhere")
            return None
        names = set(os.listdir(folder))
        if not names & {RUN, RECORD}:
            return None
        mark = _read_run(folder) if RUN in names else {}
        key = mark.get("run_key")
        if RECORD not in names:
            state: State = "failed" if mark.get("state") == "failed" else "partial"
            return RunRef(folder, state, run_key=key, problem=str(mark.get("reason", "")))
        record = read_record(folder)
        return RunRef(folder, record.status, record, key, record.reason)
    except DareError as error:
        return RunRef(folder, "broken", run_key=key, problem=f"{error.what}: {error.why}")
    except OSError as error:
        return RunRef(folder, "broken", run_key=key, problem=f"{folder}: {error.strerror}")


def find_run(root: Path | str, key: str) -> RunRef | None:
    """The run with this key: a complete one if there is one, else the newest unfinished."""
    refs = [_look(child) for child in _children(Path(root)) if _key_of(child) == key]
    usable = [ref for ref in refs if ref is not None and ref.state != "broken"]
    complete = [ref for ref in usable if ref.state == "complete"]
    newest = (complete or usable)[-1:]
    return newest[0] if newest else None


def _key_of(folder: Path) -> str | None:
    try:
        return str(_read_run(folder)["run_key"])
    except UsageProblem:
        return None


def find_finished(root: Path | str, key: str) -> Path | None:
    """The folder of the complete run with this key, its outcomes verified; None without."""
    ref = find_run(root, key)
    if ref is None or ref.state != "complete":
        return None
    try:
        read_outcomes(ref.path, ref.record)
    except DareError:
        return None
    return ref.path


@contextmanager
def lock(folder: Path | str) -> Iterator[None]:
    """Hold ``folder`` for this process; ``Locked`` says who holds it.  Ends with the process."""
    from filelock import FileLock, Timeout

    folder = Path(folder)
    _make_folder(folder)
    holder = folder / ".lock.json"
    guard = FileLock(str(folder / ".lock"), timeout=0)
    try:
        guard.acquire()
    except Timeout as error:
        who = _holder(holder)
        help = "wait for it to end, or stop it; then run this again"
        raise Locked(f"another process is running {folder.name}", who, help) from error
    try:
        me = {
            "pid": os.getpid(),
            "host": platform.node(),
            "since": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        write_atomic(holder, pretty_json(me))
        yield
    finally:
        with suppress(OSError):
            holder.unlink()
        guard.release()


def _holder(path: Path) -> str:
    try:
        who = parse_object(read_plain(path, "lock"), path, "lock")
    except UsageProblem:
        return "it has not said who it is yet"
    return f"process {who.get('pid')} on {who.get('host')}, since {who.get('since')}"


def _read_run(folder: Path) -> dict[str, Any]:
    path = folder / RUN
    help = "move the folder away and start the run again"
    mark = parse_object(read_plain(path, "run mark", help, links=False), path, "run mark", help)
    if mark.get("schema") != RUN_SCHEMA or not isinstance(mark.get("run_key"), str):
        raise UsageProblem(f"{path} is not a run mark", f"no schema '{RUN_SCHEMA}' or key", help)
    return mark


def _record_file(path: Path) -> Path:
    if not path.is_dir():
        return path
    if (path / RUN).exists() and not (path / RECORD).exists():
        raise UsageProblem(
            f"the run {path} is not finished", "it has no record yet", "run it with --resume"
        )
    return path / RECORD


def _refuse_existing(folder: Path) -> None:
    path = folder / RECORD
    if path.exists() or path.is_symlink():
        raise UsageProblem(
            f"{path} exists already",
            "a record is never overwritten",
            "use another folder, or move this one away",
        )


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageProblem(
            f"cannot make the folder {folder}", error.strerror or str(error), "choose another one"
        ) from error


def _first_problem(error: ValueError) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc'])) or 'record'}: {first['msg']}"
    return str(error)
