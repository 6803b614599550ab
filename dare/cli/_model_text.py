"""Text that a model wrote, made safe to show.

A completion may hold anything: escape sequences that move the cursor or change the title, marks
that reverse the reading order, carriage returns that overwrite a line.  They are shown as
escapes.  Line breaks, tabs and spaces of all widths stay, and so do the joiners that scripts and
emoji need.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Sequence

JOINERS = "\u200c\u200d"
BROKEN = "\ufffd"  # what a tokenizer gives for bytes that are no whole character


def safe(text: str) -> str:
    """``text`` without anything that can drive a terminal."""
    if text.isprintable():
        return text
    return "".join(each if _harmless(each) else _escape(each) for each in text)


def _harmless(character: str) -> bool:
    return (
        character.isprintable()
        or character in "\n\t"
        or character in JOINERS
        or unicodedata.category(character) == "Zs"
    )


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()


def encodable(text: str, encoding: str | None) -> str:
    """``text`` with escapes for what ``encoding`` has no character for."""
    name = encoding or "utf-8"
    return text.encode(name, "backslashreplace").decode(name)


Decode = Callable[[Sequence[int]], str]


def pieces(tokens: Sequence[int], decode: Decode) -> Iterable[tuple[int, str]]:
    """(last index, text) of the shortest runs of ``tokens`` that are whole characters.

    A character may take up to four byte tokens, which say nothing alone.
    """
    start = 0
    for index in range(len(tokens)):
        text = decode(tokens[start : index + 1])
        if BROKEN in text and index - start < 3 and index + 1 < len(tokens):
            continue
        yield index, text
        start = index + 1
