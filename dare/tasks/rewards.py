r"""d1's training rewards (arXiv 2504.12216; code dllm-reasoning/d1, commit 837888f).

They follow TRL's protocol and see the whole decoded completion, text after the first end token
included.  Training maximises their plain sum; none of them is ever reported as accuracy.
Where the paper and its code differ, this is the code, which gave the published numbers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from dare.grading import d1, latex
from dare.grading.arithmetic import OutOfBounds
from dare.grading.text import MAX_OUTPUT, OPEN, last_answer
from dare.tasks.columns import column, completion_text

Rewards = list[float | None]

_SHAPE_LIMIT = 16_384  # characters a format pattern looks at: its run time is quadratic


def _texts(completions: Sequence[Any]) -> list[str]:
    return [completion_text(completion)[:MAX_OUTPUT] for completion in completions]


# ---- gsm8k ---------------------------------------------------------------------------------


def _length_after(text: str, literal: str) -> int:
    """Characters after the last ``literal``; of the whole text where it is absent."""
    return len(text) - (text.rfind(literal) + len(literal) if literal in text else 0)


def _xml_count(text: str, charged_from: str) -> float:
    score = 0.125 * (text.count("<reasoning>\n") == 1)
    score += 0.125 * (text.count("\n</reasoning>\n") == 1)
    if text.count("\n<answer>\n") == 1:
        score += 0.125 - 0.001 * _length_after(text, charged_from)
    if text.count("\n</answer>") == 1:
        score += 0.125 - 0.001 * (_length_after(text, "\n</answer>") - 1)
    return score


def xml_count(prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> Rewards:
    """0.125 for each tag that stands once on its own line, less 0.001 per trailing character."""
    return [_xml_count(text, "\n</answer>\n") for text in _texts(completions)]


def xml_count_spg(prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> Rewards:
    """SPG's variant (facebookresearch/SPG @ a1c7120): the answer text itself is charged too."""
    return [_xml_count(text, "\n<answer>\n") for text in _texts(completions)]


# ``.`` crosses no line end in either pattern, so the two exclude each other.
_SOFT = re.compile(r"<reasoning>.*?</reasoning>\s*<answer>.*?</answer>")
_STRICT = re.compile(r"<reasoning>\n.*?\n</reasoning>\n<answer>\n.*?\n</answer>\n$")


def soft_format(prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> Rewards:
    """0.5 when one-line reasoning and answer blocks open the text."""
    return [0.5 * bool(_SOFT.match(text[:_SHAPE_LIMIT])) for text in _texts(completions)]


def strict_format(prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> Rewards:
    """0.5 when the text is the two blocks with every tag on a line of its own."""
    return [
        0.5 * (len(text) <= _SHAPE_LIMIT and bool(_STRICT.match(text)))
        for text in _texts(completions)
    ]


def tagged_text(text: str) -> str:
    """What follows the last ``<answer>`` up to ``</answer>``; without tags, the whole text."""
    return text.rpartition(OPEN)[2].partition("</answer>")[0].strip()


def integer(prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> Rewards:
    """0.5 when the answer is digits only."""
    return [0.5 * tagged_text(text).isdigit() for text in _texts(completions)]


def gsm8k_correct(prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> Rewards:
    """2.0 when the answer is the gold string exactly.  Column: ``answer``."""
    golds = column(columns, "answer", len(completions))
    pairs = zip(_texts(completions), golds, strict=True)
    return [2.0 * (tagged_text(text) == gold) for text, gold in pairs]


GSM8K = (xml_count, soft_format, strict_format, integer, gsm8k_correct)
GSM8K_SPG = (xml_count_spg, soft_format, strict_format, integer, gsm8k_correct)


# ---- math500 -------------------------------------------------------------------------------


def math_correct(prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> Rewards:
    """2.0 when the last box (without any box: the whole text) equals the gold after clean-up.

    Column: ``answer``.
    """
    golds = column(columns, "answer", len(completions))
    scores: Rewards = []
    for text, gold in zip(_texts(completions), golds, strict=True):
        candidate = latex.last_box(text)
        right = candidate is not None and latex.equal_after_clean_up(candidate, gold)
        scores.append(2.0 * right)
    return scores


def boxed_format(prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> Rewards:
    r"""0.75 with an opening answer tag, else 0.25, as the code does it.

    The paper describes 1.0 / 0.75 / 0.5 / 0.25 by tag and box.  The code searches a box by a
    literal with an unescaped backspace, which no text contains, so a box never counts.
    """
    return [0.75 if OPEN in text else 0.25 for text in _texts(completions)]


MATH500 = (math_correct, boxed_format)


# ---- countdown -----------------------------------------------------------------------------


def countdown(prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> Rewards:
    """1.0 for a right expression in the last answer pair, 0.1 for any other, 0 without a pair.

    Columns: ``numbers``, ``target``.
    """
    numbers = column(columns, "numbers", len(completions))
    targets = column(columns, "target", len(completions))
    rows = zip(_texts(completions), numbers, targets, strict=True)
    return [_countdown(*row) for row in rows]


def _countdown(text: str, numbers: Sequence[int], target: int) -> float:
    answer = last_answer(text)
    if answer is None:
        return 0.0
    try:
        return 1.0 if d1.reaches(answer.strip(), numbers, target) else 0.1
    except OutOfBounds:
        return 0.1


COUNTDOWN = (countdown,)


# ---- sudoku --------------------------------------------------------------------------------


def sudoku(prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> Rewards:
    """The share of empty cells that the digits of the last answer pair fill correctly.

    Columns: ``puzzle``, ``solution``.  Digits are padded with 0 or cut to 16.
    """
    puzzles = column(columns, "puzzle", len(completions))
    solutions = column(columns, "solution", len(completions))
    rows = zip(_texts(completions), puzzles, solutions, strict=True)
    return [_sudoku(*row) for row in rows]


def _sudoku(text: str, puzzle: str, solution: str) -> float:
    digits = "".join(filter(str.isdigit, last_answer(text) or ""))
    empty = [cell for cell, clue in enumerate(puzzle) if clue == "0"]
    if not digits or not empty:
        return 0.0
    filled = digits.ljust(d1.CELLS, "0")
    return sum(filled[cell] == solution[cell] for cell in empty) / len(empty)


SUDOKU = (sudoku,)
