"""Model output may be anything.  Nothing hangs, nothing runs, nothing passes."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from dare.grading import d1, strict
from dare.grading.math_worker import MathWorker
from dare.tasks import rewards

TEN_MB = 10_000_000
MARK = "hostile-output-ran"

HOSTILE = {
    "brackets": "(" * TEN_MB,
    "braces": r"\boxed{" + "{" * TEN_MB,
    "boxes": r"\boxed{" * (TEN_MB // 7),
    "boxes before a line end": r"\boxed{" * (TEN_MB // 7) + "\n}",
    "open tags": "<answer>" * (TEN_MB // 8),
    "one close tag": "<answer>" * (TEN_MB // 8) + "</answer>",
    "backticks": "<answer>" + "`" * TEN_MB,
    "white space in a fence": "<answer>```" + " " * TEN_MB,
    "equals signs": "1=x" * (TEN_MB // 3),
    "digits": "7" * TEN_MB,
    "a million digits": r"\boxed{" + "9" * 1_000_000 + "}",
    "a million digits in a tag": "<answer>" + "9" * 1_000_000 + "</answer>",
    "fractions": r"\boxed{" + r"\frac" * 150_000 + "}",
    "tower of powers": r"<answer>\boxed{30**100**93}</answer>",
    "signs": r"\boxed{" + "-" * 3000 + "30+100+93}",
    "unbalanced LaTeX": r"<answer>\boxed{\frac{1}{</answer>",
    "NUL bytes": "\x00" * 100_000 + r"\boxed{" + "\x00}",
    "nested tags": "<answer>" * 50 + "5" + "</answer>" * 50,
    "right to left": "<answer>\u202e81\u202c</answer>",
    "surrogates": r"\boxed{" + "\ud800" * 100 + "}",
    "code": f"<answer>__import__('pathlib').Path('{MARK}').touch()</answer>",
    "boxed code": rf"\boxed{{__import__('os').system('touch {MARK}')}}",
    "LaTeX input": rf"\boxed{{\input{{/etc/passwd}}\write18{{touch {MARK}}}}}",
    "format string": r"\boxed{%s%n{0.__class__}}",
}

GRADERS = {
    "d1 gsm8k": lambda text: d1.gsm8k(text, "18"),
    "d1 math500": lambda text: d1.math500(text, r"\frac{1}{18}"),
    "d1 countdown": lambda text: d1.countdown(text, [30, 100, 93], 23),
    "d1 sudoku": lambda text: d1.sudoku(text, "3102200002100320", "3142243142131324"),
    "strict gsm8k": lambda text: strict.gsm8k(text, "18"),
    "strict countdown": lambda text: strict.countdown(text, [30, 100, 93], 23),
    "strict sudoku": lambda text: strict.sudoku(text, "3102200002100320", "3142243142131324"),
}


@pytest.fixture(autouse=True)
def _nothing_ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.chdir(tmp_path)
    yield
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("grader", GRADERS)
def test_no_output_passes_or_takes_a_second(grader: str) -> None:
    for name, text in HOSTILE.items():
        start = time.process_time()
        grade = GRADERS[grader](text)
        assert time.process_time() - start < 1.0, name
        assert not grade.correct, name
        assert len(grade.extracted or "") <= 2000, name


def test_the_strict_math_grader_neither_hangs_nor_passes(
    worker: MathWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "cpu_seconds", 0.2)
    for name, text in HOSTILE.items():
        grade = strict.math500(text, r"\frac{1}{18}", worker)
        assert not grade.correct, name
        assert len(grade.extracted or "") <= 2000, name


@pytest.mark.parametrize(
    "answer",
    ["30^{100^{93}}", "9999999!!!", r"\sum_{k=1}^{10^{12}} k^{-k}", "(" * 1500, "x^" * 900 + "2"],
)
def test_expensive_mathematics_times_out(
    worker: MathWorker, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    monkeypatch.setattr(worker, "cpu_seconds", 0.2)
    grade = strict.math500(rf"\boxed{{{answer}}}", "5", worker)
    assert (grade.correct, grade.status) == (False, "timeout")


def test_what_cannot_be_judged_is_an_error_and_not_a_wrong_answer() -> None:
    assert d1.countdown(HOSTILE["tower of powers"], [30, 100, 93], 23).status == "error"
    assert d1.gsm8k(HOSTILE["digits"], "18").status == "error"
    assert d1.sudoku(HOSTILE["digits"], "3102200002100320", "3142243142131324").out_of == 8
    assert strict.math500(HOSTILE["a million digits"], "5").status == "truncated"
    assert strict.math500(r"\boxed{" + "9" * 3000 + "}", "5").status == "error"


def test_rewards_stay_bounded() -> None:
    columns = {
        "answer": ["18"],
        "numbers": [[30, 100, 93]],
        "target": [23],
        "puzzle": ["3102200002100320"],
        "solution": ["3142243142131324"],
    }
    functions = (*rewards.GSM8K_SPG, *rewards.GSM8K, *rewards.MATH500, rewards.countdown)
    one_line = "<reasoning>" + "</reasoning><answer>" * 500_000
    for name, text in {**HOSTILE, "soft format": one_line}.items():
        for function in functions:
            start = time.process_time()
            (value,) = function([""], [text], **columns)
            assert time.process_time() - start < 1.0, (name, function.__name__)
            assert value is not None
            assert value < 1.0, (name, function.__name__)
