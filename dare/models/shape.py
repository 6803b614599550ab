"""The dimensions of a model and the arithmetic on them.  Data; imports no torch.

    shape = registry.get("sdar-30b").shape
    shape.parameters           # 30,532,122,624: what memory holds
    shape.active_parameters    # 3,353,032,704: what one token is multiplied with, and the embedding

The formulas were checked against the tensor bytes of released checkpoints of every family.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

# How a family calls the linear layers of a block: attention q, k, v, output; MLP gate, up, down.
# The third style has one fused projection for q, k and v.
Naming = Literal["llada", "separate", "fused"]
_ATTENTION = {
    "llada": ("q_proj", "k_proj", "v_proj", "attn_out"),
    "separate": ("q_proj", "k_proj", "v_proj", "o_proj"),
    "fused": ("query_key_value", "dense"),
}
_MLP = {
    "llada": ("ff_proj", "up_proj", "ff_out"),
    "separate": ("gate_proj", "up_proj", "down_proj"),
    "fused": ("gate_proj", "up_proj", "down_proj"),
}
ROUTER = "gate"


class Linear(NamedTuple):
    """A linear layer by its released name.  ``copies`` are in the model (layers times experts);
    a token goes through ``active`` of them.  ``routed``: a router or an expert behind one, which
    our models keep as stacked weights that neither LoRA nor 4-bit quantisation reaches."""

    name: str
    inputs: int
    outputs: int
    copies: int
    active: int
    routed: bool = False

    @property
    def weights(self) -> int:
        return self.inputs * self.outputs * self.copies


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of ``count`` gated MLPs of width ``hidden_size`` in ``layers`` of the layers.

    A token uses ``per_token`` of them and, if ``shared_hidden_size`` is not 0, a shared one of
    that width.  ``selection_bias``: each layer stores a number per expert beside the router.
    """

    count: int
    per_token: int
    hidden_size: int
    layers: int
    shared_hidden_size: int = 0
    selection_bias: bool = False


@dataclass(frozen=True, slots=True)
class Shape:
    """Dimensions; ``vocab_size`` counts embedding rows, ``max_sequence_length`` 0: not stated.

    ``head_dim`` None: d_model / n_heads.  ``qk_norm``: a norm over the head size on q and on k.
    With ``experts``, ``mlp_hidden_size`` is the width of the layers that are not mixtures.
    """

    d_model: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    mlp_hidden_size: int
    vocab_size: int
    max_sequence_length: int
    tied: bool
    head_dim: int | None = None
    qkv_bias: bool = False
    qk_norm: bool = False
    experts: Experts | None = None
    naming: Naming = "llada"

    @property
    def head_size(self) -> int:
        return self.head_dim or self.d_model // self.n_heads

    @property
    def _widths(self) -> tuple[int, int]:
        """Outputs of the query projection and of the key (or value) projection."""
        return self.n_heads * self.head_size, self.n_kv_heads * self.head_size

    def attention(self) -> tuple[Linear, ...]:
        """The projections of the attention, over all layers."""
        (queries, keys), d, layers = self._widths, self.d_model, self.n_layers
        names = _ATTENTION[self.naming]
        ins = (queries + 2 * keys,) if self.naming == "fused" else (queries, keys, keys)
        pairs = [*((d, width) for width in ins), (queries, d)]
        return tuple(
            Linear(name, *pair, layers, layers) for name, pair in zip(names, pairs, strict=True)
        )

    def linears(self) -> tuple[Linear, ...]:
        """Every linear layer inside the blocks, by its released name.

        A name occurs more than once where layers of different widths share it (a dense layer,
        a shared expert, the experts).
        """
        experts = self.experts
        dense = self.n_layers - (experts.layers if experts else 0)
        found = [*self.attention(), *self._mlp(self.mlp_hidden_size, dense, dense)]
        if experts is not None:
            layers = experts.layers
            found.append(Linear(ROUTER, self.d_model, experts.count, layers, layers, True))
            found += self._mlp(
                experts.hidden_size, layers * experts.count, layers * experts.per_token, True
            )
            if experts.shared_hidden_size:
                found += self._mlp(experts.shared_hidden_size, layers, layers)
        return tuple(found)

    def _mlp(self, hidden: int, copies: int, active: int, routed: bool = False) -> list[Linear]:
        if not copies:
            return []
        gate, up, down = _MLP[self.naming]
        d = self.d_model
        return [
            Linear(gate, d, hidden, copies, active, routed),
            Linear(up, d, hidden, copies, active, routed),
            Linear(down, hidden, d, copies, active, routed),
        ]

    @property
    def block_parameters(self) -> int:
        """Weights of all linear layers inside the blocks, of every expert."""
        return sum(each.weights for each in self.linears())

    @property
    def quantised_parameters(self) -> int:
        """Weights that loading in 4 bits shrinks: the linear layers of the blocks, unrouted."""
        return sum(each.weights for each in self.linears() if not each.routed)

    @property
    def embedding_parameters(self) -> int:
        return self.vocab_size * self.d_model

    @property
    def selection_biases(self) -> int:
        """Numbers that choose experts and are stored but never trained through."""
        if self.experts is None or not self.experts.selection_bias:
            return 0
        return self.experts.layers * self.experts.count

    @property
    def parameters(self) -> int:
        """All stored numbers: blocks, biases, norms, embedding and, unless tied, the head."""
        queries, keys = self._widths
        norms = (2 * self.n_layers + 1) * self.d_model
        if self.qk_norm:
            norms += 2 * self.n_layers * self.head_size
        biases = self.n_layers * (queries + 2 * keys) if self.qkv_bias else 0
        heads = self.embedding_parameters * (1 if self.tied else 2)
        return self.block_parameters + biases + self.selection_biases + norms + heads

    @property
    def active_parameters(self) -> int:
        """All but the weights of the experts that a token does not use."""
        idle = sum(
            each.inputs * each.outputs * (each.copies - each.active) for each in self.linears()
        )
        return self.parameters - idle

    @property
    def matmul_parameters(self) -> int:
        """Weights every token is multiplied with: active blocks and head, not the embedding."""
        active = sum(each.inputs * each.outputs * each.active for each in self.linears())
        return active + self.embedding_parameters

    @property
    def mlp_width_per_token(self) -> int:
        """Hidden channels of all MLPs a token goes through, over all layers."""
        gate = _MLP[self.naming][0]
        return sum(each.outputs * each.active for each in self.linears() if each.name == gate)

    def adapter_parameters(self, rank: int, target_modules: Iterable[str]) -> int:
        """Weights of LoRA adapters of ``rank`` on the named layers; names it lacks add none.

        In a mixture an MLP name reaches the dense layers and the shared expert, not the routed
        experts.
        """
        named = set(target_modules)
        return rank * sum(
            each.copies * (each.inputs + each.outputs)
            for each in self.linears()
            if each.name in named and not each.routed
        )
