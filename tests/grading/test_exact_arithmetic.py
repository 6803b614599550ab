"""The expression evaluator: against values by hand, a tree oracle, and Python itself."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from dare.grading.arithmetic import NotArithmetic, OutOfBounds, evaluate


def random_tree(rng: random.Random, depth: int) -> tuple[str, Fraction | None]:
    """An expression as text and its value, computed on the tree (None: division by zero)."""
    if depth == 0 or rng.random() < 0.2:
        number = rng.randrange(100)
        return str(number), Fraction(number)
    if rng.random() < 0.15:
        text, value = random_tree(rng, depth - 1)
        return f"-({text})", None if value is None else -value
    (left, a), (right, b) = random_tree(rng, depth - 1), random_tree(rng, depth - 1)
    operator = rng.choice("+-*/")
    text = f"({left}){operator} ({right})"
    if a is None or b is None or (operator == "/" and b == 0):
        return text, None
    values = {"+": a + b, "-": a - b, "*": a * b}
    return text, values[operator] if operator in values else a / b


def test_values_agree_with_a_tree_oracle() -> None:
    rng = random.Random(7)
    zero = 0
    for _ in range(400):
        text, value = random_tree(rng, 4)
        if value is None:
            zero += 1
            with pytest.raises(NotArithmetic):
                evaluate(text)
        else:
            assert evaluate(text) == value, text
    assert zero > 5


def test_precedence_agrees_with_pythons_own_evaluation_of_safe_text() -> None:
    rng = random.Random(11)
    for _ in range(400):
        parts = [str(rng.randrange(1, 9))]
        for _ in range(rng.randrange(1, 6)):
            operator = rng.choice(("+", "-", "*", "/", "//", "+-", "--", "-+"))
            parts += [operator, str(rng.randrange(1, 9))]
        text = "".join(parts)
        assert set(text) <= set("0123456789+-*/")
        assert float(evaluate(text, python=True)) == pytest.approx(eval(text)), text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2+3*4", 14),
        ("(2+3)*4", 20),
        ("2-3-4", -5),
        ("2/4/2", Fraction(1, 4)),
        ("1/3*3", 1),
        ("-5+7", 2),
        ("5*-3", -15),
        ("((7))", 7),
        ("5\n-3", 2),
    ],
)
def test_plain_values(text: str, value: Fraction) -> None:
    assert evaluate(text) == value


@pytest.mark.parametrize(
    "text",
    ["", " ", "5 3", "5(3)", "(5)(3)", "()", "(", ")", "5)", "(5", "+", "5+", "*5", "1/0",
     "2**3", "7//2", "1.5", "1e3", "1_0", "x", "5;3", "²", "٣", "5 =5", "\x005"],
)  # fmt: skip
def test_what_is_no_plain_expression(text: str) -> None:
    with pytest.raises(NotArithmetic) as caught:
        evaluate(text)
    assert not isinstance(caught.value, OutOfBounds)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("-2**2", -4),
        ("2**-1", 0.5),
        ("2**3**2", 512),
        ("2**-1*3", 1.5),
        ("4**(1/2)", 2),
        ("7//2", 3),
        ("-7//2", -4),
        ("1.5*2", 3),
        ("5.", 5),
        (".5", 0.5),
        ("00", 0),
        ("0**0", 1),
        ("1**(30**100)", 1),
        ("(-1)**(30**100)", 1),
        ("(5\n-3)", 2),
        ("\n5-3\n", 2),
    ],
)
def test_python_values(text: str, value: float) -> None:
    assert evaluate(text, python=True) == Fraction(value)


@pytest.mark.parametrize(
    "text", ["05", "5\n-3", "\n 5-3", "0**-1", "(-8)**(1/3)", "1.2.3", "5 / / 3", "5 * * 3", "."]
)
def test_what_python_refuses(text: str) -> None:
    with pytest.raises(NotArithmetic):
        evaluate(text, python=True)


@pytest.mark.parametrize(
    "text",
    ["30**100**93", "2**99999", "(1/3)**-99999", "9.5**0.5**-9999", "-" * 3000 + "1",
     "7" * 1500, "*".join(["9" * 400] * 4)],
)  # fmt: skip
def test_what_is_too_large_is_refused_and_not_computed(text: str) -> None:
    with pytest.raises(OutOfBounds):
        evaluate(text, python=True)


def test_nesting_is_no_recursion() -> None:
    assert evaluate("(" * 900 + "5" + ")" * 900) == 5
