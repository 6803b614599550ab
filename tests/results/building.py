"""Valid synthetic records, for tests here and of the commands that read records."""

from __future__ import annotations

import hashlib
from typing import Any

from dare.results.record import Budget, Metric, Outcome, Record


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def make_outcomes(correct: list[int], seed: int = 0) -> list[Outcome]:
    """One outcome per entry of ``correct`` (1 right, 0 wrong), items item-0, item-1, ..."""
    return [
        Outcome(
            item=f"item-{index}",
            item_sha=sha(f"item-{index}"),
            prompt_sha=sha("prompt"),
            seed=seed,
            output=f"<answer>{right}</answer>",
            extracted=str(right),
            gold_sha=sha("1"),
            correct=bool(right),
            points=int(right),
            out_of=1,
            well_formed=True,
            status="ok",
            tokens=16,
            nfe=8,
        )
        for index, right in enumerate(correct)
    ]


def make_record(value: float = 76.7, *, seed: int = 0, **changes: Any) -> Record:
    """A sealed record of d1's GSM8K baseline protocol; ``changes`` replace whole blocks.

    ``block__key=value`` changes one key of a block: ``make_record(data__n=1130)``.
    """
    n = changes.get("data__n", 1319)
    blocks: dict[str, Any] = {
        "kind": "eval",
        "created": "2026-12-01T00:00:00Z",
        "status": "complete",
        "code": {"dare": "0.1.0", "numerics_sha256": sha("code")},
        "config": {"paper": "base", "algorithm": "none", "training": None},
        "config_hash": sha(f"config {seed}"),
        "model": {"name": "llada-8b", "weights_sha256": sha("weights")},
        "data": {"task": "gsm8k", "split": "test", "n": n, "item_ids_sha256": sha("items")},
        "prompt": {"protocol": "d1", "sha256": sha("prompt"), "wording": "paper"},
        "decode": {
            "gen_length": 256,
            "steps": 128,
            "block_length": 32,
            "temperature": 0.0,
            "cfg_scale": 0.0,
        },
        "scoring": {"grader": "gsm8k/d1"},
        "seeds": {"run": seed},
        "budget": Budget(completions=n, nfe_eval=128 * n),
        "selection": {"rule": "final step", "candidates": 1},
        "env": {"accelerator": "none"},
        "metrics": [Metric(name="accuracy", value=value, n=n)],
        "outcomes": {"path": "outcomes.jsonl", "sha256": sha(f"{value} {seed}"), "lines": n},
    }
    for name, change in changes.items():
        block, _, key = name.partition("__")
        if key:
            blocks[block] = {**blocks[block], key: change}
        else:
            blocks[block] = change
    return Record(**blocks).sealed()
