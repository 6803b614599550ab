"""The record of a rescoring: what was graded, by what, and what is only declared.

A file of generations does not say which model wrote it, how it was decoded or which prompt it
saw.  Whoever scores it may declare that (``Provenance``); the record then says so for each
value, and everything undeclared is absent rather than guessed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dare.config import canonical_json
from dare.evaluation.metrics import STRICT
from dare.evaluation.outcomes import content_sha
from dare.evaluation.regrade import ITEMS, Regrade
from dare.evaluation.rescore import Rescore, item_lines
from dare.grading import d1, strict
from dare.models.weights import file_sha256
from dare.results.environment import code_identity, environment
from dare.results.files import write_atomic
from dare.results.record import Budget, Record
from dare.results.rundir import write_run
from dare.tasks import protocols

GRADERS = {"d1": d1.ID, "spg": d1.ID, STRICT: strict.ID}


@dataclass(frozen=True, slots=True)
class Provenance:
    """What is said about the generations.  ``said_by`` names who says it, for the record."""

    said_by: str
    paper: str | None = None
    model: Mapping[str, Any] = field(default_factory=dict)
    decode: Mapping[str, Any] = field(default_factory=dict)
    wording: str | None = None
    items: int | None = None  # of the whole set, where that is known
    selection: str | None = None


def write_rescore(
    folder: Path, result: Rescore, provenance: Provenance | None, limit: int | None = None
) -> Record:
    """Write the record of a scored file, its outcomes and its problems to a new folder."""
    source = Path(result.source)
    config = {
        "paper": None,
        "algorithm": None,
        "training": None,
        "task": {"name": result.task, "protocol": result.protocol, "eval_limit": limit},
        "source": {"file": source.name, "sha256": file_sha256(source)},
    }
    record = _record(result, config, provenance or Provenance("nobody"))
    return _write(folder, record, result)


def write_regrade(folder: Path, regrade: Regrade) -> Record:
    """Write a run's outputs with their new grades to a new folder; the old run is the parent."""
    old, result = regrade.record, regrade.rescore
    prompt = {**old.prompt, "protocol": result.protocol}
    record = _record(result, dict(old.config), Provenance(f"record {old.id}")).model_copy(
        update={
            "parents": [old.id],
            "config_hash": old.config_hash,
            "paper": old.paper,
            "model": old.model,
            "data": old.data,
            "prompt": prompt,
            "decode": old.decode,
            "seeds": old.seeds,
            "budget": old.budget,
            "selection": old.selection,
            "origins": old.origins,
        }
    )
    return _write(folder, record, result)


def _write(folder: Path, record: Record, result: Rescore) -> Record:
    sealed = write_run(folder, record, result.to_outcomes())
    write_atomic(folder / ITEMS, item_lines(result.rows))
    return sealed


def _record(result: Rescore, config: dict[str, Any], said: Provenance) -> Record:
    declared = {
        name: f"declared by {said.said_by}"
        for name in ("model", "decode", "selection")
        if getattr(said, name)
    }
    if said.wording:
        declared["prompt.wording"] = f"declared by {said.said_by}"
    return Record(
        kind="rescore",
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        status="complete",
        code=code_identity(),
        config=config,
        config_hash=hashlib.sha256(canonical_json(config).encode()).hexdigest(),
        origins=declared,
        paper={"id": said.paper} if said.paper else None,
        model=dict(said.model),
        data=_data(result, said.items),
        prompt=_prompt(result, said.wording),
        decode=dict(said.decode),
        scoring=_scoring(result),
        seeds={},
        budget=Budget(completions=result.n),
        selection={"rule": said.selection} if said.selection else {},
        env=environment(),
        metrics=result.metrics(),
        outcomes={},
    )


def _data(result: Rescore, whole: int | None) -> dict[str, Any]:
    data = {
        "task": result.task,
        "split": "test",
        "n": result.n,
        "item_ids_sha256": content_sha([row.item.id for row in result.rows]),
        "source": Path(result.source).name,
    }
    if whole is not None and result.n < whole:
        data["subset"] = f"{result.n} of {whole} items"
    return data


def _prompt(result: Rescore, wording: str | None) -> dict[str, Any]:
    protocol = protocols.get(result.task, result.protocol)
    if wording == "paper" and protocol.published:
        published = {"published_at": protocol.published.url()}
        return {
            "protocol": protocol.id,
            "wording": "paper",
            "sha256": protocol.published.sha256,
            **published,
        }
    return {"protocol": protocol.id, "wording": wording or "not recorded"}


def _scoring(result: Rescore) -> dict[str, Any]:
    scoring: dict[str, Any] = {
        "grader": f"{result.task}/{result.protocol}",
        "version": GRADERS.get(result.protocol, protocols.get(result.task, result.protocol).grader),
        "counts_as_wrong": "no_answer, truncated, timeout, error",
        "statuses": result.statuses(),
    }
    if result.strict_correct is not None:
        scoring["strict"] = strict.ID
    if result.agreement is not None:
        equal, known = result.agreement
        scoring["reference"] = {"rows": known, "equal": equal}
    return scoring
