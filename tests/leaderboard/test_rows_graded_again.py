"""A row of our own runs is "rescored" only when grading its completions again agrees."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dare.errors import NotComparable
from dare.evaluation.rescore import Rescore, score
from dare.leaderboard.add import from_runs
from dare.leaderboard.files import read_board
from dare.results.record import Budget
from dare.results.rundir import read_record, write_run
from dare.tasks import get

Solve = Callable[[int, int], Path]


@pytest.fixture
def solve(write, tmp_path: Path) -> Solve:
    """``solve(5, claimed)``: a run that solves 5 of 20 real puzzles and says ``claimed``."""

    def run(right: int, claimed: int) -> Path:
        task = get("sudoku4")
        items = task.load("test", 20)
        answers = [item.gold["solution"] if i < right else "1" * 16 for i, item in enumerate(items)]
        rows = [
            score(task, item, text, "tiny", 1) for item, text in zip(items, answers, strict=True)
        ]
        outcomes = [
            outcome.model_copy(update={"correct": i < claimed, "points": int(i < claimed)})
            for i, outcome in enumerate(Rescore("x", "sudoku4", "tiny", tuple(rows)).to_outcomes())
        ]
        template = read_record(write("template", 0, claimed, kind="eval", budget=Budget()))
        data = {"task": "sudoku4", "split": "test", "item_ids_sha256": "x"}
        folder = tmp_path / "solved"
        write_run(folder, template.model_copy(update={"data": data, "outcomes": {}}), outcomes)
        return folder

    return run


def test_agreeing_grades_make_the_row_rescored(board: Path, solve: Solve) -> None:
    entry = from_runs(read_board(board).protocol, [solve(5, 5)], "base", None, "2026-12-09")
    assert entry.state == "rescored"
    assert sum(entry.evidence[0].bits()) == 5


def test_a_run_that_claims_more_than_its_completions_is_refused(board: Path, solve: Solve) -> None:
    with pytest.raises(NotComparable, match="graded differently now") as caught:
        from_runs(read_board(board).protocol, [solve(5, 7)], "base", None, "2026-12-09")
    assert "correct: True stored, False now" in caught.value.why


def test_without_the_problems_the_row_is_only_submitted(board: Path, write) -> None:
    run = write("base", 0, 5, kind="eval", budget=Budget())
    entry = from_runs(read_board(board).protocol, [run], "base", None, "2026-12-09")
    assert entry.state == "submitted"
