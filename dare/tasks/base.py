"""The task contract: items in, prompts and grades out.

Accuracy, reward, format rate and chance floor are four different things here:

* ``grade(...).correct``      the task's own exact notion of a right answer
* ``grade(...).points/out_of`` the protocol's score, pooled over items (d1's sudoku counts cells)
* ``grade(...).well_formed``  the answer had the asked-for form, right or wrong
* ``rewards(protocol)``       what training optimises; never reported as accuracy
* ``chance_floor(...)``       what guessing scores on the protocol's metric
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

Status = Literal["ok", "no_answer", "truncated", "timeout", "error"]

# TRL's reward protocol: f(prompts, completions, **columns) -> one float or None per sample.
RewardFunction = Callable[..., list[float | None]]


@dataclass(frozen=True, slots=True)
class Item:
    """One problem.  ``gold`` is JSON-serialisable; ``id`` is stable across machines."""

    id: str
    question: str
    gold: Any
    meta: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Grade:
    """The verdict on one completion.

    ``points``/``out_of`` are whole numbers so that pooled scores are exact; tasks scored
    right/wrong use 0/1 out of 1.  ``status`` other than ``ok`` says why there is no verdict:
    ``timeout`` and ``error`` stay in the denominator but are reported apart from wrong ones.
    """

    correct: bool
    points: int
    out_of: int
    extracted: str | None
    status: Status
    well_formed: bool


@dataclass(frozen=True, slots=True)
class Split:
    """What a split is made of, for the record: id, revision, hashes, licence."""

    name: str
    source: str
    revision: str
    licence: str


class Task(Protocol):
    """One benchmark.  ``protocol`` is a protocol id such as ``"d1"``."""

    name: str
    protocols: tuple[str, ...]
    metric: str  # the protocol score's name: "accuracy", "cells", ...

    def load(self, split: str, limit: int | None = None) -> list[Item]: ...

    def prompt(self, item: Item, protocol: str) -> str: ...

    def grade(self, item: Item, completion: str, protocol: str) -> Grade: ...

    def rewards(self, protocol: str) -> Sequence[RewardFunction]: ...

    def chance_floor(self, items: Sequence[Item], protocol: str) -> float: ...
