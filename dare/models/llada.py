"""LLaDA (8B-Base, 8B-Instruct, 1.5): a bidirectional Llama that predicts masked tokens.

    model = LLaDAModelLM.from_pretrained("GSAI-ML/LLaDA-8B-Instruct")   # or a local folder

Row i of the logits predicts the token *at* position i: there is no shift.  Config keys and
tensor names are the released ones, so official ``config.json`` and safetensors load as they
are, with no remote code.  Architecture: RMSNorm -> attention without a causal mask, RoPE in
rotate-half layout -> RMSNorm -> gated MLP, where ``ff_proj`` is the gate, ``up_proj`` the
linear branch and the block's ``ff_out`` the down projection; no biases anywhere.
"""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedConfig
from transformers.modeling_layers import GradientCheckpointingLayer

from dare.models.base import DiffusionLM, without_foreign_keys
from dare.models.cache import LayerCache
from dare.models.layers import RMSNorm, Tables, attend, rope_tables, rotate, split_heads

# What no release uses; an implementation that guessed would be worse than a refusal.
_REQUIRED = {
    "rope": True,
    "layer_norm_type": "rms",
    "activation_type": "silu",
    "block_type": "llama",
    "alibi": False,
    "include_bias": False,
    "include_qkv_bias": False,
    "bias_for_layer_norm": False,
    "attention_layer_norm": False,
    "input_emb_norm": False,
    "scale_logits": False,
    "layer_norm_with_affine": True,
    "block_group_size": 1,
}


class LLaDAConfig(PreTrainedConfig):
    """The released configuration keys.  ``embedding_size`` is the row count of embedding and head.

    Keys that only the original training code reads are kept as they are when saving.
    """

    model_type = "llada"
    attribute_map = {  # noqa: RUF012 - transformers' own convention
        "hidden_size": "d_model",
        "num_attention_heads": "n_heads",
        "num_key_value_heads": "n_kv_heads",
        "num_hidden_layers": "n_layers",
        "intermediate_size": "mlp_hidden_size",
        "max_position_embeddings": "max_sequence_length",
    }

    block_length = None

    vocab_size: int = 126464
    embedding_size: int | None = None
    d_model: int = 4096
    n_layers: int = 32
    n_heads: int = 32
    n_kv_heads: int | None = None
    multi_query_attention: bool | None = None
    mlp_ratio: int = 4
    mlp_hidden_size: int | None = None
    max_sequence_length: int = 4096
    rope_theta: float = 500000.0
    rope_full_precision: bool = True
    rms_norm_eps: float = 1e-5
    weight_tying: bool = False
    init_std: float = 0.02
    mask_token_id: int | None = 126336
    eos_token_id: int | None = 126081
    pad_token_id: int | None = 126081
    eot_token_id: int | None = None
    architectures: list[str] | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        if self.n_kv_heads is None:
            self.n_kv_heads = 1 if self.multi_query_attention else self.n_heads
        if self.mlp_hidden_size is None:
            self.mlp_hidden_size = self.mlp_ratio * self.d_model
        if self.embedding_size is None:
            self.embedding_size = self.vocab_size
        if kwargs.get("num_experts") is not None:
            raise ValueError("this is a LLaDA-MoE checkpoint, not a dense LLaDA")
        for key, needed in _REQUIRED.items():
            if kwargs.get(key, needed) != needed:
                raise ValueError(
                    f"config key {key}={kwargs[key]!r} is not supported: every released LLaDA "
                    f"has {needed!r}"
                )
        kwargs.pop("use_cache", None)
        kwargs["tie_word_embeddings"] = self.weight_tying
        super().__post_init__(**kwargs)

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        return super().from_dict(without_foreign_keys(config_dict), **kwargs)


class LLaDABlock(GradientCheckpointingLayer):
    """One transformer block, called as ``dare.models.layers`` describes."""

    def __init__(self, config: LLaDAConfig) -> None:
        super().__init__()
        d, kv_heads = config.d_model, config.n_kv_heads or config.n_heads
        self.head_dim = d // config.n_heads
        self.full_precision = config.rope_full_precision
        hidden = config.mlp_hidden_size or config.mlp_ratio * d
        self.attn_norm = RMSNorm(d, config.rms_norm_eps)
        self.q_proj = nn.Linear(d, d, bias=False)
        self.k_proj = nn.Linear(d, kv_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(d, kv_heads * self.head_dim, bias=False)
        self.attn_out = nn.Linear(d, d, bias=False)
        self.ff_norm = RMSNorm(d, config.rms_norm_eps)
        self.ff_proj = nn.Linear(d, hidden, bias=False)
        self.up_proj = nn.Linear(d, hidden, bias=False)
        self.ff_out = nn.Linear(hidden, d, bias=False)

    def forward(
        self, x: Tensor, tables: Tables, mask: Tensor | None, cache: LayerCache | None = None
    ) -> Tensor:
        a = self.attn_norm(x)
        projected = self.q_proj(a), self.k_proj(a), self.v_proj(a)
        q, k, v = (split_heads(part, self.head_dim) for part in projected)
        q = rotate(q, tables, self.full_precision)
        k = rotate(k, tables, self.full_precision)
        x = x + self.attn_out(attend(q, k, v, mask, cache))
        f = self.ff_norm(x)
        return x + self.ff_out(F.silu(self.ff_proj(f)) * self.up_proj(f))


class LLaDAModelLM(DiffusionLM):
    """LLaDA with its head; the calling convention is :class:`DiffusionLM`'s."""

    config_class = LLaDAConfig
    # Without the down projection: its name, ff_out, is the head's too.
    lora_targets = ("q_proj", "k_proj", "v_proj", "attn_out", "ff_proj", "up_proj")
    _no_split_modules = ["LLaDABlock"]  # noqa: RUF012 - transformers' own convention

    def __init__(self, config: LLaDAConfig) -> None:
        super().__init__(config)
        rows = config.embedding_size or config.vocab_size
        parts: dict[str, nn.Module] = {
            "wte": nn.Embedding(rows, config.d_model),
            "blocks": nn.ModuleList(LLaDABlock(config) for _ in range(config.n_layers)),
            "ln_f": RMSNorm(config.d_model, config.rms_norm_eps),
        }
        if not config.weight_tying:
            parts["ff_out"] = nn.Linear(config.d_model, rows, bias=False)
        self.model = nn.Module()
        self.model.transformer = nn.ModuleDict(parts)
        self.post_init()

    @property
    def transformer(self) -> Any:
        """The released name of everything below the head."""
        return self.model.transformer

    @property
    def embedding(self) -> Any:
        return self.transformer["wte"]

    @property
    def layers(self) -> Any:
        return self.transformer["blocks"]

    @property
    def final_norm(self) -> Any:
        return self.transformer["ln_f"]

    def rope(self, position_ids: Tensor) -> Tables:
        head_dim = self.config.d_model // self.config.n_heads
        return rope_tables(position_ids, head_dim, self.config.rope_theta)

    def get_input_embeddings(self) -> Any:
        return self.transformer["wte"]

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.transformer["wte"] = value

    def get_output_embeddings(self) -> Any:
        transformer = self.transformer
        return transformer["wte"] if self.config.weight_tying else transformer["ff_out"]

    def set_output_embeddings(self, value: nn.Module) -> None:
        self.transformer["wte" if self.config.weight_tying else "ff_out"] = value
