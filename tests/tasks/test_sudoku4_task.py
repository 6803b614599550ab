"""The embedded Sudoku: grids, splits, drawing, grading, reward."""

from __future__ import annotations

import hashlib
import itertools
import subprocess
import sys

import numpy as np
import pytest

from dare.errors import UsageProblem
from dare.tasks import get, reward_columns, sudoku4
from dare.tasks.base import Item

PUZZLE, SOLVED = "1030040201434001", "1234341221434321"  # by hand; the weak answer fails box 1
TASK = sudoku4.TASK


def item() -> Item:
    return Item("x", PUZZLE, {"solution": SOLVED})


def by_rules(grid: str) -> bool:
    """An oracle that knows rows, columns and boxes, not the enumeration."""
    rows = [set(grid[4 * r : 4 * r + 4]) for r in range(4)]
    columns = [set(grid[c::4]) for c in range(4)]
    boxes = [
        {grid[4 * (r + dr) + c + dc] for dr in (0, 1) for dc in (0, 1)}
        for r, c in itertools.product((0, 2), repeat=2)
    ]
    return all(unit == set("1234") for unit in (*rows, *columns, *boxes))


def test_there_are_288_grids_and_all_obey_the_rules() -> None:
    found = sudoku4.all_grids()
    assert len(found) == len(set(found)) == 288
    assert all(by_rules(grid) for grid in found)


def test_the_splits_partition_the_grids() -> None:
    parts = [sudoku4.grids(split) for split in ("train", "validation", "test")]
    assert [len(part) for part in parts] == [216, 24, 48]
    assert set().union(*parts) == set(sudoku4.all_grids())


def test_the_split_and_the_test_set_are_pinned() -> None:
    """A change here is a new task: numbers of before and after must not be compared."""

    def digest(texts: list[str]) -> str:
        return hashlib.sha256("".join(texts).encode()).hexdigest()[:16]

    assert digest(list(sudoku4.grids("test"))) == "6dc3085303219ff8"
    assert digest([i.question for i in sudoku4.load("test")]) == "1d117be35a7f9854"
    assert digest([i.question for i in sudoku4.load("validation")]) == "1b566dd590ee49e5"


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_a_fixed_set_is_distinct_unique_and_inside_its_split(split: str) -> None:
    items = sudoku4.load(split)
    assert len({i.id for i in items}) == len(items) == 1000
    own = set(sudoku4.grids(split))
    for i in items:
        assert sudoku4.solutions(i.question) == (i.gold["solution"],)
        assert i.gold["solution"] in own
        assert 6 <= i.question.count("0") <= 10
    assert sudoku4.load(split, 10) == items[:10]


def test_a_batch_is_uniform_in_grid_and_blanks_and_keyed_by_its_generator() -> None:
    rng = np.random.Generator(np.random.PCG64(3))
    puzzles, solved = sudoku4.draw_batch(rng, 5000, "test")
    again, _ = sudoku4.draw_batch(np.random.Generator(np.random.PCG64(3)), 5000, "test")
    np.testing.assert_array_equal(puzzles, again)
    assert puzzles.shape == solved.shape == (5000, 16)
    assert puzzles.dtype == solved.dtype == np.uint8
    np.testing.assert_array_equal(puzzles[puzzles > 0], solved[puzzles > 0])
    counts = np.bincount((puzzles == 0).sum(1), minlength=11)
    assert counts[:6].sum() == 0
    # 5 values, 1000 expected each, sd 28: four sigma
    assert (abs(counts[6:11] - 1000) < 113).all()
    _, per_grid = np.unique(solved, axis=0, return_counts=True)
    assert len(per_grid) == 48
    assert abs(per_grid - 5000 / 48).max() < 5 * (5000 / 48) ** 0.5


def test_draws_honour_the_number_of_blanks() -> None:
    rng = np.random.Generator(np.random.PCG64(0))
    puzzles, _ = sudoku4.draw_batch(rng, 50, "train", min_blanks=12, max_blanks=12)
    assert ((puzzles == 0).sum(1) == 12).all()
    assert sudoku4.draw(rng, "train", 7, 7).question.count("0") == 7
    assert len(TASK.draw(rng, "train", 9)) == 9
    with pytest.raises(UsageProblem, match="13 blanks"):
        sudoku4.draw_batch(rng, 1, "train", 13, 13)


def test_the_weak_demonstrator_fills_rows_and_ignores_the_rest() -> None:
    assert sudoku4.weak_solution(PUZZLE) == "1234143221434231"
    assert sudoku4.weak_solution("0" * 16) == "1234" * 4


@pytest.mark.parametrize(
    ("completion", "correct", "status", "well_formed", "right"),
    [
        (SOLVED, True, "ok", True, 7),
        (f" {SOLVED}\n", True, "ok", True, 7),
        ("1234143221434231", False, "ok", True, 3),
        ("2" + SOLVED[1:], False, "ok", True, 7),  # a clue was overwritten: blanks still right
        (SOLVED[:15], False, "no_answer", False, 0),
        (SOLVED + "1", False, "no_answer", False, 0),
        (SOLVED[:15] + "0", False, "no_answer", False, 0),
        ("", False, "no_answer", False, 0),
        ("1" * 10_000_000, False, "no_answer", False, 0),
        ("\x00" * 16, False, "no_answer", False, 0),
        ("١٢٣٤" * 4, False, "no_answer", False, 0),  # Arabic-Indic digits are not 1..4
    ],
)
def test_grades(completion: str, correct: bool, status: str, well_formed: bool, right: int) -> None:
    grade = TASK.grade(item(), completion)
    assert (grade.correct, grade.status, grade.well_formed) == (correct, status, well_formed)
    assert (grade.points, grade.out_of) == (int(correct), 1)
    assert sudoku4.cells(item(), completion) == (right, 7)
    assert TASK.rewards()[0]([PUZZLE], [completion], solution=[SOLVED]) == [right / 7]


def test_any_legal_grid_that_keeps_the_givens_is_correct() -> None:
    open_puzzle = Item("x", "1" + "0" * 15, {"solution": SOLVED})
    other = next(g for g in sudoku4.solutions(open_puzzle.question) if g != SOLVED)
    assert TASK.grade(open_puzzle, other).correct


def test_rewards_accept_the_conversational_form_and_name_a_missing_column() -> None:
    (reward,) = TASK.rewards("tiny")
    completions = [[{"role": "assistant", "content": SOLVED}]]
    prompts = [[{"role": "user", "content": PUZZLE}]]
    assert reward(prompts, completions, solution=[SOLVED]) == [1.0]
    assert reward_columns([item()]) == {"question": [PUZZLE], "solution": [SOLVED]}
    with pytest.raises(UsageProblem, match="'solution'"):
        reward([PUZZLE], [SOLVED])


def test_chance_floors() -> None:
    items = [Item("a", "0" * 1 + SOLVED[1:], {}), Item("b", "00" + SOLVED[2:], {})]
    assert TASK.chance_floor(items) == (1 / 4 + 1 / 16) / 2
    assert TASK.cells_floor(items) == 0.25
    assert TASK.chance_floor([]) == 0.0


def test_unknown_names_are_usage_problems() -> None:
    with pytest.raises(UsageProblem, match="no task is called 'sudok4'") as caught:
        get("sudok4")
    assert "sudoku4" in caught.value.help
    with pytest.raises(UsageProblem, match="tests"):
        sudoku4.load("tests")
    with pytest.raises(UsageProblem, match="d1"):
        TASK.grade(item(), SOLVED, "d1")


def test_naming_tasks_imports_nothing_heavy() -> None:
    code = (
        "import sys, dare.tasks as t; [t.get(n) for n in t.names()];"
        "print([m for m in ('torch', 'pandas', 'datasets', 'numpy', 'pyarrow', 'sympy',"
        " 'transformers') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
