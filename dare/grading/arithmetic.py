"""Exact arithmetic on untrusted text: our own tokenizer and parser, nothing is executed.

    evaluate("55 - 53 + 49")              Fraction(51, 1)
    evaluate("2 ** 0.5", python=True)     the float power, as a fraction
    evaluate("30**100**93", python=True)  raises OutOfBounds at once

The plain language has integers, ``+ - * /`` and parentheses.  ``python=True`` adds what
Python's own evaluation would accept from the same characters: decimals, ``**``, ``//``, its
rules about line ends and leading zeros.
"""

from __future__ import annotations

import re
from fractions import Fraction

MAX_CHARACTERS = 2000
MAX_BITS = 4096  # of a numerator or denominator


class NotArithmetic(ValueError):
    """The text is not an expression, or has no value (a division by zero)."""


class OutOfBounds(NotArithmetic):
    """The text may have a value, but it is too long or its value too large to compute."""


_TOKEN = re.compile(r"[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+|\*\*|//|[-+*/()]")
_UNARY = {"+": "u+", "-": "u-"}
_PRECEDENCE = {"+": 1, "-": 1, "*": 2, "/": 2, "//": 2, "u+": 3, "u-": 3, "**": 4}


def evaluate(text: str, *, python: bool = False) -> Fraction:
    """The exact value of ``text``.  Raises ``NotArithmetic`` or ``OutOfBounds``."""
    values: list[Fraction] = []
    waiting: list[str] = []  # operators and open parentheses
    operand_next = True
    for token in _tokens(text, python):
        if not operand_next:
            operand_next = _after_value(token, values, waiting)
        elif token[0].isdigit() or token[0] == ".":
            values.append(_number(token, python))
            operand_next = False
        elif token == "(" or token in _UNARY:
            waiting.append(_UNARY.get(token, token))
        else:
            raise NotArithmetic(f"'{token}' where a number should stand")
    if operand_next:
        raise NotArithmetic("the expression is not complete")
    _reduce(values, waiting, 0)
    if waiting:
        raise NotArithmetic("unbalanced parentheses")
    return values[0]


def _after_value(token: str, values: list[Fraction], waiting: list[str]) -> bool:
    """Take the token behind a value; whether a value must follow it."""
    if token == ")":
        _reduce(values, waiting, 0)
        if not waiting:
            raise NotArithmetic("unbalanced parentheses")
        waiting.pop()
        return False
    if token not in _PRECEDENCE:
        raise NotArithmetic(f"no operator before '{token[:20]}'")
    # ``**`` groups to the right, so an equal one already waiting stays.
    _reduce(values, waiting, _PRECEDENCE[token] + (token == "**"))
    waiting.append(token)
    return True


def _reduce(values: list[Fraction], waiting: list[str], at_least: int) -> None:
    """Apply waiting operators of this precedence or higher, down to an open parenthesis."""
    while waiting and waiting[-1] != "(" and _PRECEDENCE[waiting[-1]] >= at_least:
        operator = waiting.pop()
        right = values.pop()
        if operator in ("u+", "u-"):
            values.append(right if operator == "u+" else -right)
        else:
            values.append(_bounded(_apply(operator, values.pop(), right)))


def _apply(operator: str, left: Fraction, right: Fraction) -> Fraction:
    if operator == "+":
        return left + right
    if operator == "-":
        return left - right
    if operator == "*":
        return left * right
    if operator == "**":
        return _power(left, right)
    if right == 0:
        raise NotArithmetic("division by zero")
    return left / right if operator == "/" else Fraction(left // right)


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if base == 0 and exponent < 0:
        raise NotArithmetic("division by zero")
    if exponent.denominator != 1:
        if base < 0:
            raise NotArithmetic("a fractional power of a negative number is not real")
        try:
            return Fraction(float(base) ** float(exponent))
        except OverflowError as error:
            raise OutOfBounds("a power is too large") from error
    if base in (0, 1, -1):
        return base ** (exponent.numerator % 2 if base == -1 else min(exponent.numerator, 1))
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    if bits * abs(exponent.numerator) > 2 * MAX_BITS:
        raise OutOfBounds("a power is too large")
    return base**exponent.numerator


def _bounded(value: Fraction) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
        raise OutOfBounds("a value is too large")
    return value


def _number(token: str, python: bool) -> Fraction:
    if python and token.isdigit() and token[0] == "0" and token.strip("0"):
        raise NotArithmetic(f"Python reads no integer with a leading zero: '{token[:20]}'")
    if token == ".":
        raise NotArithmetic("a point without digits")
    return _bounded(Fraction(token.rstrip(".") or "0"))


def _tokens(text: str, python: bool) -> list[str]:
    body = _one_line(text) if python else text.strip()
    if len(body) > MAX_CHARACTERS:
        raise OutOfBounds(f"the expression has {len(body)} characters")
    tokens: list[str] = []
    position, depth = 0, 0
    while position < len(body):
        character = body[position]
        if character in " \t\f" or (character in "\n\r" and (depth or not python)):
            position += 1
            continue
        match = _TOKEN.match(body, position)
        if match is None or (not python and match[0] not in "+-*/()" and not match[0].isdigit()):
            raise NotArithmetic(f"unexpected {character!r}")
        depth += (match[0] == "(") - (match[0] == ")")
        tokens.append(match[0])
        position = match.end()
    return tokens


def _one_line(text: str) -> str:
    """The one logical line that Python would evaluate; an indented one is refused by it."""
    lines = text.lstrip(" \t").rstrip(" \t\n\r\f").splitlines(keepends=True)
    while lines and not lines[0].strip(" \t\n\r\f"):
        lines.pop(0)
        if lines and lines[0].strip(" \t\n\r\f") and lines[0][0] in " \t":
            raise NotArithmetic("Python refuses an indented line")
    return "".join(lines)
