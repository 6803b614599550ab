"""What is known of a family and of a checkpoint.  Data; imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dare.errors import UsageProblem
from dare.models.shape import Naming, Shape

LISTING = "dare models"
NOT_STATED = "not stated"
BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


@dataclass(frozen=True, slots=True)
class Family:
    """What the released checkpoints of a family have in common.

    Token ids, None where no public number is known; ``eot_token`` ends a turn; ``mask_tokens``
    are the spellings of the mask; ``block_length`` None: bidirectional.  ``sampler`` names the
    preset of the family's own decoding.
    """

    name: str
    mask_token_id: int
    eos_token_id: int
    pad_token_id: int
    eot_token_id: int | None
    eot_token: str
    mask_tokens: tuple[str, ...]
    block_length: int | None
    sampler: str
    naming: Naming


FAMILIES = {
    family.name: family
    for family in (
        Family(
            "llada", 126336, 126081, 126081, 126348, "<|eot_id|>", ("<|mdm_mask|>",),
            None, "llada", "llada",
        ),
        # The id of its end of turn is in no public file that we read: the tokenizer knows it.
        Family(
            "llada_moe", 156895, 156892, 156892, None, "<|role_end|>", ("<|mask|>",),
            None, "llada", "separate",
        ),
        Family(
            "dream", 151666, 151643, 151643, 151645, "<|im_end|>", ("<|mask|>",),
            None, "dream", "separate",
        ),
        Family(
            "sdar", 151669, 151643, 151643, 151645, "<|im_end|>", ("<|MASK|>", "<MASK>"),
            4, "sdar", "separate",
        ),
        Family(
            "sdar_moe", 151669, 151643, 151643, 151645, "<|im_end|>", ("<|MASK|>", "<MASK>"),
            4, "sdar", "separate",
        ),
        Family(
            "llada2_moe", 156895, 156892, 156892, None, "<|role_end|>", ("<|mask|>",),
            32, "llada2", "fused",
        ),
    )
}  # fmt: skip

# Class names without "ModelLM", "ForCausalLM" or "Model", in lower case.
_BY_CLASS = {
    "llada": "llada", "lladamoe": "llada_moe", "dream": "dream", "sdar": "sdar",
    "sdarmoe": "sdar_moe", "llada2moe": "llada2_moe",
}  # fmt: skip
_BY_TYPE = {
    "llada": "llada", "lladamoe": "llada_moe", "llada_moe": "llada_moe", "dream": "dream",
    "sdar": "sdar", "sdar_moe": "sdar_moe", "llada2_moe": "llada2_moe",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One checkpoint.

    ``repo_id`` None: embedded or a local folder.  ``revision`` None: not pinned, since no public
    file attests one well enough; the Hub's current commit is taken.  ``evidence`` says how well
    the revision is attested.  ``bytes``: size of the weight files, or of the tensors in them,
    whichever is known; 0 where neither is.  ``float32_parameters`` are stored in float32 whatever
    ``dtype`` says.  Token ids are None where unknown; ``block_length`` None: bidirectional.
    ``chat``: whether it was tuned on turns; None: not known.  ``protocol`` is the one under which
    its published numbers were measured.
    """

    name: str
    family: str
    shape: Shape
    bytes: int
    dtype: str
    licence: str
    mask_token_id: int | None
    eos_token_id: int | None
    repo_id: str | None = None
    revision: str | None = None
    evidence: str = ""
    aliases: tuple[str, ...] = ()
    note: str = ""
    pad_token_id: int | None = None
    eot_token_id: int | None = None
    block_length: int | None = None
    sampler: str = NOT_STATED
    protocol: str = NOT_STATED
    chat: bool | None = None
    float32_parameters: int = 0

    @property
    def parameters(self) -> int:
        return self.shape.parameters

    @property
    def tensor_bytes(self) -> int:
        """Bytes of all tensors as they are stored, without file headers."""
        number = BYTES.get(self.dtype.removeprefix("torch."))
        if number is None:
            return self.bytes
        return number * self.parameters + (4 - number) * self.float32_parameters


def family_of(config: Mapping[str, Any], source: str = "this") -> str:
    """The family of a checkpoint by its ``config.json``; ``source`` is what an error calls it.

    ``architectures`` decide, since LLaDA-MoE announces the model_type of the dense LLaDA; without
    them model_type and the presence of experts do.  Raises ``UsageProblem``, saying what was
    found, for anything else, also for an unknown class with a known model_type.
    """
    declared = config.get("architectures")
    classes = [str(each) for each in declared] if isinstance(declared, list | tuple) else []
    for name in classes:
        family = _BY_CLASS.get(_stem(name))
        if family is not None:
            return _mixture(family, config)
    kind = str(config.get("model_type") or "")
    family = _BY_TYPE.get(kind.lower())
    if classes or family is None:
        found = f"architectures {', '.join(classes) or 'absent'}, model_type {kind or 'absent'}"
        raise UsageProblem(
            f"{source} is not a diffusion language model that dare can load",
            f"config.json has {found}; supported families: {', '.join(FAMILIES)}",
            LISTING,
        )
    return _mixture(family, config)


def _mixture(family: str, config: Mapping[str, Any]) -> str:
    """A LLaDA with experts is a LLaDA-MoE, whatever it calls itself."""
    return "llada_moe" if family == "llada" and config.get("num_experts") else family


def _stem(class_name: str) -> str:
    plain = class_name.lower().replace("_", "")
    for ending in ("forcausallm", "modellm", "model"):
        if plain.endswith(ending):
            return plain.removesuffix(ending)
    return plain
