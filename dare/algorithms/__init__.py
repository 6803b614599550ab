"""The algorithms by name.  Imports no torch, and an algorithm's module only when it is asked for.

make("diffu-grpo", {"beta": 0.0})
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from dare.errors import UsageProblem, unknown_name

if TYPE_CHECKING:
    from dare.algorithms.base import Algorithm, AlgorithmConfig


@dataclass(frozen=True)
class Entry:
    """Where an algorithm stands and what it is, for lists."""

    module: str
    algorithm: str
    config: str
    summary: str
    arxiv: str


ALGORITHMS: dict[str, Entry] = {
    "diffu-grpo": Entry(
        "dare.algorithms.diffu_grpo",
        "DiffuGrpo",
        "DiffuGrpoConfig",
        "clipped token ratios of a one-step likelihood with a masked prompt",
        "2504.12216",
    ),
    "spg": Entry(
        "dare.algorithms.spg",
        "Spg",
        "SpgConfig",
        "policy gradient on a lower bound for good samples, an upper bound for bad ones",
        "2510.09541",
    ),
}
ALIASES = {"grpo": "diffu-grpo", "d1": "diffu-grpo"}


def canonical_name(name: str) -> str:
    """The table's spelling of ``name``; underscores and aliases are understood.

    Raises ``UsageProblem`` suggesting the nearest name.
    """
    spelled = name.lower().replace("_", "-")
    spelled = ALIASES.get(spelled, spelled)
    if spelled not in ALGORITHMS:
        raise unknown_name("algorithm", name, [*ALGORITHMS, *ALIASES], "dare list algorithms")
    return spelled


def config_class(name: str) -> type[AlgorithmConfig]:
    """The config model of the algorithm called ``name``."""
    entry = ALGORITHMS[canonical_name(name)]
    found: type[AlgorithmConfig] = getattr(import_module(entry.module), entry.config)
    return found


def make(name: str, options: Mapping[str, Any] | None = None) -> Algorithm:
    """The algorithm called ``name`` with ``options`` over its defaults.

    Raises ``UsageProblem`` for an unknown name, an unknown option or a value out of range.
    """
    from pydantic import ValidationError

    canonical = canonical_name(name)
    entry = ALGORITHMS[canonical]
    try:
        config = config_class(canonical)(**(options or {}))
    except ValidationError as error:
        problems = [
            f"{'.'.join(map(str, item['loc']))}: {item['msg'].removeprefix('Value error, ')}"
            for item in error.errors()
        ]
        known = ", ".join(config_class(canonical).model_fields)
        raise UsageProblem(
            f"the options of '{canonical}' are not valid", "; ".join(problems), f"options: {known}"
        ) from error
    algorithm: Algorithm = getattr(import_module(entry.module), entry.algorithm)(config)
    return algorithm
