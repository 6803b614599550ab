"""FlexAttention: the layout's mask in blocks, of which the empty ones are skipped.

Chosen with ``attn_implementation="flex_attention"``.  On a GPU the kernel is compiled at its
first use; on a CPU it runs uncompiled, forward only.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from dare.errors import UsageProblem


def block_mask(mask: Tensor, batch: int, queries: int) -> BlockMask:
    """The dense mask (batch or 1, 1, queries or 1, K) as FlexAttention wants it."""
    dense = mask.expand(batch, 1, queries, -1)

    def visible(row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return dense[row, 0, query, key]

    return create_block_mask(visible, batch, None, queries, dense.shape[3], device=dense.device)


def flex_heads(q: Tensor, k: Tensor, v: Tensor, mask: BlockMask) -> Tensor:
    """Softmax attention of q (B, H, Q, d) on k and v (B, H, K, d)."""
    if q.device.type == "cpu" and torch.is_grad_enabled() and q.requires_grad:
        raise UsageProblem(
            "FlexAttention cannot train on a CPU",
            "it has no backward pass there",
            "leave attn_implementation at 'sdpa', or use a GPU",
        )
    heads: Tensor = _kernel(q.device.type)(q, k, v, block_mask=mask)
    return heads


@cache
def _kernel(device: str) -> Callable[..., Any]:
    if device == "cpu":
        return flex_attention
    compiled: Callable[..., Any] = torch.compile(flex_attention, dynamic=True)
    return compiled
