"""The shapes and the vocabulary of the embedded models.

One model per attention layout and block type: the families' own modelling code and conventions
at laptop size, with LLaDA's special tokens and a vocabulary cut down to the characters that the
embedded tasks need.  All share one tokenizer, so one prompt is the same tokens for each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from tokenizers.decoders import Fuse
from transformers import PreTrainedTokenizerFast

from dare.errors import unknown_name
from dare.models.base import DiffusionLM
from dare.models.dream import DreamConfig, DreamModel
from dare.models.llada import LLaDAConfig, LLaDAModelLM
from dare.models.llada2_moe import LLaDA2MoeConfig, LLaDA2MoeModelLM
from dare.models.sdar import SDARConfig, SDARForCausalLM

SPECIAL = (
    "<|startoftext|>",
    "<|endoftext|>",
    "<|mdm_mask|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
    "<|unk|>",
)
CHARACTERS = "0123456789+-*/()=,. \n"
VOCABULARY = {token: index for index, token in enumerate((*SPECIAL, *CHARACTERS))}
IDS = {
    "mask_token_id": VOCABULARY["<|mdm_mask|>"],
    "eos_token_id": VOCABULARY["<|endoftext|>"],
    "pad_token_id": VOCABULARY["<|endoftext|>"],
    "eot_token_id": VOCABULARY["<|eot_id|>"],
}
# What the families in Hugging Face's names have in common here.
_SIZE: dict[str, Any] = {
    "vocab_size": len(VOCABULARY),
    "hidden_size": 64,
    "intermediate_size": 168,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 128,
    "rope_theta": 10_000.0,
    "rms_norm_eps": 1e-6,
}


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """One token per character; a character outside the vocabulary becomes ``<|unk|>``."""
    tokenizer = Tokenizer(models.WordLevel(VOCABULARY, unk_token="<|unk|>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<|startoftext|>",
        eos_token="<|endoftext|>",
        pad_token="<|endoftext|>",
        mask_token="<|mdm_mask|>",
        unk_token="<|unk|>",
        additional_special_tokens=["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
        clean_up_tokenization_spaces=False,
        model_max_length=128,
    )


def tiny_model(name: str) -> DiffusionLM:
    """The embedded model ``name`` with transformers' initial weights.

    Raises ``UsageProblem`` with the nearest name for any other.
    """
    makers: dict[str, Callable[[], DiffusionLM]] = {
        "tiny-llada": lambda: LLaDAModelLM(tiny_llada_config()),
        "tiny-dream": lambda: DreamModel(DreamConfig(**_SIZE, **IDS, num_hidden_layers=3)),
        "tiny-sdar": lambda: SDARForCausalLM(
            SDARConfig(**_SIZE, **IDS, num_hidden_layers=4, block_size=4)
        ),
        "tiny-llada2": lambda: LLaDA2MoeModelLM(tiny_llada2_config()),
    }
    if name not in makers:
        raise unknown_name("embedded model", name, makers, "dare models")
    return makers[name]()


def tiny_llada_config() -> LLaDAConfig:
    """148 k parameters: width 64, 3 layers, 4 heads, tied embedding."""
    return LLaDAConfig(
        vocab_size=len(VOCABULARY),
        d_model=64,
        n_layers=3,
        n_heads=4,
        mlp_hidden_size=168,
        max_sequence_length=128,
        rope_theta=10_000.0,
        rms_norm_eps=1e-6,
        weight_tying=True,
        **IDS,
    )


def tiny_llada2_config() -> LLaDA2MoeConfig:
    """A dense layer and mixtures of 8 experts in 4 groups, of which a token uses 2; one shared."""
    return LLaDA2MoeConfig(
        **_SIZE,
        **IDS,
        num_hidden_layers=4,
        first_k_dense_replace=1,
        num_experts=8,
        num_experts_per_tok=2,
        num_shared_experts=1,
        n_group=4,
        topk_group=2,
        moe_intermediate_size=64,
        routed_scaling_factor=2.5,
        partial_rotary_factor=0.5,
        block_length=8,
        # What the released files say too; nothing here depends on it.
        score_function="sigmoid",
        use_qk_norm=True,
        moe_router_enable_expert_bias=True,
    )
