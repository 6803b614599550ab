"""Configurations: what is read, refused, kept and filled in."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModel

from dare.models import registry
from dare.models.dream import DreamConfig
from dare.models.families import FAMILIES
from dare.models.llada import LLaDAConfig
from dare.models.llada2_moe import LLaDA2MoeConfig
from dare.models.llada_moe import LLaDAMoEConfig
from dare.models.loading import load_model
from dare.models.sdar import SDARConfig
from dare.models.sdar_moe import SDARMoeConfig

Build = Callable[..., Any]


def write(folder: Path, config: dict[str, Any]) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize(
    ("config", "key", "value"),
    [
        (DreamConfig, "hidden_act", "gelu"),
        (DreamConfig, "use_mrope", True),
        (DreamConfig, "use_sliding_window", True),
        (SDARConfig, "attention_bias", True),
        (SDARConfig, "attention_dropout", 0.1),
        (SDARMoeConfig, "norm_topk_prob", False),
        (SDARMoeConfig, "decoder_sparse_step", 2),
        (SDARMoeConfig, "mlp_only_layers", [0]),
        (LLaDAMoEConfig, "moe_router_score_function", "sigmoid"),
        (LLaDAMoEConfig, "qk_layernorm", False),
        (LLaDAMoEConfig, "routed_scaling_factor", 2.0),
        (LLaDAMoEConfig, "router_num_group", 4),
        (LLaDA2MoeConfig, "score_function", "softmax"),
        (LLaDA2MoeConfig, "router_dtype", "bf16"),
        (LLaDA2MoeConfig, "use_qkv_bias", True),
        (LLaDA2MoeConfig, "norm_head", True),
        (LLaDA2MoeConfig, "use_qk_norm", False),
    ],
)
def test_values_that_no_release_has_are_refused(config: Any, key: str, value: Any) -> None:
    config()
    with pytest.raises(ValueError, match=re.escape(f"config key {key}={value!r} is not")):
        config(**{key: value})


@pytest.mark.parametrize(
    ("config", "changes", "why"),
    [
        (LLaDA2MoeConfig, {"rotary_dim": 128}, "rotary_dim=128 contradicts"),
        (LLaDA2MoeConfig, {"n_group": 7}, "256 experts do not form 7 groups"),
        (LLaDAMoEConfig, {"moe_layer_freq": [1, 1]}, "2 entries for 16 layers"),
        (DreamConfig, {"rope_scaling": {"type": "yarn", "factor": 4.0}}, "type 'yarn'"),
        (SDARConfig, {"rope_parameters": {"rope_type": "linear"}}, "type 'linear'"),
        (LLaDAConfig, {"num_experts": 64}, "LLaDA-MoE checkpoint"),
    ],
)
def test_contradictions_are_refused(config: Any, changes: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        config(**changes)


@pytest.mark.parametrize("key", ["rope_parameters", "rope_scaling"])
def test_rope_settings_of_transformers_5_and_flat_keys_mean_the_same(key: str) -> None:
    flat = LLaDA2MoeConfig(rope_theta=777.0, partial_rotary_factor=0.25)
    nested = LLaDA2MoeConfig(
        **{key: {"rope_type": "default", "rope_theta": 777.0, "partial_rotary_factor": 0.25}}
    )
    for config in (flat, nested):
        assert (config.rope_theta, config.rotary_channels) == (777.0, 32)
    assert flat.to_dict() == nested.to_dict()
    assert "rope_parameters" not in flat.to_dict()


def test_block_lengths() -> None:
    assert SDARConfig().block_length == 4
    assert SDARConfig(block_size=16).block_length == 16
    assert SDARConfig(block_length=8).to_dict()["block_size"] == 8
    assert LLaDA2MoeConfig().block_length == 32
    assert all(c().block_length is None for c in (LLaDAConfig, LLaDAMoEConfig, DreamConfig))


def test_the_mask_of_sdar_is_known_only_in_its_released_vocabulary() -> None:
    assert SDARConfig().mask_token_id == 151669
    assert SDARConfig(vocab_size=100).mask_token_id is None
    assert SDARConfig(vocab_size=100, mask_token_id=7).mask_token_id == 7


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (
            {"architectures": ["LLaDAMoEModelLM"], "num_experts": 6, "num_experts_per_tok": 2},
            LLaDAMoEConfig,
        ),
        ({"architectures": ["LLaDAMoEModel"]}, LLaDAMoEConfig),
        ({"num_experts": 6, "num_experts_per_tok": 2}, LLaDAMoEConfig),
        ({"model_type": "lladamoe", "num_experts": 6, "num_experts_per_tok": 2}, LLaDAMoEConfig),
        ({"architectures": ["LLaDAModelLM"]}, LLaDAConfig),
        ({}, LLaDAConfig),
        ({"architectures": ["DreamModel"], "model_type": "Dream"}, DreamConfig),
    ],
)
def test_auto_config_tells_the_families_apart(
    tmp_path: Path, keys: dict[str, Any], expected: type
) -> None:
    """LLaDA and LLaDA-MoE share a model_type; a foreign auto_map points at code not there."""
    foreign = {"auto_map": {"AutoConfig": "absent.Nothing", "AutoModel": "absent.Nothing"}}
    folder = write(tmp_path, {"model_type": "llada", **foreign, **keys})
    config = AutoConfig.from_pretrained(folder)
    assert type(config) is expected
    assert not hasattr(config, "auto_map")
    config.save_pretrained(tmp_path)
    assert type(AutoConfig.from_pretrained(tmp_path)) is expected


def test_a_foreign_attention_setting_is_not_obeyed_but_ours_is(tmp_path: Path) -> None:
    folder = write(tmp_path, {"model_type": "sdar", "attn_implementation": "flex_attention"})
    assert SDARConfig.from_pretrained(folder)._attn_implementation is None
    ours = SDARConfig.from_pretrained(folder, attn_implementation="flex_attention")
    assert ours._attn_implementation == "flex_attention"


@pytest.mark.parametrize("family", list(FAMILIES))
def test_a_model_made_here_loads_again(small: Build, tmp_path: Path, family: str) -> None:
    model = small(family)
    model.save_pretrained(tmp_path)
    kept = json.loads((tmp_path / "config.json").read_text())
    for loaded in (load_model(str(tmp_path)), AutoModel.from_pretrained(tmp_path).eval()):
        assert type(loaded) is type(model)
        ids = torch.arange(12)[None]
        with torch.no_grad():
            assert torch.equal(loaded(ids), model(ids))
    assert kept["architectures"] == [type(model).__name__]
    stored = load_file(tmp_path / "model.safetensors")
    assert registry.describe(str(tmp_path)).parameters == sum(t.numel() for t in stored.values())
    assert load_model(str(tmp_path)).config.block_length == model.config.block_length


@pytest.mark.parametrize("family", list(FAMILIES))
def test_tied_heads(small: Build, tmp_path: Path, family: str) -> None:
    tied = {"weight_tying": True} if family == "llada" else {"tie_word_embeddings": True}
    model = small(family, **tied)
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    model.save_pretrained(tmp_path)
    loaded = load_model(str(tmp_path))
    assert loaded.get_output_embeddings().weight is loaded.get_input_embeddings().weight
    with torch.no_grad():
        assert torch.equal(loaded(torch.arange(12)[None]), model(torch.arange(12)[None]))


def test_missing_ids_are_filled_from_the_family(small: Build, tmp_path: Path) -> None:
    """An id outside the vocabulary is not; one that the checkpoint says stays."""
    model = small("llada_moe", vocab_size=156_900, mask_token_id=None, eos_token_id=5)
    model.save_pretrained(tmp_path)
    config = load_model(str(tmp_path)).config
    assert (config.mask_token_id, config.eos_token_id, config.eot_token_id) == (156895, 5, None)
    small("llada_moe", mask_token_id=None).save_pretrained(tmp_path)
    assert load_model(str(tmp_path)).config.mask_token_id is None


def test_a_block_length_in_the_name_of_the_folder(small: Build, tmp_path: Path) -> None:
    """SDAR-8B-Chat-b32 and the like: some of their configs carry another model's block_size."""
    folder = tmp_path / "SDAR-tiny-b8"
    small("sdar", block_size=4).save_pretrained(folder)
    assert load_model(str(folder)).config.block_length == 8


@pytest.mark.parametrize("family", list(FAMILIES))
def test_weights_of_a_new_model_are_small_and_finite(small: Build, family: str) -> None:
    """Stacked experts and routers are initialised too."""
    model_class = FAMILIES[family]
    torch.manual_seed(0)
    model = model_class(small(family).config)
    for name, tensor in model.state_dict().items():
        if "norm" in name or "ln_f" in name:
            assert torch.equal(tensor, torch.ones_like(tensor)), name
        elif name.endswith("bias"):
            assert torch.equal(tensor, torch.zeros_like(tensor)), name
        else:
            assert tensor.std() == pytest.approx(0.02, rel=0.15), name


@pytest.mark.parametrize("family", ["sdar_moe", "llada_moe", "llada2_moe"])
@pytest.mark.parametrize("chosen", [0, 7, 99])
def test_more_experts_per_token_than_there_are(
    small: Callable[..., Any], family: str, chosen: int
) -> None:
    with pytest.raises(ValueError, match="num_experts_per_tok"):
        small(family, num_experts_per_tok=chosen)
