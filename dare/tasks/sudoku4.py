"""4x4 Sudoku, generated here: the embedded task of the tiny scale.

    from dare.tasks import sudoku4
    item = sudoku4.load("test")[0]          # item.question "4320004330100004", 0 = blank
    sudoku4.TASK.grade(item, "4321124334122134", "tiny")

A puzzle is 16 digits, row by row, ``0`` for a blank; the completion is the whole solved grid,
clues included.  Every puzzle has 6 to 10 blanks and exactly one solution.

There are only 288 valid grids, so splitting random puzzles would put every test solution into
training.  The grids themselves are split: 216 train, 24 validation, 48 test.  The reward is
d1's (share of the blank cells filled correctly, arXiv 2504.12216); the metric is not.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dare._lazy import lazy
from dare.diffusion.keys import RunKey
from dare.errors import UsageProblem, unknown_name
from dare.tasks.base import Grade, Item, RewardFunction, Split
from dare.tasks.columns import column, completion_text
from dare.tasks.tables import BadRow

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
else:
    np = lazy("numpy")

CELLS = 16
MIN_BLANKS, MAX_BLANKS = 6, 10
SPLIT_GRIDS = {"train": 216, "validation": 24, "test": 48}
SET_SIZE = 1000
PIN = 20250416  # decides the split of the grids and the fixed sets; changing it is a new task

_SPLIT_STEP = {"train": 0, "validation": 1, "test": 2}


@functools.cache
def all_grids() -> tuple[str, ...]:
    """The 288 valid grids in lexical order."""
    rows = ["".join(row) for row in itertools.permutations("1234")]
    bands = [(a, b) for a in rows for b in rows if len({*a[:2], *b[:2]}) == 4]
    found = []
    for (a, b), (c, d) in itertools.product(bands, repeat=2):
        if all(len({*column}) == 4 for column in zip(a, b, c, d, strict=True)):
            found.append(a + b + c + d)
    return tuple(sorted(found))


@functools.cache
def grids(split: str) -> tuple[str, ...]:
    """The solution grids of ``split`` ("train", "validation", "test"); no grid is in two.

    The order is by BLAKE2b of the pin and the grid, the same with every numpy version.
    """
    if split not in SPLIT_GRIDS:
        raise unknown_name("split of sudoku4", split, SPLIT_GRIDS, "dare show sudoku4")
    shuffled = sorted(all_grids(), key=_pinned_order)
    start = 0
    for name, count in SPLIT_GRIDS.items():
        if name == split:
            return tuple(shuffled[start : start + count])
        start += count
    raise AssertionError("unreachable")


def _pinned_order(grid: str) -> bytes:
    return hashlib.blake2b(f"sudoku4|{PIN}|{grid}".encode(), digest_size=16).digest()


def is_legal(grid: str) -> bool:
    """Whether ``grid`` is one of the 288 valid grids."""
    return grid in _grid_set()


@functools.cache
def _grid_set() -> frozenset[str]:
    return frozenset(all_grids())


def keeps_givens(puzzle: str, grid: str) -> bool:
    """Whether the 16 characters of ``grid`` repeat every clue of ``puzzle``."""
    return len(grid) == CELLS and all(
        clue in ("0", cell) for clue, cell in zip(puzzle, grid, strict=True)
    )


def solutions(puzzle: str) -> tuple[str, ...]:
    """Every valid grid that keeps the clues of ``puzzle``."""
    return tuple(grid for grid in all_grids() if keeps_givens(puzzle, grid))


# ---- drawing -------------------------------------------------------------------------------


def _bits(cells: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """(n, 16) digits 0..4 as 64-bit sets of (cell, digit) pairs, (n,); a blank adds nothing."""
    one = np.uint64(1)
    place = np.arange(CELLS, dtype=np.uint64) * np.uint64(4)
    digit = np.maximum(cells, 1).astype(np.uint64) - one
    pairs = np.where(cells > 0, one << (place + digit), np.uint64(0))
    return np.bitwise_or.reduce(pairs, axis=1)


@functools.cache
def _array(split: str | None) -> NDArray[np.uint8]:
    """The grids of ``split`` (None: all) as (n, 16) digits; read-only."""
    text = "".join(all_grids() if split is None else grids(split))
    cells = np.frombuffer(text.encode(), dtype=np.uint8).reshape(-1, CELLS) - np.uint8(48)
    cells.setflags(write=False)
    return cells


def _unique(puzzles: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """(n,) whether exactly one of the 288 grids keeps the clues of each puzzle."""
    clues = _bits(puzzles)[:, None]
    return ((clues & _bits(_array(None))[None, :]) == clues).sum(1) == 1


def draw_batch(
    rng: np.random.Generator,
    n: int,
    split: str = "train",
    min_blanks: int = MIN_BLANKS,
    max_blanks: int = MAX_BLANKS,
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """``n`` puzzles and their solutions, both (n, 16) uint8, digits 0..4.

    Grid and number of blanks are uniform and independent: where the blank cells leave a second
    solution, only the cells are drawn again.  Uses ``rng.random`` alone, whose stream does not
    depend on the numpy version.
    """
    if not 1 <= min_blanks <= max_blanks <= 12:
        raise UsageProblem(
            f"a puzzle cannot have {min_blanks} to {max_blanks} blanks",
            "1 to 12 are possible: with fewer than 4 clues no puzzle has one solution",
            "min_blanks=6, max_blanks=10 is the task's own range",
        )
    pool = _array(split)
    solved = pool[_below(rng, n, len(pool))]
    blanks = min_blanks + _below(rng, n, max_blanks - min_blanks + 1)
    puzzles = np.zeros_like(solved)
    pending = np.arange(n)
    while len(pending):
        rank = rng.random((len(pending), CELLS)).argsort(1, kind="stable").argsort(1)
        tried = np.where(rank < blanks[pending, None], np.uint8(0), solved[pending])
        unique = _unique(tried)
        puzzles[pending[unique]] = tried[unique]
        pending = pending[~unique]
    return puzzles, solved


def _below(rng: np.random.Generator, n: int, bound: int) -> NDArray[np.int64]:
    """``n`` uniform integers in [0, bound)."""
    return (rng.random(n) * bound).astype(np.int64)


def draw(
    rng: np.random.Generator,
    split: str = "train",
    min_blanks: int = MIN_BLANKS,
    max_blanks: int = MAX_BLANKS,
) -> Item:
    """One puzzle, drawn as in :func:`draw_batch`."""
    puzzles, solved = draw_batch(rng, 1, split, min_blanks, max_blanks)
    return _item(_text(puzzles[0]), _text(solved[0]))


def _text(cells: NDArray[np.uint8]) -> str:
    return "".join(map(str, cells.tolist()))


def _item(puzzle: str, solution: str) -> Item:
    return Item(
        id=f"sudoku4/{puzzle}",
        question=puzzle,
        gold={"solution": solution},
        meta={"blanks": puzzle.count("0")},
    )


@functools.cache
def _fixed_set(split: str) -> tuple[Item, ...]:
    """The 1000 distinct puzzles of ``split``, the same on every machine."""
    if split not in SPLIT_GRIDS:
        raise unknown_name("split of sudoku4", split, SPLIT_GRIDS, "dare show sudoku4")
    rng = RunKey(PIN).at("data", step=_SPLIT_STEP[split]).numpy()
    found: dict[str, Item] = {}
    while len(found) < SET_SIZE:
        for puzzle, solved in zip(*draw_batch(rng, SET_SIZE, split), strict=True):
            item = _item(_text(puzzle), _text(solved))
            found.setdefault(item.id, item)
    return tuple(itertools.islice(found.values(), SET_SIZE))


def load(split: str, limit: int | None = SET_SIZE) -> list[Item]:
    """The first ``limit`` of the 1000 fixed puzzles of ``split`` (None: all of them)."""
    if limit is not None and not 1 <= limit <= SET_SIZE:
        raise UsageProblem(
            f"sudoku4 has no fixed set of {limit} puzzles",
            f"each split has {SET_SIZE}",
            "draw more with dare.tasks.sudoku4.draw_batch",
        )
    return list(_fixed_set(split)[:limit])


def weak_solution(puzzle: str) -> str:
    """What the weak demonstrator answers: each row's missing digits, ascending.

    It ignores columns and boxes and solves few puzzles; it is used in pre-training only, to
    give the embedded base model a weak mode beside its strong one.
    """
    filled: list[str] = []
    for start in range(0, CELLS, 4):
        row = puzzle[start : start + 4]
        missing = iter(sorted(set("1234") - set(row)))
        filled.extend(next(missing) if cell == "0" else cell for cell in row)
    return "".join(filled)


# ---- grading -------------------------------------------------------------------------------


def answer_of(completion: str) -> str | None:
    """The 16 digits in 1..4 that ``completion`` consists of, or None."""
    text = completion.strip() if len(completion) <= 4 * CELLS else ""
    return text if len(text) == CELLS and set(text) <= set("1234") else None


def cells(item: Item, completion: str) -> tuple[int, int]:
    """(blank cells equal to the solution, blank cells); a malformed completion has none right."""
    blanks = item.question.count("0")
    answer = answer_of(completion)
    return (0 if answer is None else _right(item.question, answer, item.gold["solution"])), blanks


def _right(puzzle: str, answer: str, solution: str) -> int:
    triples = zip(puzzle, answer, solution, strict=True)
    return sum(clue == "0" and given == wanted for clue, given, wanted in triples)


def blank_share(
    prompts: Sequence[Any], completions: Sequence[Any], **columns: Any
) -> list[float | None]:
    """d1's Sudoku reward: the share of blank cells filled correctly, 0 when malformed.

    Columns: ``solution``; the puzzle is ``question`` if that column is there, else the prompt.
    """
    puzzles = column(columns, "question", len(completions), default=prompts)
    solved = column(columns, "solution", len(completions))
    scores: list[float | None] = []
    for puzzle, solution, completion in zip(puzzles, solved, completions, strict=True):
        answer = answer_of(completion_text(completion))
        puzzle = completion_text(puzzle)
        right = 0 if answer is None else _right(puzzle, answer, solution)
        scores.append(right / puzzle.count("0"))
    return scores


class Sudoku4:
    """The embedded 4x4 Sudoku.  Protocol ``tiny``; metric: legal grids that keep the clues."""

    name = "sudoku4"
    protocols: tuple[str, ...] = ("tiny",)
    metric = "accuracy"

    def split(self, split: str) -> Split:
        """What the split is made of."""
        revision = hashlib.sha256("".join(grids(split)).encode()).hexdigest()
        return Split(split, "generated by dare.tasks.sudoku4", revision, "Apache-2.0")

    def load(self, split: str, limit: int | None = None) -> list[Item]:
        return load(split, limit)

    def draw(self, rng: np.random.Generator, split: str, count: int) -> list[Item]:
        """``count`` fresh puzzles of ``split``: training never repeats a fixed set."""
        pairs = zip(*draw_batch(rng, count, split), strict=True)
        return [_item(_text(puzzle), _text(solved)) for puzzle, solved in pairs]

    def scored_item(self, question: str, ground_truth: Any) -> Item:
        """The problem behind a stored generation; ``ground_truth``: the 16 digits of the grid."""
        if not isinstance(ground_truth, str) or not is_legal(ground_truth):
            raise BadRow("the ground truth is not a legal grid of 16 digits")
        if len(question) != CELLS or not keeps_givens(question, ground_truth):
            raise BadRow("the question is not a puzzle of 16 digits with that solution")
        return _item(question, ground_truth)

    def prompt(self, item: Item, protocol: str = "tiny") -> str:
        """The puzzle itself: 16 characters, nothing else."""
        self._check(protocol)
        return item.question

    def grade(self, item: Item, completion: str, protocol: str = "tiny") -> Grade:
        """Right when the completion is a legal grid that keeps every clue."""
        self._check(protocol)
        answer = answer_of(completion)
        if answer is None:
            return Grade(False, 0, 1, None, "no_answer", False)
        right = is_legal(answer) and keeps_givens(item.question, answer)
        return Grade(right, int(right), 1, answer, "ok", True)

    def cells(self, item: Item, completion: str) -> tuple[int, int]:
        """Blank cells right and blank cells, as the module's function of the same name."""
        return cells(item, completion)

    def rewards(self, protocol: str = "tiny") -> Sequence[RewardFunction]:
        self._check(protocol)
        return (blank_share,)

    def chance_floor(self, items: Sequence[Item], protocol: str = "tiny") -> float:
        """Expected accuracy of filling every blank uniformly from 1..4, as a share.

        Exact: a puzzle with b blanks and one solution is solved with probability 4^-b.
        """
        self._check(protocol)
        if not items:
            return 0.0
        return sum(4.0 ** -item.question.count("0") for item in items) / len(items)

    def cells_floor(self, items: Sequence[Item], protocol: str = "tiny") -> float:
        """Expected pooled share of blank cells right under the same guessing: 1/4 exactly."""
        self._check(protocol)
        return 0.25 if items else 0.0

    def _check(self, protocol: str) -> None:
        if protocol not in self.protocols:
            raise unknown_name("protocol of sudoku4", protocol, self.protocols)


TASK = Sudoku4()
