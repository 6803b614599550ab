"""The strict grader, case by case.  What is right was decided by hand."""

from __future__ import annotations

from fractions import Fraction

import pytest

from dare.grading import strict
from dare.grading.math_worker import MathWorker
from dare.grading.rational import rational, stated_number


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("18", 18),
        (" 18. ", 18),
        ("18.50", Fraction(37, 2)),
        ("-3", -3),
        ("\u22123", -3),
        ("$1,234", 1234),
        ("-$5", -5),
        ("$-5", -5),
        (r"\$1{,}234.5", Fraction(2469, 2)),
        (r"1\,000", 1000),
        ("$18$", 18),
        (r"\(18\)", 18),
        (".5", Fraction(1, 2)),
        ("3/4", Fraction(3, 4)),
        (r"-\frac{3}{4}", Fraction(-3, 4)),
        (r"\dfrac{3}{-4}", None),
        ("1,23", None),  # no thousands comma
        ("12,34,567", None),
        ("1 2", None),
        ("3/0", None),
        ("18 dollars", None),
        ("18x", None),
        ("", None),
        (".", None),
        ("9" * 500, None),
    ],
)
def test_plain_numbers(text: str, value: Fraction | None) -> None:
    assert rational(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("18 dollars", 18),
        ("18 square feet.", 18),
        (r"18\text{ cm}", 18),
        (r"18\%", 18),
        ("18%", 18),
        (r"18^\circ", 18),
        ("2 million", None),
        ("2 pi", None),
        ("18x", None),
        ("18 = x", None),
    ],
)
def test_units(text: str, value: Fraction | None) -> None:
    assert rational(text, units=True) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("18 dollars per day.", 18),
        (r"\text{18}", 18),
        (r"x = \$18.50", Fraction(37, 2)),
        ("$y=-3$", -3),
        (r"\boxed{18", 18),  # in a closed tag: the answer is all there
        ("boxed{18}", 18),
        (r"80 \text{ cm}", 80),
        (r"385\,000", 385000),
        ("£18", 18),
        (r"\frac{3}{4} hours", Fraction(3, 4)),
        ("Janet makes $18 per day.", None),
        ("ab = 18", None),
        ("x = y = 18", None),
        ("18 is not it", None),
        ("18 or more", None),
        (r"18 \text{ or } ", None),
        ("18 of the words here are too many", None),
        ("18 k", None),
        (r"1\(8", None),
        ("12 of 15", None),
        ("2 million people", None),
        ("18 \x1f", None),
        ("\u202e81", None),
        ("no number", None),
    ],
)
def test_a_number_that_is_stated(text: str, value: Fraction | None) -> None:
    assert stated_number(text) == value


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"\boxed{1} \boxed{2}", "2"),
        (r"\boxed{1} \boxed{\frac{2}", "1"),
        (r"\boxed{\{1\}}", r"\{1\}"),
        (r"\boxed{\boxed{5}}", "5"),
        (r"\boxed {5}", "5"),
        (r"\boxed{1} <answer>2</answer>", "1"),
        ("<answer>1</answer><answer>2</answer>", "2"),
        ("<answer><answer>5</answer></answer>", "<answer>5"),
        ("<answer>1</answer><answer>2", "1"),
        (r"<answer>1<|eot_id|>\boxed{2}</answer>", None),
        (r"\boxed{}", None),
        ("5", None),
    ],
)
def test_the_answer_that_is_read(text: str, answer: str | None) -> None:
    assert strict.answer_text(text) == answer


@pytest.mark.parametrize(
    ("candidate", "gold", "right"),
    [
        (r"\frac{1}{2}", "0.5", True),
        (r"\frac{2}{4}", r"\frac{1}{2}", True),
        ("0.3333", r"\frac{1}{3}", False),
        (r"16\sqrt3", r"16 \sqrt{3}", True),
        (r"\sqrt{12}", r"2\sqrt{3}", True),
        (r"\sqrt{13}", r"2\sqrt{3}", False),
        ("x=5", "5", True),
        ("(1, 2)", "(1,2)", True),
        ("(2, 1)", "(1,2)", False),
        ("1,2", "2,1", True),  # an unordered list of values
        (r"50\%", "50", True),
        (r"50\%", r"\frac{1}{2}", True),
        (r"\text{Evelyn}", "Evelyn", True),
        (r"\text{Evelyn}", r"\text{Angela}", False),
        ("C", r"\text{(C)}", True),
        ("1 2", "12", False),
        ("7", "8", False),
        (r"\notacommand{", r"\anothernone{", False),  # unparsable is never equal to unparsable
        (r"\text{", r"\mbox{", False),
    ],
)
def test_equality_of_math_answers(
    worker: MathWorker, candidate: str, gold: str, right: bool
) -> None:
    grade = strict.math500(f"<answer>{candidate}</answer>", gold, worker)
    assert (grade.correct, grade.status, grade.extracted) == (right, "ok", candidate)


@pytest.mark.parametrize(
    "candidate",
    [
        "1248",
        "1,248",
        r"\$1248",
        "1248 dollars",
        "1248.0",
        "x = 1248",
        r"\text{1248}",
        "1,248.00",
        "1248%",
        r"1248\%",
    ],
)
def test_gsm8k_takes_the_number_in_its_dress(candidate: str) -> None:
    for gold in ("1248", "1,248"):
        grade = strict.gsm8k(rf"\boxed{{{candidate}}}<|eot_id|>", gold)
        assert (grade.correct, grade.status, grade.extracted) == (True, "ok", candidate)


@pytest.mark.parametrize(
    "candidate",
    [
        r"\ne 1248", "<1248", r"x \le 1248", "not 1248", "1248!", "1248%%", "7=1248",
        "import os; 1248", "</answer>1248", "1248\x00", "1248\x1f", "1247+1",
        r"6 \times 208 = 1248", "1248.01", "124", "1248 million", "12 48", "1248 1248", ">1248",
        r"\neq 1248", "~x=1248!",
    ],
)  # fmt: skip
def test_gsm8k_refuses_what_is_not_the_number(candidate: str) -> None:
    grade = strict.gsm8k(rf"\boxed{{{candidate}}}<|eot_id|>", "1248")
    assert (grade.correct, grade.status) == (False, "ok")


def test_gsm8k_refuses_nested_tags_and_needs_a_gold() -> None:
    assert not strict.gsm8k("<answer><answer>1248</answer></answer>", "1248").correct
    assert strict.gsm8k("<answer>1248</answer>", "1248").correct
    assert strict.gsm8k("<answer>1248</answer>", None).status == "error"


@pytest.mark.parametrize(
    ("candidate", "right"),
    [
        ("49 + 55 - 53", True),
        ("49+55-53=51", True),
        ("$49+55-53 = 51.$", True),
        ("49+55-53=52", False),
        ("49+55-53=", False),
        ("49+55-53=51=52", False),
        ("49+55-53=104-53", False),
        ("$(49 + 55) - 53$", True),
        (r"\left(49 + 55\right) - 53", True),
        ("55 − 53 + 49", True),
        ("49 + 55 - 53 + 0", False),
        ("49 + 55", False),
        ("51", False),
        ("49 + 55 - 53 - 0", False),
        ("49 + 55 - 53; import os", False),
    ],
)
def test_countdown(candidate: str, right: bool) -> None:
    grade = strict.countdown(f"<answer>{candidate}</answer>", [49, 55, 53], 51)
    assert (grade.correct, grade.status) == (right, "ok")


def test_countdown_is_exact() -> None:
    assert not strict.countdown(r"\boxed{93+30-100 = 24}", [30, 100, 93], 23).correct
    assert strict.countdown(r"\boxed{93+30-100 = 23}", [30, 100, 93], 23).correct
    assert strict.countdown(r"\boxed{1/3*9}", [1, 3, 9], 3).correct
    assert strict.countdown(r"\boxed{\frac{\frac{8}{4}}{2}}", [8, 4, 2], 1).correct
    assert not strict.countdown(r"\boxed{5*2000001/2000000}", [5, 2000001, 2000000], 5).correct


def test_sudoku_accepts_every_solution_of_an_open_puzzle() -> None:
    puzzle = "0000413214230041"
    for solution in ("2314413214233241", "3214413214232341"):
        assert strict.sudoku(f"<answer>{solution}</answer>", puzzle, "").correct
    for wrong in ("2314413214233214", "2341413214233241", "2314413214233241x", "23144132"):
        assert not strict.sudoku(f"<answer>{wrong}</answer>", puzzle, "").correct
