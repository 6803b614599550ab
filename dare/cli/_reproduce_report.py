"""The last screen of ``dare reproduce``: table, learning curve, verdict, next command."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dare.cli._output import heading, next_command, print_json, say, table

if TYPE_CHECKING:
    from dare.config import RunConfig
    from dare.reproductions import Reproduction
    from dare.results.record import Metric
    from dare.results.verdict import Verdict
    from dare.training.experiment import Finished

HANDICAP = (
    "The base was handicapped on purpose with demonstrations of a weak solver: training "
    "re-selects a behaviour that the base already has, it does not teach a new one. The "
    "numbers say that the parts work together, nothing about an 8B model."
)


def show(
    reproduction: Reproduction,
    config: RunConfig,
    base: Finished,
    runs: Sequence[Finished],
    as_json: bool,
) -> int:
    """Print the outcome; the exit status is the verdict's."""
    verdict = judge(reproduction, config, base, runs)
    if as_json:
        print_json(document(reproduction, config, base, runs, verdict))
    else:
        _print(reproduction, config, base, runs, verdict)
    return verdict.exit_status


def judge(
    reproduction: Reproduction, config: RunConfig, base: Finished, runs: Sequence[Finished]
) -> Verdict:
    """Against the recorded reference seeds, or for the control against no gain at all."""
    from dare.errors import Missing
    from dare.models import registry
    from dare.results.control import check_control, without_reference
    from dare.results.expectation import check_runs, load_expectation

    pairs = [(run.record, run.outcomes) for run in runs]
    reference = (base.record, base.outcomes)
    if config.control != "none":
        return check_control(pairs, reference)
    if config.scale == "ci":
        why = "the ci scale is a smoke test of 20 updates and expects no gain"
        return without_reference(pairs, reference, why, expects_gain=False)
    named = config.model.name in registry.names()
    try:
        expectation = load_expectation(
            reproduction.name, config.task.name, config.model.name if named else "tiny-llada"
        )
    except Missing as missing:
        return without_reference(pairs, reference, missing.what)
    return check_runs(expectation, pairs, reference)


def document(
    reproduction: Reproduction,
    config: RunConfig,
    base: Finished,
    runs: Sequence[Finished],
    verdict: Verdict,
) -> dict[str, Any]:
    """Everything on the screen as one JSON document."""
    from dataclasses import asdict

    def unit(run: Finished) -> dict[str, Any]:
        return {
            "folder": str(run.folder),
            "record": run.record.id,
            "seed": run.record.seeds.get("run"),
            "metrics": {m.name: m.value for m in run.record.metrics},
            "budget": run.record.budget.model_dump(),
        }

    return {
        "paper": reproduction.name,
        "algorithm": config.algorithm,
        "task": config.task.name,
        "model": config.model.name,
        "scale": config.scale,
        "control": config.control,
        "base": unit(base),
        "runs": [unit(run) for run in runs],
        "verdict": asdict(verdict),
        "note": HANDICAP if config.model.name.startswith("tiny-") else "",
    }


def _print(
    reproduction: Reproduction,
    config: RunConfig,
    base: Finished,
    runs: Sequence[Finished],
    verdict: Verdict,
) -> None:
    control = f", control {config.control}" if config.control != "none" else ""
    heading(
        f"{reproduction.name} ({config.algorithm}) on {config.task.name} with "
        f"{config.model.name}, {config.scale} scale{control}"
    )
    rows = [_row("base", base), *(_row(f"seed {run.record.seeds['run']}", run) for run in runs)]
    table(
        ["run", "accuracy %", "95 % CI", "cells %", "format %", "NFE", "CPU s", "record"],
        rows,
        right=["accuracy %", "cells %", "format %", "NFE", "CPU s"],
        fixed=["record"],
    )
    floor = base.record.metric("chance_floor").value
    n = base.record.metric("accuracy").n
    say(f"{n} test puzzles whose solutions were never trained on; chance {floor:.2f} %")
    say()
    say("sampled training accuracy, % (start, then each tenth of the run)")
    for run in runs:
        say(f"  seed {run.record.seeds['run']}: {curve(run.events)}")
    say()
    if "gain" in verdict.numbers:
        say(gain_line(verdict.numbers))
    say(verdict.sentence)
    for note in verdict.notes:
        say(f"note: {note}")
    if config.model.name.startswith("tiny-"):
        say(HANDICAP)
    folder = runs[0].folder
    elsewhere = "" if str(folder.parent) == "runs" else f" --runs {folder.parent}"
    named = config.model.name
    model = "" if named == "tiny-llada" else f" --model {named}"
    onwards = (
        "dare compare grpo spg" if config.scale == "tiny" else f"dare reproduce {reproduction.name}"
    )
    next_command(
        onwards + model + elsewhere,
        f"dare rescore {folder} --check",
        f"dare show {reproduction.name} --claims",
    )


def gain_line(numbers: dict[str, Any]) -> str:
    """The gain over the base, with its interval over seeds and problems."""
    line = f"gain over the base {numbers['gain']:+.1f} points"
    if "gain_over_problems" in numbers:
        paired = numbers["gain_over_problems"]
        ends = [paired["lo"], paired["hi"], paired["seed_lo"], paired["seed_hi"]]
        known = [end for end in ends if end is not None]
        line += f" [{min(known):+.1f}, {max(known):+.1f}], p = {paired['p']:.2g}"
    if "minimum_gain" in numbers:
        line += f"; at least {numbers['minimum_gain']:.0f} wanted"
    return line


def _row(name: str, run: Finished) -> list[object]:
    record = run.record
    accuracy = record.metric("accuracy")
    return [
        name,
        f"{accuracy.value:.1f}",
        _interval(accuracy),
        f"{record.metric('cells').value:.1f}" if _has(run, "cells") else None,
        f"{record.metric('format_rate').value:.1f}",
        record.budget.nfe_train + record.budget.nfe_eval,
        f"{record.budget.cpu_seconds:.0f}",
        record.id[:8],
    ]


def _has(run: Finished, name: str) -> bool:
    return any(metric.name == name for metric in run.record.metrics)


def _interval(metric: Metric) -> str:
    return f"{metric.ci.lo:.1f}-{metric.ci.hi:.1f}" if metric.ci else "-"


def curve(events: Sequence[dict[str, Any]], points: int = 10) -> str:
    """``23 31 38 ...``: the first rollout batch, then means over equal stretches."""
    values = [100 * event["accuracy_sampled"] for event in events]
    if not values:
        return "-"
    size = max(1, len(values) // points)
    means = [
        sum(values[start : start + size]) / len(values[start : start + size])
        for start in range(0, len(values), size)
    ]
    return " ".join(f"{value:.0f}" for value in [values[0], *means])
