"""What a checkpoint needs before any text is fed: weights and what training keeps beside them.

    resting_memory(registry.get("llada-8b")).lora      # bytes

Activations, logits and caches depend on the run: the plan of a run adds those it knows.
"""

from __future__ import annotations

from dataclasses import dataclass

from dare.models.facts import Checkpoint

# Weight, gradient and Adam's two moments in float32; or bfloat16 weight and gradient with a
# float32 copy of the weight and the moments.
TRAINED_BYTES = 16
LORA_RANK = 16


@dataclass(frozen=True, slots=True)
class RestingMemory:
    """Bytes on one device that holds everything; ``lora_parameters`` is the adapters' size."""

    inference_bfloat16: int
    inference_float32: int
    lora: int
    full: int
    lora_rank: int
    lora_targets: tuple[str, ...]
    lora_parameters: int

    def counted(self) -> tuple[str, ...]:
        """What the numbers contain, in words."""
        targets = ", ".join(self.lora_targets)
        return (
            "inference: the weights",
            f"LoRA: bfloat16 weights, and {TRAINED_BYTES} bytes for each of "
            f"{self.lora_parameters:,} adapter weights of rank {self.lora_rank} on {targets}: "
            "weight, gradient and two Adam moments in float32",
            f"full fine-tuning: {TRAINED_BYTES} bytes for every weight, used by a token or not: "
            "weight, gradient and two Adam moments in float32",
            "not counted: activations, logits, caches, a frozen reference model",
        )


def resting_memory(facts: Checkpoint, rank: int = LORA_RANK) -> RestingMemory:
    """Memory of ``facts`` at rest, with adapters of ``rank`` on the attention projections."""
    shape = facts.shape
    targets = tuple(each.name for each in shape.attention())
    adapters = shape.adapter_parameters(rank, targets)
    half = 2 * shape.parameters + 2 * facts.float32_parameters
    return RestingMemory(
        inference_bfloat16=half,
        inference_float32=4 * shape.parameters,
        lora=half + TRAINED_BYTES * adapters,
        full=TRAINED_BYTES * shape.parameters,
        lora_rank=rank,
        lora_targets=targets,
        lora_parameters=adapters,
    )
