"""Published numbers as data: papers, claims, deviations.  Imports no torch."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from dare.results.record import Strict


class Code(Strict):
    """The authors' code as it was read."""

    repo: str
    commit: str
    licence: str = "not stated"


class Paper(Strict):
    """Who published what, where."""

    id: str
    title: str
    authors: tuple[str, ...]
    arxiv: str
    date: str
    code: Code
    venue: str = ""
    summary: str = ""


class Claim(Strict):
    """One published number.  ``None`` where the paper does not state a thing.

    ``id`` is ``paper/[row/]task/length`` ("d1/gsm8k/256", "d1/baseline/gsm8k/256"); the row
    ``baseline`` is the released checkpoint before any training, and a ``selection`` that begins
    "released checkpoint" says the same of another row.  ``decode`` holds sampler
    settings in SamplerConfig's names, ``budget`` training costs in Budget's, ``spread`` the
    reported variation over ``n_seeds`` runs in the unit of ``value``.
    """

    id: str
    row: str
    model: str
    task: str
    metric: str
    value: float
    unit: str = "percent"
    gen_length: int | None = None
    n_items: int | None = None
    n_seeds: int | None = None
    protocol: str | None = None
    selection: str | None = None
    kind: Literal["absolute", "improvement"] = "absolute"
    baseline: str | None = None
    source: str
    note: str = ""
    direction: Literal["higher", "lower"] = "higher"
    revision: str | None = None
    item_ids_sha256: str | None = None
    hardware: str | None = None
    spread: float | None = None
    spread_kind: str | None = None
    decode: dict[str, Any] = Field(default_factory=dict)
    budget: dict[str, float] = Field(default_factory=dict)

    @property
    def method(self) -> str:
        """The row part of the id, or the paper itself for its own method."""
        parts = self.id.split("/")
        return parts[1] if len(parts) > 3 else parts[0]

    @property
    def trained(self) -> bool:
        """False for a checkpoint that was evaluated as it was released."""
        released = (self.selection or "").startswith("released checkpoint")
        return not released and self.method != "baseline"


class Deviation(Strict):
    """Where this reproduction departs from the paper or the paper from its code.

    ``switch`` is the config path that turns a faithful quirk off, if there is one.
    """

    id: str
    scale: Literal["all", "paper", "tiny", "ci"]
    what: str
    why: str
    switch: str | None = None


Values = dict[str, Any]
