"""LLaDA2.0 and LLaDA2.1 (mini, flash): block-causal mixtures of experts of the Ling line.

    model = LLaDA2MoeModelLM.from_pretrained("inclusionAI/LLaDA2.0-mini")   # or a local folder

A query sees its own block of ``config.block_length`` tokens and all earlier ones; blocks are
counted from the first real token, prompt included.  Row i of the logits predicts token i.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.modeling_layers import GradientCheckpointingLayer

from dare.models.cache import LayerCache
from dare.models.decoder import DecoderConfig, DecoderLM
from dare.models.experts import Experts, stack_experts
from dare.models.layers import GatedMLP, RMSNorm, Tables, attend, rotate, split_heads


class LLaDA2MoeConfig(DecoderConfig):
    """The released keys; the defaults are those of LLaDA2.0-mini.

    ``block_length`` is not in the released files, whose models all have 32; neither are the mask
    and end tokens, which are known per checkpoint only.
    """

    model_type = "llada2_moe"
    released: ClassVar = {
        "hidden_act": ("silu",),
        "attention_dropout": (0.0,),
        "embedding_dropout": (0.0,),
        "output_dropout": (0.0,),
        "use_bias": (False,),
        "use_qkv_bias": (False,),
        "use_qk_norm": (True,),
        "use_rmsnorm": (True,),
        "use_sliding_window": (False,),
        "using_split_qkv_in_self_attention": (False,),
        "score_function": ("sigmoid",),
        "router_dtype": ("fp32",),
        "moe_router_enable_expert_bias": (True,),
        "norm_head": (False,),
        "norm_softmax": (False,),
    }

    vocab_size: int = 157184
    hidden_size: int = 2048
    intermediate_size: int = 5120
    moe_intermediate_size: int = 512
    num_hidden_layers: int = 20
    first_k_dense_replace: int = 1
    num_attention_heads: int = 16
    num_key_value_heads: int | None = 4
    num_experts: int = 256
    num_experts_per_tok: int = 8
    num_shared_experts: int | None = 1
    n_group: int = 8
    topk_group: int = 4
    routed_scaling_factor: float = 2.5
    max_position_embeddings: int = 32768
    rope_theta: float = 600_000.0
    partial_rotary_factor: float = 0.5
    rotary_dim: int | None = None
    pad_token_id: int | None = 156892
    block_length: int = 32

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        if self.rotary_dim not in (None, self.rotary_channels):
            raise ValueError(
                f"rotary_dim={self.rotary_dim} contradicts head_dim * partial_rotary_factor = "
                f"{self.rotary_channels}"
            )
        self.rotary_dim = self.rotary_channels
        if self.num_experts % self.n_group:
            raise ValueError(f"{self.num_experts} experts do not form {self.n_group} groups")
        size = self.num_experts // self.n_group
        if size < 2 or not 1 <= self.topk_group <= self.n_group:
            raise ValueError(
                f"topk_group={self.topk_group} does not fit {self.n_group} groups of {size} experts"
            )
        if self.num_experts_per_tok > self.topk_group * size:
            raise ValueError(
                f"num_experts_per_tok={self.num_experts_per_tok} does not fit "
                f"{self.topk_group} groups of {size} experts"
            )


class LLaDA2Attention(nn.Module):
    """Attention from one fused projection: all query heads, all key heads, all value heads."""

    def __init__(self, config: LLaDA2MoeConfig) -> None:
        super().__init__()
        kv_heads, head_dim = config.num_key_value_heads or 1, config.head_dim or 0
        self.head_dim = head_dim
        heads = config.num_attention_heads
        self.widths = [heads * head_dim, kv_heads * head_dim, kv_heads * head_dim]
        self.query_key_value = nn.Linear(config.hidden_size, sum(self.widths), bias=False)
        self.query_layernorm = RMSNorm(head_dim, config.rms_norm_eps)
        self.key_layernorm = RMSNorm(head_dim, config.rms_norm_eps)
        self.dense = nn.Linear(self.widths[0], config.hidden_size, bias=False)

    def forward(
        self, x: Tensor, tables: Tables, mask: Tensor | None, cache: LayerCache | None
    ) -> Tensor:
        parts = self.query_key_value(x).split(self.widths, dim=-1)
        q, k, v = (split_heads(part, self.head_dim) for part in parts)
        q = rotate(self.query_layernorm(q), tables)
        k = rotate(self.key_layernorm(k), tables)
        output: Tensor = self.dense(attend(q, k, v, mask, cache))
        return output


class LLaDA2Router(nn.Module):
    """Sigmoid scores in float32; the bias takes part in the choice only, group by group."""

    expert_bias: Tensor

    def __init__(self, config: LLaDA2MoeConfig) -> None:
        super().__init__()
        self.n_group, self.topk_group = config.n_group, config.topk_group
        self.num_chosen, self.scale = config.num_experts_per_tok, config.routed_scaling_factor
        self.weight = nn.Parameter(torch.empty(config.num_experts, config.hidden_size))
        bias = torch.zeros(config.num_experts, dtype=torch.float32)
        self.register_buffer("expert_bias", bias)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x (N, D).  Returns expert numbers (N, k) and their float32 weights (N, k)."""
        with torch.autocast(x.device.type, enabled=False):
            scores = torch.sigmoid(F.linear(x.float(), self.weight.float()))
        biased = (scores.detach() + self.expert_bias).view(len(x), self.n_group, -1)
        strength = biased.topk(2, dim=-1).values.sum(-1)
        kept = strength.topk(self.topk_group, dim=-1).indices
        out = torch.ones_like(strength, dtype=torch.bool).scatter(-1, kept, False)
        biased = biased.masked_fill(out[..., None], -torch.inf).flatten(1)
        chosen = biased.topk(self.num_chosen, dim=-1).indices
        weights = scores.gather(-1, chosen)
        return chosen, weights / (weights.sum(-1, keepdim=True) + 1e-20) * self.scale

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> LLaDA2Router:
        """Move the bias along with the module but never let a change of dtype round it."""
        exact = self.expert_bias
        super()._apply(fn, recurse)
        if self.expert_bias.dtype != torch.float32:
            self.expert_bias = exact.to(self.expert_bias.device)
        return self


class LLaDA2SparseMLP(nn.Module):
    """The chosen experts, summed in float32, plus the shared expert."""

    def __init__(self, config: LLaDA2MoeConfig) -> None:
        super().__init__()
        width = config.moe_intermediate_size
        self.gate = LLaDA2Router(config)
        self.experts = Experts(config.hidden_size, width, config.num_experts, True)
        self.shared_experts = None
        if config.num_shared_experts:
            self.shared_experts = GatedMLP(config.hidden_size, width * config.num_shared_experts)

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.flatten(0, -2)
        output: Tensor = self.experts(tokens, *self.gate(tokens)).view_as(x)
        return output if self.shared_experts is None else output + self.shared_experts(x)


class LLaDA2Layer(GradientCheckpointingLayer):
    """Norm, attention, residual; norm, MLP or experts, residual."""

    def __init__(self, config: LLaDA2MoeConfig, dense: bool) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.attention = LLaDA2Attention(config)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        width = config.intermediate_size
        self.mlp = GatedMLP(config.hidden_size, width) if dense else LLaDA2SparseMLP(config)

    def forward(
        self, x: Tensor, tables: Tables, mask: Tensor | None, cache: LayerCache | None = None
    ) -> Tensor:
        x = x + self.attention(self.input_layernorm(x), tables, mask, cache)
        output: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return output


class LLaDA2MoeModelLM(DecoderLM):
    """LLaDA2.x with its head."""

    config_class = LLaDA2MoeConfig
    # Not the experts: each sees few of the tokens.
    lora_targets: ClassVar[tuple[str, ...]] = ("query_key_value", "dense")
    embedding_name: ClassVar[str] = "word_embeddings"
    _no_split_modules: ClassVar = ["LLaDA2Layer"]
    _keep_in_fp32_modules_strict: ClassVar = ["expert_bias"]

    def make_layer(self, config: LLaDA2MoeConfig, index: int) -> LLaDA2Layer:
        return LLaDA2Layer(config, dense=index < config.first_k_dense_replace)


stack_experts(LLaDA2MoeModelLM)
