"""Verdicts from claims and records: gates, seeds, copies, subsets, the published d1 table."""

from __future__ import annotations

import json
import random

import pytest

from dare import reproductions
from dare.results.claims import Claim
from dare.results.gates import check_claim, selection_rule
from dare.results.record import Budget, Metric
from dare.results.verdict import Policy, combine, distinct_runs, rounding, verdict

TRAINED = {
    "kind": "train",
    "paper": {"id": "d1"},
    "budget": Budget(updates=6000, nfe_train=10),
}


def claim(**changes) -> Claim:
    facts = {
        "id": "d1/baseline/gsm8k/256",
        "row": "LLaDA-8B-Instruct",
        "model": "llada-8b",
        "task": "gsm8k",
        "metric": "accuracy",
        "value": 76.7,
        "gen_length": 256,
        "n_items": 1319,
        "protocol": "d1",
        "source": "a table",
    }
    return Claim(**{**facts, **changes})


def trained_claim(**changes) -> Claim:
    facts = {"id": "d1/diffu-grpo/gsm8k/256", "value": 79.8, "selection": "final step"}
    return claim(**{**facts, **changes})


@pytest.fixture
def trained(make_record):
    def build(values, **changes):
        config = {"paper": "d1", "algorithm": "diffu-grpo"}
        return [
            make_record(
                value,
                seed=seed,
                **{**TRAINED, "config": {**config, "training": {"seed": seed}}, **changes},
            )
            for seed, value in enumerate(values)
        ]

    return build


def test_baseline_that_matches_to_the_item(make_record):
    found = verdict(claim(), [make_record(76.72)])
    assert (found.outcome, found.exit_status, found.rule) == ("REPRODUCED", 0, "verdict/1")
    assert found.numbers["delta"] == 2.0
    assert found.numbers["half"] == pytest.approx(100 / 1319)
    assert "76.72 over 1 run against the published 76.70 (+0.02 points, margin 2)" in found.sentence
    assert "hardware" in found.unspecified
    json.dumps(found.to_dict(), allow_nan=False)


def test_baseline_that_is_near_but_not_equal(make_record):
    found = verdict(claim(), [make_record(75.5)])
    assert (found.outcome, found.exit_status) == ("PARTIAL", 4)
    assert verdict(claim(), [make_record(74.0)]).outcome == "FAILED"
    assert verdict(claim(), [make_record(74.0)]).exit_status == 1
    exceeding = verdict(claim(), [make_record(80.0)])
    assert (exceeding.outcome, exceeding.flags, exceeding.exit_status) == (
        "PARTIAL", ("EXCEEDS",), 1,
    )  # fmt: skip


PUBLISHED = [  # totals of the generations that the authors released
    ("math500", 128, 130, 500, 500),
    ("math500", 256, 162, 500, 500),
    ("countdown", 128, 53, 256, 256),
    ("countdown", 256, 50, 256, 256),
    ("sudoku", 128, 240, 2048, 256),
    ("sudoku", 256, 137, 2048, 256),
]


def rescored(make_record, task, length, right, out_of, n, **changes):
    metric = "cells" if task == "sudoku" else "accuracy"
    score = Metric(name=metric, value=100 * right / out_of, n=n, points=right, out_of=out_of)
    decode = {"decode__gen_length": length, "decode__steps": length // 2}
    return make_record(
        0.0, kind="rescore", metrics=[score], data__task=task, data__n=n, **decode, **changes
    )


@pytest.mark.parametrize(("task", "length", "right", "out_of", "n"), PUBLISHED)
def test_published_d1_baseline_is_reproduced(make_record, task, length, right, out_of, n):
    published = reproductions.load("d1").claim(f"d1/baseline/{task}/{length}")
    record = rescored(make_record, task, length, right, out_of, n)
    found = verdict(published, [record])
    assert (found.outcome, found.exit_status) == ("REPRODUCED", 0), found.sentence
    item = out_of // n
    worse = rescored(make_record, task, length, right - 2 * item, out_of, n)
    assert verdict(published, [worse]).outcome == "PARTIAL"


@pytest.mark.parametrize(("length", "right"), [(128, 783), (256, 863)])
def test_part_of_the_d1_gsm8k_items_is_at_best_partial(make_record, make_outcomes, length, right):
    published = reproductions.load("d1").claim(f"d1/baseline/gsm8k/{length}")
    subset = "1130 of 1319: two shards were not released"
    record = rescored(make_record, "gsm8k", length, right, 1130, 1130, data__subset=subset)
    items = make_outcomes([1] * right + [0] * (1130 - right))
    found = verdict(published, [record], outcomes={record.id: items})
    assert (found.outcome, found.exit_status) == ("PARTIAL", 4)
    assert "subset" in found.flags
    assert "1130 of 1319" in found.sentence
    assert found.numbers["half"] == pytest.approx(2.6, abs=0.15)
    without = verdict(published, [record])
    assert without.outcome == "PARTIAL"
    assert without.numbers["lo"] == pytest.approx(found.numbers["lo"], abs=0.3)
    undeclared = rescored(make_record, "gsm8k", length, right, 1130, 1130)
    assert [gate.field for gate in verdict(published, [undeclared]).gates] == ["items"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"model__name": "tiny-llada"}, "model"),
        ({"data__task": "math500"}, "task"),
        ({"data__n": 200}, "items"),
        ({"prompt__protocol": "llada"}, "protocol"),
        ({"prompt__wording": "own"}, "prompt wording"),
        ({"decode__gen_length": 128}, "decode.gen_length"),
        ({"decode__cache": "dual"}, "decode.cache"),
        ({"decode__selection": {"rule": "threshold", "threshold": 0.9}}, "decode.selection"),
        ({"metrics": [Metric(name="cells", value=1.0, n=3)]}, "metric"),
        ({"status": "failed", "reason": "loss was nan"}, "status"),
        ({"budget": Budget(updates=10)}, "training"),
    ],
)
def test_each_gate(make_record, change, field):
    found = verdict(claim(), [make_record(76.7, **change)])
    assert (found.outcome, found.exit_status) == ("NOT COMPARABLE", 4)
    assert [gate.field for gate in found.gates] == [field]
    gate = found.gates[0]
    assert gate.claimed != gate.ours
    assert gate.remedy.startswith("dare ")
    assert field in found.sentence


def test_stated_fields_gate_and_unstated_ones_do_not(make_record):
    record = make_record(76.7)
    bare = claim(protocol=None, gen_length=None, n_items=None)
    report = check_claim(bare, record)
    assert report.differing == ()
    assert {"number of items", "generation length", "model revision"} <= set(report.unspecified)
    strict = claim(
        revision="08b83a6", item_ids_sha256="other", decode={"steps": 256}, hardware="8 x A100"
    )
    fields = [gate.field for gate in check_claim(strict, record).differing]
    assert fields == ["model revision", "items", "decode.steps", "hardware"]


def test_hardware_allowance_widens_the_margin(make_record):
    strict = claim(hardware="8 x A100")
    record = make_record(74.0)
    assert verdict(strict, [record]).outcome == "NOT COMPARABLE"
    allowed = verdict(strict, [record], Policy(hardware_allowance=5.0))
    assert allowed.outcome == "REPRODUCED"
    assert allowed.numbers["delta"] == 5.0
    assert any("5 points allowed" in note for note in allowed.notes)


@pytest.mark.parametrize(("updates", "passes"), [(5500, True), (6600, True), (5000, False)])
def test_training_budget_within_ten_percent(trained, updates, passes):
    records = trained([79.0, 80.0, 79.5], budget=Budget(updates=updates))
    gates = check_claim(trained_claim(budget={"updates": 6000}), records[0]).differing
    assert (not gates) == passes


def test_trained_claims_need_a_trained_run_of_the_method(make_record, trained):
    fields = [gate.field for gate in check_claim(trained_claim(), make_record(79.8)).differing]
    assert fields == ["training"]
    other = trained([80.0], paper={"id": "spg"}, config={"algorithm": "spg"})[0]
    assert [gate.field for gate in check_claim(trained_claim(), other).differing] == ["method"]


def test_selection_rules():
    best = "best on the test set, per length: every 100 steps from step 600 on"
    assert selection_rule(best) == "best on test"
    assert selection_rule("best checkpoint on a validation split") == "best on dev"
    assert selection_rule("last checkpoint") == selection_rule("final step") == "final step"


def test_best_of_many_checkpoints_is_not_our_final_step(trained):
    found = verdict(trained_claim(selection="best on the test set"), trained([79.8] * 3))
    assert [gate.field for gate in found.gates] == ["selection"]


def test_three_seeds_reproduce(trained):
    found = verdict(trained_claim(), trained([79.0, 80.0, 79.2]))
    assert (found.outcome, found.exit_status) == ("REPRODUCED", 0)
    assert found.numbers["m"] == 3
    assert found.numbers["df"] == 6
    assert "over 3 runs" in found.sentence


def test_too_few_seeds_say_how_many_more(trained):
    found = verdict(trained_claim(), trained([79.0, 80.0]))
    assert (found.outcome, found.exit_status) == ("INCONCLUSIVE", 4)
    assert found.numbers["more_seeds"] == 1
    assert "1 more seed(s)" in found.sentence


def test_copies_of_a_run_change_nothing(trained):
    two = trained([79.0, 80.0])
    before = verdict(trained_claim(), two)
    for copies in ([*two, two[0]], [*two, *two, *two]):
        after = verdict(trained_claim(), copies)
        assert (after.outcome, after.numbers) == (before.outcome, before.numbers)
    relabelled = two[0].model_copy(update={"seeds": {"run": 7}}).sealed()
    after = verdict(trained_claim(), [*two, relabelled])
    assert (after.outcome, after.numbers) == (before.outcome, before.numbers)
    assert any("repeats record" in note for note in after.notes)


def test_copies_do_not_change_a_decided_verdict(trained):
    three = trained([70.0, 71.0, 70.5])
    before, after = verdict(trained_claim(), three), verdict(trained_claim(), [*three, *three])
    assert before.outcome == after.outcome == "FAILED"
    assert before.numbers == after.numbers


def test_repeats_of_a_seed_are_averaged_not_counted(make_record, trained):
    three = trained([79.0, 80.0, 79.5])
    repeat = trained([78.0])[0]
    runs, notes = distinct_runs([*three, repeat])
    assert [run.seed for run in runs] == [0, 1, 2]
    assert runs[0].value("accuracy") == pytest.approx(78.5)
    assert notes == ["seed 0: mean of 2 repeats"]


def test_order_and_labels_of_seeds_do_not_matter(trained):
    records = trained([79.0, 80.0, 79.5, 78.0])
    before = verdict(trained_claim(), records)
    shuffled = random.Random(0).sample(records, 4)
    assert verdict(trained_claim(), shuffled).numbers == before.numbers
    renamed = [
        record.model_copy(update={"seeds": {"run": 100 + 7 * i}}).sealed()
        for i, record in enumerate(records)
    ]
    assert verdict(trained_claim(), renamed).numbers == before.numbers


def test_seeds_of_different_configurations_are_not_pooled(trained):
    records = trained([79.0, 80.0, 79.5])
    config = {"paper": "d1", "algorithm": "diffu-grpo", "training": {"seed": 2, "max_steps": 9}}
    odd = records[2].model_copy(update={"config": config}).sealed()
    found = verdict(trained_claim(), [*records[:2], odd])
    assert [gate.field for gate in found.gates] == ["configuration of the runs"]


def test_flips_between_repeats_of_a_frozen_checkpoint(make_record, make_outcomes):
    """2 of 100 items differ: item variances .5 each, SD of the score = 1 point."""
    first = make_outcomes([1] * 60 + [0] * 40)
    second = make_outcomes([1] * 59 + [0, 1] + [0] * 39)
    small = {"data__n": 100, "metrics": [Metric(name="accuracy", value=60.0, n=100)]}
    records = [
        make_record(**small, outcomes={"sha256": name}, host={"node": name}) for name in "ab"
    ]
    given = dict(zip([r.id for r in records], [first, second], strict=True))
    found = verdict(claim(value=61.8, n_items=100), records, outcomes=given)
    assert found.numbers["half"] == pytest.approx(1.959964 * (1 + 1 / 2) ** 0.5)
    assert found.outcome == "REPRODUCED"
    assert any("2 items flipped" in note for note in found.notes)


def test_units_are_points(make_record):
    share = Metric(name="accuracy", value=0.767, n=1319, unit="share")
    assert verdict(claim(), [make_record(metrics=[share])]).outcome == "REPRODUCED"
    as_share = claim(value=0.767, unit="share")
    assert verdict(as_share, [make_record(76.7)]).outcome == "REPRODUCED"
    assert rounding(as_share) == pytest.approx(0.05)
    assert rounding(claim(value=81.0)) == pytest.approx(0.05)
    assert rounding(claim(value=11.72)) == pytest.approx(0.005)


def test_sampled_evaluation_of_a_checkpoint_has_run_to_run_noise(make_record):
    record = make_record(75.5, decode__temperature=0.6)
    found = verdict(claim(), [record])
    assert found.outcome == "REPRODUCED"
    assert found.numbers["df"] == 4


def test_several_cells(make_record):
    good = verdict(claim(), [make_record(76.7)])
    bad = verdict(claim(), [make_record(60.0)])
    other = verdict(claim(), [make_record(76.7, model__name="tiny-llada")])
    whole = combine([good, bad], "d1/baseline")
    assert (whole.outcome, whole.exit_status) == ("PARTIAL", 1)
    assert whole.numbers == {"reproduced": 1, "cells": 2}
    assert combine([good, good], "d1/baseline").outcome == "REPRODUCED"
    assert combine([bad], "d1/baseline").outcome == "FAILED"
    assert combine([other], "d1/baseline").outcome == "NOT COMPARABLE"
    assert combine([good, other], "d1/baseline").exit_status == 4


def test_the_full_d1_row_is_not_reached_by_its_reinforcement_learning_alone(make_record):
    """d1's own row is SFT followed by diffu-GRPO; a diffu-GRPO run claims another row."""
    from dare.reproductions import find_claim

    run = make_record(
        config={"paper": "d1", "algorithm": "diffu-grpo", "training": {}},
        paper={"id": "d1"},
        budget=Budget(updates=100),
    )
    fields = {
        claim_id: [gate.field for gate in check_claim(find_claim(claim_id), run).differing]
        for claim_id in ("d1/gsm8k/256", "d1/diffu-grpo/gsm8k/256")
    }
    assert "method" in fields["d1/gsm8k/256"]
    assert "method" not in fields["d1/diffu-grpo/gsm8k/256"]


@pytest.mark.parametrize(
    ("config", "origins", "field"),
    [
        ({"control": "shuffled-rewards"}, {}, "control"),
        ({"scale": "tiny"}, {}, "scale"),
        ({}, {"training.learning_rate": "--set"}, "settings"),
    ],
)
def test_a_control_another_scale_or_changed_settings_are_not_the_published_run(
    trained, config, origins, field
):
    published = {"paper": "d1", "algorithm": "diffu-grpo", **config}
    run = trained([79.8], config=published, origins=origins)[0]
    fields = [gate.field for gate in check_claim(trained_claim(), run).differing]
    assert fields == [field]
