"""The inputs on which a block-causal model scores a noisy completion in one forward.

Such a model (SDAR, LLaDA2.x) sees earlier blocks clean and its own block noisy.  So the clean
sequence, the *context*, and the noisy columns stand side by side, with equal position ids:

    context query, block a   sees   context keys of blocks 0..a
    noisy query, block a     sees   context keys of blocks 0..a-1 and noisy keys of block a

This is the mask block diffusion models are trained with (BD3-LM, arXiv 2503.09573; SDAR).  A
prompt whose tail shares a block with the completion is in both streams.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dare._lazy import lazy

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = lazy("torch")


@dataclass(frozen=True)
class TwoStream:
    """ids (B, E + W): E context columns, then the noisy columns from ``start`` on (W of L);
    position_ids (B, E + W); attend (B, E + W, E + W) bool."""

    ids: Tensor
    position_ids: Tensor
    attend: Tensor
    start: int

    def lift(self, rows: Tensor) -> Tensor:
        """Rows (B, L) bool of the noisy sequence as rows (B, E + W) of ``ids``."""
        noisy = rows[:, self.start :]
        context = rows.new_zeros(len(rows), self.ids.shape[1] - noisy.shape[1])
        return torch.cat((context, noisy), 1)


def two_stream(
    context: Tensor,
    noisy: Tensor,
    attention: Tensor | None,
    block_length: int,
    completion_length: int,
) -> TwoStream:
    """Both streams of context and noisy ids (B, L), which agree on the prompt.

    attention (B, L) bool, False at left padding, or None.  Blocks and positions are counted from
    a row's first real token.  Columns that no needed row can depend on are left out: noisy ones
    in front of the block in which a completion starts, context ones of every row's last block.
    """
    length = noisy.shape[1]
    real = attention if attention is not None else torch.ones_like(noisy, dtype=torch.bool)
    places = (real.long().cumsum(-1) - 1).clamp(min=0)
    blocks = places // block_length
    first = length - completion_length
    inside = places[:, min(first, length - 1)] % block_length
    start = max(0, first - int(inside.max())) if len(noisy) else first
    last = places[:, -1] % block_length + 1
    end = length - int(last.min()) if len(noisy) else length
    ids = torch.cat((context[:, :end], noisy[:, start:]), 1)
    position_ids = torch.cat((places[:, :end], places[:, start:]), 1)
    block = torch.cat((blocks[:, :end], blocks[:, start:]), 1)
    is_real = torch.cat((real[:, :end], real[:, start:]), 1)
    is_noisy = torch.arange(ids.shape[1], device=ids.device) >= end
    same_stream = is_noisy[:, None] == is_noisy[None, :]
    query, key = block[:, :, None], block[:, None, :]
    seen = (key < query) & ~is_noisy[None, None, :] | (key == query) & same_stream
    # Padding attends to itself alone, so that its rows stay finite.
    itself = torch.eye(ids.shape[1], dtype=torch.bool, device=ids.device)
    attend = seen & is_real[:, None, :] | itself
    return TwoStream(ids, position_ids, attend, start)
