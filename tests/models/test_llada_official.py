"""The native LLaDA against numbers that the official code produced on a tiny checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from dare.models.loading import load_model


@pytest.fixture(scope="module")
def fixture(shared_dir: Path) -> Path:
    return shared_dir / "models" / "fixtures" / "llada"


@pytest.fixture(scope="module")
def model(fixture: Path) -> torch.nn.Module:
    return load_model(str(fixture))


@pytest.mark.parametrize("case", ["plain", "left_padded", "right_padded"])
def test_logits_equal_the_official_ones(model: torch.nn.Module, fixture: Path, case: str) -> None:
    arrays = np.load(fixture / "forward.npz")
    ids = torch.from_numpy(arrays[f"{case}/input_ids"]).long()
    mask = arrays.get(f"{case}/attention_mask")
    valid = arrays[f"{case}/valid"].astype(bool)
    with torch.no_grad():
        logits = model(ids, None if mask is None else torch.from_numpy(mask)).numpy()
    assert valid.sum() > 10
    assert np.abs(logits - arrays[f"{case}/logits"])[valid].max() < 1e-4


def test_released_files_survive_a_round_trip(
    model: torch.nn.Module, fixture: Path, tmp_path: Path
) -> None:
    from safetensors.torch import load_file

    model.save_pretrained(tmp_path)
    official = load_file(fixture / "model.safetensors")
    saved = load_file(tmp_path / "model.safetensors")
    assert saved.keys() == official.keys()
    assert all(torch.equal(saved[name], official[name].float()) for name in official)
    config, original = (
        json.loads((folder / "config.json").read_text()) for folder in (tmp_path, fixture)
    )
    for key in ("d_model", "n_heads", "mask_token_id", "init_fn", "precision", "block_type"):
        assert config[key] == original[key], key
