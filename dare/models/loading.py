"""Models and tokenizers by name, hub id or folder, always through our own classes.

    model = load_model("tiny-llada")
    tokenizer = load_tokenizer("tiny-llada")

No remote code is ever run: ``auto_map`` in a checkpoint's config is ignored.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, PreTrainedTokenizerFast
from transformers.utils import logging as transformers_logging

from dare.errors import Missing, UsageProblem
from dare.models import registry
from dare.models.llada import LladaConfig, LladaModelLM

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
FAMILIES: dict[str, type[LladaModelLM]] = {"llada": LladaModelLM}

transformers_logging.disable_progress_bar()
AutoConfig.register("llada", LladaConfig, exist_ok=True)
AutoModel.register(LladaConfig, LladaModelLM, exist_ok=True)
AutoModelForCausalLM.register(LladaConfig, LladaModelLM, exist_ok=True)


def checkpoint_folder(name: str) -> Path:
    """The local folder of a checkpoint; ``Missing`` says how to get it."""
    found = registry.locate(name)
    if found is None:
        entry = registry.get(name)
        raise Missing(
            f"the weights of '{name}' are not on this machine",
            f"{entry.repo_id} is {entry.bytes / 1e9:.1f} GB and is not in the local cache",
            f"hf download {entry.repo_id} --revision {entry.revision}",
        )
    return found


def load_model(
    name: str, dtype: str = "float32", device: str = "cpu", in_4bit: bool = False
) -> nn.Module:
    """The checkpoint ``name`` in evaluation mode.

    ``in_4bit`` quantises the blocks to nf4 with doubly quantised scales and bfloat16 arithmetic,
    as QLoRA does; it needs a GPU and the package bitsandbytes.
    Raises ``Missing`` when its weights are not here and ``UsageProblem`` for a family that is
    not supported or a folder that is not a checkpoint.
    """
    folder = checkpoint_folder(name)
    family = FAMILIES.get(_read_config(folder).get("model_type", ""))
    if family is None:
        raise UsageProblem(
            f"'{name}' is not a diffusion language model that dare can load",
            f"model_type {_read_config(folder).get('model_type')!r}; supported: {sorted(FAMILIES)}",
            "dare list models",
        )
    if in_4bit:
        settings = {"quantization_config": _nf4(), "device_map": {"": device}}
        return family.from_pretrained(folder, dtype=DTYPES[dtype], **settings).eval()
    return family.from_pretrained(folder, dtype=DTYPES[dtype]).to(device).eval()


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


def load_tokenizer(name: str) -> PreTrainedTokenizerFast:
    """The tokenizer that stands beside the checkpoint."""
    return PreTrainedTokenizerFast.from_pretrained(checkpoint_folder(name))


def encode_prompt(tokenizer: PreTrainedTokenizerFast, text: str) -> list[int]:
    """Token ids of one user turn: through the chat template where the checkpoint has one."""
    if tokenizer.chat_template:
        text = tokenizer.apply_chat_template(
            [{"role": "user", "content": text}], add_generation_prompt=True, tokenize=False
        )
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    try:
        config: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UsageProblem(
            f"{folder} is not a checkpoint", f"{path.name}: {error}", "dare list models"
        ) from error
    return config
