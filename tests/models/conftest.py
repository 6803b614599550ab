"""Small models of every family with weights from a formula: the same numbers anywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from dare.models.base import DiffusionLM
from dare.models.experts import one_by_one
from dare.models.families import FAMILIES

VOCABULARY = 40
COMMON: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "rope_theta": 1000.0,
    "mask_token_id": 39,
    "eos_token_id": 1,
    "pad_token_id": 0,
}
DENSE = {"intermediate_size": 48}
EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2}
KEYS: dict[str, dict[str, Any]] = {
    "llada": {
        "vocab_size": VOCABULARY, "d_model": 32, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2,
        "mlp_hidden_size": 48, "max_sequence_length": 64, "rope_theta": 1000.0,
        "mask_token_id": 39, "eos_token_id": 1, "pad_token_id": 0,
    },
    "dream": COMMON | DENSE,
    "sdar": COMMON | DENSE | {"head_dim": 12},
    "sdar_moe": COMMON | DENSE | EXPERTS | {"head_dim": 12, "moe_intermediate_size": 20},
    "llada_moe": COMMON | EXPERTS | {
        "expert_intermediate_size": 20, "dense_intermediate_size": 48, "moe_layer_freq": [0, 1],
        "shared_expert_intermediate_size": 16,
    },
    "llada2_moe": COMMON | DENSE | EXPERTS | {
        "head_dim": 12, "moe_intermediate_size": 20, "n_group": 3, "topk_group": 2,
        "block_length": 4,
    },
}  # fmt: skip


@torch.no_grad()
def fill(model: DiffusionLM) -> None:
    """Weights sin(0.7 n + 1.3 k) / 4 over the n-th number of the k-th official tensor by name;
    norms are 1 plus a tenth of that."""
    for k, (name, tensor) in enumerate(sorted(one_by_one(model.state_dict()).items())):
        wave = torch.sin(0.7 * torch.arange(tensor.numel(), dtype=torch.float64) + 1.3 * k)
        scale, offset = (0.025, 1.0) if "norm" in name or "ln_f" in name else (0.25, 0.0)
        tensor.copy_((offset + scale * wave).view_as(tensor))


@pytest.fixture(scope="session")
def small() -> Callable[..., DiffusionLM]:
    """A small model of a family in evaluation mode; keywords change its configuration."""

    def build(family: str, **changes: Any) -> DiffusionLM:
        model_class = FAMILIES[family]
        model = model_class(model_class.config_class(**(KEYS[family] | changes)))
        fill(model)
        return model.eval()

    return build


@pytest.fixture
def ids() -> torch.Tensor:
    """Three rows of 13 tokens."""
    return (torch.arange(39).view(3, 13) * 7 + 5) % 37 + 2
