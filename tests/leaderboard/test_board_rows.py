"""New rows: from runs, from rescored completions, from papers; and what changed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dare.errors import NotComparable, UsageProblem
from dare.leaderboard.add import from_claims, from_runs, insert, slug, withdraw
from dare.leaderboard.build import build
from dare.leaderboard.check import check
from dare.leaderboard.diff import as_markdown, diff
from dare.leaderboard.files import find_boards, git_files, parse, read_board
from dare.results.claims import Claim, Code, Paper
from dare.results.record import Budget

PAPER = Paper(
    id="d1",
    title="A title",
    authors=("Somebody",),
    arxiv="2504.12216",
    date="2025-04-16",
    code=Code(repo="owner/name", commit="837888f"),
)


def claim(row: str, task: str, length: int | None, value: float, **more) -> Claim:
    return Claim(
        id=f"d1/{row}/{task}/{length}", row=row, model="llada-8b", task=task, metric="accuracy",
        value=value, gen_length=length, source="Table 1", **more,
    )  # fmt: skip


def test_a_papers_rows_become_entries(board: Path) -> None:
    protocol = read_board(board).protocol
    claims = [
        claim("RL", "gsm8k", 128, 72.6, protocol="d1", selection="best on test"),
        claim("RL", "gsm8k", 256, 79.8),  # no such cell
        claim("RL", "math500", 128, 33.2),  # no such task
        claim("RL", "gsm8k", None, 81.9),  # no one length
        claim("Base", "gsm8k", 128, 68.7, protocol="other", note="not verified"),
        claim("Gain", "gsm8k", 128, 3.9, kind="improvement"),
    ]
    entries = from_claims(protocol, PAPER, claims, "2026-12-09")
    assert [(entry.algorithm, [n.value for n in entry.reported]) for entry in entries] == [
        ("RL", [72.6]),
        ("Base", [68.7]),
    ]
    insert(board, entries)
    text = (board / "README.md").read_text()
    measured, _, reported = text.partition("## Reported by papers, never ranked")
    assert "72.6" not in measured
    assert "| d1, arXiv 2504.12216 | – | 72.6 | best on test | Table 1 |" in reported
    assert "d1, Base, gsm8k: not verified." in reported
    assert "d1, Base, gsm8k: the paper's protocol is other, the board's d1." in reported
    assert check(board) == []


def test_rescored_rows_are_named_after_their_model(board: Path, write) -> None:
    run = write(
        "released", 0, 13, kind="rescore", budget=Budget(), seeds={},
        data={"task": "gsm8k", "item_ids_sha256": "x"},
        decode={"gen_length": 128, "steps": 64, "temperature": 0.0},
        model={"name": "LLaDA-8B-Instruct"},
    )  # fmt: skip
    protocol = read_board(board).protocol
    entry = from_runs(protocol, [run], None, "rescored", "2026-12-09")
    insert(board, [entry])
    table = build(read_board(board))
    assert table.cells[0].rows == ()
    (row,) = table.cells[1].rows
    assert (row.algorithm, row.state, row.hardware) == (
        "LLaDA-8B-Instruct", "rescored", "not recorded",
    )  # fmt: skip
    # 13 of 20: 65 percent; the overview shows it in the second task's column
    assert "| LLaDA-8B-Instruct | – | 65.0 | rescored |" in (board / "README.md").read_text()


def test_one_row_may_fill_several_cells(board: Path, write) -> None:
    runs = [
        write("base", 0, 5, kind="eval", budget=Budget()),
        write("base-g", 0, 7, kind="eval", budget=Budget(),
              data={"task": "gsm8k", "item_ids_sha256": "x"},
              decode={"gen_length": 128, "steps": 64, "temperature": 0.0}),
    ]  # fmt: skip
    entry = from_runs(read_board(board).protocol, runs, "base", "submitted", "2026-12-09")
    insert(board, [entry])
    assert "| base | 25.0 | 35.0 | submitted |" in (board / "README.md").read_text()
    assert check(board) == []


def test_a_run_of_another_task_does_not_belong(board: Path, write) -> None:
    run = write("x", 0, 3, data={"task": "math500"})
    with pytest.raises(NotComparable, match="does not belong on the board toy/v1") as caught:
        from_runs(read_board(board).protocol, [run], "x", "submitted", "2026-12-09")
    assert caught.value.exit_status == 4
    assert "math500 at 16 tokens" in caught.value.why


def test_edited_outcomes_are_refused(board: Path, write) -> None:
    run = write("x", 0, 3)
    path = run / "outcomes.jsonl"
    path.write_text(path.read_text().replace('"correct": false', '"correct": true'))
    with pytest.raises(UsageProblem, match="was edited after it was written"):
        from_runs(read_board(board).protocol, [run], "x", "submitted", "2026-12-09")


def test_a_row_is_never_overwritten(board: Path, add, write) -> None:
    add("d1", [10, 12])
    before = {path: path.read_bytes() for path in board.rglob("*") if path.is_file()}
    runs = [board.parents[2] / "runs" / f"d1-{seed}" for seed in (0, 1)]
    entry = from_runs(read_board(board).protocol, runs, "d1", "submitted", "2026-12-31")
    with pytest.raises(UsageProblem, match="already"):
        insert(board, [entry])
    assert {path: path.read_bytes() for path in board.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("text", "name"),
    [("SPG w/ Mixture", "spg-w-mixture"), ("../../etc", "etc"), ("+", "row"), ("é" * 9, "row")],
)
def test_file_names_are_harmless(text: str, name: str) -> None:
    assert slug(text) == name


def test_boards_are_found_by_name_and_newest_version(tmp_path: Path) -> None:
    for name in ("a/v1", "a/v2", "a/v10", "b/v1"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "protocol.toml").write_text("")
    assert [path.name for path in find_boards(tmp_path, "a")] == ["v10"]
    assert find_boards(tmp_path, "a/v2") == [tmp_path / "a" / "v2"]
    assert len(find_boards(tmp_path)) == 4
    with pytest.raises(UsageProblem, match="no board is called 'bb'") as caught:
        find_boards(tmp_path, "bb")
    assert "did you mean 'b'?" in caught.value.help


def test_what_changed(board: Path, add) -> None:
    add("d1", [10, 11])
    old = build(read_board(board))
    add("spg", [18, 19])
    gone = add("wd1", [2, 3])
    new = build(read_board(board))
    assert [(c.what, c.row, c.before, c.after) for c in diff(old, new)] == [
        ("rank", "d1", "1", "2"),
        ("added", "spg", "", "92.50 %, rank 1 (submitted)"),
        ("added", "wd1", "", "12.50 %, rank 3 (submitted)"),
    ]
    withdraw(board, gone, "leak", "2026-12-10")
    (change,) = diff(new, build(read_board(board)))
    assert (change.what, change.row, change.after) == ("withdrawn", "wd1", "leak")
    assert "| withdrawn | wd1 | sudoku4 | 12.50 %, rank 3 (submitted) | leak |" in as_markdown(
        "toy/v1", [change]
    )
    assert diff(new, new) == []
    assert [c.what for c in diff(None, new)] == ["added"] * 3


def test_a_committed_board_is_read_back(board: Path, add) -> None:
    add("d1", [10, 11])
    top = board.parent.parent
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    for words in (["init", "-q"], ["add", "-A"], [*identity, "commit", "-qm", "one"]):
        subprocess.run(["git", *words], cwd=top, check=True, capture_output=True)
    add("spg", [18, 19])
    files = git_files(board, "HEAD")
    assert files is not None
    old = parse(files)
    assert [entry.algorithm for entry in old.live()] == ["d1"]
    assert git_files(board, "--output=x") is None
    assert git_files(board, "HEAD~1") is None


def test_published_numbers_on_the_boards_that_come_with_dare(root: Path) -> None:
    """The cells are those of the two papers' tables, as printed."""
    board = read_board(root / "leaderboards" / "llada-8b-instruct" / "v1")
    rows = {(r.source.paper, r.algorithm): r.values for r in build(board).reported}
    d1 = rows["d1", "d1-LLaDA (SFT + diffu-GRPO)"]
    assert (d1["gsm8k-128"], d1["math500-512"], d1["countdown-256"], d1["sudoku-512"]) == (
        73.2, 40.2, 32.0, 9.5,
    )  # fmt: skip
    spg = rows["spg", "SPG w/ Mixture"]
    assert (spg["gsm8k-256"], spg["math500-128"], spg["countdown-512"], spg["sudoku-256"]) == (
        86.1, 33.4, 70.3, 94.0,
    )  # fmt: skip
    base = rows["spg", "LLaDA-8B-Instruct"]
    assert (base["gsm8k-512"], base["sudoku-128"]) == (79.8, 5.7)


@pytest.mark.parametrize("paper", ["d1", "spg"])
def test_reported_rows_are_the_claims_of_the_reproductions(root: Path, paper: str) -> None:
    from dare.reproductions import load

    board = read_board(root / "leaderboards" / "llada-8b-instruct" / "v1")
    claims = {claim.id: claim.value for claim in load(paper).claims}
    for entry in board.live():
        if entry.source is not None and entry.source.paper == paper:
            for number in entry.reported:
                assert claims[number.claim] == number.value


def test_the_boards_that_come_with_dare_are_sound(root: Path) -> None:
    boards = find_boards(root / "leaderboards")
    assert {path.parent.name for path in boards} >= {"tiny-sudoku", "llada-8b-instruct"}
    assert [problem for board in boards for problem in check(board)] == []


def test_tiny_sudoku_says_what_it_is_not(root: Path) -> None:
    text = (root / "leaderboards" / "tiny-sudoku" / "v1" / "README.md").read_text()
    note = next(line for line in text.splitlines() if line.startswith(">"))
    assert "deliberately handicapped" in note
    assert "re-selects" in note


def test_boards_import_no_heavy_package() -> None:
    code = (
        "import sys, json, dare.cli.leaderboard, dare.leaderboard.add, dare.leaderboard.diff;"
        "heavy = {'torch', 'transformers', 'trl', 'datasets', 'pandas', 'numpy', 'jinja2'};"
        "print(json.dumps(sorted(heavy & set(sys.modules))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert json.loads(done.stdout) == []
