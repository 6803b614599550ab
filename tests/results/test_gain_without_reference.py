"""What is said where no reference seeds are recorded: the paired gain, and no verdict."""

from __future__ import annotations

from typing import Any

import pytest

from dare.results.control import without_reference
from dare.results.record import Metric

WHY = "there is no recorded expectation for d1 on sudoku4 with tiny-sdar"


@pytest.fixture
def scored(make_record: Any, make_outcomes: Any) -> Any:
    """``scored(440, seed)``: a record and its outcomes, the first 440 of 1000 right."""

    def build(right: int, seed: int, kind: str = "train") -> Any:
        metric = Metric(name="accuracy", value=right / 10, n=1000, points=right, out_of=1000)
        outcomes = make_outcomes([1] * right + [0] * (1000 - right), seed)
        record = make_record(
            0.0, seed=seed, kind=kind, metrics=[metric], outcomes={"sha256": f"{seed}-{right}"}
        )
        return record, outcomes

    return build


def test_a_clear_gain_of_one_seed_ends_with_status_0(scored: Any) -> None:
    found = without_reference([scored(440, 0)], scored(230, 9, "eval"), WHY)
    assert (found.outcome, found.exit_status) == ("INCONCLUSIVE", 0)
    assert found.sentence.startswith(f"NO VERDICT: {WHY}; measured gain +21.00 points over")
    assert found.numbers["gain_over_problems"]["difference"] == pytest.approx(21.0)
    # 210 puzzles won, none lost: the exact mid-p of McNemar's test is 2^-210.
    assert found.numbers["gain_over_problems"]["p"] == pytest.approx(2.0**-210)


@pytest.mark.parametrize("right", [232, 230, 180])
def test_no_gain_or_a_loss_is_not_a_success(scored: Any, right: int) -> None:
    """2 puzzles won, none lost: mid-p is 2^-2; 50 lost is significant, in the wrong direction."""
    found = without_reference([scored(right, 0)], scored(230, 9, "eval"), WHY)
    assert found.exit_status == 4
    assert "not significant" in found.sentence


def test_several_seeds_must_agree(scored: Any) -> None:
    base = scored(230, 9, "eval")
    agreeing = [scored(right, seed) for seed, right in enumerate((430, 440, 450))]
    apart = [scored(right, seed) for seed, right in enumerate((231, 330, 700))]
    assert without_reference(agreeing, base, WHY).exit_status == 0
    assert without_reference(apart, base, WHY).exit_status == 4


def test_a_smoke_test_claims_no_gain_however_large(scored: Any) -> None:
    found = without_reference(
        [scored(440, 0)], scored(230, 9, "eval"), "a smoke test", expects_gain=False
    )
    assert found.exit_status == 4
    assert "significant" not in found.sentence
