"""The table as a function of the entries, and its Markdown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dare.leaderboard.build import build
from dare.leaderboard.files import folder_files, parse, read_board
from dare.leaderboard.render import as_json, escape, number, render
from dare.leaderboard.schema import Entry, Evidence, content_sha, pack_bits
from dare.results.record import Budget


def row_of(board: Path, name: str):
    table = build(read_board(board))
    return next(row for part in table.cells for row in part.rows if row.algorithm == name)


def test_a_row_is_the_mean_over_its_seeds(board: Path, add) -> None:
    add("d1", [10, 12, 14])
    row = row_of(board, "d1")
    # 50, 60, 70 percent: mean 60, half-width t(.975, 2) * 10 / sqrt(3) = 4.3027 * 5.7735
    assert row.estimate.value == pytest.approx(60)
    assert row.estimate.hi - 60 == pytest.approx(24.842, abs=1e-3)
    assert row.estimate.per_seed == {0: 50.0, 1: 60.0, 2: 70.0}
    assert (row.rank, row.nfe, row.hardware, row.selection, row.date, row.version) == (
        1, 8, "Example CPU", "final step", "2026-12-03", "0.1.0",
    )  # fmt: skip
    assert (row.training.updates, row.training.completions, row.training.nfe) == (120, 512, 4096)


def test_a_single_evaluation_has_wilsons_interval(board: Path, add) -> None:
    add("base", [10], kind="eval", budget=Budget(nfe_eval=160), seeds={})
    row = row_of(board, "base")
    assert (row.estimate.lo, row.estimate.hi) == (
        pytest.approx(29.93, abs=0.01),
        pytest.approx(70.07, abs=0.01),
    )
    assert "| none |" in render(build(read_board(board)))


def test_the_order_of_entries_and_files_does_not_matter(board: Path, add) -> None:
    add("d1", [10, 12])
    add("spg", [13, 14])
    add("base", [4], kind="eval", budget=Budget(), seeds={})
    files = folder_files(board)
    turned = dict(reversed(list(files.items())))
    first, second = parse(files), parse(turned)
    second = replace(second, entries=dict(reversed(list(second.entries.items()))))
    assert render(build(first)) == render(build(second))


def test_a_failed_seed_stays_in_the_row(board: Path, write) -> None:
    from dare.leaderboard.add import from_runs, insert

    runs = [write("d1", 0, 10), write("d1", 1, 12)]
    runs.append(write("d1", 2, [], status="failed", reason="loss is NaN", metrics=[]))
    entry = from_runs(read_board(board).protocol, runs, "d1", "submitted", "2026-12-09")
    insert(board, [entry])
    row = row_of(board, "d1")
    assert row.failed_seeds == 1
    assert "| 2 (+ 1 failed) |" in (board / "README.md").read_text()


def test_part_of_the_items_is_listed_and_not_ranked(board: Path, add) -> None:
    add("part", [[True] * 15, [True] * 14 + [False]])
    add("whole", [8, 9])
    part, whole = row_of(board, "part"), row_of(board, "whole")
    assert (part.rank, part.why) == (None, "15 of 20 items")
    assert whole.rank == 1


def test_a_challenge_is_listed_and_not_ranked(board: Path, add) -> None:
    target = add("d1", [10, 12])
    add("d1 again", [5, 6], challenges=target)
    assert row_of(board, "d1 again").why == f"challenges {target}"
    assert row_of(board, "d1").rank == 1


def test_the_note_stands_above_the_table(board: Path, add) -> None:
    add("d1", [10, 12])
    text = (board / "README.md").read_text()
    note = text.index("> The base was deliberately handicapped.")
    assert note < text.index("| rank | algorithm |")


def test_every_number_of_a_row_is_shown(board: Path, add) -> None:
    entry = add("d1", [10, 12])
    line = next(
        x for x in (board / "README.md").read_text().splitlines() if "d1" in x and "| 1 |" in x
    )
    cells = [cell.strip() for cell in line.strip("|").split(" | ")]
    first = read_board(board).entries[entry].evidence[0].record.id[:8]
    # 50 and 60: half-width t(.975, 1) * 7.0711 / sqrt(2) = 12.706 * 5, cut at 0 and 100
    assert cells == [
        "1", "d1", "55.0 [0.0, 100.0]", "2", "20", "100.0", "8",
        "120 updates, 512 completions, 4 096 NFE", "Example CPU", "final step", "submitted",
        f"[`{first}`](entries/{entry}.json) +1", "2026-12-02", "0.1.0",
    ]  # fmt: skip


def test_what_decides_a_rank_is_said(board: Path, add) -> None:
    add("d1", [18, 19])
    add("spg", [12, 13])
    add("wd1", [4, 12])
    text = (board / "README.md").read_text()
    # 92.5 - 62.5 = 30 for both seeds.  Over the items the gaps are 0.5, five times 1, 0.5 and 0:
    # 1.96 sqrt((5.5 - 20 * .3^2) / 19 / 20) = .1934
    decided = "-30.0 [-49.3, -10.7], shown to be lower (paired seeds and items)"
    assert f"* spg against d1: {decided}." in text
    # d1 - wd1: 70, 35: mean 52.5 and half-width 12.706 * 17.5
    tie = "not told apart (paired seeds and items)"
    wide = f"d1: -52.5 [-274.9, 169.9], {tie}; spg: -22.5 [-244.9, 199.9], {tie}"
    assert f"* wd1 against {wide}." in text


HOSTILE = "a | b\n# title <script> [x](y) `c` *d* ~~e~~ \x1b[31m \u202e"


def test_text_of_an_entry_cannot_leave_its_cell(board: Path, add) -> None:
    add(HOSTILE, [10, 12])
    rows = [x for x in (board / "README.md").read_text().splitlines() if x.startswith("| 1 |")]
    assert len(rows) == 1
    assert rows[0].count(" | ") == 13
    for fragment in ("<script", "\x1b", "\u202e", "\n# title"):
        assert fragment not in rows[0]


@pytest.mark.parametrize(
    ("text", "shown"),
    [("a|b", "a\\|b"), ("<b>", "&lt;b>"), ("a & b", "a &amp; b"), ("x\n\n# y", "x \\# y")],
)
def test_escaping(text: str, shown: str) -> None:
    assert escape(text) == shown


@pytest.mark.parametrize(
    ("value", "digits", "shown"), [(61440, 0, "61 440"), (23.25, 1, "23.2"), (None, 1, "–")]
)
def test_numbers_for_people(value: float | None, digits: int, shown: str) -> None:
    assert number(value, digits) == shown


def test_json_has_the_table_without_the_verdicts(board: Path, add) -> None:
    import json

    add("d1", [10, 12])
    value = json.loads(json.dumps(as_json(build(read_board(board)))))
    (row,) = value["cells"][0]["rows"]
    assert row["rank"] == 1
    assert row["estimate"]["per_seed"] == {"0": 50.0, "1": 60.0}
    assert "verdicts" not in row["estimate"]


@pytest.mark.parametrize("bits", [[], [True], [False] * 8, [True, False] * 9, [True] * 16])
def test_packed_verdicts_come_back(bits: list[bool], write, board: Path) -> None:
    folder = write("x", 0, bits or [True])
    from dare.results.rundir import read_record

    record = read_record(folder).model_copy(update={"outcomes": {"lines": len(bits)}})
    run = Evidence(seed=0, cell="sudoku4", record=record, correct=pack_bits(bits))
    assert run.bits() == bits
    assert len(run.correct) == 2 * ((len(bits) + 7) // 8)


def test_first_item_is_the_highest_bit() -> None:
    assert pack_bits([True] + [False] * 7 + [False, True]) == "8040"


def test_entry_survives_its_file(board: Path, add) -> None:
    name = add("d1", [10, 12])
    board_now = read_board(board)
    entry = board_now.entries[name]
    assert Entry.model_validate(entry.dumped()) == entry
    assert content_sha(entry.dumped()) == board_now.lock.entries[name]


def test_the_machines_name_is_not_published(board: Path, add) -> None:
    name = add("d1", [10, 12])
    assert "somewhere" not in (board / "entries" / f"{name}.json").read_text()
    record = read_board(board).entries[name].evidence[0].record
    assert record.id == record.content_id()
