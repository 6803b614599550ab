"""``dare list``: what there is to name in the other commands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from dare.results.rundir import RunRef

Row = dict[str, Any]


@dataclass(frozen=True)
class Kind:
    """One listing: how to collect its rows, which columns the table shows, what to do next."""

    rows: Callable[[Path], list[Row]]
    columns: tuple[str, ...]
    next: str
    empty: str = "none"
    right: tuple[str, ...] = ()


def papers(_: Path) -> list[Row]:
    """The reproductions; one that cannot be loaded is listed with its problem."""
    from dare import reproductions
    from dare.errors import DareError

    rows: list[Row] = []
    for name in reproductions.names():
        try:
            paper = reproductions.load(name)
        except DareError as error:
            rows.append({"paper": name, "title": f"{error.what}: {error.why}"})
            continue
        rows.append(
            {
                "paper": name,
                "algorithm": paper.algorithm,
                "aliases": [alias for alias in paper.aliases if alias != paper.algorithm],
                "arxiv": paper.paper.arxiv,
                "claims": len(paper.claims),
                "tasks": {scale: list(tasks) for scale, tasks in paper.tasks.items()},
                "title": paper.paper.title,
            }
        )
    return rows


def models(_: Path) -> list[Row]:
    """The named checkpoints, and whether their weights are here."""
    from dare.cli.models import rows

    return rows()


def tasks(_: Path) -> list[Row]:
    """The benchmarks, with their protocols and metrics."""
    from dare import tasks as benchmarks

    rows: list[Row] = []
    for name in benchmarks.names():
        task = benchmarks.get(name)
        rows.append(
            {"task": name, "metric": task.metric, "protocols": list(task.protocols)}
            | {"what": _first_sentence(type(task).__doc__)}
        )
    return rows


def algorithms(_: Path) -> list[Row]:
    """The training algorithms and the papers that brought them."""
    from dare import algorithms as methods
    from dare import reproductions
    from dare.errors import DareError

    brought: dict[str, list[str]] = {}
    for paper in reproductions.names():
        try:
            brought.setdefault(reproductions.load(paper).algorithm, []).append(paper)
        except DareError:
            continue
    return [
        {"algorithm": name, "papers": brought.get(name, []), "what": entry.summary}
        | {"arxiv": entry.arxiv}
        for name, entry in methods.ALGORITHMS.items()
    ]


def samplers(_: Path) -> list[Row]:
    """The named samplers, for which models they are, and whether they are a family's own."""
    from dare.sampling.presets import PRESETS

    return [
        {
            "sampler": preset.name,
            "models": preset.kind,
            "exact": "yes" if preset.exact else "no",
            "what": preset.what,
            "approximate": preset.approximate,
            "paper": preset.paper,
            "arxiv": preset.arxiv,
            "source": preset.source,
            "settings": {**preset.settings, "block_length": preset.block_length},
        }
        for preset in PRESETS.values()
    ]


def runs(root: Path) -> list[Row]:
    """The runs below ``root``, damaged and unfinished ones included."""
    from dare.results.rundir import find_runs

    return [_run_row(ref) for ref in find_runs(root)]


def _run_row(ref: RunRef) -> Row:
    row: Row = {"run": ref.path.name, "path": str(ref.path), "state": ref.state}
    row["problem"] = ref.problem
    record = ref.record
    if record is None:
        return row | {"result": ref.problem}
    seed = record.seeds.get("run")
    metric = record.metrics[0] if record.metrics else None
    unit = {"percent": " %"}.get(metric.unit, f" {metric.unit}") if metric else ""
    text = f"{metric.name} {metric.value:.1f}{unit} (n={metric.n})" if metric else "no metric"
    return row | {
        "kind": record.kind,
        "seed": seed,
        "result": text,
        "metrics": {each.name: each.value for each in record.metrics},
    }


KINDS = {
    "papers": Kind(papers, ("paper", "algorithm", "arxiv", "claims", "title"), "dare show d1",
                   right=("claims",)),
    "models": Kind(models, ("model", "family", "weights", "GB", "licence", "here", "pin"),
                   "dare models show llada-8b", right=("weights", "GB")),
    "tasks": Kind(tasks, ("task", "metric", "protocols", "what"), "dare show sudoku4"),
    "algorithms": Kind(algorithms, ("algorithm", "papers", "what"), "dare compare grpo spg"),
    "samplers": Kind(samplers, ("sampler", "models", "exact", "what", "arxiv"),
                     "dare reproduce d1 --sampler fast-dllm --dry-run"),
    "runs": Kind(runs, ("run", "kind", "seed", "state", "result"), "dare reproduce d1",
                 empty="no runs yet"),
}  # fmt: skip


@click.command(
    help="""List what there is: papers, models, tasks, algorithms, samplers or runs.

    Without a KIND everything but the runs is listed."""
)
@click.argument("kind", type=click.Choice(list(KINDS)), required=False)
@click.option(
    "--runs",
    "root",
    type=click.Path(file_okay=False, path_type=Path),
    default="runs",
    show_default=True,
    help="Folder in which runs are looked for.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(kind: str | None, root: Path, as_json: bool) -> None:
    show_kinds([kind] if kind else [name for name in KINDS if name != "runs"], root, as_json)


def show_kinds(kinds: list[str], root: Path, as_json: bool) -> None:
    """Print the listings; one kind as a JSON array, several as an object of arrays."""
    from dare.cli._output import heading, next_command, print_json, say, table

    found = {name: KINDS[name].rows(root) for name in kinds}
    if as_json:
        print_json(found if len(kinds) > 1 else found[kinds[0]])
        return
    for name in kinds:
        kind = KINDS[name]
        if len(kinds) > 1:
            heading(f"{name}")
        if not found[name]:
            say(kind.empty)
            continue
        cells = [[_cell(row.get(column)) for column in kind.columns] for row in found[name]]
        table(kind.columns, cells, right=kind.right, fixed=kind.columns[:1])
        if len(kinds) > 1:
            say()
    next_command(*_next(kinds, found))


def _next(kinds: list[str], found: dict[str, list[Row]]) -> tuple[str, ...]:
    if kinds == ["runs"] and found["runs"]:
        return _after_runs(found["runs"])
    return tuple(KINDS[name].next for name in kinds)


def _after_runs(rows: list[Row]) -> tuple[str, ...]:
    """Grade the newest complete run again; judge it, or run the paper where no claim applies."""
    from dare.results.rundir import read_record

    complete = [row for row in rows if row["state"] == "complete"]
    if not complete:
        return (_reproduce(rows[-1]["run"]),)
    newest = complete[-1]
    rescore = f"dare rescore {newest['path']}"
    # The embedded model is in no paper: its runs are never comparable with a published number.
    if read_record(newest["path"]).config.get("scale") in ("tiny", "ci"):
        return rescore, _reproduce(newest["run"])
    return rescore, f"dare verdict {newest['path']} --claim d1/diffu-grpo/gsm8k/256"


def _reproduce(run: str) -> str:
    """``dare reproduce`` for the paper in a run's name; the baseline's names none."""
    from dare import reproductions

    named = [paper for paper in reproductions.names() if f"-{paper}-" in run]
    return f"dare reproduce {named[0]}" if named else KINDS["runs"].next


def _cell(value: Any) -> object:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else value


def _first_sentence(text: str | None) -> str:
    first = " ".join((text or "").split())
    return first.partition(". ")[0].rstrip(".")
