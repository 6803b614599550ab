"""``dare rescore``: score stored generations again, without a model.

dare rescore gsm8k_256.parquet --task gsm8k --protocol d1
dare rescore gsm8k_256.parquet --claim d1/baseline/gsm8k/256 --out runs/d1-gsm8k-256
dare rescore runs/2026-12-01-d1-sudoku4-1a2b3c4d --check
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from dare.evaluation.regrade import Regrade
    from dare.evaluation.rescore import Rescore
    from dare.results.claims import Claim

_PATH = click.Path(path_type=Path)


@click.command()
@click.argument("files", nargs=-1, required=True, type=_PATH, metavar="FILE|RUN...")
@click.option("--task", help="The benchmark: dare list tasks. A run knows its own.")
@click.option("--protocol", help="How to score  [default: the run's, the claim's, or d1].")
@click.option(
    "--claim", "claim_id", metavar="ID",
    help="FILE holds the generations behind this published number: task, protocol, model, "
    "decoding and prompt wording are declared to be the claim's.",
)  # fmt: skip
@click.option("--data", type=_PATH, help="Problems of a RUN, as a file in canonical columns.")
@click.option("--check", is_flag=True, help="Exit 1 when stored grades or metrics differ.")
@click.option("--limit", type=click.IntRange(1), help="Score the first rows of FILE only.")
@click.option("--show", type=click.IntRange(0), default=5, show_default=True,
              help="Rows to print on which the graders differ.")  # fmt: skip
@click.option("--out", type=_PATH, metavar="DIR", help="Write a record to this new folder.")
@click.option("--save", is_flag=True, help="Write a record to a new folder below runs/.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(
    files: tuple[Path, ...], out: Path | None, save: bool, check: bool, as_json: bool, **how: Any
) -> int:
    """Score stored generations again.

    FILE has one generation per row (parquet, JSON lines, CSV) with the columns question,
    generation and ground_truth, and optionally reference_correct. RUN is a run folder: its
    stored outputs are graded again. Beside the protocol's score stands the strict one.

    Exit status: 0 done, 1 with --check when something differs.
    """
    from dare.cli._output import next_command, print_json
    from dare.cli._rescore_report import differences, document, print_result

    _refuse_bad_combinations(files, out, save, check, **how)
    claim = _claim(how["claim_id"])
    documents, failed = [], False
    for file in files:
        result, regrade = _score(file, claim, **how)
        folder = _write(result, regrade, claim, out, save, how["limit"])
        failed |= check and bool(differences(result, regrade))
        steps = _next(file, result, regrade, claim, folder)
        if as_json:
            documents.append(document(result, regrade, claim) | {"record": folder, "next": steps})
            continue
        print_result(result, regrade, claim, how["show"])
        if file == files[-1]:
            next_command(*steps)
    if as_json:
        print_json({"schema": "dare.rescore/1", "results": documents})
    return 1 if failed else 0


def _refuse_bad_combinations(
    files: tuple[Path, ...], out: Path | None, save: bool, check: bool, **how: Any
) -> None:
    from dare.errors import UsageProblem

    if out is not None and save:
        raise UsageProblem("--out and --save both name a folder", "one record, one folder")
    if out is not None and len(files) > 1:
        raise UsageProblem(
            "--out takes one FILE", f"there are {len(files)}", "use --save: a folder for each"
        )
    if how["limit"] and any(_is_run(file) for file in files):
        raise UsageProblem("--limit is for files", "a run is graded whole", "leave --limit out")


def _is_run(path: Path) -> bool:
    return path.is_dir() or path.name == "record.json"


def _claim(claim_id: str | None) -> Claim | None:
    if claim_id is None:
        return None
    from dare.reproductions import find_claim

    return find_claim(claim_id)


def _score(
    file: Path, claim: Claim | None, task: str | None, protocol: str | None, **how: Any
) -> tuple[Rescore, Regrade | None]:
    from dare.cli._output import progress
    from dare.errors import UsageProblem

    with progress() as bars:
        row = bars.add(file.name)
        if _is_run(file):
            regrade = _regrade(file, task, protocol, how["data"], row.update)
            return regrade.rescore, regrade
        from dare.evaluation.rescore import rescore_file

        name = task or (claim.task if claim else None)
        if name is None:
            raise UsageProblem(
                f"which benchmark are the generations of {file.name} about?",
                "a file does not say it",
                "add --task gsm8k (dare list tasks), or --claim d1/baseline/gsm8k/256",
            )
        if claim and name != claim.task:
            raise UsageProblem(
                f"claim {claim.id} is about {claim.task}, not {name}",
                "--task and --claim contradict each other",
                f"dare show {claim.id.split('/')[0]} --claims",
            )
        chosen = protocol or (claim.protocol if claim else None) or _default_protocol(name)
        return rescore_file(file, name, chosen, how["limit"], row.update), None


def _default_protocol(task: str) -> str:
    from dare import tasks

    return tasks.get(task).protocols[0]


def _regrade(
    path: Path,
    task: str | None,
    protocol: str | None,
    data: Path | None,
    progress: Callable[[int], None],
) -> Regrade:
    from dare.errors import UsageProblem
    from dare.evaluation.regrade import regrade_run

    folder = path if path.is_dir() else path.parent
    regrade = regrade_run(folder, protocol, data, progress)
    if task is not None and task != regrade.rescore.task:
        raise UsageProblem(
            f"{path} is a run on {regrade.rescore.task}, not {task}",
            "its record says so",
            "leave --task out",
        )
    return regrade


def _write(
    result: Rescore,
    regrade: Regrade | None,
    claim: Claim | None,
    out: Path | None,
    save: bool,
    limit: int | None,
) -> Path | None:
    if out is None and not save:
        return None
    from dare.evaluation.outcomes import content_sha
    from dare.evaluation.rescore_record import write_regrade, write_rescore
    from dare.results.rundir import run_name

    if out is None:
        digest = content_sha([[row.item.id, row.output] for row in result.rows])
        paper = claim.id.split("/")[0] if claim else "rescore"
        out = Path("runs") / run_name(date.today(), paper, result.task, digest)
    if regrade is not None:
        write_regrade(out, regrade)
    else:
        write_rescore(out, result, _provenance(claim), limit)
    return out


def _provenance(claim: Claim | None) -> Any:
    """What naming a claim declares about the file."""
    from dare.evaluation.rescore_record import Provenance

    if claim is None:
        return None
    return Provenance(
        said_by=f"--claim {claim.id}",
        paper=claim.id.split("/")[0],
        model={"name": claim.model, "revision": claim.revision},
        decode={"gen_length": claim.gen_length, **claim.decode},
        wording="paper",
        items=claim.n_items,
        selection=claim.selection,
    )


def _next(
    file: Path,
    result: Rescore,
    regrade: Regrade | None,
    claim: Claim | None,
    folder: Path | None,
) -> list[str]:
    """Commands that lead on."""
    from dare.cli._rescore_report import comparable

    judged = claim is not None and comparable(result, claim)
    if folder is not None:
        steps = [f"dare rescore {folder} --check"]
        return [f"dare verdict {folder} --claim {claim.id}", *steps] if claim and judged else steps
    if regrade is not None:
        from dare import reproductions

        paper = (regrade.record.paper or {}).get("id")
        known = paper in reproductions.names()
        return [f"dare show {paper} --claims" if known else "dare list runs"]
    if claim is not None:
        other = "" if judged else f" --protocol {result.protocol}"
        return [f"dare rescore {file} --claim {claim.id}{other} --save"]
    if result.protocol == "d1":
        return [f"dare rescore {file} --claim d1/baseline/{result.task}/{_length(file)} --save"]
    return [f"dare rescore {file} --task {result.task} --protocol {result.protocol} --save"]


def _length(file: Path) -> str:
    """The generation length that a file's name gives away ("gsm8k_256.parquet")."""
    from dare.reproductions.building import LENGTHS

    named = [str(length) for length in LENGTHS if str(length) in file.stem]
    return named[0] if len(named) == 1 else "LENGTH"
