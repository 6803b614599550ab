"""The shape and the vocabulary of the embedded models.

``tiny-llada`` is the dense LLaDA family at laptop size: the same modelling code, the same
conventions, LLaDA's special tokens, and a vocabulary cut down to the characters that the
embedded tasks need.
"""

from __future__ import annotations

from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from tokenizers.decoders import Fuse
from transformers import PreTrainedTokenizerFast

from dare.models.llada import LladaConfig

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


def tiny_llada_config() -> LladaConfig:
    """148 k parameters: width 64, 3 layers, 4 heads, tied embedding."""
    return LladaConfig(
        vocab_size=len(VOCABULARY),
        d_model=64,
        n_layers=3,
        n_heads=4,
        mlp_hidden_size=168,
        max_sequence_length=128,
        rope_theta=10_000.0,
        rms_norm_eps=1e-6,
        weight_tying=True,
        mask_token_id=VOCABULARY["<|mdm_mask|>"],
        eos_token_id=VOCABULARY["<|endoftext|>"],
        pad_token_id=VOCABULARY["<|endoftext|>"],
        eot_token_id=VOCABULARY["<|eot_id|>"],
    )
