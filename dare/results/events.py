"""events.jsonl: the training curve, one JSON object per line, safe against a killed writer.

An event with an integer ``step`` belongs to that optimiser step; events without one belong
to the run.  A half-written last line is what a killed process leaves: it is dropped on
reading and overwritten by the next append.  Any other damaged line is an error.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dare.errors import Missing, UsageProblem
from dare.results.files import read_plain, write_atomic

EVENTS = "events.jsonl"
_LIMIT = 2**30


def append_event(folder: Path, event: Mapping[str, Any]) -> None:
    """Add one event; numbers that are not finite are stored as null (JSON has none)."""
    line = (json.dumps(_finite(event), separators=(",", ":"), allow_nan=False) + "\n").encode()
    path = Path(folder) / EVENTS
    try:
        with open(path, "a+b") as handle:
            _drop_half_line(handle)
            handle.write(line)
    except OSError as error:
        raise Missing(
            f"cannot write {path}", error.strerror or str(error), "make room, then --resume"
        ) from error


def read_events(folder: Path) -> list[dict[str, Any]]:
    """All whole events in order; [] when there is no file yet."""
    path = Path(folder) / EVENTS
    if not path.exists() and not path.is_symlink():
        return []
    raw = read_plain(path, "training curve", limit=_LIMIT)
    whole, newline, _half = raw.rpartition(b"\n")
    lines = whole.split(b"\n") if newline else []
    return [_parse(line, path, number) for number, line in enumerate(lines, 1)]


def truncate_events(folder: Path, step: int) -> int:
    """Drop events of steps after ``step`` (a resumed run writes them again); how many."""
    events = read_events(folder)
    kept = [event for event in events if not _after(event, step)]
    if events:
        lines = (json.dumps(event, separators=(",", ":"), allow_nan=False) + "\n" for event in kept)
        write_atomic(Path(folder) / EVENTS, (line.encode() for line in lines))
    return len(events) - len(kept)


def _after(event: Mapping[str, Any], step: int) -> bool:
    at = event.get("step")
    return isinstance(at, int) and at > step


def _parse(line: bytes, path: Path, number: int) -> dict[str, Any]:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError) as error:
        event = error
    if not isinstance(event, dict):
        raise UsageProblem(
            f"cannot read the training curve {path}",
            f"line {number} is damaged",
            "delete that line, or start the run in a new folder",
        )
    return event


def _drop_half_line(handle: Any) -> None:
    size = handle.seek(0, os.SEEK_END)
    if not size:
        return
    handle.seek(size - 1)
    if handle.read(1) == b"\n":
        return
    handle.seek(0)
    handle.truncate(handle.read().rfind(b"\n") + 1)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(name): _finite(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    return value
