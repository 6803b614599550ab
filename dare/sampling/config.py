"""What a sampler may vary, as one frozen record.  Imports no torch."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class SamplerConfig(BaseModel):
    """The reverse process, completely.

    Lengths in tokens; ``steps`` counts denoising steps over the whole completion, as in
    LLaDA's ``generate``; NFE is ``steps`` (twice that with guidance).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    gen_length: int = Field(gt=0)
    steps: int = Field(gt=0)
    block_length: int = Field(gt=0)
    temperature: float = Field(default=0.0, ge=0.0)
    cfg_scale: float = Field(default=0.0, ge=0.0)
    remasking: Literal["low_confidence", "random"] = "low_confidence"
    logits_eos_inf: bool = False
    confidence_eos_eot_inf: bool = False

    @model_validator(mode="after")
    def _blocks_divide(self) -> SamplerConfig:
        if self.gen_length % self.block_length:
            raise ValueError(
                f"gen_length {self.gen_length} is not a multiple of block_length "
                f"{self.block_length}; choose a block that divides it"
            )
        if self.steps % self.num_blocks:
            raise ValueError(
                f"steps {self.steps} is not a multiple of the {self.num_blocks} blocks; "
                "LLaDA spends equal steps on each block"
            )
        return self

    @property
    def num_blocks(self) -> int:
        return self.gen_length // self.block_length

    @property
    def steps_per_block(self) -> int:
        return self.steps // self.num_blocks

    @property
    def nfe(self) -> int:
        """Forward passes for one completion."""
        return self.steps * (2 if self.cfg_scale > 0 else 1)
