"""Every rule against the code of its authors, token for token, on a tiny checkpoint.

``forward_calls`` of the fixtures is what the original spent; ours never spends more.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from dare.models.loading import load_model
from dare.sampling.config import SamplerConfig
from dare.sampling.decode import SpecialTokens, generate

RENAMED = {"boost_gamma": "credit_gamma", "decay_beta": "credit_decay"}
PLAIN = {
    "fast_dllm_factor": "factor",
    "dinfer_threshold": "dinfer_threshold",
    "dinfer_credit": "dinfer_threshold",
    "dinfer_hierarchy": "hierarchy",
    "saber": "saber",
}
SHARED = ("gen_length", "block_length", "steps", "temperature", "remasking")


def rule_of(algorithm: str, settings: dict[str, Any]) -> dict[str, Any] | None:
    """The selection that a fixture's settings describe; None for LLaDA's own schedule."""
    rejection = {"g_min": settings.get("eos_min_gamma"), "g_max": settings.get("eos_max_gamma")}
    own: dict[str, Any] = {
        RENAMED.get(key, key): settings[key] for key in settings if key not in (*SHARED, "eos_id")
    }
    if algorithm.endswith("_cache"):
        limit = own["threshold"]
        return None if limit is None else {"rule": "threshold", "threshold": limit}
    if algorithm in PLAIN:
        return {"rule": PLAIN[algorithm], **own}
    if algorithm in ("eoser", "ass", "eoser_ass"):
        rule: dict[str, Any] = (
            {"rule": "schedule"} if algorithm == "eoser" else {"rule": "ascending"}
        )
        rule |= {} if algorithm == "eoser" else {"num_blocks": own["block_num"]}
        return rule if algorithm == "ass" else rule | {"eos_rejection": rejection}
    if algorithm == "klass":
        limits = {key: own[key] for key in ("conf_threshold", "kl_threshold")}
        return {"rule": "klass", "history": own["kl_history_length"], **limits}
    return {"rule": "maskgit", "gamma": own["mode"], "running_confidence": own["rcr"]}


def config_of(run: dict[str, Any]) -> SamplerConfig:
    settings = {**run["settings"]}
    settings.pop("eos_id", None)
    shared = {key: settings[key] for key in SHARED if key in settings}
    shared.setdefault("block_length", settings["gen_length"])
    rule = rule_of(run["algorithm"], settings)
    cache = {"fast_dllm_prefix_cache": "prefix", "fast_dllm_dual_cache": "dual"}
    selection = {} if rule is None else {"selection": rule}
    return SamplerConfig(**shared, cache=cache.get(run["algorithm"], "none"), **selection)


NAMES = [
    "fast_no_cache_steps", "fast_no_cache_threshold", "fast_prefix_cache_steps",
    "fast_prefix_cache_threshold", "fast_dual_cache_steps", "fast_dual_cache_threshold", "factor",
    "dinfer_threshold", "dinfer_credit", "dinfer_hierarchy", "eoser", "ass", "eoser_ass",
    "maskgit_cosine", "rcr_linear", "klass", "saber",
]  # fmt: skip


@pytest.fixture(scope="module")
def fixture(shared_dir: Path) -> Path:
    return shared_dir / "models" / "fixtures" / "llada"


@pytest.fixture(scope="module")
def model(fixture: Path) -> torch.nn.Module:
    return load_model(str(fixture))


@pytest.fixture(scope="module")
def runs(fixture: Path) -> dict[str, dict[str, Any]]:
    found = json.loads((fixture / "generation.json").read_text())["generations"]
    return {run["name"]: run for run in found}


@pytest.mark.parametrize("name", NAMES)
def test_same_tokens_as_the_authors_code(
    model: torch.nn.Module, runs: dict[str, dict[str, Any]], name: str
) -> None:
    run = runs[name]
    special = SpecialTokens(mask=431, eos=run["settings"].get("eos_id", 427), eot=424, pad=427)
    out = generate(model, run["prompt_ids"], config_of(run), special=special)
    width = len(run["prompt_ids"][0])
    assert out.tokens.tolist() == [row[width:] for row in run["output_ids"]]
    assert out.finished.all()
    assert int(out.nfe[0]) <= run["forward_calls"]


def test_no_unseeded_run_is_left_out(runs: dict[str, dict[str, Any]]) -> None:
    """Those of LLaDA's own sampler are in test_llada_generate_official.py; the seeded runs hang
    on the order of torch's draws, their distribution is tested in test_decode_loop.py."""
    others = {name for name, run in runs.items() if run["algorithm"] != "llada_generate"}
    assert others == set(NAMES)
    assert all("torch_manual_seed" not in runs[name] for name in NAMES)
