"""``dare check``: the reproduction checks that CI runs."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from dare.reproductions import Reproduction
    from dare.training.checks import CheckResult
    from dare.training.experiment import Finished
    from dare.training.launch import Unit


@click.command(help="Check every reproduction: metadata, equivalences, a short learning run.")
@click.argument("papers", nargs=-1)
@click.option("--quick", is_flag=True, help="Leave out the learning runs.")
@click.option(
    "--junit", type=click.Path(dir_okay=False, path_type=Path), default=None,
    help="Write JUnit XML to this file.",
)  # fmt: skip
@click.option(
    "--markdown", type=click.Path(dir_okay=False, path_type=Path), default=None,
    help="Write a Markdown summary to this file.",
)  # fmt: skip
@click.option("--jobs", type=click.IntRange(1), default=None, help="Workers  [default: cores].")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(
    papers: tuple[str, ...],
    quick: bool,
    junit: Path | None,
    markdown: Path | None,
    jobs: int | None,
    as_json: bool,
) -> int:
    """Exit status 1 when a check fails."""
    from dare import reproductions

    chosen = [reproductions.load(name) for name in papers or reproductions.names()]
    with tempfile.TemporaryDirectory(prefix="dare-check-") as folder:
        results = _static(chosen)
        if not quick:
            results += _learning(chosen, Path(folder), jobs)
        results += _trajectories(chosen, Path(folder))
    _report(results, junit, markdown, as_json)
    return 0 if all(result.passed for result in results) else 1


def _static(chosen: list[Reproduction]) -> list[CheckResult]:
    from dare.training.checks import metadata, round_trip, timed

    results = []
    for paper in chosen:
        results.append(timed(paper.name, "metadata", partial(metadata, paper)))
        results.append(timed(paper.name, "round trip", partial(round_trip, paper)))
    return results


def _trajectories(chosen: list[Reproduction], folder: Path) -> list[CheckResult]:
    from dare.cli._output import note, progress
    from dare.training.checks import trajectories

    note("trajectories: loading torch ...")
    results = []
    with progress() as bars:
        row = bars.add("equivalent trajectories", total=5 * len(chosen))
        for paper in chosen:
            for result in trajectories(paper, folder / paper.name):
                results.append(result)
                row.advance(note=f"{paper.name} {result.name}")
    return results


def _learning(chosen: list[Reproduction], folder: Path, jobs: int | None) -> list[CheckResult]:
    """One fresh seed of every paper that has recorded reference seeds, side by side."""
    from dare.cli._run_progress import run_with_progress
    from dare.errors import Missing
    from dare.results.expectation import check_runs, load_expectation
    from dare.training.checks import FRESH_SEED, timed
    from dare.training.experiment import baseline_unit, seed_units

    expectations: dict[str, Any] = {}
    units: list[Unit] = []
    for paper in chosen:
        config, origins = paper.resolve("tiny")
        try:
            expectation = load_expectation(paper.name, config.task.name, config.model.name)
        except Missing:
            continue
        if not units:
            units.append(baseline_unit(config, origins))
        units += seed_units(config, origins, (FRESH_SEED,), f"{paper.name} ")
        expectations[paper.name] = expectation
    if not units:
        return []
    base, *runs = run_with_progress(units, folder / "runs", jobs)

    def judge(name: str, run: Finished) -> tuple[bool, str]:
        verdict = check_runs(
            expectations[name], [(run.record, run.outcomes)], (base.record, base.outcomes)
        )
        return verdict.exit_status == 0, verdict.sentence

    return [
        timed(name, "learning", partial(judge, name, run))
        for name, run in zip(expectations, runs, strict=True)
    ]


def _report(
    results: list[CheckResult], junit: Path | None, markdown: Path | None, as_json: bool
) -> None:
    from dataclasses import asdict

    from dare.cli._output import next_command, print_json, say, table
    from dare.results.files import write_atomic

    if junit is not None:
        write_atomic(junit, junit_xml(results))
    if markdown is not None:
        write_atomic(markdown, markdown_summary(results).encode())
    failed = [result for result in results if not result.passed]
    if as_json:
        print_json({"passed": not failed, "checks": [asdict(result) for result in results]})
        return
    table(
        ["paper", "check", "result", "detail"],
        [[r.paper, r.name, "ok" if r.passed else "FAILED", r.detail] for r in results],
        fixed=["result"],
    )
    say(f"{len(results) - len(failed)} of {len(results)} checks passed")
    next_command("dare leaderboard check" if not failed else "dare check PAPER")


def junit_xml(results: list[CheckResult]) -> bytes:
    """One test suite, one test case per check."""
    import re
    from xml.etree import ElementTree

    failures = sum(not result.passed for result in results)
    total = sum(result.seconds for result in results)
    suite = ElementTree.Element(
        "testsuite", name="dare check", tests=str(len(results)), failures=str(failures),
        time=f"{total:.3f}",
    )  # fmt: skip
    for result in results:
        case = ElementTree.SubElement(
            suite, "testcase", classname=f"dare.{result.paper}", name=result.name,
            time=f"{result.seconds:.3f}",
        )  # fmt: skip
        if not result.passed:
            # XML 1.0 has no control characters, and a detail may quote anything.
            detail = re.sub(r"[^\t\n\x20-\ud7ff\ue000-\ufffd]", "?", result.detail)
            failure = ElementTree.SubElement(case, "failure", message=detail.splitlines()[0])
            failure.text = detail
    text: bytes = ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True)
    return text


def markdown_summary(results: list[CheckResult]) -> str:
    """A table for a CI job's summary page."""
    lines = ["| paper | check | result | detail | s |", "|---|---|---|---|---:|"]
    for result in results:
        detail = result.detail.replace("|", "\\|").replace("\n", " ")
        mark = "ok" if result.passed else "**FAILED**"
        lines.append(
            f"| {result.paper} | {result.name} | {mark} | {detail} | {result.seconds:.1f} |"
        )
    return "\n".join(lines) + "\n"
