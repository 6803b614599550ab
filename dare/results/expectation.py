"""``expectation/1``: does a tiny-scale run behave as the recorded reference seeds did?

A paper's number belongs to an 8B model.  At laptop scale the reference is our own: at least
ten seeds of the same configuration on the same embedded checkpoint, kept in
``reproductions/expectations/<paper>.<task>.<model>.json``.  The mean of m new seeds must fall
into the 99 % prediction interval for the mean of m more such seeds.  Below it is worse, above
it is suspiciously better (leakage, a looser grader, another base); both fail.  99 and not
95 %: one honest run in a hundred is stopped by it, not one in twenty.

A second condition guards against references that never learnt: the greedy gain over the
untrained checkpoint must be at least ``minimum_gain`` points and significant, over the seeds
and over the problems.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Literal

from pydantic import ConfigDict, Field, ValidationError, model_validator

from dare._layout import tree
from dare.config import RunConfig
from dare.errors import Missing, UsageProblem
from dare.results import stats
from dare.results.files import parse_object, pretty_json, read_plain, write_atomic
from dare.results.gates import Gate, same_recipe
from dare.results.paired import PairedDifference, Scores, item_scores, paired_difference
from dare.results.record import Outcome, Record, Strict
from dare.results.rule import Label
from dare.results.verdict import Verdict, distinct_runs, points

RULE = "expectation/1"
SCHEMA: Literal["dare.expectation/1"] = "dare.expectation/1"
LEVEL = 0.99
REFERENCE_SEEDS = 10
MINIMUM_GAIN = 15.0


class SeedValue(Strict):
    """The metric of one reference seed."""

    seed: int
    value: float


class Expectation(Strict):
    """What ``paper``'s tiny run on ``task`` and ``model`` is expected to reach.

    ``config_hash`` is :func:`template_hash` of the configuration (seed 0), ``base_sha256`` the
    hash of the checkpoint's weights; values are in ``unit``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    expectation_schema: Literal["dare.expectation/1"] = Field(default=SCHEMA, alias="schema")
    paper: str
    task: str
    model: str
    base_sha256: str
    config_hash: str
    metric: str
    unit: Literal["percent"] = "percent"
    values: tuple[SeedValue, ...] = Field(min_length=REFERENCE_SEEDS)
    baseline: float
    n_items: int = Field(gt=0)
    minimum_gain: float = MINIMUM_GAIN
    conditions: str
    created: str

    @model_validator(mode="after")
    def _distinct_seeds(self) -> Expectation:
        seeds = [value.seed for value in self.values]
        if len(set(seeds)) < len(seeds):
            raise ValueError("a reference seed occurs twice")
        return self

    @property
    def reference(self) -> tuple[float, ...]:
        """The values, by seed."""
        return tuple(v.value for v in sorted(self.values, key=lambda v: v.seed))


def template_hash(config: RunConfig) -> str:
    """The digest of a configuration whatever its seed."""
    return config.with_seed(0).digest()


def expectation_path(paper: str, task: str, model: str) -> Path:
    """Where the expectation stands, whether or not it exists."""
    return tree("reproductions") / "expectations" / f"{paper}.{task}.{model}.json"


def load_expectation(paper: str, task: str, model: str) -> Expectation:
    """The recorded expectation; ``Missing`` without one, ``UsageProblem`` for a damaged file."""
    path = expectation_path(paper, task, model)
    if not path.is_file():
        raise Missing(
            f"there is no recorded expectation for {paper} on {task} with {model}",
            f"{path.name} is not in reproductions/expectations",
            f"record one from {REFERENCE_SEEDS} seeds or more: "
            f"dare reproduce {paper} --seeds 0-{REFERENCE_SEEDS - 1} --record-reference",
        )
    help = "restore the file, or record the reference seeds again"
    data = parse_object(read_plain(path, "expectation", help), path, "expectation", help)
    try:
        return Expectation.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        why = f"{'.'.join(map(str, first['loc'])) or 'expectation'}: {first['msg']}"
        raise UsageProblem(f"{path} is not a valid expectation", why, help) from error


def save_expectation(expectation: Expectation, path: Path | None = None) -> Path:
    """Write it, atomically, to its place (or ``path``); an existing file is replaced."""
    place = expectation_path(expectation.paper, expectation.task, expectation.model)
    path = path or place
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, pretty_json(expectation.model_dump(mode="json", by_alias=True)))
    return path


def from_runs(
    paper: str,
    config: RunConfig,
    base: tuple[Record, Sequence[Outcome]],
    runs: Sequence[tuple[Record, Sequence[Outcome]]],
    metric: str = "accuracy",
) -> Expectation:
    """The expectation that finished seeds of ``config`` and their baseline make.

    Raises ``UsageProblem`` for fewer than ``REFERENCE_SEEDS`` distinct seeds or a control.
    """
    distinct, _ = distinct_runs([record for record, _ in runs])
    if len(distinct) < REFERENCE_SEEDS or config.control != "none":
        raise UsageProblem(
            "these runs cannot be a reference",
            f"{len(distinct)} distinct seeds, control {config.control}; "
            f"{REFERENCE_SEEDS} seeds without a control are needed",
            f"dare reproduce {paper} --seeds 0-{REFERENCE_SEEDS - 1} --record-reference",
        )
    first = runs[0][0]
    env = first.env
    packages = env.get("packages", {})
    return Expectation(
        paper=paper,
        task=config.task.name,
        model=config.model.name,
        base_sha256=str(first.model["weights_sha256"]),
        config_hash=template_hash(config),
        metric=metric,
        values=tuple(SeedValue(seed=run.seed, value=run.value(metric)) for run in distinct),
        baseline=points(base[0].metric(metric)),
        n_items=first.metric(metric).n,
        conditions=f"{env.get('cpu')}, {env.get('threads')} thread, float32, "
        f"torch {packages.get('torch')}, transformers {packages.get('transformers')}, "
        f"dare {first.code.get('dare')}",
        created=max(record.created for record, _ in runs),
    )


def expected_interval(
    reference: Sequence[float], m: int, n_items: int | None = None
) -> tuple[float, float]:
    """Where the mean of ``m`` new seeds will fall; never narrower than one item each side."""
    lo, hi = stats.prediction_interval(reference, LEVEL, m)
    centre = fmean(reference)
    half = max((hi - lo) / 2, 100.0 / n_items if n_items else 0.0)
    return centre - half, centre + half


def check_expectation(
    values: Sequence[float],
    reference: Expectation | Sequence[float],
    *,
    baseline: float | None = None,
    trained: Sequence[Scores] = (),
    base: Scores | None = None,
    found: Mapping[str, str] | None = None,
) -> Verdict:
    """Judge the ``values`` of new seeds (points) against the reference.

    ``baseline``: our own measurement of the untrained checkpoint (default: the recorded one).
    ``trained``/``base``: points per item of the new seeds and of the baseline; without them
    the per-problem test falls back on unpaired binomials, which asks for more.
    ``found``: ``{"base_sha256": ..., "config_hash": ...}`` of the new runs; what differs from
    the expectation makes the check NOT COMPARABLE.
    """
    if not values:
        raise ValueError("no values to check")
    recorded = reference if isinstance(reference, Expectation) else None
    gates = _gates(recorded, found or {})
    if gates:
        return _not_comparable(_name(recorded), gates)
    known = reference.reference if isinstance(reference, Expectation) else tuple(reference)
    if len(known) < REFERENCE_SEEDS:
        raise ValueError(f"{len(known)} reference seeds, the rule asks for {REFERENCE_SEEDS}")
    n_items = recorded.n_items if recorded else None
    lo, hi = expected_interval(known, len(values), n_items)
    numbers = _numbers(values, known, lo, hi)
    problems: list[str] = []
    notes: list[str] = []
    start = baseline if baseline is not None else recorded.baseline if recorded else None
    if start is not None:
        minimum = recorded.minimum_gain if recorded else MINIMUM_GAIN
        found_gain, problems, notes = _gain(values, start, minimum, n_items, trained, base)
        numbers |= found_gain
    label, reason, flags = _label(fmean(values), lo, hi, problems)
    runs = "1 seed" if len(values) == 1 else f"{len(values)} seeds"
    return Verdict(
        outcome=label,
        rule=RULE,
        claim=_name(recorded),
        sentence=f"{label} ({RULE}): {fmean(values):.2f} over {runs}, expected {lo:.2f} to "
        f"{hi:.2f} from {len(known)} reference seeds; {reason}.",
        exit_status=0 if label == "REPRODUCED" else 1,
        numbers=numbers,
        flags=flags,
        notes=tuple(notes),
    )


def check_runs(
    expectation: Expectation,
    runs: Sequence[tuple[Record, Sequence[Outcome]]],
    base: tuple[Record, Sequence[Outcome]] | None = None,
) -> Verdict:
    """:func:`check_expectation` on records with their outcomes; copies of a run count once.

    ``base`` is the evaluation of the untrained checkpoint.
    """
    metric = expectation.metric
    outcomes = {record.id: lines for record, lines in [*runs, *([base] if base else [])]}
    distinct, notes = distinct_runs([record for record, _ in runs])
    first = distinct[0].records[0]
    differing = same_recipe([record for record, _ in runs])
    if differing:
        return _not_comparable(_name(expectation), differing)
    checked = check_expectation(
        [run.value(metric) for run in distinct],
        expectation,
        baseline=points(base[0].metric(metric)) if base else None,
        trained=[item_scores(outcomes[run.records[0].id], metric) for run in distinct],
        base=item_scores(base[1], metric) if base else None,
        found={
            "base_sha256": str(first.model.get("weights_sha256")),
            "config_hash": template_hash(RunConfig.model_validate(first.config)),
        },
    )
    return replace(checked, notes=(*checked.notes, *notes))


def _name(expectation: Expectation | None) -> str:
    if expectation is None:
        return "reference"
    return f"{expectation.paper}/{expectation.task}/{expectation.model}"


def _numbers(
    values: Sequence[float], known: Sequence[float], lo: float, hi: float
) -> dict[str, Any]:
    return {
        "ours": fmean(values),
        "values": list(values),
        "seeds": len(values),
        "lo": lo,
        "hi": hi,
        "level": LEVEL,
        "reference_mean": fmean(known),
        "reference_sd": stdev(known),
        "reference_seeds": len(known),
    }


def _label(
    ours: float, lo: float, hi: float, problems: Sequence[str]
) -> tuple[Label, str, tuple[str, ...]]:
    if ours < lo - 1e-9:
        return "FAILED", "; ".join(["worse than the reference", *problems]), ()
    if ours > hi + 1e-9:
        reason = "suspiciously better than the reference: look for leakage or another base"
        return "FAILED", "; ".join([reason, *problems]), ("EXCEEDS",)
    if problems:
        return "FAILED", "; ".join(problems), ()
    return "REPRODUCED", "as the reference behaved", ()


def _gates(expectation: Expectation | None, found: Mapping[str, str]) -> list[Gate]:
    if expectation is None:
        return []
    remedies = {
        "base_sha256": "name the recorded checkpoint: "
        f"dare reproduce {expectation.paper} --model {expectation.model}",
        "config_hash": f"run the pinned settings: dare reproduce {expectation.paper}",
    }
    return [
        Gate(name, getattr(expectation, name), found[name], remedy)
        for name, remedy in remedies.items()
        if name in found and found[name] != getattr(expectation, name)
    ]


def _not_comparable(name: str, gates: Sequence[Gate]) -> Verdict:
    fields = ", ".join(gate.field for gate in gates)
    return Verdict(
        outcome="NOT COMPARABLE",
        rule=RULE,
        claim=name,
        sentence=f"NOT COMPARABLE ({RULE}): not the runs that the reference is for; "
        f"different: {fields}.",
        exit_status=4,
        numbers={},
        gates=tuple(gates),
    )


def _gain(
    values: Sequence[float],
    baseline: float,
    minimum: float,
    n_items: int | None,
    trained: Sequence[Scores],
    base: Scores | None,
) -> tuple[dict[str, Any], list[str], list[str]]:
    """The gain over the untrained checkpoint: numbers, what is wrong with it, notes."""
    gain = fmean(values) - baseline
    numbers: dict[str, Any] = {"baseline": baseline, "gain": gain, "minimum_gain": minimum}
    problems: list[str] = []
    notes: list[str] = []
    if gain < minimum - 1e-9:
        problems.append(f"the gain of {gain:+.2f} points is below the {minimum:g} required")
    if len(values) > 1:
        lo, hi = stats.t_interval([value - baseline for value in values])
        numbers["gain_over_seeds"] = [lo, hi]
        if lo <= 0:
            problems.append("the gain is not significant over the seeds")
    if trained and base is not None:
        paired: PairedDifference = paired_difference(trained, [base])
        numbers["gain_over_problems"] = asdict(paired)
        significant = paired.lo > 0 and paired.difference > 0
        if len(trained) == 1:
            significant = paired.p < 0.05 and paired.difference > 0
        if not significant:
            problems.append("the gain is not significant over the problems")
    elif n_items:
        half = _unpaired_half_width(fmean(values), baseline, n_items)
        numbers["gain_unpaired_half_width"] = half
        notes.append("problems were not paired: outcomes were not given")
        if gain <= half:
            problems.append("the gain is not significant over the problems")
    return numbers, problems, notes


def _unpaired_half_width(ours: float, baseline: float, n: int) -> float:
    shares = [min(1.0, max(0.0, value / 100)) for value in (ours, baseline)]
    variance = sum(share * (1 - share) / n for share in shares)
    return 100 * stats.normal_quantile(0.975) * math.sqrt(variance)
