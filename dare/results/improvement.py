"""``verdict/1`` on claimed gains: "x points over the baseline".

The gain is measured against *our own* baseline record under the same gates, paired by
problem; a paper's baseline may have been weak.  The gain holds when it is significant
(Holm-adjusted p < .05 in the family of cells) and has the claimed sign; its size is judged
like any other claim.  FAILED needs more than a missing effect: the 95 % interval must
exclude the claimed gain less the margin, and the claimed gain must have been detectable
with power .8.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from dare.results import rule
from dare.results.claims import Claim
from dare.results.gates import Gate, conditions, differing
from dare.results.paired import PairedDifference, item_scores, paired_difference
from dare.results.record import Record
from dare.results.rule import Label
from dare.results.stats import holm
from dare.results.verdict import (
    OutcomesById,
    Policy,
    Verdict,
    claimed_points,
    distinct_runs,
    margin,
)

ALPHA = 0.05


def improvement_verdict(
    claim: Claim,
    trained: Sequence[Record],
    baseline: Record,
    outcomes: OutcomesById,
    *,
    policy: Policy | None = None,
    family: Sequence[float] = (),
) -> Verdict:
    """Judge a claimed gain of ``claim.value`` points of ``trained`` over ``baseline``.

    ``outcomes`` by record id must cover all records; ``family`` holds the p-values of the
    other cells that are claimed together with this one.
    """
    policy = policy or Policy()
    gates = _gates(claim, trained, baseline)
    if gates:
        return _not_comparable(claim, gates)
    runs, notes = distinct_runs(trained)
    if len(runs) < policy.min_seeds:
        missing = policy.min_seeds - len(runs)
        text = f"{len(runs)} distinct seed(s); {missing} more seed(s) would do"
        return _judged(claim, "INCONCLUSIVE", text, {"more_seeds": missing}, notes)
    base = item_scores(outcomes[baseline.id], claim.metric)
    arms = [item_scores(outcomes[run.records[0].id], claim.metric) for run in runs]
    gain = paired_difference(arms, [base])
    delta, _ = margin(claim, baseline, policy)
    p = holm([gain.p, *family])[0]
    label, text = _label(claimed_points(claim), gain, p, delta)
    numbers = {**asdict(gain), "p_holm": p, "delta": delta, "claimed": claimed_points(claim)}
    return _judged(claim, label, text, numbers, notes)


def _label(claimed: float, gain: PairedDifference, p: float, delta: float) -> tuple[Label, str]:
    sign = 1 if claimed >= 0 else -1
    ours, target = sign * gain.difference, sign * claimed
    holds = p < ALPHA and ours > 0
    size = rule.decide(target, [sign * value for value in gain.per_seed], delta)
    shown = f"gain {gain.difference:+.2f} points against the published {claimed:+.2f} (p = {p:.3g})"
    if holds and size.label == "REPRODUCED":
        return "REPRODUCED", f"{shown}; it holds, with the published size"
    # The side of the interval that is nearest to the claim, by either method.
    ends = [gain.lo, gain.hi, *(end for end in (gain.seed_lo, gain.seed_hi) if end is not None)]
    nearest = max(sign * end for end in ends)
    if nearest < target - delta and gain.detectable <= target:
        return ("PARTIAL" if holds else "FAILED"), (
            f"{shown}; {'a gain, but a smaller one' if holds else 'no such gain'}, and the "
            f"published one would have been seen (detectable: {gain.detectable:.2f})"
        )
    if holds:
        return "PARTIAL", f"{shown}; a gain, of another size"
    return "INCONCLUSIVE", f"{shown}; no gain shown (detectable: {gain.detectable:.2f})"


def _gates(claim: Claim, trained: Sequence[Record], baseline: Record) -> list[Gate]:
    """Trained runs and baseline must differ in the training alone."""
    found: dict[str, Gate] = {}
    for record in trained:
        for gate in differing(conditions(baseline), conditions(record)):
            found.setdefault(gate.field, gate)
    found.pop("training data", None)
    if baseline.budget.updates:
        found["baseline"] = Gate("baseline", "untrained", f"{baseline.budget.updates} updates")
    if baseline.data.get("task") != claim.task:
        found["task"] = Gate("task", claim.task, baseline.data.get("task"))
    return list(found.values())


def _not_comparable(claim: Claim, gates: Sequence[Gate]) -> Verdict:
    fields = ", ".join(gate.field for gate in gates)
    return Verdict(
        outcome="NOT COMPARABLE",
        rule=rule.RULE,
        claim=claim.id,
        sentence=f"NOT COMPARABLE ({rule.RULE}): baseline and trained runs differ in {fields}.",
        exit_status=4,
        numbers={"claimed": claimed_points(claim)},
        gates=tuple(gates),
    )


def _judged(
    claim: Claim, label: Label, text: str, numbers: dict[str, object], notes: Sequence[str]
) -> Verdict:
    status = {"REPRODUCED": 0, "FAILED": 1, "PARTIAL": 1}.get(label, 4)
    return Verdict(
        outcome=label,
        rule=rule.RULE,
        claim=claim.id,
        sentence=f"{label} ({rule.RULE}): {text}.",
        exit_status=status,
        numbers=numbers,
        notes=tuple(notes),
    )
