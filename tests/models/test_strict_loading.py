"""Checkpoints whose files are not those of the model: errors that name the tensors."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from dare.errors import UsageProblem
from dare.models.checkpoint import official_shapes, stored_shapes
from dare.models.families import FAMILIES
from dare.models.loading import load_model

Build = Callable[..., Any]
Tensors = dict[str, torch.Tensor]
UP = "model.layers.1.mlp.experts.3.up_proj.weight"


def change(folder: Path, edit: Callable[[Tensors], Any]) -> None:
    tensors = load_file(folder / "model.safetensors")
    edit(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.fixture
def folder(small: Build, tmp_path: Path) -> Path:
    small("sdar_moe").save_pretrained(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        (lambda t: t.pop(UP), f"1 missing: {UP}"),
        (lambda t: t.pop("model.norm.weight"), "1 missing: model.norm.weight"),
        (lambda t: t.pop("lm_head.weight"), "1 missing: lm_head.weight"),
        (lambda t: t.update(extra=torch.ones(1)), "1 unexpected: extra"),
        (
            lambda t: t.update({UP.replace(".3.", ".6."): t[UP].clone()}),
            "1 unexpected: model.layers.1.mlp.experts.6.up_proj.weight",
        ),
        (
            lambda t: t.update({UP: t[UP][:-4].clone()}),
            rf"1 of other shape: {UP} is \(16, 32\) and should be \(20, 32\)",
        ),
        (
            lambda t: [t.pop(key) for key in list(t) if "layers.0.mlp" in key],
            "19 missing: .* [.][.][.]",
        ),
    ],
)
def test_wrong_tensors_are_named(folder: Path, edit: Callable[[Tensors], Any], why: str) -> None:
    change(folder, edit)
    with pytest.raises(UsageProblem) as caught:
        load_model(str(folder))
    assert "does not hold the tensors of the SDARMoeForCausalLM" in caught.value.what
    assert re.search(why, caught.value.why)


def test_a_tied_head_may_be_stored_or_not(small: Build, tmp_path: Path) -> None:
    small("dream", tie_word_embeddings=True).save_pretrained(tmp_path)
    assert "lm_head.weight" not in load_file(tmp_path / "model.safetensors")
    key = "model.embed_tokens.weight"
    change(tmp_path, lambda t: t.update({"lm_head.weight": t[key].clone()}))
    loaded = load_model(str(tmp_path))
    assert loaded.get_output_embeddings().weight is loaded.get_input_embeddings().weight


def test_shards_by_their_index(folder: Path, tmp_path: Path) -> None:
    model = load_model(str(folder))
    shards = tmp_path / "shards"
    model.save_pretrained(shards, max_shard_size="40KB")
    index = json.loads((shards / "model.safetensors.index.json").read_text())
    assert len(set(index["weight_map"].values())) > 2
    assert stored_shapes(shards) == official_shapes(FAMILIES["sdar_moe"], model.config)
    with torch.no_grad():
        ids = torch.arange(9)[None]
        assert torch.equal(load_model(str(shards))(ids), model(ids))

    del index["weight_map"][UP]
    (shards / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(UsageProblem, match="does not hold the tensors") as caught:
        load_model(str(shards))
    assert caught.value.why == f"1 missing: {UP}"


@pytest.mark.parametrize(
    "spoil",
    [
        lambda f: (f / "model.safetensors").write_bytes(b"\xff" * 100),
        lambda f: (f / "model.safetensors.index.json").write_text('{"weight_map": 3}'),
        lambda f: (f / "model.safetensors.index.json").write_text('{"weight_map": {"a": 3}}'),
    ],
)
def test_files_that_cannot_be_read(folder: Path, spoil: Callable[[Path], Any]) -> None:
    spoil(folder)
    with pytest.raises(UsageProblem, match="cannot be read"):
        stored_shapes(folder)


def test_an_unsupported_configuration_is_the_user_s_to_know(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"hidden_act": "gelu"}))
    with pytest.raises(UsageProblem, match="cannot run") as caught:
        load_model(str(folder))
    assert "hidden_act='gelu'" in caught.value.why


@pytest.mark.parametrize("family", list(FAMILIES))
def test_a_device_map_gives_the_same_numbers(small: Build, tmp_path: Path, family: str) -> None:
    """One device by name, automatic, and a layer that waits on disk until it is used."""
    pytest.importorskip("accelerate")
    model = small(family)
    model.save_pretrained(tmp_path)
    ids = torch.arange(14)[None]
    with torch.no_grad():
        expected = model(ids)
        for placement in ({"": "cpu"}, "auto"):
            assert torch.equal(load_model(str(tmp_path), device_map=placement)(ids), expected)
        names = [name for name, _ in model.named_modules()]
        layers = "model.transformer.blocks" if family == "llada" else "model.layers"
        leaves = [
            name
            for name in names
            if name.startswith(f"{layers}.") and name.count(".") == layers.count(".") + 1
        ]
        others = ("wte", "word_embeddings", "embed_tokens", "ln_f", "model.norm", "lm_head")
        heads = [name for name in names if name.endswith((*others, "transformer.ff_out"))]
        spread = dict.fromkeys([*heads, *leaves], "cpu") | {leaves[1]: "disk"}
        offloaded = type(model).from_pretrained(
            tmp_path, dtype=torch.float32, device_map=spread, offload_folder=tmp_path / "off"
        )
        assert next(offloaded.get_submodule(leaves[1]).parameters()).device.type == "meta"
        assert torch.equal(offloaded.eval()(ids), expected)


@pytest.mark.parametrize("family", ["llada2_moe", "dream"])
def test_bfloat16(small: Build, tmp_path: Path, family: str) -> None:
    model = small(family)
    model.save_pretrained(tmp_path)
    loaded = load_model(str(tmp_path), dtype="bfloat16")
    for name, tensor in loaded.state_dict().items():
        kept = name.endswith("expert_bias")
        assert tensor.dtype == (torch.float32 if kept else torch.bfloat16), name
        assert torch.equal(tensor, model.state_dict()[name].to(tensor.dtype)), name
    loaded.save_pretrained(tmp_path / "again")
    stored = load_file(tmp_path / "again" / "model.safetensors")
    assert {key for key in stored if stored[key].dtype == torch.float32} == {
        key for key in stored if key.endswith("expert_bias")
    }
