"""Every family against logits that the official code produced on tiny checkpoints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

from dare.models.families import FAMILIES
from dare.models.loading import load_model

BIDIRECTIONAL = ("llada", "dream", "llada_moe")
BLOCK_CAUSAL = ("sdar", "sdar_moe", "llada20", "llada21")
FOLDERS = {
    "llada": "llada", "dream": "dream", "llada_moe": "llada_moe", "sdar": "sdar",
    "sdar_moe": "sdar_moe", "llada20": "llada2_moe", "llada21": "llada2_moe",
}  # fmt: skip


@pytest.fixture(scope="module")
def official(shared_dir: Path) -> Path:
    return shared_dir / "models" / "fixtures"


@pytest.fixture(scope="module")
def models(official: Path) -> dict[str, Any]:
    return {name: load_model(str(official / name)) for name in FOLDERS}


class Case(NamedTuple):
    input_ids: Tensor
    attention_mask: Tensor | None
    position_ids: Tensor | None
    attend: Tensor | None
    block_length: int | None
    logits: Tensor
    valid: Tensor
    bf16_moves: float


def read(folder: Path, case: str) -> Case:
    arrays = np.load(folder / "forward.npz")

    def get(name: str) -> Tensor | None:
        key = f"{case}/{name}"
        return torch.from_numpy(arrays[key]) if key in arrays else None

    seen, block, ids, valid = (get(n) for n in ("mask_bool", "block_length", "input_ids", "valid"))
    logits, moves = get("logits"), get("bf16_max_abs_diff")
    assert ids is not None
    assert valid is not None
    assert logits is not None
    assert moves is not None
    if seen is not None and seen.dim() == 4:
        seen = seen[:, 0]
    return Case(
        ids, get("attention_mask"), get("position_ids"), seen,
        None if block is None else int(block), logits, valid, float(moves),
    )  # fmt: skip


def largest_difference(name: str, ours: Tensor, case: Case) -> float:
    """At the comparable rows; Dream's fixture holds raw logits, which lag one row behind ours."""
    expected, valid = case.logits, case.valid
    if name == "dream":
        ours, expected, valid = ours[:, 1:], expected[:, :-1], valid[:, :-1]
        if case.attention_mask is not None:
            valid = valid & case.attention_mask[:, 1:].bool()
    assert valid.sum() > 7
    assert torch.isfinite(ours).all()
    return float((ours.float() - expected)[valid].abs().max())


PLAIN_CASES = ("plain", "left_padded", "right_padded")
CASES = [(name, case) for name in BIDIRECTIONAL for case in PLAIN_CASES]
BLOCK_CASES = [
    (name, case)
    for name in BLOCK_CAUSAL
    for case in ("block_causal", "full_attention", "left_padded")
]


@pytest.mark.parametrize(("name", "case"), CASES)
def test_bidirectional_logits(models: dict[str, Any], official: Path, name: str, case: str) -> None:
    data = read(official / name, case)
    with torch.no_grad():
        ours = models[name](data.input_ids, data.attention_mask)
    assert largest_difference(name, ours, data) < 1e-4


@pytest.mark.parametrize("case", ["left_padded", "right_padded"])
def test_dream_with_the_official_mask_and_positions(
    models: dict[str, Any], official: Path, case: str
) -> None:
    """Its sampler forbids everything to pad queries and gives pads position 1."""
    data = read(official / "dream", case)
    assert data.attention_mask is not None
    real = data.attention_mask.bool()
    with torch.no_grad():
        ours = models["dream"](
            data.input_ids,
            position_ids=data.position_ids,
            attend=real[:, None, :] & real[:, :, None],
        )
    assert largest_difference("dream", ours, data) < 1e-4


@pytest.mark.parametrize(("name", "case"), BLOCK_CASES)
def test_logits_under_the_given_mask(
    models: dict[str, Any], official: Path, name: str, case: str
) -> None:
    data = read(official / name, case)
    with torch.no_grad():
        ours = models[name](data.input_ids, position_ids=data.position_ids, attend=data.attend)
    assert largest_difference(name, ours, data) < 1e-4


@pytest.mark.parametrize(
    ("name", "case"), [pair for pair in BLOCK_CASES if pair[1] != "full_attention"]
)
def test_logits_under_the_family_s_own_layout(
    models: dict[str, Any], official: Path, name: str, case: str
) -> None:
    data = read(official / name, case)
    with torch.no_grad():
        ours = models[name](data.input_ids, data.attention_mask, block_length=data.block_length)
    assert largest_difference(name, ours, data) < 1e-4


@pytest.mark.parametrize("name", FOLDERS)
def test_bfloat16_moves_no_further_than_the_official_code(official: Path, name: str) -> None:
    """A flipped expert moves mixtures a lot, hence twice the reference's own movement."""
    model: Any = load_model(str(official / name), dtype="bfloat16")
    data = read(official / name, "plain" if name in BIDIRECTIONAL else "full_attention")
    layout = {} if data.attend is None else {
        "position_ids": data.position_ids, "attend": data.attend,
    }  # fmt: skip
    with torch.no_grad():
        ours = model(data.input_ids, **layout)
    assert ours.dtype == torch.bfloat16
    assert 1e-3 < largest_difference(name, ours, data) < 2 * data.bf16_moves
    kept = {key for key, tensor in model.state_dict().items() if tensor.dtype != torch.bfloat16}
    assert all(key.endswith("expert_bias") for key in kept)
    assert bool(kept) == name.startswith("llada2")


# ---- files -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FOLDERS)
@pytest.mark.parametrize("shard", ["50GB", "200KB"])
def test_released_files_survive_a_round_trip(
    models: dict[str, Any], official: Path, tmp_path: Path, name: str, shard: str
) -> None:
    model = models[name]
    model.save_pretrained(tmp_path, max_shard_size=shard)
    files = sorted(tmp_path.glob("*.safetensors"))
    assert (len(files) > 1) == (shard == "200KB")
    saved = {key: tensor for file in files for key, tensor in load_file(file).items()}
    released = load_file(official / name / "model.safetensors")
    assert saved.keys() == released.keys()
    assert all(torch.equal(saved[key], released[key].float()) for key in released)

    again: Any = load_model(str(tmp_path))
    ids = torch.arange(12)[None] * 9
    assert type(again) is type(model)
    with torch.no_grad():
        assert torch.equal(again(ids), model(ids))


@pytest.mark.parametrize("name", FOLDERS)
def test_configuration_keys_survive_a_round_trip(
    models: dict[str, Any], official: Path, tmp_path: Path, name: str
) -> None:
    models[name].config.save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text())
    released = json.loads((official / name / "config.json").read_text())
    # Which code runs, and how, is not the checkpoint's to say; the rest is transformers' own.
    dropped = {
        "auto_map", "attn_implementation", "use_cache", "rope_scaling", "torch_dtype", "dtype",
        "transformers_version",
    }  # fmt: skip
    kept = released.keys() - dropped
    assert len(kept) > 20
    assert {key: saved.get(key, "absent") for key in kept} == {key: released[key] for key in kept}


@pytest.mark.parametrize("name", FOLDERS)
def test_auto_classes_build_ours_from_a_folder_with_foreign_code(official: Path, name: str) -> None:
    """Each config's ``auto_map`` names remote code; the default is not to trust any."""
    folder, family = official / name, FAMILIES[FOLDERS[name]]
    assert "auto_map" in json.loads((folder / "config.json").read_text())
    assert type(AutoConfig.from_pretrained(folder)) is family.config_class
    assert type(AutoModel.from_pretrained(folder)) is family
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    assert type(model) is family
    assert model.config._attn_implementation == "sdpa"


def test_saved_mixtures_are_known_by_auto_classes_again(
    models: dict[str, Any], tmp_path: Path
) -> None:
    models["llada_moe"].save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["architectures"] == [
        "LLaDAMoEModelLM"
    ]
    assert type(AutoModel.from_pretrained(tmp_path)) is FAMILIES["llada_moe"]


def test_router_bias_is_read_from_either_storage(models: dict[str, Any], official: Path) -> None:
    """2.0 stores it in bfloat16, 2.1 in float32 with digits that bfloat16 would lose."""
    key = "model.layers.1.mlp.gate.expert_bias"
    for name, stored in (("llada20", torch.bfloat16), ("llada21", torch.float32)):
        bias = load_file(official / name / "model.safetensors")[key]
        assert bias.dtype == stored
        assert torch.equal(models[name].state_dict()[key], bias.float())
    assert not torch.equal(bias, bias.bfloat16().float())
