"""Checkpoint folders with small tokenizers, laid out in files as the released ones are.

Read by tests with ``runpy``.  One token per byte, then the released special tokens from ``FIRST``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())
FIRST = len(ALPHABET)  # the id of the first special token
SPECIAL = {
    "llada": [
        "<|startoftext|>", "<|endoftext|>", "<|mdm_mask|>", "<|start_header_id|>",
        "<|end_header_id|>", "<|eot_id|>",
    ],
    "dream": ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|beginoftext|>", "<|mask|>"],
    "sdar": ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<|MASK|>"],
    "llada2_moe": [
        "<|startoftext|>", "<|endoftext|>", "<|mask|>", "<role>", "</role>", "<|role_end|>",
    ],
}  # fmt: skip
ARCHITECTURES = {
    "llada": "LLaDAModelLM", "dream": "DreamModel", "sdar": "SDARForCausalLM",
    "llada2_moe": "LLaDA2MoeModelLM", "llada_moe": "LLaDAMoEModelLM",
}  # fmt: skip
DIMENSIONS = {
    "d_model": 8, "n_layers": 1, "n_heads": 2, "mlp_hidden_size": 8, "hidden_size": 8,
    "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8,
    "moe_intermediate_size": 8, "num_experts": 2, "num_experts_per_tok": 1, "vocab_size": 300,
    "first_k_dense_replace": 0, "expert_intermediate_size": 8, "dense_intermediate_size": 8,
}  # fmt: skip
REMOTE = {"auto_map": {"AutoTokenizer": ["tokenization_dream.DreamTokenizer", None]}}


def checkpoint(folder: Path, family: str, **changes: Any) -> Path:
    """A checkpoint folder without a tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    dense = {key: value for key, value in DIMENSIONS.items() if "expert" not in key}
    sizes = DIMENSIONS if family.endswith("moe") else dense
    config = {**sizes, "architectures": [ARCHITECTURES[family]], "eos_token_id": 257}
    (folder / "config.json").write_text(json.dumps(config | changes))
    (folder / "model.safetensors").write_bytes(b"")
    return folder


def token_id(family: str, token: str) -> int:
    return FIRST + SPECIAL[family].index(token)


def byte_level(family: str) -> Tokenizer:
    """One token per byte and the special tokens of ``family``."""
    vocabulary = {character: index for index, character in enumerate(ALPHABET)}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(each) for each in SPECIAL[family]])
    return tokenizer


def with_json(folder: Path, family: str, adds_bos: bool = False, **settings: Any) -> Path:
    """A checkpoint with a tokenizer.json."""
    checkpoint(folder, family)
    tokenizer = byte_level(family)
    if adds_bos:
        bos = SPECIAL[family][0]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", special_tokens=[(bos, FIRST)]
        )
    tokenizer.save(str(folder / "tokenizer.json"))
    named = {"eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(named | settings))
    return folder


def with_vocabulary(folder: Path, family: str, added: list[str], **settings: Any) -> Path:
    """A checkpoint with vocab.json, merges.txt and added_tokens.json, as Dream is released."""
    checkpoint(folder, family)
    merged = {"hi": ("h", "i"), "Ġhi": ("Ġ", "hi")}
    vocabulary = {text: index for index, text in enumerate([*ALPHABET, *merged])}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    lines = ["#version: 0.2", *(" ".join(pair) for pair in merged.values())]
    (folder / "merges.txt").write_text("\n".join(lines) + "\n")
    ids = {token: len(vocabulary) + index for index, token in enumerate(added)}
    (folder / "added_tokens.json").write_text(json.dumps(ids))
    named = {
        "tokenizer_class": "DreamTokenizer", "eos_token": "<|endoftext|>",
        "pad_token": "<|endoftext|>", "add_bos_token": False,
    }  # fmt: skip
    (folder / "tokenizer_config.json").write_text(json.dumps(named | REMOTE | settings))
    return folder
