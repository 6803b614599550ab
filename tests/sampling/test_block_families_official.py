"""Dream, SDAR and LLaDA2.x against the code of their authors, token for token.

``forward_calls`` of the fixtures is what the original spent; ours never spends more, with the
block cache or without.  A stopped run of the original leaves masks, where ours has EOS.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from dare.models.loading import load_model
from dare.sampling.config import SamplerConfig
from dare.sampling.decode import Generation, SpecialTokens, generate

MASK, EOS = 431, 427
REMASKING = {"maskgit_plus": "low_confidence", "topk_margin": "margin", "entropy": "entropy"}

DREAM = [
    "maskgit_plus", "topk_margin", "entropy", "entropy_one_per_step", "left_padded_batch",
    "fast_prefix_threshold", "fast_prefix_entropy", "fast_dual_threshold", "fast_dual_entropy",
]  # fmt: skip
SDAR = [
    "static_p12_b4", "dynamic_p12_b4", "static_p12_b8", "dynamic_p12_b8", "static_p9_b4",
    "dynamic_p9_b4", "dynamic_p9_b8", "stop_token", "sequential",
]  # fmt: skip
LLADA20 = [
    "p16_b8_t0.95", "p16_b8_t0.4", "p16_b4_t0.4", "p5_b8_t0.95", "p5_b8_t0.4", "p5_b4_t0.4",
    "early_stop",
]  # fmt: skip
LLADA21 = [
    "p16_b8_t0.95_e0.9", "p16_b8_t0.4_e0.9", "p16_b8_t0.4_e0.2", "p16_b4_t0.4_e0.0",
    "p5_b8_t0.4_e0.2", "p5_b4_t0.4_e0.0", "early_stop",
]  # fmt: skip
BLOCK_CAUSAL = [
    *(("sdar", name) for name in SDAR),
    *(("sdar_moe", name) for name in SDAR),
    *(("llada20", name) for name in LLADA20),
    *(("llada21", name) for name in LLADA21),
]


@pytest.fixture(scope="module")
def load(shared_dir: Path) -> Any:
    """A family's tiny checkpoint and its runs by name."""

    @functools.cache
    def of(family: str) -> tuple[torch.nn.Module, dict[str, Any]]:
        folder = shared_dir / "models" / "fixtures" / family
        runs = json.loads((folder / "generation.json").read_text())["generations"]
        return load_model(str(folder)), {run["name"]: run for run in runs}

    return of


def dream_config(run: dict[str, Any]) -> SamplerConfig:
    settings = run["settings"]
    length, rule = settings["max_new_tokens"], settings["alg"]
    selection = {"rule": "dream", "eps": settings.get("eps", 1e-3)}
    if rule == "confidence_threshold":
        selection = {"rule": "threshold", "threshold": settings["threshold"]}
    cache = {None: "none", False: "prefix", True: "dual"}[settings.get("dual_cache")]
    return SamplerConfig(
        gen_length=length,
        steps=settings["steps"],
        block_length=settings.get("block_length", length),
        remasking=REMASKING.get(rule, "low_confidence"),
        confidence_from="filtered",
        selection=selection,
        cache=cache,
    )


def block_config(run: dict[str, Any], cache: str) -> SamplerConfig:
    settings, algorithm = run["settings"], run["algorithm"]
    length, block = settings["gen_length"], settings["block_length"]
    steps = settings.get("denoising_steps", settings.get("steps", block))
    selection = {"rule": "dynamic", "threshold": settings.get("threshold")}
    stop = "block" if settings.get("stop_ids") else "never"
    if algorithm == "sdar_generate_py":
        selection = {"rule": settings["remasking_strategy"]}
    elif algorithm == "llada20_generate":  # it stops after a block with EOS in any case
        stop = "token" if settings["eos_early_stop"] else "block"
    elif algorithm == "llada21_generate":
        keys = ("threshold", "editing_threshold", "num_to_transfer", "max_post_steps")
        selection = {"rule": "edit", **{key: settings[key] for key in keys}}
        stop = "block" if settings["eos_early_stop"] else "never"
    return SamplerConfig(
        gen_length=length,
        steps=steps * -(-length // block),
        block_length=block,
        block_origin="sequence",
        filters="top_k_first",
        selection=selection,
        cache=cache,
        eos_stop=stop,
    )


def run_ours(model: torch.nn.Module, run: dict[str, Any], config: SamplerConfig) -> Generation:
    stop = tuple(run["settings"].get("stop_ids", ()))
    special = SpecialTokens(MASK, run["settings"].get("eos_id", EOS), pad=EOS, stop=stop)
    real = run.get("attention_mask") or [[1] * len(row) for row in run["prompt_ids"]]
    prompts = [
        [token for token, keep in zip(row, mask, strict=True) if keep]
        for row, mask in zip(run["prompt_ids"], real, strict=True)
    ]
    return generate(model, prompts, config, special=special)


@pytest.mark.parametrize("name", DREAM)
def test_dream(load: Any, name: str) -> None:
    model, runs = load("dream")
    run = runs[name]
    out = run_ours(model, run, dream_config(run))
    width = len(run["prompt_ids"][0])
    assert out.tokens.tolist() == [row[width:] for row in run["output_ids"]]
    assert out.finished.all()
    # In `entropy_one_per_step` the first step of the grid reveals nothing: no forward for it.
    saved = 1 if name == "entropy_one_per_step" else 0
    assert out.nfe.tolist() == [run["forward_calls"] - saved] * len(out.nfe)


@pytest.mark.parametrize("cache", ["none", "block"])
@pytest.mark.parametrize(("family", "name"), BLOCK_CAUSAL)
def test_block_causal_families(load: Any, family: str, name: str, cache: str) -> None:
    model, runs = load(family)
    run = runs[name]
    out = run_ours(model, run, block_config(run, cache))
    width, length = len(run["prompt_ids"][0]), run["settings"]["gen_length"]
    # LLaDA2.x returns the answer up to EOS; a canvas may be longer than what was asked for.
    answer = run["output_ids"][0][width : width + length]
    ours = out.tokens[0, : len(answer)].tolist()
    written = [index for index, token in enumerate(answer) if token != MASK]
    assert [ours[index] for index in written] == [answer[index] for index in written]
    rest = [index for index in range(length) if index not in written]
    eos = run["settings"].get("eos_id", EOS)
    if name == "stop_token":
        assert rest
        assert {int(out.tokens[0, index]) for index in rest} == {eos}
    assert out.finished.all()
    spared = 0
    if family.startswith("sdar"):  # the prefill, and one forward to store each finished block
        block, canvas = run["settings"]["block_length"], [*run["output_ids"][0], MASK]
        spared = 1 + canvas.index(MASK) // block - width // block
    assert int(out.nfe[0]) == run["forward_calls"] - spared
