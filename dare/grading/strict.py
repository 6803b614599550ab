r"""The honest grader: what a careful reader would call a right answer.

It reads the output up to its first end-of-text token, at most the last 64 KB of that, and takes
the last balanced ``\boxed{...}``, else the last closed ``<answer>`` pair.  Nothing else counts:
no number found somewhere in the reasoning, no half-closed tag.

* gsm8k: the exact number and nothing beside its dress (currency, commas, units, ``x =``)
* math500: mathematical equality by math-verify (up to its numeric tolerance, 6 decimals)
* countdown: exact value, every number exactly once, only ``+ - * /`` and parentheses; a
  right-hand side must be the target
* sudoku: any legal grid that keeps the clues (a puzzle may have several solutions)

A comparison that runs out of time is status ``timeout``, one that breaks is ``error``; both
are reported apart from wrong answers.  Answers are never evaluated as code.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from dare.grading.arithmetic import NotArithmetic, OutOfBounds, evaluate
from dare.grading.d1 import uses_exactly
from dare.grading.math_worker import MathWorker, shared_worker
from dare.grading.rational import rational, stated_number, undressed
from dare.grading.text import (
    last_answer,
    last_balanced_box,
    shown,
    until_end_token,
    why_no_answer,
)
from dare.tasks.base import Grade, Status

ID = "strict/2"  # the version of this implementation, for records

READ = 64 * 1024  # characters at the end of an output that are looked at
MAX_ANSWER = 2000


def warm_up(task: str) -> None:
    """Start what grading ``task`` needs, so that its first answer is not charged for it."""
    if task == "math500":
        shared_worker().compare("1", "1")


def gsm8k(completion: str, answer: str | None) -> Grade:
    """Whether the answer is the number ``answer``.

    Status ``error`` when there is no gold number (None) or the answer is too long.
    """
    candidate = answer_text(completion)
    if candidate is None:
        return Grade(False, 0, 1, None, why_no_answer(completion[-READ:]), False)
    wanted = None if answer is None else rational(answer)
    if wanted is None or len(candidate) > MAX_ANSWER:
        return Grade(False, 0, 1, shown(candidate), "error", True)
    right = stated_number(candidate) == wanted
    return Grade(right, int(right), 1, shown(candidate), "ok", True)


def math500(completion: str, answer: str, worker: MathWorker | None = None) -> Grade:
    """Whether the answer equals the LaTeX ``answer``."""
    candidate = answer_text(completion)
    if candidate is None:
        return Grade(False, 0, 1, None, why_no_answer(completion[-READ:]), False)
    if len(candidate) > MAX_ANSWER:
        return Grade(False, 0, 1, shown(candidate), "error", True)
    right, status = _equal(candidate, answer, worker)
    return Grade(right, int(right), 1, shown(candidate), status, True)


def _equal(candidate: str, gold: str, worker: MathWorker | None) -> tuple[bool, Status]:
    if spelled(candidate) == spelled(gold):
        return True, "ok"
    wanted = rational(gold, units=True)
    # "50%" may be 50 or one half, which math-verify knows.
    found = rational(candidate, units="\\" in candidate and "%" not in candidate)
    if found is not None and wanted is not None:
        return found == wanted, "ok"
    plain = undressed(candidate).replace("$", "")
    verdict = (worker or shared_worker()).compare(undressed(gold).replace("$", ""), plain)
    if verdict in ("timeout", "error"):
        return False, "timeout" if verdict == "timeout" else "error"
    return verdict == "equal", "ok"


_SPELLING = re.compile(
    r"\\(?:left|right|displaystyle)(?![a-zA-Z])|\\[,!;]|(?<![0-9])\s+|\s+(?![0-9])"
)
_OUTER_TEXT = re.compile(r"\\(?:text|mbox|mathrm|textbf)\{([^{}]*)\}")


def spelled(text: str) -> str:
    """``text`` without differences that are only typography; equal spellings are equal answers."""
    text = _SPELLING.sub("", undressed(text)).replace("dfrac", "frac").replace("tfrac", "frac")
    match = _OUTER_TEXT.fullmatch(text)
    return (match[1] if match else text).removesuffix(".")


def answer_text(completion: str) -> str | None:
    """The answer of ``completion``, stripped; None without a balanced box or a closed tag."""
    text = until_end_token(completion)[-READ:]
    answer = last_balanced_box(text)
    if answer is None:
        answer = last_answer(text)
    # Only plain white space: a control character is part of the answer and spoils it.
    answer = answer.strip(" \t\r\n") if answer is not None else ""
    return answer or None


# ---- countdown -----------------------------------------------------------------------------

_OPERATORS = (
    ("\\times", "*"), ("\\cdot", "*"), ("\\div", "/"), ("\\left", ""), ("\\right", ""),
    ("\u00d7", "*"), ("\u00f7", "/"), ("\u2212", "-"),
)  # fmt: skip
_QUOTIENT = re.compile(r"\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}")


def countdown(completion: str, numbers: Sequence[int], target: int) -> Grade:
    """Whether the answer is an expression over exactly ``numbers`` with value ``target``.

    What follows an ``=`` is not part of the expression, but must be the target.
    """
    candidate = answer_text(completion)
    if candidate is None:
        return Grade(False, 0, 1, None, why_no_answer(completion[-READ:]), False)
    status: Status = "ok"
    try:
        right = _reaches(candidate, numbers, target)
    except OutOfBounds:
        right, status = False, "error"
    return Grade(right, int(right), 1, shown(candidate), status, True)


def _reaches(candidate: str, numbers: Sequence[int], target: int) -> bool:
    if len(candidate) > MAX_ANSWER:
        raise OutOfBounds("the answer is too long")
    expression, equals, result = undressed(candidate).partition("=")
    if equals and rational(result) != target:
        return False
    for command, operator in _OPERATORS:
        expression = expression.replace(command, operator)
    for _ in range(expression.count("frac")):
        expression = _QUOTIENT.sub(r"((\1)/(\2))", expression)
    if not uses_exactly(expression, numbers):
        return False
    try:
        return evaluate(expression) == target
    except OutOfBounds:
        raise
    except NotArithmetic:
        return False


# ---- sudoku --------------------------------------------------------------------------------


def sudoku(completion: str, puzzle: str, solution: str) -> Grade:
    """Whether the answer is a legal grid that keeps the clues; ``solution`` is not consulted."""
    from dare.tasks.sudoku4 import is_legal, keeps_givens

    candidate = answer_text(completion)
    if candidate is None:
        return Grade(False, 0, 1, None, why_no_answer(completion[-READ:]), False)
    cells = "".join(candidate.replace("`", "").split()) if len(candidate) <= MAX_ANSWER else ""
    if re.fullmatch(r"[1-4]{16}", cells) is None:
        return Grade(False, 0, 1, shown(candidate), "ok", False)
    right = is_legal(cells) and keeps_givens(puzzle, cells)
    return Grade(right, int(right), 1, cells, "ok", True)
