"""The facts of a checkpoint that is not in the catalogue, from its ``config.json``.

Imports no torch.  Keys are those of the released files; our own ``block_length`` is also read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dare.errors import UsageProblem
from dare.models.facts import FAMILIES, LISTING, Checkpoint, family_of
from dare.models.shape import Experts, Shape

Config = Mapping[str, Any]


def read_config(folder: Path) -> dict[str, Any]:
    """``config.json`` of a checkpoint folder.  Raises ``UsageProblem`` if it is no JSON object."""
    try:
        config = json.loads((folder / "config.json").read_text())
        if not isinstance(config, dict):
            raise ValueError("not a JSON object")
    except (OSError, ValueError, RecursionError) as error:
        raise _undescribed(folder, error) from error
    return config


def facts_of_folder(folder: Path, repo_id: str | None = None) -> Checkpoint:
    """The facts of a local folder; ``repo_id``: the Hub repository that it is a copy of.

    An id that the config lacks is taken from the family where it lies inside the vocabulary.
    Raises ``UsageProblem`` for a folder that is not a checkpoint of a known family.
    """
    config, name = read_config(folder), repo_id or str(folder)
    family = family_of(config, name)
    kind = FAMILIES[family]
    try:
        shape = shape_of(config, family)
        ids = {key: _token_id(config, key, family, shape) for key in ("mask", "eos", "pad", "eot")}
        block = block_length_of(config, family, name)
    except (ValueError, KeyError, TypeError, ZeroDivisionError, OverflowError) as error:
        raise _undescribed(folder, error) from error
    return Checkpoint(
        name=name,
        family=family,
        shape=shape,
        bytes=sum(path.stat().st_size for path in folder.glob("*.safetensors")),
        dtype=str(config.get("dtype") or config.get("torch_dtype") or "unknown"),
        licence="not stated",
        mask_token_id=ids["mask"],
        eos_token_id=ids["eos"],
        pad_token_id=ids["pad"],
        eot_token_id=ids["eot"],
        block_length=block,
        sampler=kind.sampler,
        repo_id=repo_id,
        evidence="none: it is not in the catalogue" if repo_id else "",
        note="not in the catalogue" if repo_id else "a local folder",
    )


def block_length_of(config: Config, family: str, name: str = "") -> int | None:
    """Tokens per block; None for a bidirectional family.

    Our own key, the ``-b32`` at the end of a released name, the released key ``block_size``,
    which some copies lack and some carry over from another model, or the family's.
    """
    default = FAMILIES[family].block_length
    if default is None:
        return None
    in_name = [
        re.search(r"-b(\d{1,4})$", part)
        for index, part in enumerate(reversed(Path(name).parts))
        if index == 0 or part.startswith("models--")
    ]
    said = [int(found[1]) for found in in_name if found]
    length = int(config.get("block_length") or 0) or (said or [0])[0]
    length = length or int(config.get("block_size") or 0) or default
    if length < 1:
        raise ValueError(f"block length {length}")
    return length


def shape_of(config: Config, family: str) -> Shape:
    """The dimensions in a config of ``family``.

    Raises ``KeyError``, ``TypeError`` or ``ValueError`` for a config that lacks some or holds
    nonsense.
    """
    shape = _llada_shape(config) if family == "llada" else _usual_shape(config, family)
    sizes = (shape.d_model, shape.n_layers, shape.n_heads, shape.n_kv_heads, shape.vocab_size)
    if min(*sizes, shape.mlp_hidden_size, shape.head_size) < 1 or shape.n_heads % shape.n_kv_heads:
        raise ValueError("a dimension is zero, negative or does not divide")
    return shape


def _llada_shape(config: Config) -> Shape:
    d, heads = int(config["d_model"]), int(config["n_heads"])
    one = 1 if config.get("multi_query_attention") else heads
    return Shape(
        d_model=d,
        n_layers=int(config["n_layers"]),
        n_heads=heads,
        n_kv_heads=int(config.get("n_kv_heads") or one),
        mlp_hidden_size=int(config.get("mlp_hidden_size") or config["mlp_ratio"] * d),
        vocab_size=int(config.get("embedding_size") or config["vocab_size"]),
        max_sequence_length=int(config.get("max_sequence_length", 0)),
        tied=bool(config.get("weight_tying", False)),
    )


def _usual_shape(config: Config, family: str) -> Shape:
    """All families but the dense LLaDA name their dimensions as Hugging Face models do."""
    heads, layers = int(config["num_attention_heads"]), int(config["num_hidden_layers"])
    experts = _experts(config, family, layers)
    dense = config["dense_intermediate_size" if family == "llada_moe" else "intermediate_size"]
    d = int(config["hidden_size"])
    return Shape(
        d_model=d,
        n_layers=layers,
        n_heads=heads,
        n_kv_heads=int(config.get("num_key_value_heads") or heads),
        # A model of experts alone may leave the width of its dense layers out.
        mlp_hidden_size=int(dense or (experts.hidden_size if experts else 0)),
        vocab_size=int(config["vocab_size"]),
        max_sequence_length=int(config.get("max_position_embeddings", 0)),
        tied=bool(config.get("tie_word_embeddings", False)),
        head_dim=int(config.get("head_dim") or d // heads),
        qkv_bias=family == "dream",
        qk_norm=_has_qk_norm(config, family),
        experts=experts,
        naming=FAMILIES[family].naming,
    )


def _has_qk_norm(config: Config, family: str) -> bool:
    key = {"llada_moe": "qk_layernorm", "llada2_moe": "use_qk_norm"}.get(family)
    return bool(config.get(key, True)) if key else family != "dream"


def _experts(config: Config, family: str, layers: int) -> Experts | None:
    if family in ("dream", "sdar"):
        return None
    width = "expert_intermediate_size" if family == "llada_moe" else "moe_intermediate_size"
    shared, mixed = 0, layers
    if family == "llada_moe":
        shared = int(config.get("shared_expert_intermediate_size") or 0)
        frequency = config.get("moe_layer_freq", 1)
        mixed = sum(map(bool, frequency)) if isinstance(frequency, list) else layers
    elif family == "llada2_moe":
        shared = int(config.get("num_shared_experts") or 0) * int(config[width])
        mixed = layers - int(config.get("first_k_dense_replace") or 0)
    else:
        mixed = _sparse_layers(config, layers)
    return Experts(
        count=int(config["num_experts"]),
        per_token=int(config["num_experts_per_tok"]),
        hidden_size=int(config[width]),
        layers=mixed,
        shared_hidden_size=shared,
        selection_bias=family != "sdar_moe" and bool(config.get("moe_router_enable_expert_bias")),
    )


def _sparse_layers(config: Config, layers: int) -> int:
    """How many layers of an SDAR-MoE are mixtures: every ``decoder_sparse_step``-th."""
    step, dense = int(config.get("decoder_sparse_step") or 1), config.get("mlp_only_layers") or []
    return sum((index + 1) % step == 0 and index not in dense for index in range(layers))


def _token_id(config: Config, key: str, family: str, shape: Shape) -> int | None:
    value = config.get(f"{key}_token_id")
    if isinstance(value, list):
        value = value[0] if value else None
    if value is None:
        value = getattr(FAMILIES[family], f"{key}_token_id")
        return value if value is not None and value < shape.vocab_size else None
    return int(value)


def _undescribed(folder: Path, error: Exception) -> UsageProblem:
    return UsageProblem(
        f"{folder} is not a checkpoint that dare can describe",
        f"config.json: {type(error).__name__}: {error}",
        LISTING,
    )
