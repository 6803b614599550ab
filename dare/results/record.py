"""The record of a run, schema ``dare.record/1``: what a number rests on.

``runs/<date>-<paper>-<task>-<hash8>/`` holds ``record.json`` (this header),
``outcomes.jsonl`` (one line per problem and sample), ``events.jsonl`` (training curve),
``config.json`` and checkpoints.  Imports no torch.
"""

from __future__ import annotations

import hashlib
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from dare.config import canonical_json

SCHEMA: Literal["dare.record/1"] = "dare.record/1"

Kind = Literal["train", "eval", "rescore", "compare", "reproduce"]


class Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Interval(Strict):
    """A two-sided interval; ``method`` names how ("wilson", "t over seeds", ...)."""

    method: str
    level: float
    lo: float
    hi: float


class Metric(Strict):
    """One number.  ``value`` is in ``unit`` ("percent" or "share" or "count")."""

    name: str
    value: float
    n: int
    unit: str = "percent"
    points: int | None = None
    out_of: int | None = None
    ci: Interval | None = None
    n_seeds: int | None = None
    aggregation: str = "mean over items"


class Outcome(Strict):
    """One completion and its grade: a line of outcomes.jsonl."""

    item: str
    item_sha: str
    prompt_sha: str
    sample: int = 0
    seed: int = 0
    output: str
    extracted: str | None
    gold_sha: str
    correct: bool
    points: int
    out_of: int
    well_formed: bool
    status: Literal["ok", "no_answer", "truncated", "timeout", "error"]
    tokens: int
    nfe: int


class Budget(Strict):
    """What was spent.  NFE counts forward passes per sequence; seconds are CPU and wall."""

    updates: int = 0
    prompts: int = 0
    completions: int = 0
    generated_tokens: int = 0
    nfe_train: int = 0
    nfe_eval: int = 0
    learner_forwards: int = 0
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    peak_memory_bytes: int = 0


class Record(Strict):
    """The header of a run.  ``id`` is the SHA-256 of the rest without ``created`` and ``host``."""

    record_schema: Literal["dare.record/1"] = Field(default=SCHEMA, alias="schema")
    id: str = ""
    kind: Kind
    created: str
    host: dict[str, Any] = Field(default_factory=dict)
    parents: list[str] = Field(default_factory=list)
    status: Literal["complete", "partial", "failed", "invalidated"]
    reason: str = ""
    code: dict[str, Any]
    config: dict[str, Any]
    config_hash: str
    origins: dict[str, str] = Field(default_factory=dict)
    paper: dict[str, Any] | None = None
    model: dict[str, Any]
    data: dict[str, Any]
    prompt: dict[str, Any]
    decode: dict[str, Any]
    scoring: dict[str, Any]
    seeds: dict[str, Any]
    budget: Budget
    selection: dict[str, Any]
    env: dict[str, Any]
    metrics: list[Metric]
    outcomes: dict[str, Any]
    verdict: dict[str, Any] | None = None

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    def content_id(self) -> str:
        """The id this content must have."""
        content = self.model_dump(mode="json", by_alias=True, exclude={"id", "created", "host"})
        return hashlib.sha256(canonical_json(content).encode()).hexdigest()

    def sealed(self) -> Record:
        """This record with its id filled in."""
        return self.model_copy(update={"id": self.content_id()})

    def metric(self, name: str) -> Metric:
        """The metric called ``name``; KeyError lists what there is."""
        for metric in self.metrics:
            if metric.name == name:
                return metric
        raise KeyError(
            f"no metric '{name}' in record {self.id[:8]}: {[m.name for m in self.metrics]}"
        )
