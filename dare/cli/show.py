"""``dare show NAME``: a paper with its claims, configurations and deviations; a model; a task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from dare.reproductions import Reproduction
    from dare.results.claims import Claim, Deviation

SCALES = ("tiny", "ci", "paper")
SHOWN_SCALES = ("tiny", "paper")


@click.command(
    help="""Show the paper, model or task called NAME.

    For a paper: who published it, its numbers, the settings at each scale with the source of
    every value, and where the reproduction departs from it.  Without a flag, all of that."""
)
@click.argument("name")
@click.option("--claims", is_flag=True, help="Every published number, with id and source.")
@click.option("--config", "scale", type=click.Choice(SCALES), help="The settings of one scale.")
@click.option("--deviations", is_flag=True, help="Departures from the paper and its code.")
@click.option("--task", help="Settings and numbers of this task only.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(
    name: str, claims: bool, scale: str | None, deviations: bool, task: str | None, as_json: bool
) -> None:
    paper = _find(name)
    if isinstance(paper, dict):
        _refuse_paper_flags(name, claims or deviations or scale is not None or task is not None)
        if "model" in paper:
            from dare.cli.models import show_facts

            show_facts(paper, as_json)
            return
        _show_task(paper, as_json)
        return
    every = not (claims or deviations or scale)
    scales = (scale,) if scale else SHOWN_SCALES if every else ()
    document = _document(paper, scales, task, claims or every, deviations or every)
    if as_json:
        from dare.cli._output import print_json

        print_json(document)
        return
    if every:
        _show_head(paper)
        _show_claims_by_length(_of_task(paper.claims, task), paper.name)
    if claims:
        _show_claims(_of_task(paper.claims, task))
    for name_of_scale, settings in document.get("configs", {}).items():
        _show_config(name_of_scale, settings)
    if every or deviations:
        _show_deviations(paper.deviations, in_full=deviations)
    _show_next(paper, document)


def _find(name: str) -> Reproduction | dict[str, Any]:
    """The paper called ``name``, or the facts of a model or task."""
    from dare import reproductions, tasks
    from dare.errors import unknown_name
    from dare.models import registry

    plain = name.lower()
    papers = {*reproductions.names(), *reproductions.aliases()}
    if plain.replace("_", "-") in papers:
        return reproductions.load(name)
    if plain in tasks.names():
        return _task_facts(plain)
    if plain in registry.spellings() or "/" in name:
        from dare.cli.models import facts

        return facts(name)
    known = [*papers, *registry.spellings(with_hub_ids=False), *tasks.names()]
    raise unknown_name("paper, model or task", name, known, "dare list")


def _refuse_paper_flags(name: str, given: bool) -> None:
    from dare.errors import UsageProblem

    if given:
        raise UsageProblem(
            f"'{name}' is not a paper",
            "--claims, --config, --deviations and --task are about papers",
            f"dare show {name}",
        )


def _task_facts(name: str) -> dict[str, Any]:
    from dare import tasks

    task = tasks.get(name)
    return {
        "task": name,
        "what": " ".join((type(task).__doc__ or "").split()),
        "metric": task.metric,
        "protocols": list(task.protocols),
        "next": "dare list tasks",
    }


def _document(
    paper: Reproduction, scales: Sequence[str], task: str | None, claims: bool, deviations: bool
) -> dict[str, Any]:
    """What ``--json`` prints; the screens show the same."""
    document: dict[str, Any] = {
        "name": paper.name,
        "paper": paper.paper,
        "algorithm": paper.algorithm,
        "aliases": paper.aliases,
        "tasks": paper.tasks,
        "default_seeds": paper.default_seeds,
        "headline": paper.headline,
    }
    if claims:
        document["claims"] = _of_task(paper.claims, task)
    if scales:
        document["configs"] = _configs(paper, scales, task)
    if deviations:
        document["deviations"] = paper.deviations
    return document


def _configs(paper: Reproduction, scales: Sequence[str], task: str | None) -> dict[str, Any]:
    """Settings and sources per scale; a task that one scale lacks leaves that scale out."""
    from dare.config import flatten

    having = [scale for scale in scales if task is None or task in paper.tasks.get(scale, ())]
    found = {}
    for scale in having or scales[-1:]:
        config, sources = paper.resolve(scale, task)
        settings = config.model_dump(mode="json")
        paths = flatten(settings)
        found[scale] = {
            "task": config.task.name,
            "config": settings,
            "sources": {path: sources.get(path) or _parent(path, sources) for path in paths},
        }
    return found


def _parent(path: str, sources: dict[str, str]) -> str:
    return next(
        (source for name, source in sources.items() if path.startswith(f"{name}.")), "default"
    )


def _of_task(claims: Sequence[Claim], task: str | None) -> list[Claim]:
    return [claim for claim in claims if task in (None, claim.task)]


def _show_task(facts: dict[str, Any], as_json: bool) -> None:
    from dare.cli._output import next_command, print_json, table

    following = facts.pop("next")
    if as_json:
        print_json(facts)
        return
    rows = [(name, _text(value)) for name, value in facts.items() if value not in ("", None, [])]
    table(("", ""), rows, header=False)
    next_command(following)


def _show_head(paper: Reproduction) -> None:
    from dare.cli._output import heading, say

    about = paper.paper
    heading(about.title)
    say(", ".join(about.authors))
    venue = f", {about.venue}" if about.venue else ""
    say(f"arXiv {about.arxiv}, {about.date}{venue}")
    say(f"code {about.code.repo} @ {about.code.commit}, licence {about.code.licence}")
    say()
    say(about.summary)
    say()
    say(f"algorithm {paper.algorithm}")
    for scale, tasks in paper.tasks.items():
        seeds = ", ".join(map(str, paper.default_seeds[scale]))
        say(f"scale {scale}: {', '.join(tasks)}; seeds {seeds}")
    say()


def _show_claims_by_length(claims: Sequence[Claim], paper: str) -> None:
    """One line per row and task, a column per generation length."""
    from dare.cli._output import heading, say, table

    lengths = sorted({claim.gen_length for claim in claims if claim.gen_length is not None})
    lines: dict[tuple[str, str], dict[int, str]] = {}
    for claim in claims:
        if claim.gen_length is not None:
            marked = f"{claim.value:.1f}{'*' if claim.note else ''}"
            lines.setdefault((claim.row, claim.task), {})[claim.gen_length] = marked
    heading("Published numbers, in percent by generation length")
    columns = ("row", "task", *map(str, lengths))
    rows = [(*key, *(values.get(length) for length in lengths)) for key, values in lines.items()]
    table(columns, rows, right=columns[2:])
    others = sum(claim.gen_length is None for claim in claims)
    if others:
        say(f"and {others} numbers that belong to no one length: dare show {paper} --claims")
    if any(claim.note for claim in claims if claim.gen_length is not None):
        say("* has a note: see --claims")
    say()


def _show_claims(claims: Sequence[Claim]) -> None:
    from dare.cli._output import heading, say, table

    heading("Published numbers")
    rows = [
        (claim.id, f"{claim.value}", claim.unit, claim.metric, claim.n_items, claim.protocol)
        for claim in claims
    ]
    table(("claim", "value", "unit", "metric", "items", "protocol"), rows,
          right=("value", "items"), fixed=("claim",))  # fmt: skip
    say()
    _legend("Sources", [(claim.source, claim.id) for claim in claims])
    selections = [(claim.selection or "not stated", claim.row) for claim in claims]
    _legend("Checkpoint selection", selections)
    notes = [claim for claim in claims if claim.note]
    if notes:
        heading("Notes")
        table(("claim", "note"), [(claim.id, claim.note) for claim in notes], fixed=("claim",))
        say()


def _legend(title: str, pairs: Sequence[tuple[str, str]]) -> None:
    """Each distinct text with what it applies to, named once."""
    from dare.cli._output import heading, say, table

    members: dict[str, list[str]] = {}
    for text, member in pairs:
        if member not in members.setdefault(text, []):
            members[text].append(member)
    heading(title)
    rows = [
        (text, ", ".join(who) if len(who) <= 4 else f"{who[0]} and {len(who) - 1} others")
        for text, who in members.items()
    ]
    table(("", "of"), rows, header=False)
    say()


def _show_config(scale: str, settings: dict[str, Any]) -> None:
    """The settings by section; those nobody set are named in one line."""
    from dare.cli._output import heading, say, table
    from dare.config import flatten

    heading(f"Settings at scale {scale}, task {settings['task']}")
    sections: dict[str, list[tuple[str, str, str]]] = {}
    defaults = []
    for path, value in flatten(settings["config"]).items():
        source = settings["sources"][path]
        if source == "default":
            defaults.append(f"{path} {_text(value)}")
            continue
        parent, _, leaf = path.rpartition(".")
        rows = sections.setdefault(parent, [(parent, "", "")] if parent else [])
        rows.append((f"  {leaf}" if parent else leaf, _text(value), source))
    rows = [row for section in sections.values() for row in section]
    table(("setting", "value", "source"), rows, fixed=("setting",))
    if defaults:
        say(f"at their defaults: {', '.join(defaults)}")
    say()


def _show_deviations(deviations: Sequence[Deviation], in_full: bool) -> None:
    """By scale; the reasons and switches only ``in_full``."""
    from dare.cli._output import heading, say

    heading("Deviations")
    order = ("all", "paper", "tiny", "ci")
    for each in sorted(deviations, key=lambda deviation: order.index(deviation.scale)):
        say(f"[{each.scale}] {each.id}: {each.what}", indent=2)
        if in_full:
            say(f"why: {each.why}", indent=6)
            if each.switch:
                say(f"switch: {each.switch}", indent=6)
    say()


def _show_next(paper: Reproduction, document: dict[str, Any]) -> None:
    from dare.cli._output import next_command

    claim = paper.headline or "CLAIM"
    lines = [
        f"dare reproduce {paper.name}",
        f"dare reproduce {paper.name} --model llada-8b --dry-run",
    ]
    if "claims" in document:
        lines.append(f"dare verdict RUN --claim {claim}")
    next_command(*lines)


def _text(value: Any) -> str:
    import json

    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return value if isinstance(value, str) else json.dumps(value)
