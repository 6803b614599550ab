"""Finding answers in model output: tags, boxes, end tokens.

Every function here runs in time linear in the text, whatever the text is.  (Lazy regular
expressions for the same jobs are quadratic: ten megabytes of ``<answer>`` would hang them.)
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator

from dare.tasks.base import Grade, Status

END_TOKENS = ("<|eot_id|>", "<|endoftext|>")
OPEN, CLOSE = "<answer>", "</answer>"
SHOWN = 2000  # characters of an extracted answer that are kept
MAX_OUTPUT = 2**20  # characters; no generation length in use comes near it

_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
_BRACE_OR_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{|\\[\\{}]|[{}]")


def answer_pairs(text: str) -> Iterator[str]:
    """What stands between each ``<answer>`` and the next ``</answer>``, in order."""
    position = 0
    while (start := text.find(OPEN, position)) >= 0:
        start += len(OPEN)
        end = text.find(CLOSE, start)
        if end < 0:
            return
        yield text[start:end]
        position = end + len(CLOSE)


def first_answer(text: str) -> str | None:
    """The first closed answer pair, or None."""
    return next(answer_pairs(text), None)


def last_answer(text: str) -> str | None:
    """The last closed answer pair, or None."""
    last = deque(answer_pairs(text), maxlen=1)
    return last[0] if last else None


def last_balanced_box(text: str) -> str | None:
    r"""The content of the last ``\boxed{...}`` (or ``\fbox``) whose braces balance.

    Escaped braces (``\{``) do not count.  Of two nested boxes the inner one is the last.
    """
    open_boxes: list[int] = []  # start of the content, or -1 for a plain brace
    found: tuple[int, int] | None = None
    for match in _BRACE_OR_BOX.finditer(text):
        token = match[0]
        if token == "}":
            start = open_boxes.pop() if open_boxes else -1
            if start > (found[0] if found else -1):
                found = start, match.start()
        elif token == "{":
            open_boxes.append(-1)
        elif token[-1] == "{" and len(token) > 2:
            open_boxes.append(match.end())
    return None if found is None else text[slice(*found)]


def has_boxed_answer(text: str) -> bool:
    """Whether the last closed answer pair holds a box: the form that d1's prompts ask for."""
    answer = last_answer(text)
    return answer is not None and _BOX.search(answer) is not None


def until_end_token(text: str) -> str:
    """``text`` up to its first end-of-text token."""
    ends = [place for token in END_TOKENS if (place := text.find(token)) >= 0]
    return text[: min(ends)] if ends else text


def why_no_answer(text: str) -> Status:
    """``truncated`` when the text stops without an end token, else ``no_answer``."""
    ended = not text.strip() or any(token in text for token in END_TOKENS)
    return "no_answer" if ended else "truncated"


def shown(answer: str | None) -> str | None:
    """``answer`` as it is stored: at most 2,000 characters."""
    if answer is None or len(answer) <= SHOWN:
        return answer
    return answer[: SHOWN - 1] + "…"


def too_long(text: str, out_of: int = 1) -> Grade | None:
    """The refusal of an output of more than a million characters, else None."""
    return Grade(False, 0, out_of, None, "error", False) if len(text) > MAX_OUTPUT else None
