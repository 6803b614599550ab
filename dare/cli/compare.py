"""``dare compare A B ...``: two or more algorithms under one budget, paired by seed and problem."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from dare.config import Origins, RunConfig
    from dare.results.compare import BudgetUnit, Comparison, ProtocolSheet
    from dare.training.experiment import Finished

BUDGETS: dict[str, BudgetUnit] = {
    "nfe": "nfe_train",
    "completions": "completions",
    "updates": "updates",
    "tokens": "generated_tokens",
}


@click.command(help="Compare algorithms on equal terms: same base, data, seeds and budget.")
@click.argument("algorithms", nargs=-1, required=True)
@click.option("--task", default=None, help="Task  [default: the first that all share].")
@click.option("--model", default=None, help="Checkpoint  [default: the embedded one].")
@click.option("--scale", type=click.Choice(["tiny", "ci"]), default="tiny", show_default=True)
@click.option("--seeds", default="0-2", show_default=True, help="0-2 or 0,3,7.")
@click.option(
    "--budget", type=click.Choice(list(BUDGETS)), default="nfe", show_default=True,
    help="What must be equal in every arm.",
)  # fmt: skip
@click.option(
    "--delta", type=click.FloatRange(0, 100), default=None, help="Points that count as equivalent."
)
@click.option("--runs", "root", type=click.Path(file_okay=False, path_type=Path), default="runs")
@click.option("--jobs", type=click.IntRange(1), default=None, help="Workers  [default: cores].")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(algorithms: tuple[str, ...], **options: Any) -> int:
    """Lock the sheet, finish what is not finished, compare."""
    from dare.training.experiment import parse_seeds

    seeds = parse_seeds(options["seeds"])
    arms = _arms(algorithms, options)
    _require_weights(arms)
    sheet = _sheet(arms, seeds, options)
    folder = _lock_sheet(sheet, options["root"])
    base, finished = _run(arms, seeds, options)
    comparison = _compare(arms, finished, sheet, options)
    _write(comparison, folder)
    if options["as_json"]:
        _print_json(comparison, sheet, base, folder)
    else:
        _print(comparison, sheet, base, folder, options)
    return 0


Arms = dict[str, "tuple[RunConfig, Origins]"]


def _arms(names: Sequence[str], options: dict[str, Any]) -> Arms:
    """Algorithm -> its config, from the reproduction that brought it."""
    from dare import reproductions
    from dare.errors import UsageProblem

    arms: Arms = {}
    for name in names:
        reproduction = reproductions.load(name)
        if reproduction.algorithm in arms:
            raise UsageProblem(
                f"'{name}' is the arm '{reproduction.algorithm}', which is there already",
                "an algorithm compared with itself shows nothing",
                "dare list algorithms",
            )
        arms[reproduction.algorithm] = reproduction.resolve(
            options["scale"], options["task"], options["model"]
        )
    if len(arms) < 2:
        raise UsageProblem(
            "a comparison needs two algorithms", "one was given", "dare compare grpo spg"
        )
    return arms


def _require_weights(arms: Arms) -> None:
    from dare.models import registry

    for config, _ in arms.values():
        registry.require(config.model.name)


def _sheet(arms: Arms, seeds: tuple[int, ...], options: dict[str, Any]) -> ProtocolSheet:
    from dare.models import registry
    from dare.models.weights import weights_sha256
    from dare.results.compare import ProtocolSheet
    from dare.results.expectation import template_hash
    from dare.results.plan import estimate

    unit = BUDGETS[options["budget"]]
    first = next(iter(arms.values()))[0]
    budget = {}
    for name, (config, _) in arms.items():
        plan = estimate(config, registry.describe(config.model.name))
        budget[name] = {
            "nfe_train": plan.nfe_rollout,
            "completions": plan.completions,
            "updates": plan.updates,
            "generated_tokens": plan.generated_tokens,
        }[unit]
    base = registry.require(first.model.name)
    assert first.training is not None
    return ProtocolSheet(
        algorithms=tuple(arms),
        task=first.task.name,
        protocol=first.task.protocol,
        metric="accuracy",
        budget_unit=unit,
        rollout_budget=budget,
        seeds=seeds,
        stop=f"{first.training.max_steps} updates",
        base_sha256=weights_sha256(base),
        configs={name: template_hash(config) for name, (config, _) in arms.items()},
        trials={name: 1 for name in arms},
        delta=options["delta"],
    )


def _lock_sheet(sheet: ProtocolSheet, root: Path) -> Path:
    """Write the sheet before anything runs; the folder is named by its hash."""
    from dare.cli._output import note
    from dare.results.files import pretty_json, write_atomic

    folder = root / f"compare-{sheet.digest()[:8]}"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "sheet.json"
    if not path.exists():
        write_atomic(path, pretty_json(sheet.model_dump(mode="json", by_alias=True)))
    note(f"protocol sheet {sheet.digest()[:16]} locked in {path}")
    return folder


def _run(
    arms: Arms, seeds: tuple[int, ...], options: dict[str, Any]
) -> tuple[Finished, dict[str, list[Finished]]]:
    from dare.cli._run_progress import run_with_progress
    from dare.training.experiment import baseline_unit, seed_units

    config, origins = next(iter(arms.values()))
    units = [baseline_unit(config, origins)]
    # Seed by seed rather than arm by arm, so that an interrupted comparison has whole pairs.
    per_arm = [seed_units(c, o, seeds, f"{name} ") for name, (c, o) in arms.items()]
    units += [unit for together in zip(*per_arm, strict=True) for unit in together]
    base, *done = run_with_progress(units, options["root"], options["jobs"])
    return base, {name: done[index :: len(arms)] for index, name in enumerate(arms)}


def _compare(
    arms: Arms, finished: dict[str, list[Finished]], sheet: ProtocolSheet, options: dict[str, Any]
) -> Comparison:
    from dare.results.compare import arm, compare

    scored = [
        arm(name, [(run.record, run.outcomes) for run in finished[name]], sheet.metric)
        for name in arms
    ]
    return compare(
        scored,
        metric=sheet.metric,
        delta=options["delta"],
        budget_unit=sheet.budget_unit,
        sheet=sheet,
    )


def _write(comparison: Comparison, folder: Path) -> None:
    from dare.results.compare_text import to_json, to_markdown
    from dare.results.files import write_atomic

    write_atomic(folder / "comparison.json", to_json(comparison).encode())
    write_atomic(folder / "comparison.md", to_markdown(comparison).encode())


def _print_json(comparison: Comparison, sheet: ProtocolSheet, base: Finished, folder: Path) -> None:
    from dare.cli._output import print_json

    document = comparison.to_dict() | {
        "protocol_sheet": sheet.model_dump(mode="json", by_alias=True),
        "base": base.percent(),
        "folder": str(folder),
    }
    print_json(document)


def _print(
    comparison: Comparison,
    sheet: ProtocolSheet,
    base: Finished,
    folder: Path,
    options: dict[str, Any],
) -> None:
    from dare.cli._output import console, heading, next_command, say, table
    from dare.cli._reproduce_report import HANDICAP
    from dare.results.compare_text import footer, render_forest

    heading(f"{' against '.join(sheet.algorithms)} on {sheet.task}, {len(comparison.seeds)} seeds")
    units = ("completions", "nfe_train", "learner_forwards", "cpu_seconds")
    table(
        ["arm", "accuracy %", "95 % CI", "completions", "NFE", "learner", "CPU s"],
        [
            ["base", f"{base.percent():.1f}", None, None, None, None, None],
            *(
                [a.name, f"{a.mean:.1f}", f"{a.lo:.1f}-{a.hi:.1f}"]
                + [f"{a.compute[unit]:,.0f}" for unit in units]
                for a in comparison.arms
            ),
        ],
        right=["accuracy %", "completions", "NFE", "learner", "CPU s"],
    )
    say()
    for line in [*render_forest(comparison, console().width), *footer(comparison)]:
        say(line)
    if sheet.base_sha256 and options["model"] is None:
        say(HANDICAP)
    elsewhere = "" if str(options["root"]) == "runs" else f" --runs {options['root']}"
    scale = "" if options["scale"] == "tiny" else f" --scale {options['scale']}"
    next_command(
        f"cat {folder}/comparison.md",
        f"dare compare {' '.join(sheet.algorithms)} --seeds 0-9{scale}{elsewhere}",
        "dare leaderboard check",
    )
