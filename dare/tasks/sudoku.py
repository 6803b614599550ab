"""4x4 Sudoku as d1 evaluates it: 256 puzzles of its test file, score per empty cell."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from dare.grading import d1, strict
from dare.tasks import protocols, rewards
from dare.tasks.base import Item, RewardFunction
from dare.tasks.benchmark import Benchmark, Grader, text_of
from dare.tasks.protocols import D1_COMMIT, D1_REPO
from dare.tasks.shuffle import legacy_sample, shuffled
from dare.tasks.sources import FileSource, HubSource
from dare.tasks.sudoku4 import is_legal, keeps_givens, solutions
from dare.tasks.tables import BadRow, Row

TEST_SHA256 = "ef86c7c28ebef88484d85fda59b3909a7b621241aa1abf36343437dbc4a3ffb6"
TEST_SIZE, TEST_SEED = 256, 42
TRAIN_SEED, TRAIN_DROPPED = 42, 500

_PUZZLE = re.compile(r"(?<!\d)[0-4]{16}(?!\d)")


class Sudoku(Benchmark):
    """4x4 Sudoku with d1's files.  Canonical columns: Puzzle (16 digits, 0 empty), Solution.

    Some puzzles have several solutions; protocol ``d1`` accepts the listed one only.  Test:
    the 256 rows that d1 draws from its 500.  Train: all rows, shuffled with seed 42, without
    the last 500; its solutions overlap with the test set's, as only 288 grids exist.
    """

    name = "sudoku"
    protocols = ("d1", "strict")
    metric = "cells"
    sources: ClassVar[Mapping[str, HubSource | FileSource]] = {
        "train": FileSource(
            D1_REPO, D1_COMMIT, "dataset/4x4_sudoku_unique_puzzles.csv", None, None, "Apache-2.0"
        ),
        "test": FileSource(
            D1_REPO, D1_COMMIT, "dataset/4x4_test_sudoku.csv", TEST_SHA256, 500, "Apache-2.0"
        ),
    }

    def item(self, row: Row) -> Item:
        return _item(text_of(row, "Puzzle").strip(), text_of(row, "Solution").strip())

    def scored_item(self, question: str, ground_truth: Any) -> Item:
        """``ground_truth``: the 16 digits of the solution; the puzzle stands in the question."""
        puzzle = _PUZZLE.search(question)
        if puzzle is None:
            raise BadRow("the question holds no puzzle of 16 digits in 0..4")
        if not isinstance(ground_truth, str):
            raise BadRow("the ground truth is not a string of 16 digits")
        return _item(puzzle[0], ground_truth)

    def select(self, split: str, items: list[Item]) -> list[Item]:
        if split == "test":
            return legacy_sample(items, TEST_SIZE, TEST_SEED)
        return shuffled(items, TRAIN_SEED)[:-TRAIN_DROPPED]

    def graders(self) -> Mapping[str, Grader]:
        return {
            "d1": lambda item, text: d1.sudoku(text, **item.gold),
            "strict": lambda item, text: strict.sudoku(text, **item.gold),
        }

    def reward_functions(self) -> Mapping[str, Sequence[RewardFunction]]:
        return {"d1": rewards.SUDOKU}

    def chance_floor(self, items: Sequence[Item], protocol: str) -> float:
        """What filling each empty cell uniformly from 1..4 scores, as a share; exact.

        ``d1`` counts cells: 1/4.  ``strict`` counts grids: solutions of the puzzle / 4^empty.
        """
        protocols.get(self.name, protocol)
        if not items:
            return 0.0
        if protocol == "d1":
            return 0.25
        chances = (len(solutions(i.question)) / 4.0 ** i.question.count("0") for i in items)
        return sum(chances) / len(items)


def _item(puzzle: str, solution: str) -> Item:
    if re.fullmatch(r"[0-4]{16}", puzzle) is None or "0" not in puzzle:
        raise BadRow("the puzzle is not 16 digits in 0..4 with an empty cell")
    if not is_legal(solution) or not keeps_givens(puzzle, solution):
        raise BadRow("the solution is not a legal grid that keeps the puzzle's clues")
    return Item(f"sudoku/{puzzle}", puzzle, {"puzzle": puzzle, "solution": solution})


TASK = Sudoku()
