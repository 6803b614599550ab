"""d1's protocol: every published row, and the hard cases one by one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dare.evaluation.rescore import rescore_file
from dare.grading import d1, latex

EXCERPTS = Path(__file__).resolve().parent / "excerpts"

# Points and out of, as the authors' own evaluation counts them.
PUBLISHED = {
    ("gsm8k", 128): (783, 1130),
    ("gsm8k", 256): (863, 1130),
    ("math500", 128): (130, 500),
    ("math500", 256): (162, 500),
    ("countdown", 128): (53, 256),
    ("countdown", 256): (50, 256),
    ("sudoku", 128): (240, 2048),
    ("sudoku", 256): (137, 2048),
}


@pytest.mark.parametrize(("task", "length"), PUBLISHED)
def test_every_published_row_gets_the_published_verdict(
    shared_dir: Path, task: str, length: int
) -> None:
    import pyarrow.parquet as pq

    from dare.tasks import get

    rows = pq.read_table(shared_dir / f"data/generations/{task}_{length}.parquet").to_pylist()
    benchmark = get(task)
    points = out_of = 0
    for row in rows:
        item = benchmark.scored_item(row["question"], json.loads(row["ground_truth"]))
        grade = benchmark.grade(item, row["generation"], "d1")
        if task == "sudoku":
            assert grade.points == row["reference_correct_cells"], row["question"]
            assert grade.out_of == row["reference_empty_cells"]
        else:
            assert grade.correct == row["reference_correct"], row["question"]
        points, out_of = points + grade.points, out_of + grade.out_of
    assert (points, out_of) == PUBLISHED[task, length]


@pytest.mark.parametrize("task", ["gsm8k", "math500", "countdown", "sudoku"])
def test_the_excerpts_get_the_verdicts_decided_by_hand(task: str) -> None:
    path = EXCERPTS / f"{task}.jsonl"
    wanted = [json.loads(line) for line in path.read_text().splitlines()]
    rows = rescore_file(path, task, "d1").rows
    reference = "reference_correct_cells" if task == "sudoku" else "reference_correct"
    for row, want in zip(rows, wanted, strict=True):
        assert row.grade.points == want[reference], want["note"]
        assert row.strict is not None
        assert row.strict.correct == want["strict_correct"], want["note"]


# ---- gsm8k ----


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (r"\boxed{18}", "18"),
        (r"\boxed{ 18 }", "18"),
        (r"\boxed{1e2}", "1e2"),  # a float literal wins as a whole
        (r"\boxed{18 of 20}", "18"),
        (r"\boxed{about}\boxed{-3.50 m}", "-3.50"),
        (r"\boxed{} \boxed{...} \boxed{4}", "4"),
        ("\\boxed{1\n2} <answer>7</answer>", "7"),  # a box does not cross a line
        (r"\boxed{\boxed{5}}", "5"),
        (r"\boxed{\frac{3}{4}}", "3"),  # up to the first closing brace
        ("<answer>6</answer><answer>7</answer>", "6"),
        ("<answer>5 and then 8.</answer>", "8."),
        ("<answer>5 and then -8.25 kg</answer>", "-8.25"),
        ("<answer>nothing</answer>", None),
        ("<answer>5", None),
        ("5", None),
        ("", None),
    ],
)
def test_the_number_that_gsm8k_reads(text: str, number: str | None) -> None:
    assert d1.gsm8k_number(text) == number


def test_gsm8k_compares_floats_and_drops_the_commas_of_the_gold() -> None:
    assert d1.gsm8k(r"\boxed{1450000.0}", "1,450,000").correct
    assert not d1.gsm8k(r"\boxed{1,450,000}", "1,450,000").correct
    assert not d1.gsm8k(r"\boxed{nan}", "5").correct


def test_spg_reads_an_unclosed_tag_where_d1_reads_nothing() -> None:
    open_tag = "<answer>the total is 41, no, 42"
    assert d1.gsm8k(open_tag, "42").extracted is None
    assert d1.gsm8k_spg(open_tag, "42").correct
    assert not d1.gsm8k_spg("42", "42").correct
    assert d1.gsm8k_spg(r"\boxed{1} <answer>42", "42").extracted == "1"


def test_a_missing_gold_is_an_error_and_not_a_wrong_answer() -> None:
    grade = d1.gsm8k(r"\boxed{-3}", None)
    assert (grade.correct, grade.status, grade.out_of) == (False, "error", 1)


def test_why_there_is_no_answer() -> None:
    assert d1.gsm8k("she buys seven", "7").status == "truncated"
    assert d1.gsm8k("she buys seven<|eot_id|>", "7").status == "no_answer"
    assert d1.gsm8k("", "7").status == "no_answer"


def test_well_formed_means_a_box_inside_a_closed_tag() -> None:
    assert d1.gsm8k(r"<answer>\boxed{7}</answer>", "7").well_formed
    assert not d1.gsm8k(r"\boxed{7}<answer>7</answer>", "7").well_formed
    assert not d1.gsm8k(r"<answer>\boxed{7}", "7").well_formed


# ---- math500 ----


@pytest.mark.parametrize(
    ("text", "candidate"),
    [
        (r"\boxed{1} \boxed{2}", "2"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"$\boxed 8$ and more", "8"),
        (r"\boxed{1} then \boxed 8$", "8"),
        (r"\fbox{3}", r"\fbox{3}"),
        (r"\fbox{3} \boxed{4} \fbox{5}", "4"),
        (r"\boxed{\frac{1}{2}", None),
        ("no box", "no box"),
    ],
)
def test_the_last_box(text: str, candidate: str | None) -> None:
    assert latex.last_box(text) == candidate


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("1\n2", "12"),
        (r"\tfrac12", r"\frac{1}{2}"),
        (r"\dfrac1b", r"\frac{1}{b}"),
        (r"\frac1{72}", r"\frac{1}{72}"),
        (r"\frac1", r"\frac1"),
        (r"\left(1,\!000\right)", "(1,000)"),
        (r"30^{\circ}", "30"),
        (r"30^\circ", "30"),
        (r"\$5", "5"),
        (r"5\text{ units}", "5"),
        (r"5\text{units}", r"5\text{units}"),  # without the space it stays
        (r"5\%", "5"),
        (".5", r"\frac{1}{2}"),
        (" .25", "0.25"),
        ("{.25}", "{0.25}"),
        ("x=5", "5"),
        ("xy=5", "5"),
        ("xyz=5", "xyz=5"),
        ("a=b=5", "a=b=5"),
        (r"\sqrt3+\sqrt{2}", r"\sqrt{3}+\sqrt{2}"),
        ("1 + 2", "1+2"),
        ("3/4", r"\frac{3}{4}"),
        ("03/4", "03/4"),
        ("1/2/3", "1/2/3"),
        ("", ""),
    ],
)
def test_the_clean_up_of_math_answers(text: str, clean: str) -> None:
    assert latex.clean_up(text) == clean


@pytest.mark.parametrize("text", ["a/b", r"5\text{ m}\text{ s}", r"2\sqrt", r"\frac"])
def test_a_clean_up_that_fails_compares_the_untouched_strings(text: str) -> None:
    with pytest.raises(latex.CleanUpFails):
        latex.clean_up(text)
    assert latex.equal_after_clean_up(text, text)
    assert not latex.equal_after_clean_up(text, text + " ")


def test_math500_falls_back_to_the_tag_for_an_empty_or_unbalanced_box_only() -> None:
    assert d1.math500(r"\boxed{} <answer> 4 </answer>", "4").correct
    assert d1.math500(r"\boxed{4 <answer>4</answer>", "4").correct
    assert not d1.math500("so <answer>4</answer>", "4").correct  # the whole output is compared
    assert d1.math500("4", "4").correct


# ---- countdown ----


@pytest.mark.parametrize(
    ("text", "expression", "marked"),
    [
        (r"\boxed{1 + 2}", "1 + 2", True),
        (r"\boxed{6 \div 2 \times 1 \cdot 1}", "6 / 2 * 1 * 1", True),
        (r"\boxed{ 1+2 = 3 }", "1+2", True),
        (r"\boxed{x= 1+2=3}", "1+2", True),
        (r"\boxed{x = 1+2=3}", "", True),  # the run is the space before the first "="
        (r"\boxed{1+2=x}", "1+2=x", True),
        (r"\boxed{}", "", True),
        (r"\boxed{1+2 <answer>2+1</answer>", "2+1", True),
        (r"\boxed{1+2", r"\boxed{1+2", False),
        ("so 1 + 2 = 3.", "1 + 2", False),
    ],
)
def test_the_expression_that_countdown_reads(text: str, expression: str, marked: bool) -> None:
    assert d1.countdown_expression(text) == (expression, marked)


@pytest.mark.parametrize(
    ("expression", "numbers", "target", "reached"),
    [
        ("1+2*3", [3, 2, 1], 7, True),
        ("1+2*3", [1, 2], 7, False),
        ("1+2", [1, 2, 3], 3, False),
        ("5*5-5", [5, 5, 5], 20, True),
        ("10/4", [10, 4], 2, False),
        ("10//4", [10, 4], 2, True),
        ("007+1", [7, 1], 8, False),  # Python reads no such integer
        ("1+x", [1], 1, False),
        ("(1)(2)", [1, 2], 2, False),
        ("1/0", [1, 0], 0, False),
        ("", [], 0, False),
        ("٣+1", [3, 1], 4, False),  # a digit that only \d knows
    ],
)
def test_what_reaches_a_countdown_target(
    expression: str, numbers: list[int], target: int, reached: bool
) -> None:
    assert d1.reaches(expression, numbers, target) is reached


# ---- sudoku ----


@pytest.mark.parametrize(
    ("text", "cells"),
    [
        ("<answer>1234341221434321</answer>", "1234341221434321"),
        ("<answer>12 34\n3412</answer>", "1234341200000000"),
        ("<answer>so 1234</answer>", "so12340000000000"),  # nothing is filtered
        ("<answer>x\n```\n1234 3412\n```\nmore</answer>", "1234341200000000"),
        ("<answer>1234<|eot_id|>5678</answer>", "1234000000000000"),
        ("<answer>12345678901234567</answer>", "1234567890123456"),
        ("<answer>  </answer>4321<|endoftext|>9", "4321000000000000"),
        ("1234341221434321</answer>", "1234341221434321"),
        ("a 1234341221434321 b", "1234341221434321"),
        ("a12343412214343211 b", None),
        ("<answer>1234", None),
        ("", None),
    ],
)
def test_the_cells_that_sudoku_reads(text: str, cells: str | None) -> None:
    assert d1.sudoku_cells(text) == cells


def test_sudoku_counts_the_cells_that_were_empty() -> None:
    grade = d1.sudoku("<answer>1234341221434322</answer>", "1230340021434320", "1234341221434321")
    assert (grade.points, grade.out_of, grade.correct) == (3, 4, False)
    assert grade.well_formed
