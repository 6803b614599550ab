"""How a denoising step gets its logits: from the whole canvas, or through a cache.

``full``    the whole canvas every time; for block-causal models up to the end of the block.
``block``   block-causal models: keys and values of finished blocks are kept.  Exact.  A block
            that has just been finished is fed once more together with the next one, so that its
            keys are those of its final tokens: no forward is spent on storing them.
``prefix``  Fast-dLLM (arXiv 2505.22618): the first step of a block runs the whole canvas, later
            ones only the block and what follows it, on top of the prefix's keys and values.
``dual``    the same, but later steps run the block alone, on top of prefix and suffix.

The last two are approximations: the keys they keep are stale as soon as a token is committed.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dare.models.cache import KeyValueCache
from dare.sampling.canvas import Canvas
from dare.sampling.config import SamplerConfig


class FullCanvas:
    """No cache; two passes in one batch with classifier-free guidance."""

    def __init__(self, model: Any, canvas: Canvas, config: SamplerConfig) -> None:
        self.model, self.canvas, self.config = model, canvas, config
        self.block_causal = getattr(model.config, "block_length", None) is not None
        self.named = {"block_length": config.block_length} if self.block_causal else {}
        self.passes = 2 if config.cfg_scale > 0 else 1

    def begin_block(self) -> None:
        """A new block: what a cache holds of the old one is out of date."""

    @property
    def opens_block(self) -> bool:
        """Whether the next call is a cached block's first, over the whole canvas."""
        return False

    def __call__(self, rows: Tensor, window: slice, scored: Tensor) -> Tensor:
        """Logits (N, V) at the scored (A, W) positions of the window, for rows (A,)."""
        end = window.stop if self.block_causal else self.canvas.ids.shape[1]
        ids, mask = self._columns(rows, 0, end)
        positions = self._positions(ids, window, scored, 0)
        if self.passes == 1:
            logits: Tensor = self.model(ids, mask, positions=positions, **self.named)
            return logits
        # The unguided half sees no prompt: every position that was not to be generated is hidden.
        blind = ids.masked_fill(~self.canvas.region[rows, :end], self.canvas.special.mask)
        both = self.model(
            torch.cat((ids, blind)),
            None if mask is None else torch.cat((mask, mask)),
            positions=torch.cat((positions, positions)),
            **self.named,
        )
        conditional, unconditional = both.chunk(2)
        return unconditional + (self.config.cfg_scale + 1) * (conditional - unconditional)

    def _columns(self, rows: Tensor, start: int, stop: int) -> tuple[Tensor, Tensor | None]:
        """Token ids of the columns, and the attention mask of everything up to their end."""
        canvas = self.canvas
        ids, mask = canvas.ids[:, start:stop], canvas.attention_mask
        if len(rows) < len(canvas.ids):
            ids, mask = ids[rows], None if mask is None else mask[rows]
        return ids, None if mask is None else mask[:, :stop]

    def _positions(self, ids: Tensor, window: slice, scored: Tensor, start: int) -> Tensor:
        positions = torch.zeros_like(ids, dtype=torch.bool)
        positions[:, window.start - start : window.stop - start] = scored
        return positions


class _Cached(FullCanvas):
    def __init__(self, model: Any, canvas: Canvas, config: SamplerConfig) -> None:
        super().__init__(model, canvas, config)
        self.cache = KeyValueCache(length=canvas.ids.shape[1], batch=len(canvas.ids))

    def _run(
        self, rows: Tensor, window: slice, scored: Tensor, start: int, stop: int, visible: int
    ) -> Tensor:
        everyone = len(rows) == len(self.canvas.ids)
        self.cache.aim(start, stop, visible, None if everyone else rows)
        ids, _ = self._columns(rows, start, stop)
        _, mask = self._columns(rows, 0, visible)
        positions = self._positions(ids, window, scored, start)
        logits: Tensor = self.model(ids, mask, positions=positions, cache=self.cache, **self.named)
        return logits


class BlockCache(_Cached):
    """Exact for block-causal models."""

    def __init__(self, model: Any, canvas: Canvas, config: SamplerConfig) -> None:
        super().__init__(model, canvas, config)
        # Columns of each row, from the left, whose stored keys are final.
        self.final = [0] * len(canvas.ids)

    def __call__(self, rows: Tensor, window: slice, scored: Tensor) -> Tensor:
        members = rows.tolist()
        start = min(self.final[row] for row in members)
        logits = self._run(rows, window, scored, start, window.stop, window.stop)
        for row in members:
            self.final[row] = window.start
        return logits


class FastDllmCache(_Cached):
    """Fast-dLLM's prefix cache, and its dual cache."""

    def __init__(self, model: Any, canvas: Canvas, config: SamplerConfig) -> None:
        super().__init__(model, canvas, config)
        self.fresh = True

    def begin_block(self) -> None:
        self.fresh = True

    @property
    def opens_block(self) -> bool:
        return self.fresh

    def __call__(self, rows: Tensor, window: slice, scored: Tensor) -> Tensor:
        width = self.canvas.ids.shape[1]
        if self.fresh:
            self.fresh = False
            return self._run(rows, window, scored, 0, width, width)
        stop = window.stop if self.config.cache == "dual" else width
        return self._run(rows, window, scored, window.start, stop, width)


def make(model: Any, canvas: Canvas, config: SamplerConfig) -> FullCanvas:
    """The way to get logits that ``config.cache`` names."""
    kinds = {"none": FullCanvas, "block": BlockCache, "prefix": FastDllmCache}
    return kinds.get(config.cache, FastDllmCache)(model, canvas, config)
