"""What ``dare rescore`` prints: scores with intervals, who disagrees, what got no verdict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dare.cli._output import heading, say, table

if TYPE_CHECKING:
    from dare.evaluation.regrade import Regrade
    from dare.evaluation.rescore import Rescore, Scored
    from dare.results.claims import Claim
    from dare.results.record import Metric
    from dare.tasks.base import Grade

SHOWN = 24  # characters of an answer in a table


def print_result(result: Rescore, regrade: Regrade | None, claim: Claim | None, show: int) -> None:
    """One file or run, as text."""
    heading(f"{result.source}: {result.task}, protocol {result.protocol}")
    scores = [_score_row(result.score())]
    strict = result.strict_score()
    if strict is not None:
        scores.append(_score_row(strict))
    table(("metric", "value", "count", "95 % interval"), scores, right=("value", "count"))
    say()
    if claim is not None:
        say(_against(result, claim) if comparable(result, claim) else _not_compared(result, claim))
    if result.out_of != result.n:
        say("The interval of the pooled score takes its parts as independent: it is too narrow.")
    for line in (_reference_line(result), _status_line(result), _unjudged_line(result)):
        if line:
            say(line)
    if regrade is not None:
        _print_changes(regrade)
    _rows_table(result.disagreeing, result, show)
    if strict is not None:
        say(f"The two graders differ on {len(result.differing)} of {result.n} rows.")
        _rows_table(result.differing, result, show)


def _score_row(metric: Metric) -> tuple[str, ...]:
    count = f"{metric.points}/{metric.out_of}"
    interval = "-" if metric.ci is None else f"{metric.ci.lo:.1f} .. {metric.ci.hi:.1f}"
    return metric.name, f"{metric.value:.2f}", count, interval


def comparable(result: Rescore, claim: Claim) -> bool:
    """Whether the score is of the protocol of the published number."""
    from dare import tasks

    return result.protocol == (claim.protocol or tasks.get(result.task).protocols[0])


def _not_compared(result: Rescore, claim: Claim) -> str:
    return f"{claim.id} is a number under another protocol than {result.protocol}: not compared."


def _against(result: Rescore, claim: Claim) -> str:
    value = result.score().value
    items = f"{result.n} rows"
    if claim.n_items is not None and claim.n_items != result.n:
        items = f"{result.n} of the {claim.n_items} items"
    return (
        f"Published ({claim.id}): {claim.value:g}. Here: {value:.2f} on {items} "
        f"({value - claim.value:+.2f})."
    )


def _reference_line(result: Rescore) -> str:
    if result.agreement is None:
        return ""
    equal, known = result.agreement
    if equal == known:
        return f"Equal to the file's reference columns on all {known} rows."
    return f"Equal to the file's reference columns on {equal} of {known} rows."


def _status_line(result: Rescore) -> str:
    parts = []
    for name, counts in result.statuses().items():
        others = [f"{count} {status}" for status, count in counts.items() if status != "ok"]
        if others:
            parts.append(f"{name}: {', '.join(others)}")
    return f"Without an answer or a verdict: {'; '.join(parts)}." if parts else ""


def _unjudged_line(result: Rescore) -> str:
    reasons: dict[str, list[str]] = {}
    for row in result.unjudged:
        reasons.setdefault(row.why_unjudged or "", []).append(str(row.row))
    groups = []
    for why, rows in reasons.items():
        shown = ", ".join(rows[:12]) + (", ..." if len(rows) > 12 else "")
        groups.append(f"{'row' if len(rows) == 1 else 'rows'} {shown} ({why})")
    return f"No verdict, counted as not right: {'; '.join(groups)}." if groups else ""


def _print_changes(regrade: Regrade) -> None:
    if not regrade.changes:
        own = regrade.record.prompt.get("protocol") == regrade.rescore.protocol
        say("Every stored grade and metric is recreated." if own else "")
    else:
        n = len(regrade.changes)
        say(f"{n} stored values are not recreated:")
        rows = [(c.where, _cut(c.stored), _cut(c.now)) for c in regrade.changes[:20]]
        table(("what", "stored", "now"), rows)
        if n > len(rows):
            say(f"... and {n - len(rows)} more (--json lists all)")
    if regrade.not_recomputed:
        say(f"Not recomputed (needs more than the outputs): {', '.join(regrade.not_recomputed)}.")


def _rows_table(rows: Sequence[Scored], result: Rescore, show: int) -> None:
    if not rows or not show:
        return
    lines = []
    for row in rows[:show]:
        strict = () if row.strict is None else (_verdict(row.strict),)
        lines.append((row.row, _verdict(row.grade), *strict, _cut(_gold(row.item.gold))))
    second = () if result.strict_correct is None else ("strict",)
    table(("row", result.protocol, *second, "gold"), lines, right=("row",))
    if len(rows) > show:
        say(f"... and {len(rows) - show} more (--show {len(rows)} prints all)")


def _verdict(grade: Grade) -> str:
    found = "no answer" if grade.extracted is None else _cut(grade.extracted)
    word = "right" if grade.correct else grade.status if grade.status != "ok" else "wrong"
    return word if grade.extracted is None and word == grade.status else f"{word}: {found}"


def _gold(gold: Any) -> str:
    if isinstance(gold, dict):
        if "answer" in gold:
            return "none" if gold["answer"] is None else str(gold["answer"])
        if "solution" in gold:
            return str(gold["solution"])
        if "numbers" in gold:
            return f"{gold['numbers']} = {gold['target']}"
    return str(gold)


def _cut(value: Any) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."


def differences(result: Rescore, regrade: Regrade | None) -> list[str]:
    """What ``--check`` fails on: stored values or reference columns that are not recreated."""
    if regrade is not None:
        return [change.where for change in regrade.changes]
    if result.agreement is None:
        from dare import tasks
        from dare.errors import UsageProblem

        why = "it has no column reference_correct or reference_correct_cells"
        if result.protocol != (first := tasks.get(result.task).protocols[0]):
            why = f"reference columns are about protocol {first}, not {result.protocol}"
        raise UsageProblem(
            f"{result.source} has nothing to check against", why, "leave --check out"
        )
    return [f"row {row.row}" for row in result.disagreeing]


def document(result: Rescore, regrade: Regrade | None, claim: Claim | None) -> dict[str, Any]:
    """One file or run, as JSON."""
    from dataclasses import asdict

    return {
        "source": result.source,
        "task": result.task,
        "protocol": result.protocol,
        "n": result.n,
        "metrics": result.metrics(),
        "claim": {"id": claim.id, "value": claim.value}
        if claim is not None and comparable(result, claim)
        else None,
        "reference": None
        if result.agreement is None
        else {"equal": result.agreement[0], "rows": result.agreement[1]},
        "statuses": result.statuses(),
        "unjudged": [row.row for row in result.unjudged],
        "graders_differ": [_row(row) for row in result.differing],
        "differ_from_reference": [_row(row) for row in result.disagreeing],
        "changes": [asdict(change) for change in regrade.changes] if regrade else [],
        "not_recomputed": list(regrade.not_recomputed) if regrade else [],
    }


def _row(row: Scored) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "row": row.row,
        "item": row.item.id,
        "gold": row.item.gold,
        "grade": asdict(row.grade),
        "strict": asdict(row.strict) if row.strict else None,
        "reference": row.reference,
    }
