"""A graded completion as a line of outcomes.jsonl, and the hashes that name its parts."""

from __future__ import annotations

import hashlib
from typing import Any

from dare.config import canonical_json
from dare.results.record import Outcome
from dare.tasks.base import Grade, Item


def content_sha(value: Any) -> str:
    """SHA-256 of a text, or of the canonical JSON of anything else."""
    text = value if isinstance(value, str) else canonical_json(value)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def item_sha(item: Item) -> str:
    """The hash by which an outcome names its problem's content."""
    return content_sha({"question": item.question, "gold": item.gold})


def outcome_of(
    item: Item,
    prompt: str,
    output: str,
    grade: Grade,
    *,
    seed: int = 0,
    tokens: int = 0,
    nfe: int = 0,
) -> Outcome:
    """The outcome of one completion; ``tokens`` and ``nfe`` are 0 where they are not known."""
    return Outcome(
        item=item.id,
        item_sha=item_sha(item),
        prompt_sha=content_sha(prompt),
        seed=seed,
        output=output,
        extracted=grade.extracted,
        gold_sha=content_sha(item.gold),
        correct=grade.correct,
        points=grade.points,
        out_of=grade.out_of,
        well_formed=grade.well_formed,
        status=grade.status,
        tokens=tokens,
        nfe=nfe,
    )
