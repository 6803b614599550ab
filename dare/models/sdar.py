"""SDAR (1.7B, 4B, 8B): a block-causal Qwen3.

    model = SDARForCausalLM.from_pretrained("JetLM/SDAR-8B-Chat")   # or a local folder

A query sees its own block of ``config.block_length`` tokens and all earlier ones; blocks are
counted from the first real token, prompt included.  Row i of the logits predicts token i.
"""

from __future__ import annotations

from typing import Any, ClassVar

from torch import nn

from dare.models.decoder import DecoderConfig, DecoderLayer, DecoderLM, self_attention
from dare.models.layers import GatedMLP


class SDARConfig(DecoderConfig):
    """The released keys of SDAR; the defaults are those of the 8B model.

    ``block_size`` (also ``block_length``) is missing from the first releases, which have 4;
    likewise ``mask_token_id``, which is 151669 in the released vocabulary.
    """

    model_type = "sdar"
    attribute_map: ClassVar = {"block_length": "block_size"}
    released: ClassVar = {
        "hidden_act": ("silu",),
        "attention_bias": (False,),
        "attention_dropout": (0.0,),
        "use_sliding_window": (False,),
    }

    vocab_size: int = 151936
    hidden_size: int = 4096
    intermediate_size: int = 12288
    num_hidden_layers: int = 36
    num_attention_heads: int = 32
    num_key_value_heads: int | None = 8
    head_dim: int | None = 128
    max_position_embeddings: int = 32768
    rope_theta: float = 1_000_000.0
    block_size: int = 4
    eos_token_id: int | None = 151643

    def __post_init__(self, **kwargs: Any) -> None:
        self.block_size = kwargs.pop("block_length", None) or self.block_size
        if self.mask_token_id is None and self.vocab_size > 151669:
            self.mask_token_id = 151669
        super().__post_init__(**kwargs)


class SDARForCausalLM(DecoderLM):
    """SDAR with its head."""

    config_class = SDARConfig
    _no_split_modules: ClassVar = ["DecoderLayer"]

    def make_layer(self, config: SDARConfig, index: int) -> DecoderLayer:
        attention = self_attention(config, qk_norm_eps=config.rms_norm_eps)
        return DecoderLayer(config, attention, self.make_mlp(config))

    def make_mlp(self, config: Any) -> nn.Module:
        return GatedMLP(config.hidden_size, config.intermediate_size)
