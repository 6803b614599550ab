"""Rows from a local file: JSON lines, CSV or parquet, told apart by the file's ending."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dare.errors import UsageProblem

Row = dict[str, Any]

FORMATS = (".jsonl", ".json", ".csv", ".parquet")
MAX_LINE = 64 * 2**20  # bytes of one row


class BadRow(ValueError):
    """A row that is no problem of its task; the message says what is wrong with it."""


def read_rows(path: Path) -> Iterator[tuple[int, Row]]:
    """Row number (from 1, headers not counted) and columns of each row, as they are read.

    Raises ``UsageProblem`` naming the file and the first row that cannot be read.
    """
    if not path.is_file():
        why = "it is a folder" if path.is_dir() else "there is no such file"
        raise UsageProblem(f"cannot read {path}", why, f"give a file in {', '.join(FORMATS)}")
    readers = {".jsonl": _json_lines, ".json": _json_lines, ".csv": _csv, ".parquet": _parquet}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise UsageProblem(
            f"cannot tell what {path.name} is",
            f"its name ends in '{path.suffix}'",
            f"rename it to end in one of {', '.join(FORMATS)}",
        )
    try:
        yield from reader(path)
    except OSError as error:
        why = error.strerror or str(error).splitlines()[0]
        raise UsageProblem(f"cannot read {path}", why) from error


def bad_row(path: Path, number: int, why: str) -> UsageProblem:
    """The error for a row that does not have what it should."""
    return UsageProblem(
        f"row {number} of {path} cannot be used", why, "correct or remove it; nothing was scored"
    )


def _json_lines(path: Path) -> Iterator[tuple[int, Row]]:
    with open(path, "rb") as handle:
        number = 0
        while line := handle.readline(MAX_LINE + 1):
            if len(line) > MAX_LINE:
                raise bad_row(path, number + 1, f"it is longer than {MAX_LINE} bytes")
            if not line.strip():
                continue
            number += 1
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                why = "nested too deeply" if isinstance(error, RecursionError) else str(error)
                raise bad_row(path, number, f"not JSON: {why}") from error
            if not isinstance(row, dict):
                raise bad_row(path, number, "it is not a JSON object")
            yield number, row


def _csv(path: Path) -> Iterator[tuple[int, Row]]:
    previous = csv.field_size_limit(MAX_LINE)
    try:
        with open(path, encoding="utf-8", newline="") as handle:
            reader = csv.DictReader(handle, strict=True)
            number = 0
            try:
                for number, row in enumerate(reader, 1):
                    if None in row or None in row.values():
                        raise bad_row(path, number, "it does not have as many cells as the header")
                    yield number, row
            except (csv.Error, UnicodeDecodeError) as error:
                raise bad_row(path, number + 1, str(error)) from error
    finally:
        csv.field_size_limit(previous)


def _parquet(path: Path) -> Iterator[tuple[int, Row]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        number = 0
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=256):
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
    except (pa.ArrowException, UnicodeDecodeError) as error:
        why = str(error).splitlines()[0] if str(error) else "not a parquet file"
        raise UsageProblem(
            f"cannot read {path}", f"after row {number}: {why}", "get the file again"
        ) from error
