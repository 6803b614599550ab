"""What an algorithm is: a frozen config and at most four functions.

    algorithm = make("diffu-grpo", {"beta": 0.04})
    prepared = algorithm.prepare(model, rollout, run_key, num_iterations, reference)
    for iteration in range(num_iterations):
        for micro in prepared.slices(micro_batch):
            algorithm.loss(model, micro, iteration).loss.backward()
        optimizer.step()

Whatever needs the whole batch (advantages, normalisers, masks, old log-probabilities) is fixed
in ``prepare``; the loss of a slice is a sum over its samples.  So loss and gradient do not
depend on how the batch is cut.  Shapes: B samples, P prompt columns, C completion columns,
K mask draws, J iterations, L = P + C.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

from pydantic import Field

from dare._lazy import lazy
from dare.config import Frozen
from dare.diffusion.keys import RunKey
from dare.likelihood.rows import Canvas

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    Rows = slice | Sequence[int] | Tensor
else:
    torch = lazy("torch")

EosPolicy = Literal["first_eos", "all"]
LossNormaliser = Literal["group_tokens", "batch_tokens", "sequence"]


class AlgorithmConfig(Frozen):
    """What every masked policy-gradient method here may vary.

    p_mask_prompt        chance that a prompt token is masked in a likelihood pass
    share_mask_in_group  all completions of a prompt are scored under the same draw
    scale_rewards        divide advantages by the group's sample std plus ``std_eps``
    loss_normaliser      see :func:`dare.algorithms.parts.token_weights`
    mask_order           which of the num_iterations draws an iteration uses: its own, or the
                         one that the published code's counter picks for micro-batches of
                         ``coded_micro_batch`` with ``coded_accumulation`` of them an update
    eos_policy           which completion tokens count, see :func:`completion_mask`
    """

    p_mask_prompt: float = Field(default=0.15, ge=0.0, le=1.0)
    share_mask_in_group: bool = False
    scale_rewards: bool = False
    std_eps: float = Field(default=1e-4, ge=0.0)
    loss_normaliser: LossNormaliser = "group_tokens"
    mask_order: Literal["sequential", "as_coded"] = "sequential"
    coded_micro_batch: int = Field(default=6, gt=0)
    coded_accumulation: int = Field(default=2, gt=0)
    eos_policy: EosPolicy = "first_eos"


def completion_mask(completion_ids: Tensor, eos_token_id: int | None, policy: str) -> Tensor:
    """Which completion tokens count, (B, C) bool.

    ``first_eos``: up to and including the first end-of-sequence token, all where there is none.
    ``all``: every token of the canvas.
    """
    if policy == "all" or eos_token_id is None:
        return torch.ones_like(completion_ids, dtype=torch.bool)
    if policy != "first_eos":
        raise ValueError(f"unknown eos_policy '{policy}'; known: first_eos, all")
    is_eos = completion_ids == eos_token_id
    return is_eos.cumsum(-1) - is_eos.long() == 0


@dataclass(frozen=True)
class RolloutBatch:
    """Prompts, completions and rewards of one rollout step, before any mask.

    prompt_ids (B, P) int64, left padded; prompt_mask (B, P) bool; completion_ids (B, C) int64;
    completion_mask (B, C) bool, a prefix of each row; rewards (B,), NaN where a reward is
    missing; group_size G, the rows of a group being neighbours; sample_ids (B,) int64, prompt
    index times G plus member, unique across processes; step, the rollout step; commit_step
    (B, C), the denoising step at which each token was committed.
    """

    prompt_ids: Tensor
    prompt_mask: Tensor
    completion_ids: Tensor
    completion_mask: Tensor
    rewards: Tensor
    group_size: int
    sample_ids: Tensor
    step: int
    commit_step: Tensor | None = None

    def __len__(self) -> int:
        return len(self.completion_ids)

    @property
    def counted(self) -> Tensor:
        """How many tokens of each completion count, (B,)."""
        return self.completion_mask.sum(-1)

    def canvas(self) -> Canvas:
        """Prompts and completions side by side."""
        return Canvas.build(self.prompt_ids, self.prompt_mask, self.completion_ids)

    def select(self, rows: Rows) -> RolloutBatch:
        """The given samples, in that order."""
        return replace(
            self,
            prompt_ids=self.prompt_ids[rows],
            prompt_mask=self.prompt_mask[rows],
            completion_ids=self.completion_ids[rows],
            completion_mask=self.completion_mask[rows],
            rewards=self.rewards[rows],
            sample_ids=self.sample_ids[rows],
            commit_step=None if self.commit_step is None else self.commit_step[rows],
        )


@dataclass(frozen=True)
class Prepared:
    """A rollout batch with everything that is fixed before its first update.

    advantages (B,); weights (B, C), the share of each token in the batch loss, zero where it
    does not count; masks (J, B, K, L) bool; block_length, tokens per block of a
    block-causal policy or None; old_log_probs (J, B, C), the first iteration's
    unused; reference_log_probs (J, B, C); isolated (B,) bool, samples without a reward;
    constant (B,) bool, samples of a group whose rewards are all equal; learner_forwards, the
    sequences that go through the model for this batch, all iterations together (a batch cut
    inside groups that share a forward takes a few more).
    """

    rollout: RolloutBatch
    advantages: Tensor
    weights: Tensor
    masks: Tensor
    mask_token_id: int
    block_length: int | None
    isolated: Tensor
    constant: Tensor
    old_log_probs: Tensor | None = None
    reference_log_probs: Tensor | None = None
    learner_forwards: int = 0

    def __len__(self) -> int:
        return len(self.rollout)

    @property
    def num_iterations(self) -> int:
        return len(self.masks)

    @property
    def needed(self) -> Tensor:
        """Tokens whose log-probability matters, (B, C) bool."""
        return self.weights > 0

    def select(self, rows: Rows) -> Prepared:
        """The given samples; the sum of the losses over any partition is the batch loss."""
        old, reference = self.old_log_probs, self.reference_log_probs
        return replace(
            self,
            rollout=self.rollout.select(rows),
            advantages=self.advantages[rows],
            weights=self.weights[rows],
            masks=self.masks[:, rows],
            isolated=self.isolated[rows],
            constant=self.constant[rows],
            old_log_probs=None if old is None else old[:, rows],
            reference_log_probs=None if reference is None else reference[:, rows],
        )

    def slices(self, micro_batch: int | None = None) -> Iterator[Prepared]:
        """Consecutive slices of ``micro_batch`` samples; the whole batch when None."""
        size = micro_batch or max(1, len(self))
        for start in range(0, len(self), size):
            yield self.select(slice(start, start + size))


@dataclass(frozen=True)
class LossOutput:
    """``loss``: a scalar, the slice's part of the batch loss.  ``metrics``: detached sums over
    the slice's samples of per-sample values; divide by the number of samples to get means."""

    loss: Tensor
    metrics: dict[str, Tensor]


class Algorithm(Protocol):
    """One post-training objective.  ``config`` says which variant of it."""

    @property
    def name(self) -> str: ...

    @property
    def config(self) -> AlgorithmConfig: ...

    @property
    def needs_reference(self) -> bool:
        """Whether ``prepare`` must be given a reference model."""
        ...

    def advantages(self, rewards: Tensor, group_size: int) -> Tensor:
        """(B,) from rewards (B,), neighbours forming groups; a missing reward (NaN) gives zero
        and does not enter its group's baseline."""
        ...

    def prepare(
        self,
        model: Any,
        rollout: RolloutBatch,
        run_key: RunKey,
        num_iterations: int,
        reference: Any | None = None,
        micro_batch: int | None = None,
    ) -> Prepared:
        """Fix all that the updates of this rollout batch share.  ``model`` is the policy before
        the first update, ``micro_batch`` the number of samples of a forward without gradient."""
        ...

    def loss(self, model: Any, micro: Prepared, iteration: int) -> LossOutput:
        """The part of the batch loss that the samples of ``micro`` contribute."""
        ...
