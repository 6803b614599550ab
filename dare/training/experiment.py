"""An experiment: the checkpoint as it is, and the same checkpoint after training, several seeds.

Shared by ``dare reproduce``, ``dare compare`` and ``dare check``.  Imports no torch.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dare.config import Origins, RunConfig, json_or_text
from dare.errors import UsageProblem
from dare.results.record import Outcome, Record
from dare.results.rundir import read_events, read_outcomes, read_record
from dare.training.launch import Unit

RUNS = Path("runs")
Layers = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Finished:
    """One finished unit, read back and verified."""

    folder: Path
    record: Record
    outcomes: list[Outcome]
    events: list[dict[str, Any]]

    @classmethod
    def read(cls, folder: Path) -> Finished:
        record = read_record(folder)
        return cls(folder, record, read_outcomes(folder, record), read_events(folder))

    def percent(self, metric: str = "accuracy") -> float:
        return self.record.metric(metric).value


def seed_units(
    config: RunConfig, origins: Origins, seeds: Sequence[int], label: str = ""
) -> list[Unit]:
    """One unit per seed."""
    units = []
    for seed in seeds:
        named = origins | {"training.seed": "--seeds"}
        units.append(Unit(config.with_seed(seed), named, f"{label}seed {seed}"))
    return units


def baseline_unit(config: RunConfig, origins: Origins) -> Unit:
    """The evaluation of the untrained checkpoint that the runs of ``config`` are set against."""
    return Unit(config.baseline(), origins, "base")


def default_jobs() -> int:
    """As many workers as there are cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def parse_seeds(text: str) -> tuple[int, ...]:
    """``"0-2"``, ``"0,3,7"`` or ``"4"`` as seeds; anything else is refused by name."""
    seeds: list[int] = []
    try:
        for part in text.split(","):
            first, dash, last = part.strip().partition("-")
            seeds.extend(range(int(first), int(last) + 1) if dash else [int(first)])
    except ValueError as error:
        raise _bad_seeds(text) from error
    if not seeds or len(set(seeds)) != len(seeds) or len(seeds) > 1000:
        raise _bad_seeds(text)
    return tuple(seeds)


def _bad_seeds(text: str) -> UsageProblem:
    return UsageProblem(
        f"'{text}' is not a list of seeds",
        "seeds are different whole numbers: 0-2 or 0,3,7",
        "dare reproduce d1 --seeds 0-2",
    )


def parse_overrides(settings: Sequence[str]) -> dict[str, Any]:
    """``path=value`` words as ``{path: value}``; values are JSON, or text if that fails."""
    values: dict[str, Any] = {}
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals or not path:
            raise UsageProblem(
                f"'{setting}' is not a setting",
                "a setting is path=value",
                "dare reproduce d1 --set training.learning_rate=1e-4",
            )
        values[path] = json_or_text(text)
    return values
