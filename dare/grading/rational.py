r"""Reading a plain number out of an answer: exact, cheap, and without a parser of LaTeX.

rational("$1,234.50")      Fraction(2469, 2)
rational("\\frac{3}{4}")   Fraction(3, 4)
rational("18 dollars")     None; rational("18 dollars", units=True) is 18
stated_number("x = 18 dollars")    Fraction(18, 1)
"""

from __future__ import annotations

import re
from fractions import Fraction

MAX_DIGITS = 400

_NUMBER = re.compile(
    r"\$?(?P<sign>[-+]?)\s*\$?\s*(?P<whole>[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)?(?P<part>\.[0-9]+)?\.?"
)
_FRACTION = re.compile(
    r"(?P<sign>[-+]?)\s*(?:\\[dt]?frac\s*\{\s*(?P<a>[-+]?[0-9]+)\s*\}\s*\{\s*(?P<b>[0-9]+)\s*\}"
    r"|(?P<c>[0-9]+)\s*/\s*(?P<d>[0-9]+))\.?"
)
_DRESSING = (
    ("\\$", "$"), ("{,}", ","), ("\\,", ""), ("\\!", ""), ("\\;", ""), ("\\ ", " "), ("~", " "),
    ("\\(", ""), ("\\)", ""), ("\\[", ""), ("\\]", ""), ("\u2212", "-"),
)  # fmt: skip
_INSIDE = (
    ("\\$", "$"), ("£", "$"), ("€", "$"), ("{,}", ","), ("\\,", ""), ("\\!", ""), ("\\;", ""),
    ("\\ ", " "), ("~", " "), ("\u2212", "-"),
)  # fmt: skip
# A word after a number is its unit, unless it changes the value.
_UNIT = re.compile(r"\s*(?:\\(?:text|mbox|mathrm)\s*\{[^{}]*\}|\\?%|\^?\{?\\circ\}?|°)\s*\.?$")
_WORDS = re.compile(r"\s+(?P<words>[A-Za-z][A-Za-z ./²³-]*[A-Za-z²³.])$")
_NOT_UNITS = frozenset(
    re.findall(
        r"\w+",
        """pi e sqrt sin cos tan log ln exp mod times over plus minus divided
        million millions billion billions trillion thousand thousands hundred hundreds
        dozen dozens half third quarter""",
    )
)
# Behind a number these make another statement of it.
_NOT_STATED = _NOT_UNITS | frozenset(
    re.findall(
        r"\w+",
        """not no non never nor neither none without except isnt wrong incorrect false untrue
        or and if i k""",
    )
)
_WRAPPED = re.compile(
    r"\$(.+)\$|\\\((.+)\\\)|\\\[(.+)\\\]|\\(?:text|mbox|mathrm|mathbf|textbf) ?\{([^{}]*)\}"
    r"|\\?(?:boxed|fbox) ?\{([^{}]*)\}?"
)
_STATED = re.compile(
    r"(?:[A-Za-z] ?= ?)?(?P<value>[^=]*?[0-9}])"
    r"(?: ?\\(?:text|mbox|mathrm) ?\{(?P<text>[^{}]*)\}| (?P<words>[A-Za-z ]+))?\.?"
)
_UNIT_WORDS = re.compile(r" ?[A-Za-z]+(?: [A-Za-z]+){0,4}\.? ?")


def undressed(text: str) -> str:
    """``text`` without math delimiters, thin spaces and outer white space."""
    for old, new in _DRESSING:
        text = text.replace(old, new)
    text = text.strip()
    while len(text) > 1 and text[0] == text[-1] == "$":
        text = text[1:-1].strip()
    return text


def rational(text: str, *, units: bool = False) -> Fraction | None:
    """The number that ``text`` is, or None.

    Understands signs, a dollar sign, thousands commas, decimals, a final full stop, ``a/b`` and
    ``\\frac{a}{b}``.  ``units=True`` also drops a unit behind it: ``\\text{...}``, a percent or
    degree sign, words ("18 dollars"), but not a word that changes the value ("2 million").
    """
    body = undressed(text)
    if len(body) > MAX_DIGITS:
        return None
    value = _value(body)
    if value is None and units:
        value = _value(_without_unit(body))
    return value


def _value(body: str) -> Fraction | None:
    match = _NUMBER.fullmatch(body)
    if match and (match["whole"] or match["part"]):
        digits = (match["whole"] or "0").replace(",", "") + (match["part"] or "")
        return -Fraction(digits) if match["sign"] == "-" else Fraction(digits)
    match = _FRACTION.fullmatch(body)
    if match is None:
        return None
    top, bottom = int(match["a"] or match["c"]), int(match["b"] or match["d"])
    if bottom == 0:
        return None
    return Fraction(-top if match["sign"] == "-" else top, bottom)


def _without_unit(body: str) -> str:
    body = _UNIT.sub("", body)
    words = _WORDS.search(body)
    if words and not _NOT_UNITS & set(re.split(r"[^a-z]+", words["words"].lower())):
        body = body[: words.start()]
    return body


_PERCENT = re.compile(r" ?\\?%$")


def stated_number(text: str) -> Fraction | None:
    """The number that ``text`` states as a final answer, or None.

    All of ``text`` must be: a name of one letter and ``=`` (may be left out), a number as in
    :func:`rational`, and a percent sign or up to five words of a unit.  A relation, a negation,
    ``!``, a tag, a control character or a second number is no dress of a number.
    """
    body = re.sub(r"[ \t\r\n\u00a0]+", " ", text).strip(" ")
    if len(body) > MAX_DIGITS or not body.isprintable():
        return None
    while match := _WRAPPED.fullmatch(body):
        body = next(group for group in match.groups() if group is not None).strip(" ")
    for old, new in _INSIDE:
        body = body.replace(old, new)
    # A question that asks for a percentage has its bare number as gold.
    match = _STATED.fullmatch(_PERCENT.sub("", body).strip(" "))
    if match is None:
        return None
    unit = match["text"] if match["text"] is not None else match["words"]
    if unit is not None and not _is_unit(unit):
        return None
    return _value(match["value"])


def _is_unit(text: str) -> bool:
    words = re.findall(r"[a-z]+", text.lower())
    return _UNIT_WORDS.fullmatch(text) is not None and _NOT_STATED.isdisjoint(words)
