"""``dare verdict RUN... --claim ID``: judge runs against a published number.

    dare verdict runs/2026-12-01-d1-math500-1a2b3c4d --claim d1/baseline/math500/256

Several RUNs are the seeds of one training run (or repeats of one evaluation).  Exit status:
0 reproduced, 1 not reproduced, 4 not comparable or inconclusive.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

if TYPE_CHECKING:
    from dare.results.claims import Claim
    from dare.results.record import Outcome, Record
    from dare.results.verdict import Verdict


class Evidence(NamedTuple):
    """A verified record, where it was, and its outcomes if they are beside it."""

    path: Path
    record: Record
    outcomes: list[Outcome] | None


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.option("--claim", "claim_id", metavar="ID", help="Such as d1/baseline/gsm8k/256.")
@click.option("--baseline", metavar="RUN", help="Our untrained run, for a claimed improvement.")
@click.option(
    "--hardware-allowance",
    type=click.FloatRange(min=0),
    metavar="POINTS",
    help="Accept another accelerator class, at this wider margin.",
)
@click.option("--root", type=click.Path(path_type=Path), default="runs", show_default=True,
              help="Where RUN is looked up by name or id.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def command(
    runs: tuple[str, ...],
    claim_id: str | None,
    baseline: str | None,
    hardware_allowance: float | None,
    root: Path,
    as_json: bool,
) -> int:
    """Judge a run against a published number.

    RUN is a run folder, a record.json, or the name or record id of a run in ROOT. Several
    are the seeds of one configuration.

    Exit status: 0 reproduced, 1 not reproduced, 4 not comparable or inconclusive. A PARTIAL
    is 1 when the level was missed, 4 when only the evidence is limited.
    """
    from dare.cli._output import print_json
    from dare.reproductions import find_claim

    evidence = [load(name, root) for name in runs]
    if claim_id is None:
        raise _which_claim(evidence[0].record)
    claim = find_claim(claim_id)
    base = load(baseline, root) if baseline is not None else None
    verdict = judge(claim, evidence, base, hardware_allowance)
    if as_json:
        print_json(document(claim, verdict, evidence))
    else:
        show(claim, verdict, evidence)
    return verdict.exit_status


def load(name: str, root: Path) -> Evidence:
    """The record called ``name`` (a path, or a run in ``root``), with verified outcomes."""
    from dare.results.rundir import OUTCOMES, RECORD, read_outcomes, read_record

    path = _locate(name, root)
    record = read_record(path)
    folder = path if path.is_dir() else path.parent
    if not (folder / OUTCOMES).exists() or not (folder / RECORD).exists():
        return Evidence(path, record, None)
    outcomes = read_outcomes(folder, record)
    _check_accuracy(path, record, outcomes)
    return Evidence(path, record, outcomes)


def _check_accuracy(path: Path, record: Record, outcomes: Sequence[Outcome]) -> None:
    """A sealed record can still say more than its outcomes do; refuse to judge such a one."""
    from dare.errors import UsageProblem
    from dare.results.verdict import points

    counted = 100.0 * sum(outcome.correct for outcome in outcomes) / max(1, len(outcomes))
    for metric in record.metrics:
        if metric.name == "accuracy" and abs(points(metric) - counted) > 0.01:
            raise UsageProblem(
                f"{path} does not say what its outcomes say",
                f"accuracy {points(metric):.2f} in the record, {counted:.2f} counted",
                f"dare rescore {path}",
            )


def _locate(name: str, root: Path) -> Path:
    from dare.errors import unknown_name
    from dare.results.rundir import find_runs

    path = Path(name)
    if path.exists() or path.is_symlink() or len(path.parts) > 1:
        return path
    refs = find_runs(root)
    for ref in refs:
        identity = ref.record.id if ref.record else ""
        if ref.path.name == name or (len(name) >= 8 and identity.startswith(name)):
            return ref.path
    raise unknown_name("run", name, [ref.path.name for ref in refs], "dare list runs")


def judge(
    claim: Claim,
    evidence: Sequence[Evidence],
    base: Evidence | None = None,
    hardware_allowance: float | None = None,
) -> Verdict:
    """The verdict of the rule that fits the kind of claim."""
    from dare.errors import UsageProblem
    from dare.results.improvement import improvement_verdict
    from dare.results.verdict import Policy, verdict

    policy = Policy(hardware_allowance=hardware_allowance)
    records = [item.record for item in evidence]
    together = [*evidence, *([base] if base else [])]
    outcomes = {item.record.id: item.outcomes for item in together if item.outcomes is not None}
    if claim.kind == "absolute":
        return verdict(claim, records, policy, outcomes)
    if base is None:
        raise UsageProblem(
            f"{claim.id} claims an improvement",
            "it is judged against our own baseline, and none was named",
            f"dare verdict RUN... --claim {claim.id} --baseline RUN",
        )
    bare = [item.path for item in together if item.outcomes is None]
    if bare:
        raise UsageProblem(
            f"{bare[0]} has no outcomes beside it",
            "a gain is paired problem by problem",
            "name the run folder rather than a copy of its record",
        )
    return improvement_verdict(claim, records, base.record, outcomes, policy=policy)


def _which_claim(record: Record) -> Exception:
    """The error for a missing --claim, with the claims that are about this task."""
    from dare.errors import UsageProblem

    task, length = record.data.get("task"), record.decode.get("gen_length")
    about = [c for c in _all_claims() if c.task == task and c.gen_length in (None, length)]
    # Claims of the same kind first: a released checkpoint, or a trained one.
    trained = record.budget.updates > 0
    near = [c.id for c in sorted(about, key=lambda c: c.trained != trained)]
    listing = "dare show PAPER --claims"
    return UsageProblem(
        "no claim was named",
        f"claims about {task}: {', '.join(near[:6])}" if near else f"no paper claims on {task}",
        f"dare verdict RUN --claim {near[0]}" if near else listing,
    )


def _all_claims() -> list[Claim]:
    from dare import reproductions
    from dare.errors import DareError

    claims: list[Claim] = []
    for name in reproductions.names():
        try:
            claims += reproductions.load(name).claims
        except DareError:
            continue
    return claims


def document(claim: Claim, verdict: Verdict, evidence: Sequence[Evidence]) -> dict[str, Any]:
    """Everything on the screen as one JSON document."""
    return {
        "claim": claim,
        "verdict": verdict.to_dict(),
        "records": [
            {"path": item.path, "id": item.record.id, "seed": item.record.seeds.get("run")}
            for item in evidence
        ],
        "next": next_steps(claim, verdict, evidence),
    }


def show(claim: Claim, verdict: Verdict, evidence: Sequence[Evidence]) -> None:
    """Claim, gates or numbers, what is unspecified, notes, the sentence, what to do next."""
    from dare.cli._output import heading, next_command, say, table

    heading(f"{claim.id}: {claim.value:g} {claim.unit}, {claim.row}")
    say(f"source: {claim.source}")
    if claim.note:
        say(f"note on the claim: {claim.note}")
    say()
    if verdict.gates:
        rows = [(gate.field, _brief(gate.claimed), _brief(gate.ours)) for gate in verdict.gates]
        table(("differs", "claimed", "ours"), rows)
    else:
        table(("number", "value"), number_rows(verdict.numbers), right=("value",))
    say()
    if verdict.unspecified:
        say(f"not stated by the paper: {', '.join(verdict.unspecified)}")
    for flag in verdict.flags:
        say(f"flag: {flag}")
    for remark in verdict.notes:
        say(f"note: {remark}")
    say(verdict.sentence)
    next_command(*next_steps(claim, verdict, evidence))


def _brief(value: object, width: int = 60) -> str:
    text = str(value)
    return text if len(text) <= width else text[: width - 3] + "..."


_LABELS = {
    "ours": "ours",
    "values": "ours, each seed",
    "claimed": "published",
    "d": "difference (positive is better)",
    "difference": "gain",
    "delta": "margin",
    "lo": "interval, low",
    "hi": "interval, high",
    "half": "half-width",
    "d_lo": "difference, 90 % low",
    "d_hi": "difference, 90 % high",
    "m": "runs",
    "sd": "SD of one run",
    "df": "degrees of freedom",
    "p": "p",
    "p_holm": "p, Holm",
    "detectable": "detectable difference",
    "more": "more seeds that would do",
    "more_seeds": "more seeds that would do",
}


def number_rows(numbers: dict[str, Any]) -> list[tuple[str, str]]:
    """(label, text) of the numbers that a reader wants, in the order of the labels."""
    rows = []
    for name, label in _LABELS.items():
        value = numbers.get(name)
        if isinstance(value, list | tuple):
            rows.append((label, " ".join(f"{item:.2f}" for item in value)))
        elif isinstance(value, int) and not isinstance(value, bool):
            rows.append((label, str(value)))
        elif isinstance(value, float):
            rows.append((label, f"{value:.3g}" if name.startswith("p") else f"{value:.2f}"))
    return rows


def next_steps(claim: Claim, verdict: Verdict, evidence: Sequence[Evidence]) -> list[str]:
    """Commands that lead on from this verdict."""
    paper = claim.id.split("/")[0]
    if verdict.gates:
        return _merged([gate.remedy for gate in verdict.gates if gate.remedy])
    steps = [f"dare rescore {evidence[0].path} --check"]
    more = verdict.numbers.get("more") or verdict.numbers.get("more_seeds")
    if more:
        have = {item.record.seeds.get("run", 0) for item in evidence}
        last = max((seed for seed in have if isinstance(seed, int)), default=-1) + int(more)
        task = f"--model {claim.model} --task {claim.task}"
        steps.insert(0, f"dare reproduce {paper} {task} --seeds 0-{last}")
    return [*steps, f"dare show {paper} --claims"]


def _merged(commands: Sequence[str]) -> list[str]:
    """Each command once; the ``--set`` options of equal commands in one line."""
    settings: dict[str, list[str]] = {}
    for line in commands:
        base, _, setting = line.partition(" --set ")
        options = settings.setdefault(base, [])
        if setting and setting not in options:
            options.append(setting)
    return [" --set ".join([base, *options]) for base, options in settings.items()]
