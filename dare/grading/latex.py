r"""The string clean-up by which d1 compares two LaTeX answers, and its candidate boxes.

It is the equivalence of the MATH benchmark as d1 uses it: two strings are equal when they are
equal after the same fixed list of rewrites.  It knows no mathematics: ``\frac{2}{4}`` differs
from ``\frac{1}{2}``.  The order of the rewrites matters and is the protocol.
"""

from __future__ import annotations

import re


class CleanUpFails(ValueError):
    """The rewrites do not apply; the protocol then compares the strings as they are."""


def equal_after_clean_up(candidate: str, gold: str) -> bool:
    """d1's equivalence for math500."""
    try:
        return clean_up(candidate) == clean_up(gold)
    except CleanUpFails:
        return candidate == gold


_REWRITES = (
    ("\n", ""),
    ("\\!", ""),
    ("\\\\", "\\"),
    ("tfrac", "frac"),
    ("dfrac", "frac"),
    ("\\left", ""),
    ("\\right", ""),
    ("^{\\circ}", ""),
    ("^\\circ", ""),
    ("\\$", ""),
)


def clean_up(text: str) -> str:
    """``text`` in the protocol's canonical spelling.  Raises ``CleanUpFails``."""
    for old, new in _REWRITES:
        text = text.replace(old, new)
    text = _without_unit(text).replace("\\%", "")
    text = text.replace(" .", " 0.").replace("{.", "{0.")
    if not text:
        return text
    if text[0] == ".":
        text = "0" + text
    before, *rest = text.split("=", 2)
    if len(rest) == 1 and len(before) <= 2:
        text = rest[0]
    text = _braced_roots(text).replace(" ", "")
    text = _braced_fractions(text)
    if text == "0.5":
        return "\\frac{1}{2}"
    return _slash_as_fraction(text)


def _without_unit(text: str) -> str:
    before, *units = text.split("\\text{ ", 2)
    if len(units) > 1:
        raise CleanUpFails("more than one unit")
    return before


def _braced_roots(text: str) -> str:
    first, *rest = text.split("\\sqrt")
    if not all(rest):
        raise CleanUpFails("a root of nothing")
    braced = (part if part[0] == "{" else f"{{{part[0]}}}{part[1:]}" for part in rest)
    return "\\sqrt".join((first, *braced))


def _braced_fractions(text: str) -> str:
    first, *rest = text.split("\\frac")
    parts = [first]
    for part in rest:
        if not part:
            raise CleanUpFails("a fraction of nothing")
        if part[0] == "{":
            parts.append(part)
            continue
        if len(part) < 2:
            return text
        top, bottom = part[0], part[1]
        parts.append(f"{{{top}}}" + (part[1:] if bottom == "{" else f"{{{bottom}}}{part[2:]}"))
    return "\\frac".join(parts)


def _slash_as_fraction(text: str) -> str:
    if text.count("/") != 1:
        return text
    try:
        top, bottom = map(int, text.split("/"))
    except ValueError as error:
        raise CleanUpFails("a quotient of something other than integers") from error
    return f"\\frac{{{top}}}{{{bottom}}}" if text == f"{top}/{bottom}" else text


_BRACE = re.compile(r"[{}]")


def last_box(text: str) -> str | None:
    r"""d1's candidate: the last box of ``text``; without any box, the whole text.

    None when the last box does not close.  Precedence as in the protocol: the form
    ``\boxed `` with a space (then up to ``$``), the last ``\boxed``, the last ``\fbox``.
    """
    _, spaced, after = text.rpartition("\\boxed ")
    if spaced:
        return after.split("$", 1)[0]
    start = text.rfind("\\boxed")
    if start < 0:
        start = text.rfind("\\fbox")
    if start < 0:
        return text
    depth = 0
    for brace in _BRACE.finditer(text, start):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0 and brace[0] == "}":
            box = text[start : brace.end()]
            return box.removeprefix("\\boxed{")[:-1] if box.startswith("\\boxed{") else box
    return None


def has_box(text: str) -> bool:
    r"""Whether ``text`` holds any ``\boxed`` or ``\fbox``."""
    return "\\boxed" in text or "\\fbox" in text
