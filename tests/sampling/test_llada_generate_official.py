"""LLaDA's sampler against the official one, token for token, on tiny checkpoints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from dare.models.loading import load_model
from dare.sampling import decode
from dare.sampling.config import SamplerConfig
from dare.sampling.decode import SpecialTokens, generate
from dare.sampling.selection import schedule

RUNS = [
    "single_block",
    "semi_ar",
    "uneven_schedule",
    "cfg",
    "left_padded_batch",
    "logits_eos_inf",
    "confidence_eos_eot_inf",
]


@pytest.fixture(scope="module", params=["llada", "llada_moe"])
def fixture(request: pytest.FixtureRequest, shared_dir: Path) -> Path:
    return shared_dir / "models" / "fixtures" / str(request.param)


@pytest.fixture(scope="module")
def model(fixture: Path) -> torch.nn.Module:
    return load_model(str(fixture))


def the_run(fixture: Path, name: str) -> dict[str, Any]:
    runs = json.loads((fixture / "generation.json").read_text())["generations"]
    return next(run for run in runs if run["name"] == name)


def ties_of_topk(confidence: torch.Tensor, count: int) -> torch.Tensor:
    """What the original takes for one row whose prompt has 7 tokens, exact ties included."""
    canvas = torch.nn.functional.pad(confidence[0], (7, 0), value=-torch.inf)
    taken = torch.zeros_like(canvas, dtype=torch.bool)
    taken[canvas.topk(count).indices] = True
    return taken[None, 7:]


@pytest.mark.parametrize("name", RUNS)
def test_same_tokens_as_the_official_sampler(
    model: torch.nn.Module, fixture: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = the_run(fixture, name)
    if (fixture.name, name) == ("llada_moe", "confidence_eos_eot_inf"):
        # All candidates of the first steps are EOS, each at confidence 0.  torch.topk takes one
        # that hangs on the width of the canvas and the device; ours is the rightmost, so that
        # the answer is not over before it began.  All else is the original's.
        monkeypatch.setattr(decode, "_later_ends_first", lambda confidence: confidence)
        monkeypatch.setattr(schedule, "top_positions", ties_of_topk)
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


def test_no_unseeded_run_is_left_out(fixture: Path) -> None:
    """Seeded runs hang on the order of torch's draws; test_decode_loop.py and test_rule_edges.py
    test the distributions instead."""
    runs = json.loads((fixture / "generation.json").read_text())["generations"]
    official = [run for run in runs if run["algorithm"] == "llada_generate"]
    assert [run["name"] for run in official if "torch_manual_seed" not in run] == RUNS
    assert [run["name"] for run in official if "torch_manual_seed" in run] == [
        "gumbel_seeded", "random_remasking_seeded",
    ]  # fmt: skip
