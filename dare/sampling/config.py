"""What a sampler may vary, as one frozen record.  Imports no torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_serializer, model_validator

from dare.sampling.rules import Ascending, Schedule, Selection

# Left out of a dump while they stand at their defaults: they came after the first records, whose
# digests, and with them recorded references and board rows, stay what they are.
LATER = (
    "block_origin", "top_k", "top_p", "filters", "confidence_from", "selection", "cache",
    "eos_stop",
)  # fmt: skip


class SamplerConfig(BaseModel):
    """The reverse process, completely.

    Lengths in tokens; ``steps`` counts denoising steps over the whole completion, as in LLaDA's
    ``generate``, in equal shares per block.  A rule that looks at confidences may need fewer.

    block_origin: blocks are counted from the first token of the completion (bidirectional
        models) or of the sequence, prompt included (block-causal ones).
    temperature, top_k, top_p: of the candidates; 0 is the argmax.
    filters: which of top-p and top-k comes first; the second sees the renormalised rest.
    remasking: the score by which positions are ranked: the candidate's probability, noise, the
        margin of the two best probabilities, or negative entropy.
    confidence_from: the distribution the score is read from: the plain logits, those divided by
        the temperature, or those with top-k and top-p applied too.
    selection: the rule that decides what is committed (``dare.sampling.rules``).
    cache: none; ``prefix`` and ``dual`` are Fast-dLLM's approximations for bidirectional
        models; ``block`` keeps finished blocks of block-causal models and is exact.
    eos_stop: never; after a finished ``block`` that holds a stop token; or as soon as all
        positions up to a stop ``token`` are filled.  The rest of a stopped row is filled with
        EOS and costs nothing.
    logits_eos_inf, confidence_eos_eot_inf: LLaDA's switches against early ends.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    gen_length: int = Field(gt=0)
    steps: int = Field(gt=0)
    block_length: int = Field(gt=0)
    block_origin: Literal["completion", "sequence"] = "completion"
    temperature: float = Field(default=0.0, ge=0.0)
    top_k: int | None = Field(default=None, gt=0)
    top_p: float | None = Field(default=None, gt=0.0, le=1.0)
    filters: Literal["top_p_first", "top_k_first"] = "top_p_first"
    cfg_scale: float = Field(default=0.0, ge=0.0)
    remasking: Literal["low_confidence", "random", "margin", "entropy"] = "low_confidence"
    confidence_from: Literal["logits", "tempered", "filtered"] = "logits"
    selection: Selection = Schedule()
    cache: Literal["none", "prefix", "dual", "block"] = "none"
    eos_stop: Literal["never", "block", "token"] = "never"
    logits_eos_inf: bool = False
    confidence_eos_eot_inf: bool = False

    @model_serializer(mode="wrap")
    def _dump(self, dump: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        fields = type(self).model_fields
        unset = {name for name in LATER if getattr(self, name) == fields[name].default}
        return {name: value for name, value in dump(self).items() if name not in unset}

    @model_validator(mode="after")
    def _blocks_divide(self) -> SamplerConfig:
        if self.block_origin == "completion" and self.gen_length % self.block_length:
            raise ValueError(
                f"gen_length {self.gen_length} is not a multiple of block_length "
                f"{self.block_length}; choose a block that divides it"
            )
        if isinstance(self.selection, Ascending):
            return self
        if self.steps % self.num_blocks:
            raise ValueError(
                f"steps {self.steps} is not a multiple of the {self.num_blocks} blocks; "
                "LLaDA spends equal steps on each block"
            )
        return self

    @model_validator(mode="after")
    def _cache_fits(self) -> SamplerConfig:
        wanted = {"none": None, "block": "sequence", "prefix": "completion", "dual": "completion"}
        origin = wanted[self.cache]
        if origin is not None and origin != self.block_origin:
            raise ValueError(
                f"cache {self.cache!r} needs block_origin {origin!r}: the block cache is for "
                "block-causal models, prefix and dual caches are for bidirectional ones"
            )
        if self.cache != "none" and self.cfg_scale > 0:
            raise ValueError("classifier-free guidance runs without a cache; set cache to 'none'")
        return self

    @property
    def num_blocks(self) -> int:
        """Blocks of the completion; one more where a prompt ends inside a block."""
        return -(-self.gen_length // self.block_length)

    @property
    def steps_per_block(self) -> int:
        return self.steps // self.num_blocks

    @property
    def nfe(self) -> int:
        """Forward passes for one completion, an upper bound where the rule is adaptive."""
        return self.steps * (2 if self.cfg_scale > 0 else 1)

    @property
    def is_random(self) -> bool:
        """Whether sampling draws any noise, so that it needs a key per row."""
        selection = self.selection
        return (
            self.temperature > 0
            or self.remasking == "random"
            or selection.rule == "origin"
            or (selection.rule == "dream" and selection.alg_temp > 0)
        )
