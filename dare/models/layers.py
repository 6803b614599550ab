"""Parts in which the families agree: RMSNorm, RoPE, attention, the gated MLP.

A layer is called as ``layer(x, tables, mask, cache)``: hidden states (B, Q, D), RoPE tables
from :func:`rope_tables`, a mask that broadcasts to (B, H, Q, K) and is True where a query may
attend a key (None: everywhere), and the layer's part of a key-value cache or None.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask

from dare.models.cache import LayerCache
from dare.models.flex import flex_heads

Tables = tuple[Tensor, Tensor]


class RMSNorm(nn.Module):
    """Normalise in float32, cast back, then scale: the order matters in bfloat16."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        x32 = x.float()
        x32 = x32 * torch.rsqrt(x32.square().mean(-1, keepdim=True) + self.eps)
        return x32.to(x.dtype) * self.weight


def rope_tables(position_ids: Tensor, dim: int, theta: float) -> Tables:
    """cos and sin, each (B or 1, 1, L, dim) float32, for rotate-half RoPE over ``dim`` channels."""
    half = torch.arange(0, dim, 2, device=position_ids.device, dtype=torch.float32)
    angles = position_ids[:, None, :, None].float() * theta ** (-half / dim)
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, tables: Tables, full_precision: bool = False) -> Tensor:
    """RoPE on the leading channels of ``x`` (B, H, L, head_dim), as many as the tables have.

    ``full_precision`` rotates in float32 and casts back (LLaDA); otherwise the tables are cast
    to the dtype of ``x`` (all others).
    """
    cos, sin = tables
    width = cos.shape[-1]
    rest = None if width == x.shape[-1] else x[..., width:]
    head = x if rest is None else x[..., :width]
    work = head.float() if full_precision else head
    first, second = work.chunk(2, dim=-1)
    turned = torch.cat((-second, first), dim=-1)
    rotated = (work * cos.to(work.dtype) + turned * sin.to(work.dtype)).to(x.dtype)
    return rotated if rest is None else torch.cat((rotated, rest), dim=-1)


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """(B, L, H * head_dim) as (B, H, L, head_dim)."""
    return x.view(*x.shape[:2], -1, head_dim).transpose(1, 2)


def attend(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | BlockMask | None, cache: LayerCache | None
) -> Tensor:
    """Softmax attention at scale head_dim^-1/2, as (B, Q, H * head_dim).

    q (B, H, Q, d); k, v (B, kv heads, Q, d), where kv head j serves query heads j*g .. j*g+g-1.
    With a cache the fresh keys and values are stored and all visible ones are attended.  A mask
    in blocks is for FlexAttention.
    """
    if cache is not None:
        k, v = cache.update(k, v)
    groups = q.shape[1] // k.shape[1]
    if groups > 1:
        k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
    if mask is None or isinstance(mask, Tensor):
        heads = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    else:
        heads = flex_heads(q, k, v, mask)
    return heads.transpose(1, 2).reshape(q.shape[0], q.shape[2], -1)


class SelfAttention(nn.Module):
    """Attention with separate projections in Hugging Face's usual names.

    ``qkv_bias``: biases on q, k and v (Dream).  ``qk_norm_eps``: RMSNorm over each head of q and
    k before RoPE (SDAR, LLaDA-MoE).  ``clip``: q, k and v are clamped to +-clip.
    """

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        num_key_value_heads: int,
        head_dim: int,
        *,
        qkv_bias: bool = False,
        qk_norm_eps: float | None = None,
        clip: float | None = None,
    ) -> None:
        super().__init__()
        self.head_dim, self.clip = head_dim, clip
        self.q_proj = nn.Linear(hidden_size, num_heads * head_dim, bias=qkv_bias)
        self.k_proj = nn.Linear(hidden_size, num_key_value_heads * head_dim, bias=qkv_bias)
        self.v_proj = nn.Linear(hidden_size, num_key_value_heads * head_dim, bias=qkv_bias)
        self.o_proj = nn.Linear(num_heads * head_dim, hidden_size, bias=False)
        self.has_norms = qk_norm_eps is not None
        if qk_norm_eps is not None:
            self.q_norm = RMSNorm(head_dim, qk_norm_eps)
            self.k_norm = RMSNorm(head_dim, qk_norm_eps)

    def forward(
        self, x: Tensor, tables: Tables, mask: Tensor | None, cache: LayerCache | None
    ) -> Tensor:
        projected = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        if self.clip is not None:
            clip = self.clip
            projected = tuple(part.clamp(-clip, clip) for part in projected)
        q, k, v = (split_heads(part, self.head_dim) for part in projected)
        if self.has_norms:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k = rotate(q, tables), rotate(k, tables)
        output: Tensor = self.o_proj(attend(q, k, v, mask, cache))
        return output


class GatedMLP(nn.Module):
    """down(silu(gate(x)) * up(x)), no biases."""

    def __init__(self, hidden_size: int, intermediate_size: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden_size, intermediate_size, bias=False)
        self.up_proj = nn.Linear(hidden_size, intermediate_size, bias=False)
        self.down_proj = nn.Linear(intermediate_size, hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return output
