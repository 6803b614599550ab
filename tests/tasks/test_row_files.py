"""Reading rows from files: the same rows in every format, and refusals that name the row."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from dare.errors import UsageProblem
from dare.tasks.tables import read_rows

ROWS = [{"question": 'a,b\n"c"', "answer": "1"}, {"question": "é\x00", "answer": "2"}]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    if path.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".csv":
        with open(path, "w", newline="") as handle:
            writer = csv.DictWriter(handle, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    else:
        path.write_text("\n".join(json.dumps(row) for row in rows))
    return path


@pytest.mark.parametrize("ending", ["jsonl", "json", "csv", "parquet"])
def test_every_format_gives_the_same_rows(tmp_path: Path, ending: str) -> None:
    rows = [{k: v.replace("\x00", "") for k, v in row.items()} for row in ROWS]
    path = write(tmp_path / f"rows.{ending}", rows)
    assert list(read_rows(path)) == [(1, rows[0]), (2, rows[1])]


def test_json_lines_keep_nul_and_skip_blank_lines(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("\n" + json.dumps(ROWS[1]) + "\n\n")
    assert list(read_rows(path)) == [(1, ROWS[1])]


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("r.jsonl", b'{"a": 1}\n{"a": ', "row 2 of"),
        ("r.jsonl", b'{"a": 1}\n[1]\n', "row 2 of"),
        ("r.jsonl", b"[" * 1_000_000, "row 1 of"),
        ("r.jsonl", b'{"a": "\xff"}', "row 1 of"),
        ("r.csv", b"a,b\n1,2\n1\n", "row 2 of"),
        ("r.csv", b"a,b\n1,2,3\n", "row 1 of"),
        ("r.csv", b"a,b\n1,\xff\n", "row 1 of"),
        ("r.csv", b'a,b\n1,"x\n', "row 1 of"),
        ("r.parquet", b"PAR1 but not really", "cannot read"),
        ("r.txt", b"", "cannot tell what r.txt is"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, name: str, content: bytes, what: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UsageProblem) as caught:
        list(read_rows(path))
    assert caught.value.what.startswith(what)
    assert caught.value.why


def test_a_truncated_parquet_file_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.parquet", ROWS)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(UsageProblem, match=r"cannot read .*rows.parquet"):
        list(read_rows(path))


def test_missing_files_and_folders(tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match="cannot read") as caught:
        list(read_rows(tmp_path / "none.jsonl"))
    assert "no such file" in caught.value.why
    with pytest.raises(UsageProblem) as caught:
        list(read_rows(tmp_path))
    assert "folder" in caught.value.why


def test_the_limit_of_the_csv_module_is_left_as_it_was(tmp_path: Path) -> None:
    before = csv.field_size_limit()
    path = write(tmp_path / "rows.csv", [{"a": "x" * 200_000}])
    assert len(next(read_rows(path))[1]["a"]) == 200_000
    assert csv.field_size_limit() == before
