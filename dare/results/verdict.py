"""Verdicts on published numbers: pure functions of a claim, records and a policy.

    verdict(claim, records).sentence
    # "REPRODUCED (verdict/1): 79.1 over 3 seeds against the published 79.8 (-0.7 points) ..."

Order: gates (NOT COMPARABLE), number of seeds (INCONCLUSIVE), then the rule in
``dare.results.rule``: FAILED, REPRODUCED, PARTIAL, INCONCLUSIVE.  Three cases differ in what
is random:

* trained runs on the same items: run-to-run spread, pooled with a weak prior
* a fixed checkpoint at temperature 0, or given generations: nothing but numerics, so equal
  within one item or the rounding of the published number is REPRODUCED
* a declared part of the items: bootstrap over seeds and items, and at best PARTIAL, however
  close the value is: the rest of the items was not seen.  This holds even when the published
  value lies inside the interval of the part.

Exit status: 0 REPRODUCED; 1 FAILED, or PARTIAL because the level was missed; 4 NOT
COMPARABLE, INCONCLUSIVE, or PARTIAL only because the evidence is limited.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean, stdev
from typing import Any

from dare.results import rule
from dare.results.claims import Claim
from dare.results.gates import Gate, GateReport, check_claim, same_recipe
from dare.results.paired import as_arrays, item_scores
from dare.results.record import Metric, Outcome, Record
from dare.results.rule import Decision, Label

# Points; the smallest difference that matters on each set.
MARGINS = {
    "gsm8k": 2.0,
    "math500": 3.0,
    "humaneval": 5.0,
    "mbpp": 5.0,
    "countdown": 5.0,
    "sudoku": 5.0,
    "aime2024": 10.0,
    "aime2025": 10.0,
}
DEFAULT_MARGIN = 5.0

OutcomesById = Mapping[str, Sequence[Outcome]]


@dataclass(frozen=True)
class Policy:
    """What the rule leaves open.  ``margins`` and allowances in points."""

    margins: Mapping[str, float] = field(default_factory=lambda: MARGINS)
    default_margin: float = DEFAULT_MARGIN
    min_seeds: int = 3
    min_evaluations: int = 1
    hardware_allowance: float | None = None


@dataclass(frozen=True)
class Verdict:
    """The outcome with every number behind it; ``sentence`` says it in words.

    ``flags``: "EXCEEDS", "equivalent", "subset".  ``gates``: what made it not comparable.
    """

    outcome: Label
    rule: str
    claim: str
    sentence: str
    exit_status: int
    numbers: dict[str, Any]
    flags: tuple[str, ...] = ()
    gates: tuple[Gate, ...] = ()
    unspecified: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Run:
    """The distinct records of one seed."""

    seed: int
    records: tuple[Record, ...]

    def value(self, metric: str) -> float:
        return fmean(points(record.metric(metric)) for record in self.records)


def points(metric: Metric) -> float:
    """The metric on a scale of 100, exactly where it is a ratio of counts."""
    if metric.points is not None and metric.out_of:
        return 100.0 * metric.points / metric.out_of
    return metric.value * (100.0 if metric.unit == "share" else 1.0)


def claimed_points(claim: Claim) -> float:
    """The published value on a scale of 100."""
    return claim.value * (100.0 if claim.unit == "share" else 1.0)


def distinct_runs(records: Sequence[Record]) -> tuple[list[Run], list[str]]:
    """One run per seed, and what was set aside: copies are not further evidence.

    Records with the same id or the same outcomes are copies, whatever seed they claim.
    Different records of one seed are repeats and are averaged.
    """
    kept: dict[Any, Record] = {}
    notes = []
    for record in sorted(records, key=lambda record: (_seed(record), record.id)):
        content = record.outcomes.get("sha256") or record.id
        if content in kept:
            copy_of = kept[content]
            notes.append(
                f"record {record.id[:12]} (seed {_seed(record)}) repeats record "
                f"{copy_of.id[:12]} (seed {_seed(copy_of)}) and is not counted"
            )
        else:
            kept[content] = record
    by_seed: dict[int, list[Record]] = {}
    for record in kept.values():
        by_seed.setdefault(_seed(record), []).append(record)
    for seed, same in by_seed.items():
        if len(same) > 1:
            notes.append(f"seed {seed}: mean of {len(same)} repeats")
    return [Run(seed, tuple(same)) for seed, same in sorted(by_seed.items())], notes


def _seed(record: Record) -> int:
    seed = record.seeds.get("run")
    return seed if isinstance(seed, int) else 0


def verdict(
    claim: Claim,
    records: Sequence[Record],
    policy: Policy | None = None,
    outcomes: OutcomesById | None = None,
) -> Verdict:
    """Judge an absolute ``claim`` by ``records`` (at least one), in any order.

    ``outcomes`` by record id give item-level noise where it matters: flips between repeats
    of a fixed checkpoint, and the bootstrap on a part of the items.
    """
    policy = policy or Policy()
    reports = [
        check_claim(claim, record, hardware_allowance=policy.hardware_allowance)
        for record in records
    ]
    report = _merged(reports, same_recipe(records))
    if report.differing:
        return _not_comparable(claim, report)
    runs, notes = distinct_runs(records)
    minimum = policy.min_seeds if claim.trained else policy.min_evaluations
    values = [run.value(claim.metric) for run in runs]
    if len(runs) < minimum:
        return _too_few(claim, values, minimum, report, notes)
    delta, resolution = margin(claim, records[0], policy)
    decision, basis = _decide(claim, runs, delta, resolution, report, outcomes or {})
    return _from_decision(claim, decision, values, report, [*notes, *report.notes, basis])


def margin(claim: Claim, record: Record, policy: Policy) -> tuple[float, float]:
    """(delta, smallest difference that can be told apart), both in points."""
    item = 100.0 / max(1, record.metric(claim.metric).n)
    default = policy.margins.get(claim.task, policy.default_margin)
    allowed = 0.0
    if claim.hardware is not None and claim.hardware != record.env.get("accelerator"):
        allowed = policy.hardware_allowance or 0.0
    return max(default, item, allowed), max(item, rounding(claim), allowed)


def rounding(claim: Claim) -> float:
    """Half a unit of the last printed digit, in points; a whole number counts as 'x.0'."""
    decimals = len(repr(float(claim.value)).partition(".")[2])
    return 0.5 * 10.0**-decimals * (100.0 if claim.unit == "share" else 1.0)


def _decide(
    claim: Claim,
    runs: Sequence[Run],
    delta: float,
    resolution: float,
    report: GateReport,
    outcomes: OutcomesById,
) -> tuple[Decision, str]:
    claimed = claimed_points(claim)
    values = [run.value(claim.metric) for run in runs]
    direction = 1 if claim.direction == "higher" else -1
    if report.subset is not None:
        value = fmean(values)
        interval, basis = _item_interval(claim.metric, runs, outcomes)
        decision = rule.decide_subset(
            claimed, value, interval, delta, m=len(runs), direction=direction
        )
        return decision, basis
    first = runs[0].records[0]
    if not claim.trained and (first.kind == "rescore" or first.decode.get("temperature") == 0):
        repeats = [record for run in runs for record in run.records]
        sd, basis = _repeat_sd(claim.metric, repeats, outcomes)
        scores = [points(record.metric(claim.metric)) for record in repeats]
        decision = rule.decide_frozen(
            claimed, scores, delta, resolution=resolution, repeat_sd=sd, direction=direction
        )
        return decision, basis
    decision = rule.decide(
        claimed, values, delta, claimed_runs=claim.n_seeds or 1, direction=direction
    )
    return decision, "noise: run to run, same items"


def _item_interval(
    metric: str, runs: Sequence[Run], outcomes: OutcomesById
) -> tuple[tuple[float, float], str]:
    """95 % interval of our value over seeds and items."""
    from dare.results import stats

    scores = [item_scores(outcomes[r.id], metric) for run in runs for r in run.records
              if r.id in outcomes]  # fmt: skip
    if len(scores) == sum(len(run.records) for run in runs):
        share, weights = as_arrays(scores)
        found = stats.paired_bootstrap(share, 0 * share, weights)
        return (100 * found.lo, 100 * found.hi), "noise: bootstrap over seeds and items"
    first = runs[0].records[0].metric(metric)
    value = fmean(run.value(metric) for run in runs)
    right = min(first.n, max(0, round(value / 100 * first.n)))
    lo, hi = stats.wilson(right, max(1, first.n))
    return (100 * lo, 100 * hi), "noise: items only (Wilson), outcomes were not given"


def _repeat_sd(metric: str, repeats: Sequence[Record], outcomes: OutcomesById) -> tuple[float, str]:
    """SD in points of one repeat of a fixed checkpoint, from the items that flipped."""
    if len(repeats) < 2:
        return 0.0, "noise: numerical only; one evaluation, so equal means within one item"
    if all(record.id in outcomes for record in repeats):
        scores, weights = as_arrays([item_scores(outcomes[r.id], metric) for r in repeats])
        variance = float(scores.var(axis=0, ddof=1).sum())
        flips = int((scores != scores[0]).any(axis=0).sum())
        sd = 100 * math.sqrt(variance) / float(weights.sum())
        return sd, f"noise: {flips} items flipped between {len(repeats)} repeats"
    sd = stdev(points(record.metric(metric)) for record in repeats)
    return sd, f"noise: spread of {len(repeats)} repeats"


def _merged(reports: Sequence[GateReport], among: Sequence[Gate]) -> GateReport:
    """Each gate once, however many records it concerns."""
    gates: dict[str, Gate] = {}
    for gate in [gate for report in reports for gate in report.differing] + list(among):
        gates.setdefault(gate.field, gate)
    subset = next((report.subset for report in reports if report.subset), None)
    return GateReport(tuple(gates.values()), reports[0].unspecified, subset, reports[0].notes)


def _not_comparable(claim: Claim, report: GateReport) -> Verdict:
    fields = ", ".join(gate.field for gate in report.differing)
    return Verdict(
        outcome="NOT COMPARABLE",
        rule=rule.RULE,
        claim=claim.id,
        sentence=f"NOT COMPARABLE ({rule.RULE}): this is not a measurement of {claim.id}; "
        f"different: {fields}.",
        exit_status=4,
        numbers={"claimed": claimed_points(claim)},
        gates=report.differing,
        unspecified=report.unspecified,
    )


def _too_few(
    claim: Claim, values: Sequence[float], minimum: int, report: GateReport, notes: Sequence[str]
) -> Verdict:
    missing = minimum - len(values)
    shown = ", ".join(f"{value:.2f}" for value in values)
    return Verdict(
        outcome="INCONCLUSIVE",
        rule=rule.RULE,
        claim=claim.id,
        sentence=f"INCONCLUSIVE ({rule.RULE}): {len(values)} distinct seed(s) ({shown}), the rule "
        f"asks for {minimum}; {missing} more seed(s) would do.",
        exit_status=4,
        numbers={
            "claimed": claimed_points(claim), "values": list(values), "seeds": len(values),
            "more_seeds": missing,
        },
        unspecified=report.unspecified,
        notes=tuple(notes),
    )  # fmt: skip


def exit_status(decision: Decision) -> int:
    """0, 1 or 4; see the top of this file."""
    if decision.label == "REPRODUCED":
        return 0
    missed = decision.label == "PARTIAL" and abs(decision.d) > decision.delta
    return 1 if decision.label == "FAILED" or missed else 4


def _from_decision(
    claim: Claim,
    decision: Decision,
    values: Sequence[float],
    report: GateReport,
    notes: Sequence[str],
) -> Verdict:
    flags = [
        name
        for name, set_ in (
            ("EXCEEDS", decision.exceeds),
            ("equivalent", decision.equivalent and decision.label == "REPRODUCED"),
            ("subset", report.subset is not None),
        )
        if set_
    ]
    numbers = asdict(decision)
    numbers.pop("label")
    return Verdict(
        outcome=decision.label,
        rule=rule.RULE,
        claim=claim.id,
        sentence=_sentence(decision, report.subset),
        exit_status=exit_status(decision),
        numbers={**numbers, "values": list(values)},
        flags=tuple(flags),
        unspecified=report.unspecified,
        notes=tuple(notes),
    )


def _sentence(decision: Decision, subset: str | None) -> str:
    d = decision
    runs = "1 run" if d.m == 1 else f"{d.m} runs"
    inside = d.lo - 1e-9 <= d.claimed <= d.hi + 1e-9
    where = f"{'inside' if inside else 'outside'} our interval {d.lo:.2f} to {d.hi:.2f}"
    compared = (
        f"{d.ours:.2f} over {runs} against the published {d.claimed:.2f} "
        f"({d.ours - d.claimed:+.2f} points, margin {d.delta:g}), which is {where}"
    )
    return f"{d.label} ({rule.RULE}): {compared}; {_because(d, subset)}."


def _because(d: Decision, subset: str | None) -> str:
    if d.label == "REPRODUCED":
        return "equivalent within the margin" if d.equivalent else "within the margin"
    if d.label == "FAILED":
        return "worse by more than the margin and more than noise"
    if d.exceeds:
        return "better by more than the margin and more than noise: suspicious until repeated"
    if subset is not None and abs(d.d) <= d.delta:
        return f"agrees, but was measured on a part of the items only ({subset})"
    more = f"; {d.more} more seed(s) would do" if d.more else ""
    if d.label == "PARTIAL" and abs(d.d) <= d.delta:
        return f"near, but {'too uncertain' if d.half > 2 * d.delta else 'not equal'}{more}"
    if d.label == "PARTIAL":
        return f"off by more than the margin, by less than two{more}"
    return f"nothing is shown either way{more or '; more seeds alone would not decide it'}"


def combine(verdicts: Sequence[Verdict], claim: str) -> Verdict:
    """One verdict on a claim of several cells: k of m reproduced is PARTIAL."""
    judged = [v for v in verdicts if v.outcome not in ("NOT COMPARABLE", "INCONCLUSIVE")]
    k, m = sum(v.outcome == "REPRODUCED" for v in judged), len(verdicts)
    label: Label
    if not judged:
        inconclusive = any(v.outcome == "INCONCLUSIVE" for v in verdicts)
        label = "INCONCLUSIVE" if inconclusive else "NOT COMPARABLE"
    elif k == m:
        label = "REPRODUCED"
    elif all(v.outcome == "FAILED" for v in judged):
        label = "FAILED"
    else:
        label = "PARTIAL"
    failed = any(v.exit_status == 1 for v in verdicts)
    return Verdict(
        outcome=label,
        rule=rule.RULE,
        claim=claim,
        sentence=f"{label} ({rule.RULE}): {k} of {m} cells of {claim} reproduced.",
        exit_status=0 if label == "REPRODUCED" else 1 if failed else 4,
        numbers={"reproduced": k, "cells": m},
        notes=tuple(v.sentence for v in verdicts),
    )
