r"""The evaluation protocol of d1 (arXiv 2504.12216), by which its tables were made.

Written from a description of the protocol (code dllm-reasoning/d1, commit 837888f).  It works
on the raw generation, special tokens included, and is lenient and strict in odd places: the
first box counts for gsm8k and the last for math500, a comma splits a number, the whole
generation is compared where there is no box.  Those are the protocol; ``dare.grading.strict``
is the honest reading of the same output.

Countdown expressions were evaluated as Python by the authors.  Here they are computed exactly
by ``dare.grading.arithmetic``, which accepts ``**`` and ``//`` too (complex powers apart); a
value too large to compute, or an output of more than a million characters, is status ``error``.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from fractions import Fraction

from dare.grading import latex
from dare.grading.arithmetic import NotArithmetic, OutOfBounds, evaluate
from dare.grading.text import (
    CLOSE,
    END_TOKENS,
    OPEN,
    first_answer,
    has_boxed_answer,
    last_answer,
    shown,
    too_long,
    why_no_answer,
)
from dare.tasks.base import Grade, Status

ID = "d1/1"  # the version of this implementation, for records

_NUMBER = re.compile(r"-?\d+(?:\.\d*)?")
_DOTS = re.compile(r"\.+")


# ---- gsm8k ---------------------------------------------------------------------------------


def gsm8k(completion: str, answer: str | None) -> Grade:
    """Float equality of the first boxed number (else the first answer tag's) with ``answer``.

    ``answer`` None: the source has no gold for this problem.  The protocol counts that as
    wrong; the status is ``error`` so that it is listed.
    """
    if refusal := too_long(completion):
        return refusal
    found = gsm8k_number(completion)
    if answer is None:
        return Grade(False, 0, 1, shown(found), "error", has_boxed_answer(completion))
    if found is None:
        return Grade(False, 0, 1, None, why_no_answer(completion), has_boxed_answer(completion))
    right = float(found) == float(answer.replace(",", ""))
    return Grade(right, int(right), 1, shown(found), "ok", has_boxed_answer(completion))


def gsm8k_number(completion: str) -> str | None:
    """The number that the protocol reads out of ``completion``, as text."""
    for box in _one_line_boxes(completion):
        content = box.strip()
        if not content or _DOTS.fullmatch(content):
            continue
        if _is_float(content):
            return content
        number = _NUMBER.search(content)
        if number:
            return number[0]
    answer = first_answer(completion)
    return None if answer is None else _number_in_tag(answer)


def _number_in_tag(text: str) -> str | None:
    if _is_float(text.strip()):
        return text.strip()
    last = deque(_NUMBER.finditer(text), maxlen=1)
    return last[0][0] if last else None


def gsm8k_spg(completion: str, answer: str | None) -> Grade:
    """SPG's variant (arXiv 2510.09541; code facebookresearch/SPG, commit a1c7120).

    Where d1 reads no number: what follows the last ``<answer>``, closed or not, as a float,
    else its last number.
    """
    grade = gsm8k(completion, answer)
    _, opened, tagged = completion.rpartition(OPEN)
    if grade.status not in ("no_answer", "truncated") or not opened or answer is None:
        return grade
    found = _number_in_tag(tagged.partition(CLOSE)[0])
    if found is None:
        return grade
    right = float(found) == float(answer.replace(",", ""))
    return Grade(right, int(right), 1, shown(found), "ok", grade.well_formed)


def _one_line_boxes(text: str) -> Iterator[str]:
    r"""What stands between ``\boxed{`` and the first closing brace on the same line."""
    wrapper = "\\boxed{"
    position, close, newline = 0, -1, -1
    while (start := text.find(wrapper, position)) >= 0:
        start += len(wrapper)
        if close < start:
            close = text.find("}", start)
        if close < 0:
            return
        if newline < start:
            newline = text.find("\n", start)
            newline = len(text) if newline < 0 else newline
        if close < newline:
            yield text[start:close]
            position = close + 1
        else:
            position = start


def _is_float(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


# ---- math500 -------------------------------------------------------------------------------


def math500(completion: str, answer: str) -> Grade:
    """Equality of the last box with ``answer`` after the clean-up of ``dare.grading.latex``."""
    if refusal := too_long(completion):
        return refusal
    candidate = latex.last_box(completion)
    boxed = latex.has_box(completion)
    if not candidate:
        tagged = first_answer(completion)
        candidate, boxed = (None, False) if tagged is None else (tagged.strip(), True)
    right = candidate is not None and latex.equal_after_clean_up(candidate, answer)
    return _boxed_grade(completion, candidate, right, "ok" if boxed or right else None)


def _boxed_grade(
    completion: str, candidate: str | None, right: bool, status: Status | None
) -> Grade:
    """``status`` None: only the whole generation was there to compare, and it is wrong."""
    well_formed = has_boxed_answer(completion)
    if status is None or candidate is None:
        return Grade(False, 0, 1, None, why_no_answer(completion), well_formed)
    return Grade(right, int(right), 1, shown(candidate), status, well_formed)


# ---- countdown -----------------------------------------------------------------------------

_RUN = frozenset("0123456789+-*/() ")
_AFTER_EQUALS = frozenset("0123456789. ")
_ALLOWED = re.compile(r"[\d+\-*/().\s]+")
_DIGITS = re.compile(r"\d+")
_TOLERANCE = Fraction(1, 100_000)


def countdown(completion: str, numbers: Sequence[int], target: int) -> Grade:
    """Each number once, allowed characters only, and a value within 1e-5 of ``target``."""
    if refusal := too_long(completion):
        return refusal
    expression, boxed = countdown_expression(completion)
    status: Status | None = "ok" if boxed else None
    try:
        right = reaches(expression, numbers, target)
    except OutOfBounds:
        right, status = False, "error"
    return _boxed_grade(completion, expression, right, "ok" if right else status)


def countdown_expression(completion: str) -> tuple[str, bool]:
    """The expression that the protocol reads, and whether a box or a tag held it.

    The answer tag is consulted for an unbalanced box only; an empty box stays empty.
    """
    candidate, marked = latex.last_box(completion), latex.has_box(completion)
    if candidate is None:
        tagged = first_answer(completion)
        candidate, marked = (completion, False) if tagged is None else (tagged.strip(), True)
    for command, operator in (("\\div", "/"), ("\\times", "*"), ("\\cdot", "*")):
        candidate = candidate.replace(command, operator)
    return _left_of_equals(candidate), marked


def _left_of_equals(text: str) -> str:
    """The first run of expression characters that stands before ``=`` and a digit or space."""
    previous, equals = 0, text.find("=")
    while equals >= 0:
        start = equals
        while start > previous and text[start - 1] in _RUN:
            start -= 1
        if start < equals and text[equals + 1 : equals + 2] in _AFTER_EQUALS:
            return text[start:equals].strip()
        previous, equals = equals + 1, text.find("=", equals + 1)
    return text


def uses_exactly(expression: str, numbers: Sequence[int]) -> bool:
    """Whether the maximal digit runs of ``expression`` are ``numbers`` as a multiset."""
    left = sorted(str(number) for number in numbers)
    for run in _DIGITS.finditer(expression):
        text = run[0].lstrip("0") or "0"
        if text not in left:
            return False
        left.remove(text)
    return not left


def reaches(expression: str, numbers: Sequence[int], target: int) -> bool:
    """d1's test of a Countdown expression.  Raises ``OutOfBounds`` for what nobody can compute."""
    if not uses_exactly(expression, numbers) or not _ALLOWED.fullmatch(expression):
        return False
    try:
        return abs(evaluate(expression, python=True) - target) < _TOLERANCE
    except OutOfBounds:
        raise
    except NotArithmetic:
        return False


# ---- sudoku --------------------------------------------------------------------------------

CELLS = 16
_FENCED = re.compile(r"```([\d\s]+)```")
_BEFORE_CLOSE = re.compile(r"(\d{16})</answer>")
_FREE = re.compile(r"\b(\d{16})\b")


def sudoku(completion: str, puzzle: str, solution: str) -> Grade:
    """Points: cells empty in ``puzzle`` that equal ``solution``; right when all of them do."""
    empty = [cell for cell, clue in enumerate(puzzle) if clue == "0"]
    if refusal := too_long(completion, len(empty)):
        return refusal
    found = sudoku_cells(completion)
    answer = last_answer(completion)
    well_formed = answer is not None and re.fullmatch(r"\s*[1-4]{16}\s*", answer) is not None
    if found is None:
        return Grade(False, 0, len(empty), None, why_no_answer(completion), well_formed)
    right = sum(found[cell] == solution[cell] for cell in empty)
    return Grade(right == len(empty), right, len(empty), found, "ok", well_formed)


def sudoku_cells(completion: str) -> str | None:
    """The 16 characters that the protocol reads, padded with 0 or cut; None without any."""
    for text in _sudoku_candidates(completion):
        if text and text.strip():
            return "".join(text.split()).ljust(CELLS, "0")[:CELLS]
    return None


def _sudoku_candidates(text: str) -> Iterator[str | None]:
    opened, closed = text.find(OPEN), text.find(CLOSE)
    if opened >= 0:
        inside = opened + len(OPEN)
        fenced = _FENCED.search(text, inside)
        yield fenced[1] if fenced else None
        yield _up_to(text, inside, (*END_TOKENS, CLOSE))
    if closed >= 0:
        after = closed + len(CLOSE)
        rest = _up_to(text, after, END_TOKENS)
        yield text[after:] if rest is None else rest
    for pattern in (_BEFORE_CLOSE, _FREE):
        match = pattern.search(text)
        yield match[1] if match else None


def _up_to(text: str, start: int, ends: Sequence[str]) -> str | None:
    places = [place for end in ends if (place := text.find(end, start)) >= 0]
    return text[start : min(places)] if places else None
