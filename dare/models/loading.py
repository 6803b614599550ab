"""Models and tokenizers by name, hub id or folder, always through our own classes.

    model = load_model("tiny-llada")
    tokenizer = load_tokenizer("tiny-llada")

No remote code is ever run: ``auto_map`` in a checkpoint's config is ignored.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers.utils import logging as transformers_logging

from dare.errors import Missing, UsageProblem, unknown_name
from dare.models import registry
from dare.models.base import DiffusionLM
from dare.models.checkpoint import check_tensors
from dare.models.describe import read_config
from dare.models.facts import Checkpoint
from dare.models.families import FAMILIES
from dare.models.tokens import encode_prompt, load_tokenizer

__all__ = ["FAMILIES", "checkpoint_folder", "encode_prompt", "load_model", "load_tokenizer"]

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
ATTENTION = ("sdpa", "flex_attention")
SPECIAL_IDS = ("mask_token_id", "eos_token_id", "pad_token_id", "eot_token_id")

transformers_logging.disable_progress_bar()


def checkpoint_folder(name: str) -> Path:
    """The local folder of a checkpoint; ``Missing`` says how to get it."""
    return registry.require(name)


def load_model(
    name: str,
    dtype: str = "float32",
    device: str = "cpu",
    in_4bit: bool = False,
    *,
    device_map: str | dict[str, Any] | None = None,
    attention: str = "sdpa",
) -> DiffusionLM:
    """The checkpoint ``name`` in evaluation mode.

    ``device_map`` spreads the layers over devices as accelerate does and replaces ``device``.
    ``in_4bit`` quantises the linear layers to nf4 with doubly quantised scales and bfloat16
    arithmetic, as QLoRA does; it needs a GPU and the package bitsandbytes.  ``attention`` "sdpa"
    or "flex_attention".  Special token ids and the block length, where the checkpoint does not
    say them, are the registry's.

    Raises ``Missing`` when its weights are not here and ``UsageProblem`` for a family or a
    configuration that is not supported and for a folder that is not a checkpoint, or lacks
    tensors, or holds others.
    """
    if attention not in ATTENTION:
        raise unknown_name("attention", attention, ATTENTION, "use sdpa")
    folder = checkpoint_folder(name)
    model_class = FAMILIES[registry.family_of(read_config(folder), name)]
    try:
        config = model_class.config_class.from_pretrained(folder, attn_implementation=attention)
    except (ValueError, TypeError) as error:
        raise UsageProblem(
            f"'{name}' has a configuration that dare cannot run", str(error), registry.LISTING
        ) from error
    check_tensors(folder, model_class, config)
    _fill_in(config, registry.describe(name))
    settings: dict[str, Any] = {"config": config, "dtype": DTYPES[dtype]}
    if in_4bit:
        settings["quantization_config"] = _nf4()
    if device_map is not None or in_4bit:
        settings["device_map"] = {"": device} if device_map is None else device_map
        return model_class.from_pretrained(folder, **settings).eval()
    return model_class.from_pretrained(folder, **settings).to(device).eval()


def _fill_in(config: Any, facts: Checkpoint) -> None:
    """Put what the registry knows where the configuration is silent."""
    for key in SPECIAL_IDS:
        if getattr(config, key, None) is None:
            setattr(config, key, getattr(facts, key))
    if config.block_length is not None and facts.block_length is not None:
        config.block_length = facts.block_length


def _nf4() -> Any:
    from importlib.util import find_spec

    from transformers import BitsAndBytesConfig

    if find_spec("bitsandbytes") is None:
        raise Missing(
            "4-bit weights were asked for", "the package bitsandbytes is not installed",
            "pip install bitsandbytes, or --set model.load_in_4bit=false",
        )  # fmt: skip
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    )
