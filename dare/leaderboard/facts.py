"""Facts of a row, read from record headers: what a reader of the table wants to know."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dare.leaderboard.schema import Cell, Protocol
from dare.results.record import Record

MISSING = object()


def lookup(record: Record, path: str) -> Any:
    """The value at a dotted path such as ``decode.gen_length``; ``MISSING`` without one."""
    node: Any = record.model_dump(mode="json", by_alias=True)
    for part in path.split("."):
        if not isinstance(node, Mapping) or part not in node:
            return MISSING
        node = node[part]
    return node


def first_of(record: Record, *paths: str) -> Any:
    """The first of ``paths`` that the record has, or None."""
    for path in paths:
        value = lookup(record, path)
        if value is not MISSING and value is not None:
            return value
    return None


def seed(record: Record) -> int:
    """The run's seed; 0 for an evaluation that draws nothing."""
    found = first_of(record, "seeds.run", "config.training.seed")
    return found if isinstance(found, int) else 0


def task(record: Record) -> str | None:
    """The task's name."""
    return first_of(record, "data.task", "config.task.name")


def gen_length(record: Record) -> int | None:
    """Completion length in tokens."""
    return first_of(record, "decode.gen_length", "config.evaluation.gen_length")


def cell_of(record: Record, protocol: Protocol) -> Cell | None:
    """Where on the board the record belongs."""
    name = task(record)
    return protocol.cell(name, gen_length(record)) if name is not None else None


def nfe_per_answer(record: Record) -> float | None:
    """Forward passes spent on one answer."""
    nfe = first_of(record, "decode.nfe", "decode.steps", "config.evaluation.steps")
    return float(nfe) if isinstance(nfe, int | float) else None


def hardware(record: Record) -> str:
    """The accelerator, or the processor; a rescored record does not know what generated."""
    if record.kind == "rescore":
        return "not recorded"
    accelerator = record.env.get("accelerator")
    if accelerator and accelerator != "none":
        return str(accelerator)
    return str(record.env.get("cpu") or "not recorded")


def selection(record: Record) -> str:
    """How the reported checkpoint was chosen."""
    return str(record.selection.get("rule") or "not recorded")


def version(record: Record) -> str:
    """The version of dare that made the record."""
    return str(record.code.get("dare") or "not recorded")


def one_or_all(values: Sequence[str]) -> str:
    """The one value they share, or all of them."""
    return ", ".join(sorted(set(values)))


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
