"""Small helpers for TRL's reward protocol: ``f(prompts, completions, **columns)``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dare.errors import UsageProblem
from dare.tasks.base import Item


def reward_columns(items: Sequence[Item]) -> dict[str, list[Any]]:
    """The columns that reward functions of ``dare`` read, one value per item.

    ``question`` and every key of ``item.gold``; all items must have the same gold keys.
    """
    columns: dict[str, list[Any]] = {"question": [item.question for item in items]}
    for name in items[0].gold if items else ():
        columns[name] = [item.gold[name] for item in items]
    return columns


def completion_text(completion: Any) -> str:
    """The text of a completion in TRL's plain or conversational form."""
    if isinstance(completion, str):
        return completion
    if isinstance(completion, Sequence) and completion and isinstance(completion[-1], Mapping):
        return str(completion[-1].get("content") or "")
    return ""


def column(
    columns: Mapping[str, Any], name: str, count: int, default: Sequence[Any] | None = None
) -> Sequence[Any]:
    """Column ``name`` with ``count`` values; ``default`` stands in when it is absent."""
    values = columns.get(name, default)
    if values is None or isinstance(values, str) or len(values) != count:
        found = "absent" if values is None else f"{len(values)} values long"
        raise UsageProblem(
            f"the reward needs the column '{name}' with one value per completion",
            f"it is {found}; there are {count} completions",
            "build it with dare.tasks.reward_columns(items)",
        )
    return values
