"""LLaDA-MoE (7B-A1B): a bidirectional mixture of experts that predicts masked tokens.

    model = LLaDAMoEModelLM.from_pretrained("inclusionAI/LLaDA-MoE-7B-A1B-Instruct")

The released config announces ``model_type: llada`` like the dense models; ``architectures`` (or
the key ``num_experts``) tells them apart.  Row i of the logits predicts token i.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dare.models.cache import LayerCache
from dare.models.decoder import DecoderConfig, DecoderLayer, DecoderLM, self_attention
from dare.models.experts import Experts, stack_experts
from dare.models.layers import GatedMLP, Tables


class LLaDAMoEConfig(DecoderConfig):
    """The released keys of LLaDA-MoE-7B-A1B, whose values are the defaults.

    The config has no mask token: that is known per checkpoint only.
    """

    model_type = "llada"
    block_length = None
    attribute_map: ClassVar = {"intermediate_size": "dense_intermediate_size"}
    released: ClassVar = {
        "hidden_act": ("silu",),
        "attention_bias": (False,),
        "attention_dropout": (0.0,),
        "qk_layernorm": (True,),
        "moe_router_score_function": ("softmax",),
        "router_num_group": (None,),
        "router_topk_group": (None,),
        "routed_scaling_factor": (1, None),
    }

    vocab_size: int = 157184
    hidden_size: int = 2048
    dense_intermediate_size: int = 8192
    expert_intermediate_size: int = 1024
    shared_expert_intermediate_size: int | None = None
    num_hidden_layers: int = 16
    num_attention_heads: int = 16
    num_experts: int = 64
    num_experts_per_tok: int = 8
    moe_layer_freq: list[int] | None = None
    moe_router_enable_expert_bias: bool = False
    clip_qkv: float | None = None
    max_position_embeddings: int = 8192
    rope_theta: float = 50_000.0
    rms_norm_eps: float = 1e-5
    eos_token_id: int | None = 156892
    pad_token_id: int | None = 156892

    def __post_init__(self, **kwargs: Any) -> None:
        if self.moe_layer_freq is None:
            self.moe_layer_freq = [1] * self.num_hidden_layers
        if len(self.moe_layer_freq) != self.num_hidden_layers:
            raise ValueError(
                f"moe_layer_freq has {len(self.moe_layer_freq)} entries for "
                f"{self.num_hidden_layers} layers"
            )
        super().__post_init__(**kwargs)


class LLaDAMoESparseMLP(nn.Module):
    """The k likeliest experts, weighted by their softmax probabilities as they are.

    The released code reads ``norm_topk_prob`` but never renormalises.  With an expert bias the
    biased values choose *and* weigh.
    """

    expert_bias: Tensor

    def __init__(self, config: LLaDAMoEConfig) -> None:
        super().__init__()
        self.num_chosen = config.num_experts_per_tok
        self.gate = nn.Linear(config.hidden_size, config.num_experts, bias=False)
        if config.moe_router_enable_expert_bias:
            self.register_buffer("expert_bias", torch.zeros(config.num_experts))
        self.experts = Experts(
            config.hidden_size, config.expert_intermediate_size, config.num_experts, False
        )

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.flatten(0, -2)
        scores = F.softmax(self.gate(tokens), dim=-1, dtype=torch.float32)
        if hasattr(self, "expert_bias"):
            scores = scores + self.expert_bias
        weights, chosen = scores.topk(self.num_chosen, dim=-1)
        output: Tensor = self.experts(tokens, chosen, weights.to(x.dtype))
        return output.view_as(x)


class LLaDAMoELayer(DecoderLayer):
    """A layer that may have a shared expert beside the chosen ones, directly under the layer."""

    def __init__(self, config: LLaDAMoEConfig, attention: nn.Module, sparse: bool) -> None:
        width = config.dense_intermediate_size
        mlp = LLaDAMoESparseMLP(config) if sparse else GatedMLP(config.hidden_size, width)
        super().__init__(config, attention, mlp)
        if sparse and config.shared_expert_intermediate_size:
            self.shared_expert = GatedMLP(
                config.hidden_size, config.shared_expert_intermediate_size
            )

    def forward(
        self, x: Tensor, tables: Tables, mask: Tensor | None, cache: LayerCache | None = None
    ) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), tables, mask, cache)
        normed = self.post_attention_layernorm(x)
        output: Tensor = self.mlp(normed)
        if hasattr(self, "shared_expert"):
            output = output + self.shared_expert(normed)
        return x + output


class LLaDAMoEModelLM(DecoderLM):
    """LLaDA-MoE with its head."""

    config_class = LLaDAMoEConfig
    # Not the experts: each sees few of the tokens.
    lora_targets: ClassVar[tuple[str, ...]] = ("q_proj", "k_proj", "v_proj", "o_proj")
    _no_split_modules: ClassVar = ["LLaDAMoELayer"]

    def make_layer(self, config: LLaDAMoEConfig, index: int) -> LLaDAMoELayer:
        attention = self_attention(config, qk_norm_eps=config.rms_norm_eps, clip=config.clip_qkv)
        return LLaDAMoELayer(config, attention, bool((config.moe_layer_freq or [])[index]))


stack_experts(LLaDAMoEModelLM)
