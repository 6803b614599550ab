"""What a sampler may vary, as one frozen record.  Imports no torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    field_validator,
    model_serializer,
    model_validator,
)

from dare.sampling.rules import RULES, Ascending, Rule, Schedule, Selection

# Left out of a dump while they stand at their defaults: they came after the first records, whose
# digests, and with them recorded references and board rows, stay what they are.
LATER = (
    "block_origin", "top_k", "top_p", "filters", "confidence_from", "selection", "cache",
    "eos_stop",
)  # fmt: skip


class SamplerConfig(BaseModel):
    """The reverse process, completely.

    Lengths in tokens; ``steps`` counts denoising steps over the whole completion, as in LLaDA's
    ``generate``, in equal shares per block.  A rule that looks at confidences may need fewer; to
    such rules ``steps`` need not be given, and to some it means nothing (``dare.sampling.rules``).

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

    @model_validator(mode="before")
    @classmethod
    def _steps_of_the_rule(cls, data: Any) -> Any:
        """``steps`` where it is left out and the rule does not need it."""
        if not isinstance(data, dict) or "steps" in data:
            return data
        given = data.get("selection")
        name = given.get("rule") if isinstance(given, dict) else getattr(given, "rule", None)
        rule = RULES.get(str(name), Schedule)
        length, block = data.get("gen_length"), data.get("block_length")
        if not (isinstance(length, int) and isinstance(block, int) and length > 0 and block > 0):
            return data
        if rule is Ascending:
            return data | {"steps": Ascending.steps_for(length)}
        return data if rule.spends_steps == "all" else data | {"steps": -(-length // block) * block}

    @model_validator(mode="after")
    def _blocks_divide(self) -> SamplerConfig:
        if self.block_origin == "completion" and self.gen_length % self.block_length:
            raise ValueError(
                f"gen_length {self.gen_length} is not a multiple of block_length "
                f"{self.block_length}; choose a block that divides it"
            )
        rule = self.selection
        if isinstance(rule, Ascending):
            self._ascending_fits(rule)
        elif rule.spends_steps != "no" and self.steps % self.num_blocks:
            raise ValueError(
                f"steps {self.steps} is not a multiple of the {self.num_blocks} blocks; "
                f"the rule {rule.rule!r} spends equal steps on each block"
            )
        return self

    def _ascending_fits(self, rule: Ascending) -> None:
        steps = rule.steps_for(self.gen_length)
        if self.block_length != self.gen_length or self.block_origin != "completion":
            raise ValueError(
                "the rule 'ascending' makes its own blocks: set block_length to gen_length "
                f"({self.gen_length}), block_origin to 'completion', and selection.num_blocks"
            )
        if self.steps != steps or rule.num_blocks > steps:
            raise ValueError(
                f"the rule 'ascending' takes floor(log2 gen_length) = {steps} steps for "
                f"{self.gen_length} tokens and no more blocks than that, not {self.steps} steps "
                f"and {rule.num_blocks} blocks"
            )

    @model_validator(mode="after")
    def _score_fits(self) -> SamplerConfig:
        rule: Rule = self.selection
        eos_rejection = getattr(rule, "eos_rejection", None) is not None
        if self.remasking == "entropy" and (rule.limits_probability or eos_rejection):
            raise ValueError(
                f"the rule {self.selection.rule!r} treats the score as a probability, which "
                "negative entropy is not; set remasking to 'low_confidence' or 'margin'"
            )
        if rule.looks_back and (self.cache != "none" or self.block_origin != "completion"):
            raise ValueError(
                f"the rule {self.selection.rule!r} masks tokens of earlier blocks again, so no "
                "cache may hold them and the model must not be block-causal; set cache to "
                "'none' and block_origin to 'completion'"
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

    @field_validator("temperature")
    @classmethod
    def _not_almost_zero(cls, temperature: float) -> float:
        if 0 < temperature < 1e-4:
            raise ValueError(
                f"{temperature:g} is too close to 0 to divide logits by; 0 is greedy, and the "
                "lowest other value is 0.0001"
            )
        return temperature

    @property
    def num_blocks(self) -> int:
        """Blocks of the completion; one more where a prompt ends inside a block."""
        return -(-self.gen_length // self.block_length)

    @property
    def steps_per_block(self) -> int:
        return self.steps // self.num_blocks

    @property
    def nfe(self) -> int:
        """Forward passes for one completion, an upper bound where the rule is adaptive.

        A block-causal model takes those of one block more where its prompt ends inside a block.
        """
        block = self.selection.forwards(self.steps_per_block, self.block_length)
        return block * self.num_blocks * (2 if self.cfg_scale > 0 else 1)

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
