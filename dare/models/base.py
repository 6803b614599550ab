"""What every family of diffusion language models has in common.

    logits = model(input_ids, attention_mask)                            # (B, L, V)
    rows = model(input_ids, attention_mask, positions=needed)            # (N, V); needed (B, L)
    logp = model(input_ids, attention_mask, positions=needed, targets=t) # (N,) log p(t)

Row i always predicts the token *at* position i; a family whose head lags by one (Dream) shifts
inside.  A family gives its embedding, layers, final norm, head and RoPE; the rest is here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers import initialization as init

from dare.errors import UsageProblem
from dare.kernels.linear_logp import linear_logp
from dare.models.cache import KeyValueCache
from dare.models.flex import block_mask
from dare.models.layers import RMSNorm, Tables
from dare.models.layout import Layout, layout_of, never_blind


def without_foreign_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a config.json without those that choose which code runs, and how."""
    return {key: config[key] for key in config if key not in ("auto_map", "attn_implementation")}


class DiffusionLM(PreTrainedModel):
    """A masked or block diffusion language model with its head."""

    config: Any
    # The linear layers of a block that LoRA adapters usually sit on.
    lora_targets: ClassVar[tuple[str, ...]] = ()
    # Whether the raw head at position i - 1 predicts token i, so that a forward over a window
    # alone cannot predict the window's first token.
    head_lags: ClassVar[bool] = False
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flex_attn = True

    # What a family provides --------------------------------------------------------------------

    @property
    def embedding(self) -> nn.Module:
        raise NotImplementedError

    @property
    def layers(self) -> Iterable[nn.Module]:
        raise NotImplementedError

    @property
    def final_norm(self) -> nn.Module:
        raise NotImplementedError

    def rope(self, position_ids: Tensor) -> Tables:
        """cos and sin for positions (B or 1, Q)."""
        raise NotImplementedError

    # The calling convention --------------------------------------------------------------------

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        *,
        position_ids: Tensor | None = None,
        attend: Tensor | None = None,
        positions: Tensor | None = None,
        targets: Tensor | None = None,
        cache: KeyValueCache | None = None,
        block_length: int | None = None,
    ) -> Tensor:
        """Logits, or log-probabilities of targets.

        input_ids (B, L).  attention_mask (B, L), 1 = real token: padding is never attended and
        positions count from a row's first real token.  position_ids (B or 1, L) and attend
        (B or 1, L, L) bool, True where a query may attend a key, replace the family's own
        layout; they go together.  positions (B, L) bool restricts the head to N =
        positions.sum() rows in row-major order; targets (N,) token ids, or (N, K) to read K of
        them from one row.  cache: input_ids are the columns that it aims at, attention_mask
        covers its whole canvas.  block_length: other blocks than the checkpoint's own, for a
        block-causal family.

        Returns (B, L, V) without positions, (N, V) with positions, and float32
        log-probabilities in the shape of the targets.
        """
        x = self.hidden_states(
            input_ids,
            attention_mask,
            position_ids=position_ids,
            attend=attend,
            cache=cache,
            block_length=block_length,
        )
        x = x.to(self.head_weight.device)  # a device map may have put it elsewhere
        if positions is not None:
            x = x[positions.to(x.device)]
        if targets is None:
            return F.linear(x, self.head_weight)
        if positions is None:
            raise ValueError("targets need positions: the (B, L) mask of the rows they belong to")
        return linear_logp(x, self.head_weight, targets.to(x.device))

    def hidden_states(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        *,
        position_ids: Tensor | None = None,
        attend: Tensor | None = None,
        cache: KeyValueCache | None = None,
        block_length: int | None = None,
    ) -> Tensor:
        """Final hidden states (B, L, D), after the last norm; row i belongs to token i."""
        if attend is not None or position_ids is not None:
            layout = self._given_layout(position_ids, attend, attention_mask, cache)
        else:
            self._check_length(input_ids.shape[1] if cache is None else cache.visible)
            blocks = None if self.block_length is None else block_length or self.block_length
            layout = layout_of(input_ids, attention_mask, blocks, cache)
        tables = self.rope(layout.position_ids)
        mask: Any = layout.mask
        if mask is not None and self.config._attn_implementation == "flex_attention":
            mask = block_mask(mask, *input_ids.shape)
        x = self.embedding(input_ids)
        for index, layer in enumerate(self.layers):
            x = layer(x, tables, mask, None if cache is None else cache.layer(index))
        normed: Tensor = self.final_norm(x)
        return self.aligned(normed, layout.position_ids)

    def aligned(self, hidden: Tensor, position_ids: Tensor) -> Tensor:
        """Hidden states whose row i predicts token i; the identity unless the head lags."""
        return hidden

    def _given_layout(
        self,
        position_ids: Tensor | None,
        attend: Tensor | None,
        attention_mask: Tensor | None,
        cache: KeyValueCache | None,
    ) -> Layout:
        if attend is None or position_ids is None:
            raise ValueError("attend and position_ids replace the family's layout together")
        if attention_mask is not None or cache is not None:
            raise ValueError("attend already says everything that attention_mask and cache do")
        self._check_length(int(position_ids.max()) + 1 if position_ids.numel() else 0)
        return Layout(position_ids, never_blind(attend)[:, None])

    def _check_length(self, length: int) -> None:
        context = self.config.max_position_embeddings
        if length > context:
            raise UsageProblem(
                f"a sequence of {length} tokens does not fit the model",
                f"its context, for prompt and completion together, is {context} tokens",
                "a lower gen_length (of a run: --set rollout.gen_length=N, "
                "--set evaluation.gen_length=N), or no such long prompts",
            )

    @property
    def block_length(self) -> int | None:
        """Tokens per block of a block-causal model; None for a bidirectional one."""
        length: int | None = getattr(self.config, "block_length", None)
        return length

    @property
    def head_weight(self) -> Tensor:
        """The output projection, (V, D)."""
        head = self.get_output_embeddings()
        if hasattr(head, "base_layer"):
            raise UsageProblem(
                "adapters on the output head are not supported",
                "the head is read row by row, past any adapter on it",
                f"name layers of the blocks as targets: {', '.join(self.lora_targets)}",
            )
        weight: Tensor = head.weight
        return weight

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        std = getattr(self.config, "init_std", None) or getattr(
            self.config, "initializer_range", 0.02
        )
        if isinstance(module, nn.Linear | nn.Embedding):
            init.normal_(module.weight, mean=0.0, std=std)
            if getattr(module, "bias", None) is not None:
                init.zeros_(module.bias)
        elif isinstance(module, RMSNorm):
            init.ones_(module.weight)
        else:  # stacked experts and routers hold their weights themselves
            for parameter in module.parameters(recurse=False):
                init.normal_(parameter, mean=0.0, std=std)
            for buffer in module.buffers(recurse=False):
                init.zeros_(buffer)
