"""LLaDA's sampler against the official one, token for token, on a tiny checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from dare.models.loading import load_model
from dare.sampling.config import SamplerConfig
from dare.sampling.decode import SpecialTokens, generate

RUNS = [
    "single_block",
    "semi_ar",
    "uneven_schedule",
    "cfg",
    "left_padded_batch",
    "logits_eos_inf",
    "confidence_eos_eot_inf",
]


@pytest.fixture(scope="module")
def fixture(shared_dir: Path) -> Path:
    return shared_dir / "models" / "fixtures" / "llada"


@pytest.fixture(scope="module")
def model(fixture: Path) -> torch.nn.Module:
    return load_model(str(fixture))


def the_run(fixture: Path, name: str) -> dict[str, Any]:
    runs = json.loads((fixture / "generation.json").read_text())["generations"]
    return next(run for run in runs if run["name"] == name)


@pytest.mark.parametrize("name", RUNS)
def test_same_tokens_as_the_official_sampler(
    model: torch.nn.Module, fixture: Path, name: str
) -> None:
    run = the_run(fixture, name)
    settings = dict(run["settings"])
    eos, eot = settings.pop("eos_id", 427), settings.pop("eot_id", 424)
    special = SpecialTokens(mask=431, eos=eos, eot=eot, pad=427)
    masks = run.get("attention_mask") or [[1] * len(row) for row in run["prompt_ids"]]
    prompts = [
        [token for token, real in zip(row, mask, strict=True) if real]
        for row, mask in zip(run["prompt_ids"], masks, strict=True)
    ]
    out = generate(model, prompts, SamplerConfig(**settings), special=special)
    width = len(run["prompt_ids"][0])
    assert out.tokens.tolist() == [row[width:] for row in run["output_ids"]]
    assert out.finished.all()
    doubled = 2 if settings["cfg_scale"] > 0 else 1
    assert int(out.nfe[0]) <= run["forward_calls"] * doubled
