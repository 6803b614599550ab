"""Small boards and runs, written by the same code that writes real ones."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from dare.results.record import Budget, Outcome, Record
from dare.results.rundir import write_run
from dare.results.summary import metrics_of

ITEMS = 20

PROTOCOL = """
schema = "dare.board/1"
board = "toy"
version = "1.0.0"
title = "Toy board"
note = "The base was deliberately handicapped."
min_seeds = 2
max_nfe_train = 5000
same = ["data.item_ids_sha256"]

[ranking]
rule = "difference-interval/1"

[[cells]]
id = "sudoku4"
task = "sudoku4"
protocol = "tiny"
gen_length = 16
metric = "accuracy"
n_items = 20

[[cells]]
id = "gsm8k-128"
task = "gsm8k"
protocol = "d1"
gen_length = 128
metric = "accuracy"
n_items = 20
gates = { "decode.steps" = 64 }

[gates]
"decode.temperature" = 0.0
"""


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def outcomes(verdicts: Sequence[bool], seed: int, name: str) -> list[Outcome]:
    return [
        Outcome(
            item=f"item-{i}",
            item_sha=sha(f"item-{i}"),
            prompt_sha=sha("prompt"),
            seed=seed,
            output=f"{name} {seed} {'right' if right else 'wrong'}",
            extracted=None,
            gold_sha=sha("gold"),
            correct=right,
            points=int(right),
            out_of=1,
            well_formed=True,
            status="ok",
            tokens=16,
            nfe=8,
        )
        for i, right in enumerate(verdicts)
    ]


def record(verdicts: Sequence[bool], seed: int, name: str, changes: dict[str, Any]) -> Record:
    about: dict[str, Any] = {
        "kind": "train",
        "created": f"2026-12-0{1 + seed}T10:00:00+00:00",
        "host": {"node": "somewhere"},
        "status": "complete",
        "code": {"dare": "0.1.0"},
        "config": {},
        "config_hash": sha(f"{name} {seed}"),
        "model": {"name": "tiny-llada"},
        "data": {"task": "sudoku4", "item_ids_sha256": sha("items")},
        "prompt": {"protocol": "tiny"},
        "decode": {"gen_length": 16, "steps": 8, "temperature": 0.0},
        "scoring": {"grader": "sudoku4/tiny"},
        "seeds": {"run": seed},
        "budget": Budget(updates=120, completions=512, nfe_train=4096),
        "selection": {"rule": "final step"},
        "env": {"accelerator": "none", "cpu": "Example CPU"},
        "metrics": metrics_of(outcomes(verdicts, seed, name), "accuracy"),
        "outcomes": {},
    }
    return Record(**(about | changes))


WriteRun = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> WriteRun:
    """``write("d1", seed, right)``: a run folder with ``right`` of 20 items correct."""

    def write_one(name: str, seed: int, right: int | Sequence[bool], **changes: Any) -> Path:
        if isinstance(right, int):
            right = [i < right for i in range(ITEMS)]
        folder = tmp_path / "runs" / f"{name}-{seed}"
        write_run(folder, record(right, seed, name, changes), outcomes(right, seed, name))
        return folder

    return write_one


@pytest.fixture
def board(tmp_path: Path) -> Path:
    """The folder of an empty board."""
    folder = tmp_path / "boards" / "toy" / "v1"
    folder.mkdir(parents=True)
    (folder / "protocol.toml").write_text(PROTOCOL)
    return folder


AddRow = Callable[..., str]


@pytest.fixture
def add(board: Path, write: WriteRun) -> AddRow:
    """``add("d1", [10, 12])``: a row from one run per seed; its entry's id."""
    from dare.leaderboard.add import from_runs, insert
    from dare.leaderboard.files import read_board

    def add_row(name: str, per_seed: Sequence[int | Sequence[bool]], **changes: Any) -> str:
        given = {key: changes.pop(key) for key in ("challenges", "note") if key in changes}
        runs = [write(name, seed, right, **changes) for seed, right in enumerate(per_seed)]
        protocol = read_board(board).protocol
        entry = from_runs(protocol, runs, name, "submitted", "2026-12-09", **given)
        insert(board, [entry])
        return entry.id

    return add_row
