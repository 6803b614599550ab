"""diffu-GRPO, the reinforcement learning of d1 (arXiv 2504.12216, equation 3).

    rho_k = exp( lp_k(theta) - lp_k(theta_old) )            both under the same mask
    l_k   = -min( rho_k A, clip(rho_k, 1 - eps, 1 + eps) A ) + beta k3_k
    k3_k  = exp(ref_k - lp_k) - (ref_k - lp_k) - 1
    loss  = sum over counted tokens of w l_k,    A = r - mean of the group's r

lp_k is the one-step estimate: completion fully masked, prompt masked with probability
``p_mask_prompt`` under a fresh draw in each of the num_iterations updates of a rollout batch.

Departures from GRPO:
1. lp is a mean-field estimate from one forward, not an autoregressive factorisation.
2. A is not divided by the group's standard deviation (``scale_rewards`` divides).
3. The prompt is perturbed, another way in each iteration.
4. Tokens count up to and including the first end-of-sequence token (``eos_policy``).
5. The token mean is taken as the authors' code does, within the micro-batch of one group
   (``loss_normaliser``; the paper's mean over sequences is ``sequence``).  The KL term is not
   multiplied by the ratio, as recent TRL does by default.

Departures from the authors' code, which gave the published numbers:
6. Masks are keyed per sample; the code reseeds every global generator, and its counter skips
   half of the draws (``mask_order="as_coded"`` follows the counter).
7. Padding is neither masked nor attended to; the code left-pads with a visible token.
8. Old log-probabilities of the first iteration are the current ones: the same numbers,
   one pass less.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from dare.algorithms.base import AlgorithmConfig, LossOutput, Prepared, RolloutBatch
from dare.algorithms.masking import (
    batch_masks,
    configured_advantages,
    forwards,
    frozen_log_probs,
    prepare_masked,
    sample_metrics,
)
from dare.algorithms.parts import clipped_surrogate, kl_penalty
from dare.diffusion.keys import RunKey
from dare.errors import UsageProblem
from dare.likelihood.one_step import one_step_log_probs, one_step_rule

if TYPE_CHECKING:
    from torch import Tensor


class DiffuGrpoConfig(AlgorithmConfig):
    """d1's defaults; ``beta`` weighs the KL to the reference model, zero needs none."""

    epsilon: float = Field(default=0.5, gt=0.0)
    beta: float = Field(default=0.04, ge=0.0)


@dataclass(frozen=True)
class DiffuGrpo:
    """See the module docstring."""

    config: DiffuGrpoConfig
    name: ClassVar[str] = "diffu-grpo"

    @property
    def needs_reference(self) -> bool:
        return self.config.beta > 0

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
        if self.needs_reference and reference is None:
            raise UsageProblem(
                f"beta {self.config.beta} without a reference model",
                "the KL penalty compares the policy with a frozen copy of where it started",
                "give the reference model, or set beta to 0",
            )
        rule = one_step_rule(self.config.p_mask_prompt)
        masks = batch_masks(self.config, rule, rollout, run_key, num_iterations)
        advantages = self.advantages(rollout.rewards, rollout.group_size)
        prepared = prepare_masked(self.config, advantages, masks, rollout, model)
        everything, old, passes = range(num_iterations), None, list(range(num_iterations))
        if num_iterations > 1:
            old, computed = frozen_log_probs(_score, model, prepared, everything[1:], micro_batch)
            passes += computed
        frozen = None
        if self.needs_reference:
            frozen, computed = frozen_log_probs(
                _score, reference, prepared, everything, micro_batch
            )
            passes += computed
        return replace(
            prepared,
            old_log_probs=old,
            reference_log_probs=frozen,
            learner_forwards=forwards(prepared, passes),
        )

    def loss(self, model: Any, micro: Prepared, iteration: int) -> LossOutput:
        log_probs = _score(model, micro, iteration)
        old = log_probs.detach()
        if iteration > 0:
            assert micro.old_log_probs is not None
            old = micro.old_log_probs[iteration]
        reference = None
        if self.needs_reference:
            assert micro.reference_log_probs is not None
            reference = micro.reference_log_probs[iteration]
        return diffu_grpo_loss(log_probs, old, reference, micro, self.config)


def _score(model: Any, micro: Prepared, iteration: int) -> Tensor:
    canvas, masks = micro.rollout.canvas(), micro.masks[iteration]
    return one_step_log_probs(model, canvas, masks, micro.mask_token_id, micro.needed)


def diffu_grpo_loss(
    log_probs: Tensor,
    old: Tensor,
    reference: Tensor | None,
    micro: Prepared,
    config: DiffuGrpoConfig,
) -> LossOutput:
    """The loss of log-probabilities (B, C) that are already there; ``reference`` None: no KL."""
    log_ratio = log_probs - old
    per_token, clipped = clipped_surrogate(log_ratio, micro.advantages, config.epsilon)
    share = micro.needed / micro.needed.sum(-1, keepdim=True).clamp(min=1)
    metrics = sample_metrics(micro)
    metrics["clip_fraction"] = (clipped * share).sum()
    metrics["ratio"] = (log_ratio.detach().exp() * share).sum()
    if reference is not None:
        divergence = kl_penalty(log_probs, reference, "k3")
        per_token = per_token + config.beta * divergence
        metrics["kl"] = (divergence.detach() * share).sum()
    return LossOutput((per_token * micro.weights).sum(), metrics)
