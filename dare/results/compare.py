"""Comparison of algorithms: pure functions of what each arm answered under each seed.

    arms = [arm("d1", d1_runs), arm("spg", spg_runs)]     # runs: [(Record, outcomes), ...]
    comparison = compare(arms, metric="accuracy", delta=2.0, sheet=sheet)
    comparison.contrasts[0].wording      # "spg > d1" | "no difference shown (...)" | ...

Arms are paired: same seeds, same problems, same prompts, sampler, grader and selection rule;
anything else raises ``NotComparable`` naming the fields.  A failed seed cannot be dropped: it
makes the arm incomparable until it is run.  A comparison is exploratory unless its sheet was
locked before the runs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import Any, Literal

from pydantic import ConfigDict, Field

from dare.config import canonical_json
from dare.errors import NotComparable
from dare.results import stats
from dare.results.gates import BUDGET_TOLERANCE, Gate, conditions, differing
from dare.results.paired import PairedDifference, Scores, item_scores, paired_difference
from dare.results.record import Budget, Outcome, Record, Strict

ALPHA = 0.05
BudgetUnit = Literal[
    "nfe_train", "completions", "updates", "generated_tokens", "learner_forwards", "cpu_seconds"
]
# Seconds depend on what else the machine did; all other units are counted.
_SHOWN_UNITS = (
    "updates", "completions", "generated_tokens", "nfe_train", "learner_forwards", "cpu_seconds",
)  # fmt: skip


class ProtocolSheet(Strict):
    """What a comparison will do, written down before it runs.

    ``rollout_budget`` is the amount of ``budget_unit`` that each arm may spend per seed;
    ``configs`` holds the digest of each arm's settings, whatever the seed; ``trials`` counts the
    settings that were tried for an arm beforehand.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    sheet_schema: Literal["dare.sheet/1"] = Field(default="dare.sheet/1", alias="schema")
    algorithms: tuple[str, ...] = Field(min_length=2)
    task: str
    protocol: str
    metric: str
    budget_unit: BudgetUnit = "nfe_train"
    rollout_budget: dict[str, int]
    seeds: tuple[int, ...] = Field(min_length=1)
    selection: str = "final step"
    stop: str
    base_sha256: str
    configs: dict[str, str] = Field(default_factory=dict)
    trials: dict[str, int] = Field(default_factory=dict)
    delta: float | None = None

    def digest(self) -> str:
        """SHA-256 of the canonical JSON: what "locked" means."""
        return hashlib.sha256(canonical_json(self.model_dump(mode="json")).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class ArmRun:
    """One seed of one arm: points per item, the conditions of the run and what it spent."""

    seed: int
    scores: Scores
    conditions: Mapping[str, Any] = field(default_factory=dict)
    budget: Budget = field(default_factory=Budget)
    record: str = ""


@dataclass(frozen=True, slots=True)
class Arm:
    """One algorithm, with its runs."""

    name: str
    runs: tuple[ArmRun, ...]


@dataclass(frozen=True, slots=True)
class ArmSummary:
    """``values``: points per seed, in the order of the comparison's seeds.

    ``lo``/``hi``: 95 % t interval over seeds, or Wilson over items with one seed.
    ``compute``: mean per seed of each unit.
    """

    name: str
    mean: float
    lo: float
    hi: float
    interval: str
    values: tuple[float, ...]
    compute: dict[str, float]
    records: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Contrast:
    """``a`` minus ``b``; ``p_holm`` is adjusted over all contrasts of the comparison."""

    a: str
    b: str
    paired: PairedDifference
    p_holm: float
    wording: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything that is shown; points throughout.  ``sheet`` None means exploratory."""

    metric: str
    seeds: tuple[int, ...]
    n_items: int
    arms: tuple[ArmSummary, ...]
    contrasts: tuple[Contrast, ...]
    delta: float | None
    budget_unit: str
    sheet: str | None
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def arm(name: str, runs: Sequence[tuple[Record, Sequence[Outcome]]], metric: str) -> Arm:
    """An arm from its records and their outcomes."""
    return Arm(
        name,
        tuple(
            ArmRun(
                seed=int(record.seeds.get("run", 0)),
                scores=item_scores(outcomes, metric),
                conditions=conditions(record),
                budget=record.budget,
                record=record.id,
            )
            for record, outcomes in runs
        ),
    )


def compare(
    arms: Sequence[Arm],
    *,
    metric: str = "accuracy",
    delta: float | None = None,
    sheet: ProtocolSheet | None = None,
    budget_unit: BudgetUnit = "nfe_train",
) -> Comparison:
    """Compare each arm with the first one, Holm-adjusted over the family.

    ``delta``: the difference that matters, for the word "equivalent" (default: the sheet's).
    Raises ``NotComparable`` when gates differ.
    """
    unit = sheet.budget_unit if sheet else budget_unit
    delta = delta if delta is not None else sheet.delta if sheet else None
    arms = [Arm(arm.name, tuple(sorted(arm.runs, key=lambda run: run.seed))) for arm in arms]
    check_arms(arms, unit, sheet)
    reference, *others = arms
    scores = [run.scores for run in reference.runs]
    paired = [paired_difference([run.scores for run in arm.runs], scores) for arm in others]
    adjusted = stats.holm([difference.p for difference in paired])
    contrasts = tuple(
        Contrast(arm.name, reference.name, d, p, wording(arm.name, reference.name, d, p, delta))
        for arm, d, p in zip(others, paired, adjusted, strict=True)
    )
    return Comparison(
        metric=metric,
        seeds=tuple(run.seed for run in reference.runs),
        n_items=len(reference.runs[0].scores),
        arms=tuple(_summary(arm) for arm in arms),
        contrasts=contrasts,
        delta=delta,
        budget_unit=unit,
        sheet=sheet.digest() if sheet else None,
        notes=tuple(_notes(arms, sheet, paired)),
    )


def wording(
    a: str, b: str, difference: PairedDifference, p_holm: float, delta: float | None
) -> str:
    """One of three different findings; absence of a difference is not equality."""
    once = " on this one seed" if len(difference.per_seed) == 1 else ""
    if p_holm < ALPHA:
        better, worse = (a, b) if difference.difference > 0 else (b, a)
        return f"{better} > {worse}{once}"
    if delta is not None and difference.within <= delta:
        return f"equivalent within {delta:g}{once}"
    return f"no difference shown{once} (could have detected {difference.detectable:.1f})"


def check_arms(arms: Sequence[Arm], unit: str, sheet: ProtocolSheet | None) -> None:
    """Raise ``NotComparable`` unless the arms are paired and kept to the sheet."""
    if len(arms) < 2 or any(not arm.runs for arm in arms):
        raise NotComparable(
            "a comparison needs two arms or more, each with a run",
            ", ".join(f"{arm.name}: {len(arm.runs)} run(s)" for arm in arms) or "no arm",
            "dare compare ALGORITHM ALGORITHM",
        )
    gates = _seed_gates(arms)
    first = arms[0].runs[0]
    for arm in arms:
        for run in arm.runs:
            gates += _run_gates(first, run)
    gates += _budget_gates(arms, unit)
    gates += _sheet_gates(arms, sheet) if sheet else []
    if gates:
        unique = {gate.field: gate for gate in gates}
        raise NotComparable(
            "the arms are not comparable: " + ", ".join(unique),
            "; ".join(str(gate) for gate in unique.values()),
            f"run both under the same settings: dare compare {' '.join(arm.name for arm in arms)}",
        )


def _seed_gates(arms: Sequence[Arm]) -> list[Gate]:
    gates = []
    first = [run.seed for run in arms[0].runs]
    for arm in arms:
        seeds = [run.seed for run in arm.runs]
        if len(set(seeds)) < len(seeds):
            gates.append(Gate(f"seeds of {arm.name}", "each once", seeds))
        elif seeds != first:
            gates.append(Gate(f"seeds of {arm.name}", first, seeds))
    return gates


def _run_gates(first: ArmRun, run: ArmRun) -> list[Gate]:
    gates = differing(first.conditions, run.conditions)
    status = run.conditions.get("status", "complete")
    if status != "complete":
        gates.append(Gate(f"status of seed {run.seed}", "complete", status))
    mine, theirs = first.scores, run.scores
    if mine.keys() != theirs.keys():
        gates.append(Gate("items", f"{len(mine)} items", f"{len(theirs)} others"))
    elif any(mine[item][1] != theirs[item][1] for item in mine):
        gates.append(Gate("points per item", "equal", "different"))
    return gates


def _budget_gates(arms: Sequence[Arm], unit: str) -> list[Gate]:
    spent = {arm.name: _mean_budget(arm, unit) for arm in arms}
    low, high = min(spent.values()), max(spent.values())
    if high - low <= BUDGET_TOLERANCE * high:
        return []
    least = min(spent, key=lambda name: spent[name])
    most = max(spent, key=lambda name: spent[name])
    return [Gate(f"budget ({unit})", f"{least}: {low:g}", f"{most}: {high:g}")]


def _mean_budget(arm: Arm, unit: str) -> float:
    return fmean(float(getattr(run.budget, unit)) for run in arm.runs)


def _sheet_gates(arms: Sequence[Arm], sheet: ProtocolSheet) -> list[Gate]:
    pairs: list[tuple[str, Any, Any]] = [
        ("algorithms", sorted(sheet.algorithms), sorted(arm.name for arm in arms)),
        ("seeds", sorted(sheet.seeds), [run.seed for run in arms[0].runs]),
    ]
    found = arms[0].runs[0].conditions
    for name, value in (
        ("task", sheet.task),
        ("protocol", sheet.protocol),
        ("selection", sheet.selection),
        ("base model", sheet.base_sha256),
    ):
        if name in found:
            pairs.append((name, value, found[name]))
    for arm in arms:
        allowed = sheet.rollout_budget.get(arm.name)
        spent = _mean_budget(arm, sheet.budget_unit)
        if allowed is not None and abs(spent - allowed) > BUDGET_TOLERANCE * allowed:
            pairs.append((f"{sheet.budget_unit} of {arm.name}", allowed, spent))
    return [Gate(f"sheet: {name}", ours, theirs) for name, ours, theirs in pairs if ours != theirs]


def _summary(arm: Arm) -> ArmSummary:
    totals = [
        (sum(p for p, _ in run.scores.values()), sum(w for _, w in run.scores.values()))
        for run in arm.runs
    ]
    values = tuple(100 * points / out_of for points, out_of in totals)
    if len(values) > 1:
        (lo, hi), interval = stats.t_interval(values), "t over seeds"
    else:
        share = stats.wilson(*totals[0])
        (lo, hi), interval = (100 * share[0], 100 * share[1]), "Wilson over items"
    return ArmSummary(
        name=arm.name,
        mean=fmean(values),
        lo=lo,
        hi=hi,
        interval=interval,
        values=values,
        compute={unit: _mean_budget(arm, unit) for unit in _SHOWN_UNITS},
        records=tuple(run.record for run in arm.runs),
    )


def _notes(
    arms: Sequence[Arm], sheet: ProtocolSheet | None, paired: Sequence[PairedDifference]
) -> list[str]:
    notes = []
    if sheet is None:
        notes.append("exploratory: no sheet was locked before the runs")
    seeds = len(arms[0].runs)
    smallest = paired[0].smallest_p
    if seeds == 1:
        notes.append("one seed each: this says nothing about other seeds")
    elif smallest is not None and smallest >= ALPHA:
        notes.append(
            f"a sign-flip test over {seeds} seeds cannot give p below {smallest:g}; "
            "6 seeds are the fewest for p < .05"
        )
    if len(paired) > 1:
        notes.append(f"p-values are Holm-adjusted over {len(paired)} contrasts")
    return notes
