"""The order in which a run sees its training problems."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from dare.config import TaskConfig
from dare.diffusion.keys import RunKey
from dare.tasks.base import Item, Task


@runtime_checkable
class Generated(Protocol):
    """A task whose training problems are drawn on the fly rather than stored."""

    def draw(self, rng: np.random.Generator, split: str, count: int) -> list[Item]: ...


@dataclass
class TrainingStream:
    """Problems of rollout step t, a function of (run seed, t) alone."""

    task: Task
    config: TaskConfig
    run_key: RunKey
    _stored: list[Item] | None = None

    def items(self, step: int, count: int) -> list[Item]:
        """``count`` problems: fresh draws, or the next ones of a shuffled pass over the split."""
        if isinstance(self.task, Generated):
            rng = self.run_key.at("data", step).numpy()
            return self.task.draw(rng, self.config.train_split, count)
        if self._stored is None:
            self._stored = self.task.load(self.config.train_split)
        rows = range(step * count, (step + 1) * count)
        return [self._stored[self._row(row, len(self._stored))] for row in rows]

    def _row(self, position: int, size: int) -> int:
        epoch, offset = divmod(position, size)
        order = self.run_key.at("data", step=epoch).numpy().permutation(size)
        return int(order[offset])
