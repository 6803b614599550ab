"""The parts that policy-gradient objectives are put together from.  Tensor methods only.

B samples, G completions of a prompt (neighbouring rows), C completion tokens.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor

Baseline = Literal["mean", "leave_one_out"]
Scale = Literal["none", "sample", "population"]
KlKind = Literal["k1", "k2", "k3"]


def isolated_samples(rewards: Tensor) -> Tensor:
    """Samples without a usable reward (NaN or infinite), (B,) bool."""
    return ~rewards.isfinite()


def constant_groups(rewards: Tensor, group_size: int) -> Tensor:
    """Samples of groups whose known rewards are all equal, (B,) bool: nothing to learn from."""
    groups = rewards.view(-1, group_size)
    known = groups.isfinite()
    highest = groups.masked_fill(~known, -math.inf).amax(1)
    lowest = groups.masked_fill(~known, math.inf).amin(1)
    return (highest <= lowest).repeat_interleave(group_size)


def group_advantages(
    rewards: Tensor,
    group_size: int,
    baseline: Baseline = "mean",
    scale: Scale = "none",
    eps: float = 1e-4,
) -> Tensor:
    """Rewards minus their group's baseline, (B,), optionally over the group's std plus ``eps``.

    ``mean`` is the mean of the group, ``leave_one_out`` the mean of the others; the std is the
    ``sample`` one (n - 1) or the ``population`` one (n).  Samples with a missing reward are left
    out of both and get zero, as do groups of constant reward (exactly, whatever the rounding).
    """
    groups = rewards.view(-1, group_size)
    known = groups.isfinite()
    count = known.sum(1, keepdim=True)
    values = groups.masked_fill(~known, 0.0)
    idle = ~known | constant_groups(rewards, group_size).view(-1, group_size)
    centred = (values - values.sum(1, keepdim=True) / count.clamp(min=1)).masked_fill(~known, 0.0)
    advantages = centred
    if baseline == "leave_one_out":
        advantages = advantages * count / (count - 1).clamp(min=1)
    if scale != "none":
        divisor = count - 1 if scale == "sample" else count
        std = (centred.square().sum(1, keepdim=True) / divisor.clamp(min=1)).sqrt()
        advantages = advantages / (std + eps)
    # Last, so that neither rounding nor 0 / 0 can give a constant group an advantage.
    return advantages.masked_fill(idle, 0.0).reshape(-1)


def token_weights(counts: Tensor, rewards: Tensor, group_size: int, normaliser: str) -> Tensor:
    """The share of each token in the batch loss, (B, C) in rewards' dtype; they add up to one.

    counts (B, C) bool, rewards (B,).  Samples without a reward get zero and enter no denominator.
    ``group_tokens``: token mean within a group, then mean over groups, which is the published
    code's token mean over a micro-batch when a micro-batch is one group.  ``batch_tokens``:
    token mean over the batch.  ``sequence``: mean over samples of token means (the papers).
    """
    live = counts & ~isolated_samples(rewards)[:, None]
    tokens = live.sum(1)
    if normaliser == "batch_tokens":
        denominator = tokens.sum().expand_as(tokens)
    elif normaliser == "sequence":
        denominator = tokens * tokens.gt(0).sum()
    elif normaliser == "group_tokens":
        per_group = tokens.view(-1, group_size).sum(1)
        denominator = (per_group * per_group.gt(0).sum()).repeat_interleave(group_size)
    else:
        raise ValueError(f"unknown loss normaliser '{normaliser}'")
    return live.to(rewards.dtype) / denominator.clamp(min=1)[:, None]


def clipped_surrogate(
    log_ratio: Tensor, advantages: Tensor, epsilon: float
) -> tuple[Tensor, Tensor]:
    """-min(rho A, clip(rho, 1 - eps, 1 + eps) A), and where the clip took the gradient away.

    log_ratio (B, C), advantages (B,).  A sample of zero advantage gives exactly zero, also
    where its ratio would overflow.
    """
    advantages = advantages[:, None]
    ratio = log_ratio.where(advantages != 0, 0.0).exp()
    clipped = ratio.clamp(1 - epsilon, 1 + epsilon)
    loss = -(ratio * advantages).minimum(clipped * advantages)
    above = (ratio > 1 + epsilon) & (advantages > 0)
    below = (ratio < 1 - epsilon) & (advantages < 0)
    return loss, above | below


def kl_penalty(log_probs: Tensor, reference: Tensor, kind: KlKind = "k3") -> Tensor:
    """Estimates of KL(policy || reference) per token from a sample of the policy.

    With r = log reference - log policy: k1 = -r, unbiased; k2 = r^2 / 2; k3 = exp(r) - 1 - r,
    unbiased and never negative (Schulman, "Approximating KL divergence", 2020).
    """
    r = reference - log_probs
    if kind == "k1":
        return -r
    if kind == "k2":
        return r.square() / 2
    return r.exp() - 1 - r
