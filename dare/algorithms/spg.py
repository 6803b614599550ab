"""SPG, sandwiched policy gradient (arXiv 2510.09541, equations 6 to 10).

    A_j     = r_j - mean of the group's r
    score_j = ELBO_j               where A_j > 0      raise a lower bound
              U_j                  where A_j < 0      push down an upper bound
    U       = omega EUBO + (1 - omega) ELBO           (``negative_term="mix"``)
    loss    = sum_j -A_j score_j n_j / sum_j n_j      n_j counted tokens

ELBO and EUBO are Monte Carlo means over ``mc_samples`` masks of the same completion, per token:
:mod:`dare.likelihood.block_bounds`.  Masks resemble the states of a semi-autoregressive
decoder: clean blocks, one partly masked block, masked blocks (``masking="block_random"``).

Departures from GRPO:
1. No ratio, no clip, no KL: a plain policy gradient.
2. A is not divided by the group's standard deviation (``scale_rewards`` divides).
3. The likelihood that is pushed depends on the sign of A.

Departures from the authors' code, which gave the published numbers:
4. Masks are keyed per sample; the code reseeds every global generator, and with its counter
   few of the num_iterations draws are used (``mask_order="as_coded"`` follows the counter).
5. Padding is neither masked nor attended to.
6. Probabilities stay logarithms: a token too unlikely for float32 keeps its gradient.
7. ``group_tokens`` normalises over one group; the code over its micro-batch, which for the
   Sudoku setting is half of one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, field_validator

from dare.algorithms.base import AlgorithmConfig, LossOutput, Prepared, RolloutBatch
from dare.algorithms.masking import (
    batch_masks,
    configured_advantages,
    forwards,
    prepare_masked,
    sample_metrics,
)
from dare.diffusion.keys import RunKey
from dare.diffusion.masks import MaskingKind, MaskingRule
from dare.likelihood.block_bounds import elbo, eubo
from dare.likelihood.rows import row_log_probs

if TYPE_CHECKING:
    from torch import Tensor


class SpgConfig(AlgorithmConfig):
    """SPG's settings; ``eubo_beta`` is the exponent of the upper bound, ``omega`` its weight.

    ``beta``, the KL weight, exists only to refuse anything but zero: the authors' code has no
    KL term either.
    """

    mc_samples: int = Field(default=2, gt=0)
    eubo_beta: float = Field(default=1.5, ge=1.0)
    omega: float = Field(default=0.5, ge=0.0, le=1.0)
    negative_term: Literal["mix", "eubo", "elbo", "zero"] = "mix"
    masking: MaskingKind = "block_random"
    block_length: int = Field(default=32, gt=0)
    beta: float = 0.0

    @field_validator("beta")
    @classmethod
    def _no_kl(cls, beta: float) -> float:
        if beta != 0:
            raise ValueError(
                f"SPG has no KL term, in the paper or the code; got beta={beta}, set it to 0"
            )
        return beta

    @property
    def rule(self) -> MaskingRule:
        return MaskingRule(self.masking, self.mc_samples, self.block_length, self.p_mask_prompt)


@dataclass(frozen=True)
class Spg:
    """See the module docstring."""

    config: SpgConfig
    name: ClassVar[str] = "spg"

    @property
    def needs_reference(self) -> bool:
        return False

    def advantages(self, rewards: Tensor, group_size: int) -> Tensor:
        return configured_advantages(self.config, rewards, group_size)

    def prepare(
        self,
        model: Any,
        rollout: RolloutBatch,
        run_key: RunKey,
        num_iterations: int,
        reference: Any | None = None,
        micro_batch: int | None = None,
    ) -> Prepared:
        masks = batch_masks(self.config, self.config.rule, rollout, run_key, num_iterations)
        advantages = self.advantages(rollout.rewards, rollout.group_size)
        prepared = prepare_masked(self.config, advantages, masks, rollout, model)
        return replace(prepared, learner_forwards=forwards(prepared, range(num_iterations)))

    def loss(self, model: Any, micro: Prepared, iteration: int) -> LossOutput:
        masks = micro.masks[iteration]
        length = micro.rollout.completion_ids.shape[1]
        masked = masks[..., -length:] & micro.needed[:, None]
        canvas = micro.rollout.canvas()
        log_probs = row_log_probs(model, canvas, masks, masked, micro.mask_token_id)
        return spg_loss(log_probs, masked, micro, self.config)


def sandwich_score(lower: Tensor, upper: Tensor, advantages: Tensor, config: SpgConfig) -> Tensor:
    """The score (B,) that the advantage multiplies, from ELBO and EUBO (B,)."""
    if config.negative_term == "mix":
        negative = config.omega * upper + (1 - config.omega) * lower
    elif config.negative_term == "eubo":
        negative = upper
    elif config.negative_term == "elbo":
        negative = lower
    else:
        negative = lower * 0
    return lower.where(advantages > 0, negative)


def spg_loss(log_probs: Tensor, masked: Tensor, micro: Prepared, config: SpgConfig) -> LossOutput:
    """The loss of log-probabilities (B, K, C) at the masked counted tokens (B, K, C)."""
    lower = elbo(log_probs, masked)
    upper = eubo(log_probs, masked, micro.needed.sum(-1), config.eubo_beta)
    score = sandwich_score(lower, upper, micro.advantages, config)
    loss = -(micro.advantages * score * micro.weights.sum(-1)).sum()
    metrics = sample_metrics(micro)
    metrics["elbo"] = lower.detach().sum()
    metrics["eubo"] = upper.detach().sum()
    return LossOutput(loss, metrics)
