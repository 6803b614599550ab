"""Who may attend whom, and at which positions: from a batch to RoPE positions and a mask.

Bidirectional families see every real token.  Block-causal ones (SDAR, LLaDA2.x) see their own
block and the earlier ones; blocks are counted from a row's first real token, prompt included.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dare.models.cache import KeyValueCache


@dataclass(frozen=True)
class Layout:
    """position_ids (B or 1, Q) int64 of the fed columns; mask broadcasting to (B, H, Q, K) bool,
    True where a query may attend a key, or None: everywhere."""

    position_ids: Tensor
    mask: Tensor | None


def layout_of(
    input_ids: Tensor,
    attention_mask: Tensor | None,
    block_length: int | None,
    cache: KeyValueCache | None = None,
) -> Layout:
    """The layout of input_ids (B, Q) with attention_mask (B, T), 1 = real token.

    Padding is never attended and positions count from a row's first real token.  With a cache
    the mask covers the T columns of its canvas, of which ``input_ids`` are those it aims at.
    """
    start = 0 if cache is None else cache.start
    stop = start + input_ids.shape[1]
    visible = stop if cache is None else cache.visible
    real = None
    if attention_mask is not None and not bool(attention_mask.all()):
        real = attention_mask.bool()
    if real is None:
        columns = torch.arange(max(stop, visible), device=input_ids.device)[None]
    else:
        columns = (real.long().cumsum(-1) - 1).clamp(min=0)
    queries = columns[:, start:stop]
    keys = None if real is None else real[:, None, None, :visible]
    if block_length is None:
        return Layout(queries, None if keys is None else never_blind(keys))
    if real is None and (visible - 1) // block_length <= start // block_length:
        return Layout(queries, None)
    blocks = columns[:, :visible] // block_length
    mask = (queries // block_length)[:, None, :, None] >= blocks[:, None, None, :]
    return Layout(queries, mask if keys is None else never_blind(mask & keys))


def never_blind(mask: Tensor) -> Tensor:
    """Let a query that may attend no key (padding) attend all: some kernels give it NaN, which
    would reach real tokens through its value, as 0 * NaN."""
    return mask | ~mask.any(-1, keepdim=True)
