"""Claimed gains, judged against our own baseline."""

from __future__ import annotations

import pytest

from dare.results.claims import Claim
from dare.results.improvement import improvement_verdict
from dare.results.record import Budget, Metric


def gain_claim(value: float) -> Claim:
    return Claim(
        id="d1/diffu-grpo/gsm8k/256", row="+ diffu-GRPO", model="llada-8b", task="gsm8k",
        metric="accuracy", value=value, kind="improvement", baseline="d1/baseline/gsm8k/256",
        source="a table",
    )  # fmt: skip


@pytest.fixture
def runs(make_record, make_outcomes):
    """(trained records, baseline, outcomes): each seed gains the first ``gain`` lost items."""

    def build(gains, base_right=500, n=1000):
        def one(right, seed, updates):
            score = Metric(name="accuracy", value=100 * right / n, n=n, points=right, out_of=n)
            name = f"{right} {seed} {updates}"
            return make_record(
                0.0, seed=seed, metrics=[score], budget=Budget(updates=updates),
                outcomes={"sha256": name}, data__n=n,
            )  # fmt: skip

        baseline = one(base_right, 0, 0)
        outcomes = {baseline.id: make_outcomes([1] * base_right + [0] * (n - base_right))}
        trained = []
        for seed, gain in enumerate(gains):
            record = one(base_right + gain, seed, 100)
            trained.append(record)
            outcomes[record.id] = make_outcomes(
                [1] * (base_right + gain) + [0] * (n - base_right - gain), seed
            )
        return trained, baseline, outcomes

    return build


@pytest.mark.parametrize(
    ("claimed", "gains", "label", "status"),
    [
        (10.0, (100, 104, 98), "REPRODUCED", 0),
        (30.0, (100, 104, 98), "PARTIAL", 1),
        (10.0, (0, 1, -1), "FAILED", 1),
        (10.0, (200, -150, 30), "INCONCLUSIVE", 4),
        (10.0, (100, 104), "INCONCLUSIVE", 4),
    ],
)
def test_gains(runs, claimed, gains, label, status):
    found = improvement_verdict(gain_claim(claimed), *runs(gains))
    assert (found.outcome, found.exit_status) == (label, status), found.sentence


def test_a_claim_too_small_to_be_seen_is_not_failed(runs):
    found = improvement_verdict(gain_claim(3.0), *runs((-60, 40, 5)))
    assert found.outcome == "INCONCLUSIVE"
    assert found.numbers["detectable"] > 3.0


def test_significance_is_adjusted_for_the_family(runs):
    data = runs((20, 35, 60))
    alone = improvement_verdict(gain_claim(3.5), *data)
    p = alone.numbers["p"]
    assert 0.025 < p < 0.09
    crowd = improvement_verdict(gain_claim(3.5), *data, family=[0.5] * 9)
    assert crowd.numbers["p_holm"] == pytest.approx(min(1.0, 10 * p))
    assert crowd.outcome == "INCONCLUSIVE"


def test_baseline_must_share_the_gates_and_be_untrained(runs):
    trained, baseline, outcomes = runs((100, 104, 98))
    other = baseline.model_copy(update={"decode": {"gen_length": 512}}).sealed()
    found = improvement_verdict(gain_claim(10.0), trained, other, outcomes)
    assert [gate.field for gate in found.gates] == ["decode"]
    found = improvement_verdict(gain_claim(10.0), trained, trained[0], outcomes)
    assert [gate.field for gate in found.gates] == ["baseline"]
