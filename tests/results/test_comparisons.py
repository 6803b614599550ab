"""Comparisons of arms: pairing, tests, wording, gates, the locked sheet, text."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from dare.diffusion.keys import RunKey
from dare.errors import NotComparable
from dare.results.compare import Arm, ArmRun, ProtocolSheet, arm, compare
from dare.results.compare_text import footer, render_forest, to_markdown
from dare.results.compare_text import to_json as comparison_json
from dare.results.paired import as_arrays, item_scores, paired_difference
from dare.results.record import Budget


def scores(right: list[int]) -> dict[str, tuple[int, int]]:
    return {f"i{index:04d}": (value, 1) for index, value in enumerate(right)}


def runs(levels: list[float], n: int = 400, stream: int = 0, nfe: int = 1000) -> tuple[ArmRun, ...]:
    """Seeds 0, 1, ...: the same problems are hard in every run, right with the given share."""
    hardness = RunKey(0).at("data").numpy().random(n)
    made = []
    for seed, level in enumerate(levels):
        noise = RunKey(seed).at("eval", step=stream).numpy().normal(0, 0.15, n)
        right = [int(h + e < level) for h, e in zip(hardness, noise, strict=True)]
        made.append(ArmRun(seed, scores(right), budget=Budget(nfe_train=nfe, updates=60)))
    return tuple(made)


@pytest.fixture
def better():
    return [
        Arm("d1", runs([0.40, 0.41, 0.40], stream=1)),
        Arm("spg", runs([0.60, 0.61, 0.59], stream=2)),
    ]


def test_paired_difference_of_one_seed_by_hand():
    a = scores([1] * 6 + [0] * 4)
    b = scores([1] * 2 + [0] * 8)
    found = paired_difference([a], [b])
    assert found.difference == pytest.approx(40.0)
    assert found.per_seed == pytest.approx((40.0,))
    # 4 items only a: mid-p = 1/16.
    assert found.p == pytest.approx(1 / 16)
    assert "McNemar" in found.test
    assert found.seed_lo is None
    # 2.8016 * sqrt(.4 / 10)
    assert found.detectable == pytest.approx(56.03, abs=0.01)


def test_paired_difference_over_seeds_by_hand():
    n = 100
    base = [scores([1] * 40 + [0] * 60)] * 3
    arms = [scores([1] * right + [0] * (n - right)) for right in (50, 52, 54)]
    found = paired_difference(arms, base)
    assert found.per_seed == pytest.approx((10.0, 12.0, 14.0))
    assert found.difference == pytest.approx(12.0)
    # t(.975, 2) * 2 / sqrt(3) = 4.968
    assert (found.seed_lo, found.seed_hi) == pytest.approx((12 - 4.968, 12 + 4.968), abs=1e-3)
    assert (found.sign_flip_p, found.smallest_p) == (0.25, 0.25)
    # t = 12 / (2 / sqrt 3) = 10.39 on 2 df: p = .00914.
    assert found.p == pytest.approx(0.00914, abs=1e-4)
    # One baseline run against all seeds is the same thing here.
    assert paired_difference(arms, base[:1]).difference == pytest.approx(12.0)


def test_pooled_points_weigh_items_by_their_cells():
    a = {"x": (8, 8), "y": (0, 2)}
    b = {"x": (0, 8), "y": (2, 2)}
    assert paired_difference([a], [b]).difference == pytest.approx(60.0)
    points, weights = as_arrays([a])
    assert points.tolist() == [[8, 0]]
    assert weights.tolist() == [8, 2]


def test_unpaired_input_is_refused():
    a = scores([1, 0])
    for other in ({"i0000": (1, 1)}, {"i0000": (1, 1), "i0001": (1, 2)}):
        with pytest.raises(ValueError, match="same items"):
            paired_difference([a], [other])


def test_item_scores_by_metric(make_outcomes):
    outcomes = make_outcomes([1, 0])
    cells = [o.model_copy(update={"points": 5, "out_of": 8}) for o in outcomes]
    assert item_scores(cells, "accuracy") == {"item-0": (1, 1), "item-1": (0, 1)}
    assert item_scores(cells, "cells") == {"item-0": (5, 8), "item-1": (5, 8)}
    assert item_scores(cells, "format_rate") == {"item-0": (1, 1), "item-1": (1, 1)}
    assert item_scores([*outcomes, *outcomes], "accuracy")["item-0"] == (2, 2)


def test_a_clear_difference(better):
    found = compare(better, delta=2.0)
    contrast = found.contrasts[0]
    assert contrast.wording == "spg > d1"
    assert contrast.paired.difference == pytest.approx(20, abs=4)
    assert contrast.paired.lo > 10
    assert (found.seeds, found.n_items) == ((0, 1, 2), 400)
    assert "cannot give p below 0.25" in " ".join(found.notes)
    assert "exploratory" in found.notes[0]
    assert compare(better[::-1], delta=2.0).contrasts[0].wording == "spg > d1"
    assert found.arms[0].compute["nfe_train"] == 1000
    assert found.arms[0].interval == "t over seeds"


def test_no_difference_is_not_equality():
    """Seeds that scatter by 10 points: nothing is shown, and what could have been is said."""
    arms = [
        Arm("a", runs([0.35, 0.50, 0.42], stream=1)),
        Arm("b", runs([0.50, 0.36, 0.47], stream=2)),
    ]
    contrast = compare(arms, delta=2.0).contrasts[0]
    assert contrast.wording.startswith("no difference shown (could have detected ")
    assert contrast.paired.detectable > 10
    assert contrast.p_holm > 0.05


def test_equivalence_needs_a_margin_that_holds_both_intervals():
    arms = [
        Arm("a", runs([0.5, 0.5, 0.5], n=3000, stream=1)),
        Arm("b", runs([0.5, 0.5, 0.5], n=3000, stream=2)),
    ]
    contrast = compare(arms, delta=5.0).contrasts[0]
    assert contrast.wording == "equivalent within 5"
    assert contrast.paired.within <= 5.0
    narrow = compare(arms, delta=contrast.paired.within * 0.99).contrasts[0]
    assert narrow.wording.startswith("no difference shown")
    assert compare(arms).contrasts[0].wording.startswith("no difference shown")


def test_one_seed_speaks_of_one_seed():
    arms = [Arm("a", runs([0.4], stream=1)), Arm("b", runs([0.7], stream=2))]
    found = compare(arms)
    assert found.contrasts[0].wording == "b > a on this one seed"
    assert any("nothing about other seeds" in note for note in found.notes)
    assert found.arms[0].interval == "Wilson over items"


def test_holm_over_several_arms():
    arms = [Arm("base", runs([0.40, 0.41, 0.40], stream=1))]
    for index, level in enumerate((0.6, 0.42, 0.40)):
        levels = [level, level + 0.01, level]
        arms.append(Arm(f"arm{index}", runs(levels, stream=2 + index)))
    found = compare(arms)
    ps = [contrast.paired.p for contrast in found.contrasts]
    ordered = sorted(ps)
    assert found.contrasts[ps.index(ordered[0])].p_holm == pytest.approx(min(1, 3 * ordered[0]))
    assert all(contrast.p_holm >= contrast.paired.p for contrast in found.contrasts)
    assert any("Holm-adjusted over 3" in note for note in found.notes)


def test_order_of_runs_and_items_changes_nothing(better):
    shuffled = [
        Arm(
            a.name,
            tuple(
                replace(run, scores=dict(reversed(run.scores.items()))) for run in reversed(a.runs)
            ),
        )
        for a in better
    ]
    assert compare(shuffled, delta=2.0) == compare(better, delta=2.0)


def test_a_missing_seed_is_named(better):
    short = [better[0], Arm("spg", better[1].runs[:2])]
    with pytest.raises(NotComparable, match="seeds of spg") as caught:
        compare(short)
    assert "[0,1,2]" in caught.value.why
    assert caught.value.exit_status == 4


def test_failed_seeds_are_not_dropped(better):
    failed = [
        Arm(a.name, tuple(replace(run, conditions={"status": "failed"}) for run in a.runs))
        for a in better
    ]
    with pytest.raises(NotComparable, match="status of seed 0"):
        compare(failed)


@pytest.mark.parametrize("field", ["decode", "grader", "prompt", "selection", "base model"])
def test_conditions_must_agree(better, field):
    arms = [
        Arm(a.name, tuple(replace(run, conditions={field: a.name}) for run in a.runs))
        for a in better
    ]
    with pytest.raises(NotComparable, match=field):
        compare(arms)


def test_items_and_budget_must_agree(better):
    fewer = [better[0], Arm("spg", runs([0.6] * 3, n=300))]
    with pytest.raises(NotComparable, match="items"):
        compare(fewer)
    for nfe, passes in ((1100, True), (1200, False)):
        costly = [better[0], Arm("spg", runs([0.6] * 3, stream=2, nfe=nfe))]
        if passes:
            compare(costly)
        else:
            with pytest.raises(NotComparable, match=r"budget \(nfe_train\)"):
                compare(costly)
            compare(costly, budget_unit="updates")


def test_too_few_arms(better):
    with pytest.raises(NotComparable, match="two arms"):
        compare(better[:1])
    with pytest.raises(NotComparable, match="two arms"):
        compare([better[0], Arm("empty", ())])


def sheet(**changes) -> ProtocolSheet:
    facts = {
        "algorithms": ("d1", "spg"),
        "task": "sudoku4",
        "protocol": "tiny",
        "metric": "accuracy",
        "rollout_budget": {"d1": 1000, "spg": 1000},
        "seeds": (0, 1, 2),
        "stop": "60 updates",
        "base_sha256": "b" * 64,
        "delta": 2.0,
    }
    return ProtocolSheet.model_validate({**facts, **changes})


def test_the_sheet_is_locked_by_its_hash(better):
    locked = sheet()
    assert locked.digest() == ProtocolSheet.model_validate_json(locked.model_dump_json()).digest()
    assert locked.digest() != sheet(seeds=(0, 1)).digest()
    found = compare(better, sheet=locked)
    assert found.sheet == locked.digest()
    assert found.delta == 2.0
    assert not any("exploratory" in note for note in found.notes)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"seeds": (0, 1, 2, 3)}, "sheet: seeds"),
        ({"algorithms": ("d1", "wd1")}, "sheet: algorithms"),
        ({"rollout_budget": {"d1": 500, "spg": 1000}}, "sheet: nfe_train of d1"),
    ],
)
def test_arms_must_keep_to_the_sheet(better, change, field):
    with pytest.raises(NotComparable, match=field):
        compare(better, sheet=sheet(**change))


def test_arms_from_records(make_record, make_outcomes):
    arms = [
        arm(
            name, [(make_record(50.0, seed=s), make_outcomes(right, s)) for s in (0, 1)], "accuracy"
        )
        for name, right in (("a", [1, 0, 1, 0]), ("b", [1, 1, 1, 0]))
    ]
    found = compare(arms)
    assert found.contrasts[0].paired.difference == pytest.approx(25.0)
    assert found.arms[0].records[0] == make_record(50.0, seed=0).id
    other = arm("b", [(make_record(50.0, seed=s, scoring={"grader": "x"}),
                       make_outcomes([1, 1, 1, 0], s)) for s in (0, 1)], "accuracy")  # fmt: skip
    with pytest.raises(NotComparable, match="grader"):
        compare([arms[0], other])


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_forest_fits_and_shows_the_interval(better, width):
    found = compare(better, delta=2.0)
    lines = render_forest(found, width)
    assert all(len(line) <= width for line in lines)
    assert lines[0].startswith("spg - d1")
    assert "o" in lines[0]
    assert lines[0].index("|") < lines[0].index("o")
    assert "spg > d1" in lines[1]
    assert all(ord(c) < 128 for line in lines for c in line)


def test_forest_of_no_difference_straddles_zero():
    same = [Arm("a", runs([0.5] * 3, stream=1)), Arm("b", runs([0.5] * 3, stream=1))]
    lines = render_forest(compare(same), 80)
    assert "o" in lines[0]
    assert "no difference shown" in lines[1] or "equivalent" in lines[1]


def test_markdown_and_json(better):
    found = compare(better, delta=2.0)
    text = to_markdown(found)
    assert "| spg - d1 |" in text
    assert "spg > d1" in text
    assert "0.25 (least 0.25)" in text
    assert any("smallest difference seen 80 %" in line for line in footer(found))
    document = json.loads(comparison_json(found))
    assert document["contrasts"][0]["paired"]["difference"] == pytest.approx(
        found.contrasts[0].paired.difference
    )
