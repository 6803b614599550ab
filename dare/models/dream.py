"""Dream 7B and its relatives (Dream-Coder, DiffuCoder): a bidirectional Qwen2.5.

    model = DreamModel.from_pretrained("Dream-org/Dream-v0-Instruct-7B")   # or a local folder

The backbone comes from an autoregressive model, so the raw head at position i - 1 predicts token
i.  The shift happens inside: row i of our logits predicts token i, as in every family.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from dare.models.decoder import DecoderConfig, DecoderLayer, DecoderLM, self_attention
from dare.models.layers import GatedMLP


class DreamConfig(DecoderConfig):
    """The released keys of Dream-v0; the defaults are those of the 7B model."""

    model_type = "Dream"
    block_length = None
    released: ClassVar = {
        "hidden_act": ("silu",),
        "attention_dropout": (0.0,),
        "use_sliding_window": (False,),
        "use_mrope": (False,),
    }

    vocab_size: int = 152064
    hidden_size: int = 3584
    intermediate_size: int = 18944
    num_hidden_layers: int = 28
    num_attention_heads: int = 28
    num_key_value_heads: int | None = 4
    max_position_embeddings: int = 131072
    rope_theta: float = 1_000_000.0
    mask_token_id: int | None = 151666
    eos_token_id: int | None = 151643
    pad_token_id: int | None = 151643


class DreamModel(DecoderLM):
    """Dream with its head (the released name has no "ForCausalLM")."""

    config_class = DreamConfig
    head_lags: ClassVar[bool] = True
    _no_split_modules: ClassVar = ["DecoderLayer"]

    def make_layer(self, config: DreamConfig, index: int) -> DecoderLayer:
        mlp = GatedMLP(config.hidden_size, config.intermediate_size)
        return DecoderLayer(config, self_attention(config, qkv_bias=True), mlp)

    def aligned(self, hidden: Tensor, position_ids: Tensor) -> Tensor:
        """Row i takes row i - 1; a row's first real token and the first row fed keep their own."""
        previous = torch.cat((hidden[:, :1], hidden[:, :-1]), dim=1)
        first = (position_ids == 0)[..., None].to(hidden.device)
        return torch.where(first, hidden, previous)
