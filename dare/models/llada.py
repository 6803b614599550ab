"""LLaDA (8B-Base, 8B-Instruct, 1.5): a bidirectional Llama that predicts masked tokens.

    model = LladaModelLM.from_pretrained("GSAI-ML/LLaDA-8B-Instruct")   # or a local folder
    logits = model(input_ids, attention_mask)                            # (B, L, V)
    rows = model(input_ids, attention_mask, positions=needed)            # (N, V); needed (B, L)
    logp = model(input_ids, attention_mask, positions=needed, targets=t) # (N,) log p(t)

Row i of the logits predicts the token *at* position i: there is no shift.  Config keys and
tensor names are the released ones, so official ``config.json`` and safetensors load as they
are, with no remote code.  Architecture: RMSNorm -> attention without a causal mask, RoPE in
rotate-half layout -> RMSNorm -> gated MLP, where ``ff_proj`` is the gate, ``up_proj`` the
linear branch and the block's ``ff_out`` the down projection; no biases anywhere.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers import initialization as init
from transformers.modeling_layers import GradientCheckpointingLayer

from dare.errors import UsageProblem
from dare.kernels.linear_logp import linear_logp

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


class LladaConfig(PreTrainedConfig):
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
        kwargs.pop("auto_map", None)
        kwargs["tie_word_embeddings"] = self.weight_tying
        super().__post_init__(**kwargs)


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


def rope_tables(position_ids: Tensor, head_dim: int, theta: float) -> tuple[Tensor, Tensor]:
    """cos and sin, each (B or 1, 1, L, head_dim) float32, for rotate-half RoPE."""
    half = torch.arange(0, head_dim, 2, device=position_ids.device, dtype=torch.float32)
    angles = position_ids[:, None, :, None].float() * theta ** (-half / head_dim)
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, tables: tuple[Tensor, Tensor], full_precision: bool) -> Tensor:
    """RoPE on ``x`` (B, H, L, head_dim); in float32 when ``full_precision``."""
    cos, sin = tables
    work = x.float() if full_precision else x
    first, second = work.chunk(2, dim=-1)
    rotated = torch.cat((-second, first), dim=-1)
    return (work * cos.to(work.dtype) + rotated * sin.to(work.dtype)).to(x.dtype)


class LladaBlock(GradientCheckpointingLayer):
    """One transformer block; ``bias`` (B, 1, 1, L) bool is True where a key may be attended."""

    def __init__(self, config: LladaConfig) -> None:
        super().__init__()
        d, kv_heads = config.d_model, config.n_kv_heads or config.n_heads
        self.n_heads, self.n_kv_heads = config.n_heads, kv_heads
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

    def forward(self, x: Tensor, tables: tuple[Tensor, Tensor], key_mask: Tensor | None) -> Tensor:
        x = x + self._attention(self.attn_norm(x), tables, key_mask)
        f = self.ff_norm(x)
        return x + self.ff_out(F.silu(self.ff_proj(f)) * self.up_proj(f))

    def _attention(
        self, a: Tensor, tables: tuple[Tensor, Tensor], key_mask: Tensor | None
    ) -> Tensor:
        batch, length, d = a.shape
        q = self.q_proj(a).view(batch, length, self.n_heads, self.head_dim).transpose(1, 2)
        k = self.k_proj(a).view(batch, length, self.n_kv_heads, self.head_dim).transpose(1, 2)
        v = self.v_proj(a).view(batch, length, self.n_kv_heads, self.head_dim).transpose(1, 2)
        q = rotate(q, tables, self.full_precision)
        k = rotate(k, tables, self.full_precision)
        if self.n_kv_heads != self.n_heads:
            k = k.repeat_interleave(self.n_heads // self.n_kv_heads, dim=1)
            v = v.repeat_interleave(self.n_heads // self.n_kv_heads, dim=1)
        heads = F.scaled_dot_product_attention(q, k, v, attn_mask=key_mask)
        return self.attn_out(heads.transpose(1, 2).reshape(batch, length, d))


class LladaModelLM(PreTrainedModel):
    """LLaDA with its head.  See the module docstring for the calling convention."""

    config_class = LladaConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules = ["LladaBlock"]  # noqa: RUF012 - transformers' own convention
    _supports_sdpa = True

    def __init__(self, config: LladaConfig) -> None:
        super().__init__(config)
        rows = config.embedding_size or config.vocab_size
        parts: dict[str, nn.Module] = {
            "wte": nn.Embedding(rows, config.d_model),
            "blocks": nn.ModuleList(LladaBlock(config) for _ in range(config.n_layers)),
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

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        *,
        positions: Tensor | None = None,
        targets: Tensor | None = None,
    ) -> Tensor:
        """Logits, or log-probabilities of targets.

        input_ids (B, L); attention_mask (B, L), 1 = real token, padding is never attended and
        positions count from a row's first real token; positions (B, L) bool restricts the head
        to N = positions.sum() rows in row-major order; targets (N,) token ids, or (N, K) to read
        K of them from one row.  Returns (B, L, V) without positions, (N, V) with positions, and
        float32 log-probabilities in the shape of the targets.
        """
        x = self.hidden_states(input_ids, attention_mask)
        if positions is not None:
            x = x[positions]
        if targets is None:
            return F.linear(x, self.head_weight)
        if positions is None:
            raise ValueError("targets need positions: the (B, L) mask of the rows they belong to")
        return linear_logp(x, self.head_weight, targets)

    def hidden_states(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Final hidden states (B, L, D), after the last norm."""
        length = input_ids.shape[1]
        if length > self.config.max_sequence_length:
            raise UsageProblem(
                f"a sequence of {length} tokens does not fit the model",
                f"its context, for prompt and completion together, is "
                f"{self.config.max_sequence_length} tokens",
                "lower gen_length (--set rollout.gen_length=N, --set evaluation.gen_length=N) "
                "or leave out the longest prompts",
            )
        key_mask = None
        position_ids = torch.arange(length, device=input_ids.device)[None]
        if attention_mask is not None and not bool(attention_mask.all()):
            real = attention_mask.bool()
            position_ids = (real.long().cumsum(-1) - 1).clamp(min=0)
            # A row of nothing but padding attends to itself, so that no NaN arises.
            real = real | ~real.any(-1, keepdim=True)
            key_mask = real[:, None, None, :]
        head_dim = self.config.d_model // self.config.n_heads
        tables = rope_tables(position_ids, head_dim, self.config.rope_theta)
        transformer = self.transformer
        x = transformer["wte"](input_ids)
        for block in transformer["blocks"]:
            x = block(x, tables, key_mask)
        normed: Tensor = transformer["ln_f"](x)
        return normed

    @property
    def head_weight(self) -> Tensor:
        """The output projection, (V, D)."""
        weight: Tensor = self.get_output_embeddings().weight
        return weight

    def get_input_embeddings(self) -> Any:
        return self.transformer["wte"]

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.transformer["wte"] = value

    def get_output_embeddings(self) -> Any:
        transformer = self.transformer
        return transformer["wte"] if self.config.weight_tying else transformer["ff_out"]

    def set_output_embeddings(self, value: nn.Module) -> None:
        self.transformer["wte" if self.config.weight_tying else "ff_out"] = value

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        std = self.config.init_std
        if isinstance(module, nn.Linear | nn.Embedding):
            init.normal_(module.weight, mean=0.0, std=std)
        elif isinstance(module, RMSNorm):
            init.ones_(module.weight)
