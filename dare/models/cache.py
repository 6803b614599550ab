"""Keys and values of a canvas, kept between forward passes.

    cache = KeyValueCache(length=T)
    cache.aim(start=0, stop=T)                    # the next forward feeds columns [0, T)
    model(ids, attention_mask, cache=cache)
    cache.aim(start=a, stop=b, visible=T)         # then only [a, b), attending to [0, T)
    model(ids[:, a:b], attention_mask, cache=cache)

Keys are stored rotated, at their absolute positions.  A forward always overwrites the columns
it is fed.  Whether what the other columns hold is up to date is for the caller to know: for
block-causal models finished blocks are, which makes their cache exact; for bidirectional
models everything is stale after the first change, which makes theirs an approximation.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass
class KeyValueCache:
    """Buffers (B, kv heads, length, head_dim) for every layer, made at the first use.

    ``rows`` restricts a forward to some rows of the batch, (A,) int64.
    """

    length: int
    batch: int
    start: int = 0
    stop: int = 0
    visible: int = 0
    rows: Tensor | None = None
    _buffers: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)

    def aim(
        self, start: int, stop: int, visible: int | None = None, rows: Tensor | None = None
    ) -> None:
        """The next forward feeds columns [start, stop) and attends to columns [0, visible)."""
        self.start, self.stop, self.rows = start, stop, rows
        self.visible = stop if visible is None else visible

    def layer(self, index: int) -> LayerCache:
        return LayerCache(self, index)

    def update(self, index: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Store the fresh (A, kv, Q, d) keys and values; all visible ones (A, kv, visible, d)."""
        if index not in self._buffers:
            shape = (self.batch, k.shape[1], self.length, k.shape[3])
            self._buffers[index] = (k.new_zeros(shape), v.new_zeros(shape))
        return self._store(self._buffers[index][0], k), self._store(self._buffers[index][1], v)

    def _store(self, buffer: Tensor, fresh: Tensor) -> Tensor:
        columns = slice(self.start, self.stop)
        if self.rows is None:
            buffer[:, :, columns] = fresh
            return buffer[:, :, : self.visible]
        buffer[self.rows, :, columns] = fresh
        return torch.index_select(buffer, 0, self.rows)[:, :, : self.visible]


@dataclass(frozen=True)
class LayerCache:
    """One layer's part of a cache."""

    cache: KeyValueCache
    index: int

    def update(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return self.cache.update(self.index, k, v)
