"""From a config.json to a family and its facts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dare.errors import UsageProblem
from dare.models import registry
from dare.models.describe import block_length_of, shape_of
from dare.models.shape import Experts

FIXTURE_FAMILIES = {
    "dream": "dream",
    "llada": "llada",
    "llada20": "llada2_moe",
    "llada21": "llada2_moe",
    "llada_moe": "llada_moe",
    "sdar": "sdar",
    "sdar_moe": "sdar_moe",
}


# ---- the family ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "family"),
    [
        ({"architectures": ["LLaDAModelLM"], "model_type": "llada"}, "llada"),
        ({"architectures": ["LladaModelLM"], "model_type": "llada"}, "llada"),
        ({"architectures": ["LLaDAMoEModelLM"], "model_type": "llada"}, "llada_moe"),
        ({"architectures": ["LLaDAMoEModel"], "model_type": "llada"}, "llada_moe"),
        ({"architectures": ["LLaDAModelLM"], "num_experts": 64}, "llada_moe"),
        ({"architectures": ["DreamModel"], "model_type": "Dream"}, "dream"),
        ({"architectures": ["SDARForCausalLM"], "model_type": "sdar"}, "sdar"),
        ({"architectures": ["SDARMoeForCausalLM"], "model_type": "sdar_moe"}, "sdar_moe"),
        ({"architectures": ["LLaDA2MoeModelLM"], "model_type": "llada2_moe"}, "llada2_moe"),
        ({"architectures": ["LLaDAModelLM"]}, "llada"),  # a tuned copy without model_type
        ({"model_type": "llada"}, "llada"),
        ({"model_type": "llada", "num_experts": 64}, "llada_moe"),
        ({"model_type": "lladamoe"}, "llada_moe"),
        ({"model_type": "Dream", "architectures": None}, "dream"),
        ({"model_type": "sdar", "architectures": []}, "sdar"),
    ],
)
def test_architectures_decide_and_model_type_helps(config: dict[str, Any], family: str) -> None:
    assert registry.family_of(config) == family


@pytest.mark.parametrize(
    ("config", "found"),
    [
        ({"architectures": ["MMadaModelLM"], "model_type": "llada"}, "architectures MMadaModelLM"),
        ({"architectures": ["LlamaForCausalLM"], "model_type": "llama"}, "model_type llama"),
        ({"architectures": ["ILLaDAForCausalLM"]}, "ILLaDAForCausalLM"),
        ({"model_type": "bert"}, "architectures absent, model_type bert"),
        ({}, "architectures absent, model_type absent"),
    ],
)
def test_another_family_is_refused_with_what_was_found(config: dict[str, Any], found: str) -> None:
    with pytest.raises(UsageProblem, match=r"^mine is not a diffusion language model") as caught:
        registry.family_of(config, "mine")
    assert found in caught.value.why
    assert "llada, llada_moe, dream, sdar, sdar_moe, llada2_moe" in caught.value.why


@pytest.mark.parametrize(("name", "family"), FIXTURE_FAMILIES.items())
def test_official_shaped_configs(shared_dir: Path, name: str, family: str) -> None:
    facts = registry.describe(str(shared_dir / "models" / "fixtures" / name))
    assert facts.family == family
    blocks = {"sdar": 4, "sdar_moe": 4, "llada2_moe": 32}
    assert facts.block_length == blocks.get(family)
    assert facts.shape.vocab_size == 448
    # The released ids lie outside these vocabularies, so only the config's own count.
    assert facts.mask_token_id == (431 if name in ("dream", "llada", "sdar") else None)


# ---- dimensions ----------------------------------------------------------------------------

SDAR_MOE = {
    "hidden_size": 8, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 6, "intermediate_size": 20, "moe_intermediate_size": 10, "num_experts": 5,
    "num_experts_per_tok": 2, "vocab_size": 30, "max_position_embeddings": 64,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "layers"),
    [
        ({}, 4),
        ({"decoder_sparse_step": 1, "mlp_only_layers": []}, 4),
        ({"mlp_only_layers": [0, 2]}, 2),
        ({"decoder_sparse_step": 2}, 2),
    ],
)
def test_which_layers_of_sdar_are_mixtures(changes: dict[str, Any], layers: int) -> None:
    shape = shape_of(SDAR_MOE | changes, "sdar_moe")
    assert shape.experts == Experts(count=5, per_token=2, hidden_size=10, layers=layers)
    assert (shape.head_size, shape.mlp_hidden_size, shape.qk_norm) == (6, 20, True)


def test_a_mixture_of_llada2_has_dense_first_layers_and_a_shared_expert() -> None:
    config = SDAR_MOE | {
        "first_k_dense_replace": 1, "num_shared_experts": 2, "use_qk_norm": True,
        "moe_router_enable_expert_bias": True,
    }  # fmt: skip
    experts = shape_of(config, "llada2_moe").experts
    assert experts == Experts(5, 2, 10, layers=3, shared_hidden_size=20, selection_bias=True)


def test_a_mixture_of_llada_moe_by_layer_frequency() -> None:
    config = SDAR_MOE | {
        "expert_intermediate_size": 12, "dense_intermediate_size": 40,
        "moe_layer_freq": [0, 1, 1, 1],
        "shared_expert_intermediate_size": 7, "qk_layernorm": False,
    }  # fmt: skip
    shape = shape_of(config, "llada_moe")
    assert shape.experts == Experts(5, 2, 12, layers=3, shared_hidden_size=7)
    assert (shape.mlp_hidden_size, shape.qk_norm) == (40, False)


def test_dense_llada_with_grouped_heads_and_a_tied_embedding() -> None:
    config = {
        "d_model": 16, "n_layers": 1, "n_heads": 4, "n_kv_heads": None, "mlp_ratio": 4,
        "multi_query_attention": True, "vocab_size": 30, "embedding_size": 32, "weight_tying": True,
    }  # fmt: skip
    shape = shape_of(config, "llada")
    assert (shape.n_kv_heads, shape.mlp_hidden_size, shape.vocab_size) == (1, 64, 32)
    assert shape.tied


# ---- block length --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "family", "name", "length"),
    [
        ({}, "llada", "x-b32", None),
        ({}, "sdar", "JetLM/SDAR-8B-Chat", 4),
        ({"block_size": 8}, "sdar", "mine", 8),
        ({}, "sdar", "JetLM/SDAR-8B-Chat-b32", 32),
        ({"block_size": 4}, "sdar", "JetLM/SDAR-8B-Chat-b64", 64),  # a key carried over
        ({"block_length": 16}, "sdar", "JetLM/SDAR-8B-Chat-b64", 16),  # our own key
        ({}, "sdar", "/hub/models--JetLM--SDAR-8B-Chat-b32/snapshots/abc", 32),
        ({}, "sdar", "/tries-b8/sdar", 4),
        ({}, "llada2_moe", "mine", 32),
    ],
)
def test_block_length(config: dict[str, Any], family: str, name: str, length: int | None) -> None:
    assert block_length_of(config, family, name) == length


@pytest.mark.parametrize(
    ("name", "length"),
    [("sdar-4b", 4), ("sdar-4b-b32", 32), ("trado-8b", 4), ("llada2-mini", 32), ("dream-7b", None),
     ("llada-8b", None), ("llada-moe-7b", None)],
)  # fmt: skip
def test_block_lengths_of_the_catalogue(name: str, length: int | None) -> None:
    assert registry.get(name).block_length == length


# ---- ids, samplers, protocols --------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "ids"),
    [
        ("llada-1.5", (126336, 126081, 126081, 126348)),
        ("llada-moe-7b", (156895, 156892, 156892, None)),
        ("diffucoder", (151666, 151643, 151643, 151645)),
        ("sdar-30b", (151669, 151643, 151643, 151645)),
        ("llada2.1-mini", (156895, 156892, 156892, None)),
        ("tiny-llada", (2, 1, 1, 5)),
    ],
)
def test_special_ids_of_the_catalogue(name: str, ids: tuple[int | None, ...]) -> None:
    entry = registry.get(name)
    found = (entry.mask_token_id, entry.eos_token_id, entry.pad_token_id, entry.eot_token_id)
    assert found == ids


def test_a_folder_takes_the_familys_ids_where_they_fit(tmp_path: Path) -> None:
    """As LLaDA2.x is released: no mask and no end of text in the config."""
    config = SDAR_MOE | {"architectures": ["LLaDA2MoeModelLM"], "vocab_size": 157_184}
    (tmp_path / "config.json").write_text(json.dumps(config | {"pad_token_id": 156_892}))
    (tmp_path / "model.safetensors").write_bytes(b"")
    facts = registry.describe(str(tmp_path))
    assert (facts.mask_token_id, facts.eos_token_id) == (156_895, 156_892)
    (tmp_path / "config.json").write_text(json.dumps(config | {"vocab_size": 156_895}))
    assert registry.describe(str(tmp_path)).mask_token_id is None


def test_every_checkpoint_names_a_sampler_and_a_protocol() -> None:
    samplers = {entry.sampler for entry in registry.CHECKPOINTS}
    assert samplers == {"llada", "dream", "sdar", "llada2", "llada2.1"}
    assert registry.get("llada2.1-mini").sampler == "llada2.1"
    assert registry.get("llada-8b").protocol == "d1"
    assert registry.get("sdar-8b").protocol == "not stated"
