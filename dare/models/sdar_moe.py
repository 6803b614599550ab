"""SDAR-30B-A3B: SDAR whose MLPs are mixtures of experts (a block-causal Qwen3-MoE).

model = SDARMoeForCausalLM.from_pretrained("JetLM/SDAR-30B-A3B-Chat")   # or a local folder
"""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dare.models.experts import Experts, stack_experts
from dare.models.sdar import SDARConfig, SDARForCausalLM


class SDARMoeConfig(SDARConfig):
    """The released keys of SDAR-30B-A3B, whose values are the defaults."""

    model_type = "sdar_moe"
    released: ClassVar = SDARConfig.released | {
        "norm_topk_prob": (True,),
        "decoder_sparse_step": (1,),
        "mlp_only_layers": ([], None),
    }

    hidden_size: int = 2048
    intermediate_size: int = 6144
    num_hidden_layers: int = 48
    num_key_value_heads: int | None = 4
    moe_intermediate_size: int = 768
    num_experts: int = 128
    num_experts_per_tok: int = 8


class SDARSparseMLP(nn.Module):
    """The k likeliest experts, weighted by their renormalised softmax probabilities."""

    def __init__(self, config: SDARMoeConfig) -> None:
        super().__init__()
        self.num_chosen = config.num_experts_per_tok
        self.gate = nn.Linear(config.hidden_size, config.num_experts, bias=False)
        self.experts = Experts(
            config.hidden_size, config.moe_intermediate_size, config.num_experts, False
        )

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.flatten(0, -2)
        probabilities = F.softmax(self.gate(tokens), dim=-1, dtype=torch.float32)
        weights, chosen = probabilities.topk(self.num_chosen, dim=-1)
        weights = (weights / weights.sum(-1, keepdim=True)).to(x.dtype)
        output: Tensor = self.experts(tokens, chosen, weights)
        return output.view_as(x)


class SDARMoeForCausalLM(SDARForCausalLM):
    """SDAR-MoE with its head."""

    config_class = SDARMoeConfig
    # Not the experts: each sees few of the tokens.
    lora_targets: ClassVar[tuple[str, ...]] = ("q_proj", "k_proj", "v_proj", "o_proj")

    def make_mlp(self, config: SDARMoeConfig) -> nn.Module:
        return SDARSparseMLP(config)


stack_experts(SDARMoeForCausalLM)
