"""The body that Dream, SDAR, LLaDA-MoE and LLaDA2.x share: configuration keys, layer, model.

These families follow Hugging Face's usual names (``model.layers.{i}.input_layernorm`` and so
on).  Each has its own file, which says what its layers hold and which configurations it refuses.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any, ClassVar

from torch import Tensor, nn
from transformers import PreTrainedConfig
from transformers.modeling_layers import GradientCheckpointingLayer

from dare.models.base import DiffusionLM, without_foreign_keys
from dare.models.cache import LayerCache
from dare.models.layers import RMSNorm, SelfAttention, Tables, rope_tables


class DecoderConfig(PreTrainedConfig):
    """The released configuration keys that these families have in common.

    RoPE settings are read from the flat keys of the released files or from transformers 5's
    ``rope_parameters``.  Keys that no computation reads are kept as they are when saving.
    """

    # What a family's releases have in common: key -> the values that they use; the first is
    # written where it is absent, since the original code has other defaults.  To guess the meaning
    # of any other value would be worse than a refusal.
    released: ClassVar[Mapping[str, tuple[Any, ...]]] = {}

    vocab_size: int = 0
    hidden_size: int = 0
    intermediate_size: int = 0
    num_hidden_layers: int = 0
    num_attention_heads: int = 0
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    max_position_embeddings: int = 0
    rope_theta: float = 10000.0
    partial_rotary_factor: float = 1.0
    rms_norm_eps: float = 1e-6
    tie_word_embeddings: bool = False
    initializer_range: float = 0.02
    mask_token_id: int | None = None
    eos_token_id: int | None = None
    pad_token_id: int | None = None
    eot_token_id: int | None = None
    architectures: list[str] | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        for key, allowed in self.released.items():
            value = kwargs.setdefault(key, copy(allowed[0]))
            if value not in allowed:
                raise ValueError(
                    f"config key {key}={value!r} is not supported: every released model of type "
                    f"{self.model_type} has {allowed[0]!r}"
                )
        for settings in (kwargs.pop("rope_scaling", None), kwargs.pop("rope_parameters", None)):
            self._read_rope(settings or {})
        if self.num_key_value_heads is None:
            self.num_key_value_heads = self.num_attention_heads
        if self.head_dim is None and self.num_attention_heads:
            self.head_dim = self.hidden_size // self.num_attention_heads
        self._check_experts()
        super().__post_init__(**kwargs)

    def _check_experts(self) -> None:
        experts = getattr(self, "num_experts", None)
        chosen = getattr(self, "num_experts_per_tok", 0)
        if experts is not None and not 1 <= chosen <= experts:
            raise ValueError(f"num_experts_per_tok={chosen} does not fit num_experts={experts}")

    def _read_rope(self, settings: Mapping[str, Any]) -> None:
        kind = settings.get("rope_type", settings.get("type", "default"))
        if kind != "default":
            raise ValueError(f"RoPE of type {kind!r} is not supported: no released model uses it")
        self.rope_theta = settings.get("rope_theta", self.rope_theta)
        self.partial_rotary_factor = settings.get(
            "partial_rotary_factor", self.partial_rotary_factor
        )

    @property
    def rotary_channels(self) -> int:
        """How many channels of a head RoPE turns."""
        return int((self.head_dim or 0) * self.partial_rotary_factor)

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        return super().from_dict(without_foreign_keys(config_dict), **kwargs)


def self_attention(config: DecoderConfig, **options: Any) -> SelfAttention:
    """Attention of the configured size; ``options`` are those of :class:`SelfAttention`."""
    return SelfAttention(
        config.hidden_size,
        config.num_attention_heads,
        config.num_key_value_heads or config.num_attention_heads,
        config.head_dim or 0,
        **options,
    )


class DecoderLayer(GradientCheckpointingLayer):
    """Norm, attention, residual; norm, MLP or experts, residual."""

    def __init__(self, config: DecoderConfig, attention: nn.Module, mlp: nn.Module) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = attention
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = mlp

    def forward(
        self, x: Tensor, tables: Tables, mask: Tensor | None, cache: LayerCache | None = None
    ) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), tables, mask, cache)
        output: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return output


class DecoderLM(DiffusionLM):
    """Embedding, layers, norm and head.  A family gives ``make_layer``."""

    lora_targets: ClassVar[tuple[str, ...]] = (
        "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj",
    )  # fmt: skip
    embedding_name: ClassVar[str] = "embed_tokens"

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__(config)
        self.model = nn.Module()
        self.model.add_module(
            self.embedding_name, nn.Embedding(config.vocab_size, config.hidden_size)
        )
        self.model.layers = nn.ModuleList(
            self.make_layer(config, index) for index in range(config.num_hidden_layers)
        )
        self.model.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self._tied_weights_keys = {"lm_head.weight": f"model.{self.embedding_name}.weight"}
        self.post_init()

    def make_layer(self, config: Any, index: int) -> nn.Module:
        raise NotImplementedError

    @property
    def embedding(self) -> Any:
        return getattr(self.model, self.embedding_name)

    @property
    def layers(self) -> Any:
        return self.model.layers

    @property
    def final_norm(self) -> Any:
        return self.model.norm

    def rope(self, position_ids: Tensor) -> Tables:
        return rope_tables(position_ids, self.config.rotary_channels, self.config.rope_theta)

    def get_input_embeddings(self) -> Any:
        return self.embedding

    def set_input_embeddings(self, value: nn.Module) -> None:
        setattr(self.model, self.embedding_name, value)

    def get_output_embeddings(self) -> Any:
        return self.lm_head

    def set_output_embeddings(self, value: nn.Linear) -> None:
        self.lm_head = value
