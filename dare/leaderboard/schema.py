"""What a board is made of: its protocol, its entries, its withdrawals.

An entry holds either the sealed record headers of our own runs (``evidence``) or numbers a
paper reports (``reported``), never both.  Nothing here is computed: values, intervals and
ranks follow from these by ``dare.leaderboard.build``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator

from dare.config import canonical_json
from dare.results.record import Record, Strict

State = Literal["reported", "submitted", "rescored", "replayed", "disputed", "withdrawn"]
Scalar = str | int | float | bool

Slug = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,119}$")]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Day = Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$")]


class Cell(Strict):
    """One thing that is ranked: a task at a completion length, in one metric.

    ``protocol`` names prompt, extraction and grading.  ``n_items`` is the whole item set; a
    row measured on fewer items is listed, not ranked.  ``gates`` add to the board's own.
    """

    id: Slug
    task: str
    protocol: str
    gen_length: int = Field(gt=0)
    metric: str
    unit: Literal["percent"] = "percent"
    n_items: int = Field(gt=0)
    gates: dict[str, Scalar] = Field(default_factory=dict)


class Ranking(Strict):
    """How rows share ranks: the version of the rule in ``ranking.py``."""

    rule: Literal["difference-interval/1"]


class Protocol(Strict):
    """The frozen rules of a board.

    ``gates`` maps a dotted path into a record to the value it must have; ``same`` lists paths
    on which all records of a cell that are ranked (measured on all items) must agree.  Changing
    either opens a new major version.
    ``min_seeds`` is asked of trained rows; evaluating a fixed checkpoint once is enough.
    ``max_nfe_train`` bounds the forward passes that one training run may spend on rollouts.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    protocol_schema: Literal["dare.board/1"] = Field(alias="schema")
    board: Slug
    version: str = Field(pattern=r"^\d+\.\d+\.\d+$")
    title: str
    note: str = ""
    superseded_by: str = ""
    min_seeds: int = Field(default=3, ge=1)
    max_nfe_train: int | None = Field(default=None, gt=0)
    ranking: Ranking
    cells: tuple[Cell, ...] = Field(min_length=1)
    gates: dict[str, Scalar] = Field(default_factory=dict)
    same: tuple[str, ...] = ()

    @property
    def major(self) -> int:
        return int(self.version.split(".")[0])

    @property
    def name(self) -> str:
        """``board/vN``, the folder under ``leaderboards/``."""
        return f"{self.board}/v{self.major}"

    def cell(self, task: str, gen_length: int | None) -> Cell | None:
        """The cell of this task and completion length, if the board has one."""
        for cell in self.cells:
            if (cell.task, cell.gen_length) == (task, gen_length):
                return cell
        return None

    @model_validator(mode="after")
    def _distinct_cells(self) -> Protocol:
        if len({cell.id for cell in self.cells}) < len(self.cells):
            raise ValueError("two cells have the same id")
        if len({(cell.task, cell.gen_length) for cell in self.cells}) < len(self.cells):
            raise ValueError("two cells have the same task and length")
        return self


class Source(Strict):
    """The paper that reports a number, and the code it was read with."""

    paper: str
    title: str
    arxiv: str
    date: str
    repo: str
    commit: str


class Reported(Strict):
    """One published number: a cell of somebody's table."""

    cell: Slug
    claim: str
    value: float = Field(ge=0.0, le=100.0)
    source: str
    protocol: str | None = None
    selection: str | None = None
    n_items: int | None = None
    n_seeds: int | None = None
    note: str = ""


class Evidence(Strict):
    """One run: its sealed header and, packed, which items it got right.

    ``correct`` holds one bit per line of the outcomes file, first line first, most significant
    bit first, as hexadecimal; the last byte is filled with zeros.  With it the accuracy can be
    counted again, and two rows compared item by item, without the outcomes themselves.
    """

    seed: int
    cell: Slug
    record: Record
    correct: str = Field(default="", pattern=r"^([0-9a-f]{2})*$")

    @property
    def lines(self) -> int:
        return int(self.record.outcomes.get("lines", 0))

    def bits(self) -> list[bool]:
        """Right or wrong, line by line; empty when not stored."""
        raw = bytes.fromhex(self.correct)
        flat = [bool(byte >> (7 - place) & 1) for byte in raw for place in range(8)]
        return flat[: self.lines]


def pack_bits(bits: list[bool]) -> str:
    """The hexadecimal form of ``Evidence.correct``."""
    padded = bits + [False] * (-len(bits) % 8)
    places = range(0, len(padded), 8)
    return bytes(sum(padded[i + j] << (7 - j) for j in range(8)) for i in places).hex()


class Entry(Strict):
    """One row of a board.  ``kind`` "challenge" disputes the row ``target``."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    entry_schema: Literal["dare.entry/1"] = Field(default="dare.entry/1", alias="schema")
    id: Slug
    board: str
    kind: Literal["result", "challenge"] = "result"
    target: str | None = None
    state: State
    algorithm: str = Field(min_length=1, max_length=120)
    model: str = Field(min_length=1, max_length=120)
    added: Day
    note: str = Field(default="", max_length=2000)
    source: Source | None = None
    reported: tuple[Reported, ...] = ()
    evidence: tuple[Evidence, ...] = ()

    @model_validator(mode="after")
    def _one_kind_of_proof(self) -> Entry:
        if (self.state == "reported") != bool(self.reported):
            raise ValueError("state 'reported' goes with reported numbers and nothing else does")
        if bool(self.reported) == bool(self.evidence):
            raise ValueError("an entry has either reported numbers or evidence")
        if self.reported and self.source is None:
            raise ValueError("reported numbers need their source")
        if (self.kind == "challenge") != (self.target is not None):
            raise ValueError("a challenge, and only a challenge, names its target")
        return self

    def dumped(self) -> dict[str, Any]:
        """As it is stored, without the top-level fields that say nothing."""
        return {
            name: value
            for name, value in self.model_dump(mode="json", by_alias=True).items()
            if value not in (None, "", [])
        }


def content_sha(stored: Mapping[str, Any]) -> str:
    """SHA-256 of an entry as stored, without ``state``, which may advance, and ``note``.

    It is taken over the stored JSON and not over the model, so that a field added to the
    schema later changes no hash.
    """
    content = {name: value for name, value in stored.items() if name not in ("state", "note")}
    return hashlib.sha256(canonical_json(content).encode()).hexdigest()


class Lock(Strict):
    """The SHA-256 of every entry that was ever added."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    lock_schema: Literal["dare.lock/1"] = Field(default="dare.lock/1", alias="schema")
    entries: dict[Slug, Sha256] = Field(default_factory=dict)


class Withdrawal(Strict):
    """Why a row no longer counts; ``sha256`` is that of the entry as it was locked."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    withdrawal_schema: Literal["dare.withdrawal/1"] = Field(
        default="dare.withdrawal/1", alias="schema"
    )
    entry: Slug
    sha256: Sha256
    date: Day
    reason: str = Field(min_length=1, max_length=2000)
