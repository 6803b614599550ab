"""The shuffles that papers used, so that the same rows are kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def shuffled(rows: Sequence[T], seed: int) -> list[T]:
    """``rows`` in the order that ``datasets.Dataset.shuffle(seed=seed)`` gives."""
    import numpy as np

    order = np.random.default_rng(seed).permutation(len(rows))
    return [rows[int(index)] for index in order]


def legacy_sample(rows: Sequence[T], count: int, seed: int) -> list[T]:
    """What ``np.random.seed(seed); np.random.choice(len(rows), count, replace=False)`` draws.

    The legacy generator is kept bit for bit by numpy; it is not touched globally here.
    """
    import numpy as np

    if count >= len(rows):
        return list(rows)
    chosen = np.random.RandomState(seed).choice(len(rows), count, replace=False)
    return [rows[int(index)] for index in chosen]
