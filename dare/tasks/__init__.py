"""Benchmarks and the embedded task.  One file per task; this table is the only list of them.

    from dare.tasks import get
    task = get("gsm8k")
    task.grade(item, completion, "d1")

Importing this package or any task imports no torch, pandas or datasets.
"""

from __future__ import annotations

from importlib import import_module

from dare.errors import unknown_name
from dare.tasks.base import Task
from dare.tasks.columns import reward_columns

__all__ = ["get", "names", "reward_columns"]

TASKS = {
    "sudoku4": "dare.tasks.sudoku4",
    "gsm8k": "dare.tasks.gsm8k",
    "math500": "dare.tasks.math500",
    "countdown": "dare.tasks.countdown",
    "sudoku": "dare.tasks.sudoku",
}


def names() -> tuple[str, ...]:
    """The names of all tasks."""
    return tuple(TASKS)


def get(name: str) -> Task:
    """The task called ``name``; an unknown name is a ``UsageProblem`` with the nearest one."""
    if name not in TASKS:
        raise unknown_name("task", name, TASKS, "dare list tasks")
    task: Task = import_module(TASKS[name]).TASK
    return task
