"""d1's rewards: the published test vector, then each part by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from dare.errors import UsageProblem
from dare.tasks import get, rewards

SPACED = "<reasoning>\nA\n</reasoning>\n<answer>\n5\n</answer>\n"
ONE_LINE = "<reasoning>A</reasoning>\n<answer>5</answer>"


def parts(functions: Sequence[Callable[..., list[float | None]]], text: str) -> list[float]:
    found = [function(["q"], [text], answer=["5"])[0] for function in functions]
    assert None not in found
    return [round(value, 6) for value in found if value is not None]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (SPACED, [0.5, 0, 0.5, 0.5, 2]),
        (SPACED[:-1], [0.454, 0, 0, 0.5, 2]),
        (ONE_LINE, [0, 0.5, 0, 0.5, 2]),
    ],
)
def test_vector_t5_of_gsm8k(text: str, expected: list[float]) -> None:
    assert parts(rewards.GSM8K, text) == expected


def test_spg_charges_the_answer_text() -> None:
    """ "5", the closing tag and two line ends are 12 characters: 3.5 becomes 3.488."""
    assert parts(rewards.GSM8K_SPG, SPACED) == [0.488, 0, 0.5, 0.5, 2]
    assert sum(parts(rewards.GSM8K_SPG, SPACED)) == pytest.approx(3.488)


def test_xml_count_charges_what_follows_and_wants_each_tag_once() -> None:
    # 4 characters follow in both senses: -0.004 and -(4 + 1 - 1)/1000
    assert parts(rewards.GSM8K, SPACED + "more")[0] == 0.492
    assert parts(rewards.GSM8K, SPACED + SPACED)[0] == 0.0
    assert parts(rewards.GSM8K, "")[0] == 0.0


@pytest.mark.parametrize(
    ("text", "soft", "strict"),
    [
        ("<reasoning>A</reasoning>   \n <answer>5</answer> tail", 0.5, 0),
        ("<reasoning>A\nB</reasoning><answer>5</answer>", 0, 0),
        (" <reasoning>A</reasoning><answer>5</answer>", 0, 0),
        (SPACED, 0, 0.5),
        ("<reasoning>\nA\nB\n</reasoning>\n<answer>\n5\n</answer>\n", 0, 0),
        (SPACED + "tail", 0, 0),
    ],
)
def test_the_two_formats_exclude_each_other(text: str, soft: float, strict: float) -> None:
    assert parts(rewards.GSM8K, text)[1:3] == [soft, strict]


@pytest.mark.parametrize(
    ("text", "integer", "correct"),
    [
        ("<answer>4</answer><answer> 5 </answer>", 0.5, 2),
        ("<answer>5", 0.5, 2),  # an opening tag is enough
        ("5", 0.5, 2),  # so is none, as the code splits the text
        ("<answer>5.0</answer>", 0, 0),
        ("<answer>-5</answer>", 0, 0),
        (r"<answer>\boxed{5}</answer>", 0, 0),
    ],
)
def test_integer_and_correctness(text: str, integer: float, correct: float) -> None:
    assert parts(rewards.GSM8K, text)[3:] == [integer, correct]


def test_math_rewards_are_as_coded_so_a_box_never_counts_for_format() -> None:
    def score(text: str) -> list[float | None]:
        return [function(["q"], [text], answer=[r"\frac{1}{2}"])[0] for function in rewards.MATH500]

    assert score(r"<answer>\boxed{\frac12}</answer>") == [2.0, 0.75]
    assert score(r"\boxed{0.5}") == [2.0, 0.25]
    assert score(r"<answer> \frac{1}{2}") == [0.0, 0.75]  # the whole text is compared
    assert score(r"\frac{1}{2}") == [2.0, 0.25]
    assert score(r"\boxed{\frac{1}{2}") == [0.0, 0.25]


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("<answer>2*3+1</answer>", 1.0),
        ("<answer>1</answer><answer> 2*3+1 </answer>", 1.0),
        ("<answer>2*3+1</answer><answer>2</answer>", 0.1),
        ("<answer>2*3-1</answer>", 0.1),
        ("<answer>2*3</answer>", 0.1),
        ("<answer>2*3+1=7</answer>", 0.1),  # the reward cuts nothing
        (r"<answer>\boxed{2*3+1}</answer>", 0.1),
        ("<answer>30**100**93</answer>", 0.1),
        ("<answer>2*3+1", 0.0),
        ("2*3+1</answer>", 0.0),
    ],
)
def test_countdown(text: str, score: float) -> None:
    assert rewards.countdown(["q"], [text], numbers=[[2, 3, 1]], target=[7]) == [score]


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("<answer>2314413214233241</answer>", 1.0),
        ("<answer>2314 4132\n1423 2341</answer>", 4 / 6),
        ("<answer>grid: 23</answer>", 2 / 6),
        ("<answer>23144132142332419999</answer>", 1.0),
        ("<answer>none</answer>", 0.0),
        ("<answer></answer>", 0.0),
        ("<answer>2314413214233241", 0.0),
    ],
)
def test_sudoku(text: str, score: float) -> None:
    columns = {"puzzle": ["0000413214230041"], "solution": ["2314413214233241"]}
    assert rewards.sudoku(["q"], [text], **columns) == [pytest.approx(score)]


def test_tasks_hand_out_these_functions() -> None:
    assert [f.__name__ for f in get("gsm8k").rewards("d1")] == [
        "xml_count", "soft_format", "strict_format", "integer", "gsm8k_correct",
    ]  # fmt: skip
    assert get("gsm8k").rewards("spg")[0] is rewards.xml_count_spg
    assert len(get("math500").rewards("d1")) == 2
    with pytest.raises(UsageProblem, match="'strict' of gsm8k has no rewards"):
        get("gsm8k").rewards("strict")
