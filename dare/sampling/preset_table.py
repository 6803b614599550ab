"""The settings of the named samplers, as data.  Imports nothing."""

from __future__ import annotations

from typing import Any, Literal

# Title and arXiv id.
PAPERS = {
    "llada": ("Large Language Diffusion Models", "2502.09992"),
    "margin": (
        "Train for the Worst, Plan for the Best: Understanding Token Ordering in Masked Diffusions",
        "2502.06768",
    ),
    "dream": ("Dream 7B: Diffusion Large Language Models", "2508.15487"),
    "sdar": (
        "SDAR: A Synergistic Diffusion-AutoRegression Paradigm for Scalable Sequence Generation",
        "2510.06303",
    ),
    "llada2.0": (
        "LLaDA2.0: Scaling Up Diffusion Language Models to 100B",
        "2512.15745",
    ),
    "llada2.1": ("LLaDA2.1: Speeding Up Text Diffusion via Token Editing", "2602.08676"),
    "fast-dllm": (
        "Fast-dLLM: Training-free Acceleration of Diffusion LLM by Enabling KV Cache and "
        "Parallel Decoding",
        "2505.22618",
    ),
    "dinfer": (
        "dInfer: An Efficient Inference Framework for Diffusion Language Models",
        "2510.08666",
    ),
    "eoser": (
        "Taming Masked Diffusion Language Models via Consistency Trajectory Reinforcement "
        "Learning with Fewer Decoding Step",
        "2509.23924",
    ),
    "maskgit": ("MaskGIT: Masked Generative Image Transformer", "2202.04200"),
    "mdpo": (
        "MDPO: Overcoming the Training-Inference Divide of Masked Diffusion Language Models",
        "2508.13148",
    ),
    "klass": ("KLASS: KL-Guided Fast Inference in Masked Diffusion Models", "2511.05664"),
    "entropy-bound": (
        "Accelerated Sampling from Masked Diffusion Models via Entropy Bounded Unmasking",
        "2505.24857",
    ),
    "saber": (
        "Saber: An Efficient Sampling with Adaptive Acceleration and Backtracking Enhanced "
        "Remasking for Diffusion Language Model",
        "2510.18165",
    ),
}

_ORDER = "fixes positions in another order than the reference"
_PARALLEL = "fixes several positions from one forward, as if they were independent"
_STALE = "keys and values outside the block go stale as soon as a token is fixed"
_FEWER = "fixes more positions per step than the reference"
_REVISE = "masks fixed positions again"

# What departs from the official sampler of the family, and thereby from its tokens.
APPROXIMATE = {
    "margin": _ORDER,
    "fast-dllm": _PARALLEL,
    "fast-dllm-factor": _PARALLEL,
    "fast-dllm-prefix": f"{_PARALLEL}; {_STALE}",
    "fast-dllm-dual": f"{_PARALLEL}; {_STALE}",
    "prefix-cache": _STALE,
    "dual-cache": _STALE,
    "fast-dllm-dream": f"{_PARALLEL}; {_STALE}",
    "fast-dllm-dream-dual": f"{_PARALLEL}; {_STALE}",
    "dinfer-threshold": _PARALLEL,
    "dinfer-credit": f"{_PARALLEL}; logits are shifted towards earlier favourites",
    "dinfer-hierarchy": _PARALLEL,
    "eoser": f"{_FEWER}; an early EOS ranks lower",
    "ass": _FEWER,
    "eoser-ass": f"{_FEWER}; an early EOS ranks lower",
    "maskgit": _FEWER,
    "rcr": f"{_FEWER}; {_REVISE}",
    "klass": _PARALLEL,
    "klass-dream": _PARALLEL,
    "entropy-bound": _PARALLEL,
    "saber": f"{_PARALLEL}; {_REVISE}",
}

_Kind = Literal["bidirectional", "block-causal"]
_BI: _Kind = "bidirectional"
_CAUSAL: _Kind = "block-causal"
_BLOCKS: dict[str, Any] = {
    "block_origin": "sequence", "cache": "block", "eos_stop": "block", "filters": "top_k_first",
}  # fmt: skip
_DREAM: dict[str, Any] = {"selection": {"rule": "dream"}, "confidence_from": "filtered"}
_THRESHOLD: dict[str, Any] = {"selection": {"rule": "threshold", "threshold": 0.9}}
_ASCENDING: dict[str, Any] = {"rule": "ascending"}
_EARLY_EOS = {"g_min": 0.4, "g_max": 1.0}
_DINFER_SCRIPT = "dInfer's GSM8K script, without its vicinity cache and smoothing"
_MDPO = "lengths and steps from MDPO's MATH-500 evaluation (512 tokens, block 128, 128 steps)"

# name: (what, kind, paper, source of the settings, block length or None for one block,
#        positions per step or None where the rule decides, other settings)
SETTINGS: dict[str, tuple[str, _Kind, str, str, int | None, int | None, dict[str, Any]]] = {
    "llada": (
        "one token a step, the surest",
        _BI, "llada", "LLaDA's evaluation of the base model: steps = block = length",
        None, 1, {},
    ),
    "llada-semi-ar": (
        "llada, block by block",
        _BI, "llada", "LLaDA's block for MBPP; 8 for GSM8K", 32, 1, {},
    ),
    "random": (
        "one token a step, at random",
        _BI, "llada", "LLaDA's remasking 'random'", None, 1, {"remasking": "random"},
    ),
    "margin": (
        "one token a step, by margin",
        _BI, "margin", "the rule alone; LLaDA's lengths", None, 1, {"remasking": "margin"},
    ),
    "dream": (
        "time grid, lowest entropy first",
        _BI, "dream", "Dream's evaluation: one token a step, top-p 0.95, temperature 0 to 0.2",
        None, 1, {**_DREAM, "remasking": "entropy", "top_p": 0.95},
    ),
    "dream-maskgit": (
        "time grid, the surest first",
        _BI, "dream", "Dream's alg 'maskgit_plus'", None, 1, _DREAM,
    ),
    "dream-margin": (
        "time grid, by margin",
        _BI, "dream", "Dream's alg 'topk_margin'", None, 1, {**_DREAM, "remasking": "margin"},
    ),
    "dream-origin": (
        "time grid, at random",
        _BI, "dream", "Dream's alg 'origin', its default",
        None, 1, {"selection": {"rule": "origin"}},
    ),
    "sdar": (
        "all above 0.95, at least one",
        _CAUSAL, "sdar", "SDAR's evaluation code: greedy, dynamic",
        4, None, {**_BLOCKS, "selection": {"rule": "dynamic", "threshold": 0.95}},
    ),
    "sdar-sampled": (
        "all above 0.9, temperature 1",
        _CAUSAL, "sdar", "SDAR's README",
        4, None,
        {**_BLOCKS, "selection": {"rule": "dynamic", "threshold": 0.9}, "temperature": 1.0},
    ),
    "sdar-static": (
        "one of the block a step",
        _CAUSAL, "sdar", "SDAR's evaluation code: greedy, threshold 1",
        4, None, {**_BLOCKS, "selection": {"rule": "dynamic", "threshold": 1.0}},
    ),
    "sdar-sequential": (
        "one a step, from the left",
        _CAUSAL, "sdar", "SDAR's strategy 'sequential'",
        4, None, {**_BLOCKS, "selection": {"rule": "sequential"}},
    ),
    "sdar-entropy-bound": (
        "summed entropy below 0.35",
        _CAUSAL, "sdar", "SDAR's strategy 'entropy_bounded', as JetEngine computes it",
        4, None,
        {
            **_BLOCKS,
            "selection": {"rule": "entropy_bound", "form": "prefix", "bound": 0.35},
            "remasking": "entropy",
        },
    ),
    "llada2": (
        "all above 0.95, at least one",
        _CAUSAL, "llada2.0", "LLaDA2.0's model card: block 32, 32 steps, temperature 0",
        32, None, {**_BLOCKS, "selection": {"rule": "dynamic", "threshold": 0.95}},
    ),
    "llada2.1-quality": (
        "above 0.7, correct above 0.5",
        _CAUSAL, "llada2.1", "LLaDA2.1's quality mode",
        32, None,
        {**_BLOCKS, "selection": {"rule": "edit", "threshold": 0.7, "editing_threshold": 0.5}},
    ),
    "llada2.1-speed": (
        "above 0.5, correct anything",
        _CAUSAL, "llada2.1", "LLaDA2.1's speed mode",
        32, None,
        {**_BLOCKS, "selection": {"rule": "edit", "threshold": 0.5, "editing_threshold": 0.0}},
    ),
    "fast-dllm": (
        "all from 0.9 on, at least one",
        _BI, "fast-dllm", "Fast-dLLM's threshold and block", 32, None, _THRESHOLD,
    ),
    "fast-dllm-factor": (
        "limit that rises with rank",
        _BI, "fast-dllm", "Fast-dLLM's factor 1, block as for the threshold",
        32, None, {"selection": {"rule": "factor", "factor": 1.0}},
    ),
    "fast-dllm-prefix": (
        "fast-dllm, prefix cached",
        _BI, "fast-dllm", "Fast-dLLM's threshold and block",
        32, None, {**_THRESHOLD, "cache": "prefix"},
    ),
    "fast-dllm-dual": (
        "fast-dllm, all but the block cached",
        _BI, "fast-dllm", "Fast-dLLM's threshold and block",
        32, None, {**_THRESHOLD, "cache": "dual"},
    ),
    "prefix-cache": (
        "llada-semi-ar, prefix cached",
        _BI, "fast-dllm", "Fast-dLLM without a threshold", 32, 1, {"cache": "prefix"},
    ),
    "dual-cache": (
        "llada-semi-ar, all but the block cached",
        _BI, "fast-dllm", "Fast-dLLM without a threshold", 32, 1, {"cache": "dual"},
    ),
    "fast-dllm-dream": (
        "for Dream: from 0.9 on, prefix cached",
        _BI, "fast-dllm", "Fast-dLLM's Dream code: threshold and block",
        32, None, {**_THRESHOLD, "cache": "prefix", "confidence_from": "filtered"},
    ),
    "fast-dllm-dream-dual": (
        "the same, all but the block cached",
        _BI, "fast-dllm", "Fast-dLLM's Dream code: threshold and block",
        32, None, {**_THRESHOLD, "cache": "dual", "confidence_from": "filtered"},
    ),
    "dinfer-threshold": (
        "all from 0.8 on, or near the best",
        _BI, "dinfer", _DINFER_SCRIPT,
        64, None,
        {"selection": {"rule": "dinfer_threshold", "threshold": 0.8}, "eos_stop": "block"},
    ),
    "dinfer-credit": (
        "the same, credit for past leaders",
        _BI, "dinfer", f"{_DINFER_SCRIPT}; credit as its decoder's defaults",
        64, None,
        {
            "selection": {"rule": "dinfer_threshold", "threshold": 0.8, "credit_alpha": 0.7},
            "eos_stop": "block",
        },
    ),
    "dinfer-hierarchy": (
        "best of every run of masks",
        _BI, "dinfer", _DINFER_SCRIPT,
        64, None,
        {
            "selection": {"rule": "hierarchy", "threshold": 0.92, "low_threshold": 0.62},
            "eos_stop": "block",
        },
    ),
    "eoser": (
        "two a step, EOS held back",
        _BI, "eoser", "defaults of the authors' generate; half as many steps as tokens",
        None, 2, {"selection": {"rule": "schedule", "eos_rejection": _EARLY_EOS}},
    ),
    "ass": (
        "1, 2, 4, ... tokens a step",
        _BI, "eoser", "the authors' ass_generate, one block", None, None,
        {"selection": _ASCENDING},
    ),
    "eoser-ass": (
        "the same, EOS held back",
        _BI, "eoser", "the authors' evaluation script, one block",
        None, None,
        {"selection": {**_ASCENDING, "eos_rejection": {**_EARLY_EOS, "g_min": 0.01}}},
    ),
    "maskgit": (
        "few tokens at first, then many",
        _BI, "maskgit", f"MaskGIT's cosine; {_MDPO}",
        128, 4, {"selection": {"rule": "maskgit", "gamma": "cosine"}},
    ),
    "rcr": (
        "fill all, keep the surest",
        _BI, "mdpo", f"linear, top-p 0.95; {_MDPO}",
        128, 4,
        {
            "selection": {"rule": "maskgit", "gamma": "linear", "running_confidence": True},
            "top_p": 0.95,
            "confidence_from": "filtered",
        },
    ),
    "klass": (
        "sure and no longer changing",
        _BI, "klass", "KLASS for LLaDA on GSM8K; MBPP: 0.7 and 0.01",
        64, None,
        {"selection": {"rule": "klass", "conf_threshold": 0.6, "kl_threshold": 0.015}},
    ),
    "klass-dream": (
        "the same with Dream's limits",
        _BI, "klass", "KLASS for Dream on GSM8K",
        None, None,
        {"selection": {"rule": "klass", "conf_threshold": 0.9, "kl_threshold": 0.001}},
    ),
    "entropy-bound": (
        "summed entropy within 0.1",
        _BI, "entropy-bound", "gamma of about 0.1",
        None, None, {"selection": {"rule": "entropy_bound", "bound": 0.1}, "remasking": "entropy"},
    ),
    "saber": (
        "above the average so far, revise",
        _BI, "saber", "Saber's HumanEval configuration: n = 2, one block",
        None, None, {"selection": {"rule": "saber", "n": 2}},
    ),
}  # fmt: skip
