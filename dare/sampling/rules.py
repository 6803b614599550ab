"""The rules by which a denoising step decides what to commit: their settings.  No torch here.

A rule is one field of a :class:`~dare.sampling.config.SamplerConfig`; what it computes is in
``dare/sampling/selection/``.  Confidence c is the score that ``remasking`` names; a *quota* is
the number of positions that an even schedule gives to a step.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Annotated, ClassVar, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

Probability = Annotated[float, Field(ge=0.0, le=1.0)]
Positive = Annotated[float, Field(gt=0.0)]


class Settings(BaseModel):
    """Immutable, and an unknown field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Rule(Settings):
    """Base of the rules.

    spends_steps: "all" where every step commits its fixed share; "quota" where the share is the
        least, or the most, that an adaptive step commits, so that by default it is one position;
        "no" where ``steps`` means nothing.
    limits_probability: confidences are compared with probabilities.
    looks_back: what earlier blocks have committed may be masked again.
    """

    spends_steps: ClassVar[Literal["all", "quota", "no"]] = "no"
    limits_probability: ClassVar[bool] = False

    @property
    def looks_back(self) -> bool:
        return False

    def rounds(self, steps: int, length: int) -> int:
        """The most denoising steps that a block of ``length`` takes; ``steps`` is its share.

        An adaptive rule commits at least one position more than it masks again.
        """
        return steps if self.spends_steps == "all" else length

    def forwards(self, steps: int, length: int) -> int:
        """A closer bound on the forwards of a block, where there is one.

        ``rounds`` also numbers the draws of a row and stays what it is.
        """
        return self.rounds(steps, length)


class AtLeastQuota(Rule):
    """A rule that commits its quota in every step, or more, and so is done after ``steps``."""

    spends_steps = "quota"

    def forwards(self, steps: int, length: int) -> int:
        return min(steps, length)


class EosRejection(Settings):
    """EOSER (arXiv 2509.23924): the confidence of an EOS candidate is multiplied by
    g_min + (g_max - g_min) progress, so that EOS is not committed early.

    progress is s / (S - 1) in step s of S; under :class:`Ascending` (2^(s+1) - 1) / 2^S, where
    the authors set g_min 0.01.
    """

    g_min: Probability = 0.4
    g_max: Probability = 1.0

    def factor(self, progress: float) -> float:
        return self.g_min + (self.g_max - self.g_min) * progress


class Schedule(Rule):
    """A fixed number of positions per step: equal shares, the surplus first (LLaDA)."""

    spends_steps = "all"
    rule: Literal["schedule"] = "schedule"
    eos_rejection: EosRejection | None = None


class Ascending(Rule):
    """Step i commits 2^i positions (ASS, arXiv 2509.23924), in ``num_blocks`` blocks whose sizes
    follow from the length.  There are floor(log2 length) steps over all blocks."""

    spends_steps = "all"
    rule: Literal["ascending"] = "ascending"
    num_blocks: int = Field(default=1, gt=0)
    eos_rejection: EosRejection | None = None

    @staticmethod
    def steps_for(length: int) -> int:
        return max(1, length.bit_length() - 1)

    def quotas(self, length: int) -> list[list[int]]:
        """Positions per step, for each block.

        One block: 1, 2, 4, ... and all that is left.  16 tokens in 3 blocks: [[1, 2], [4], [9]];
        blocks are split off from the end, one step each.
        """
        steps = self.steps_for(length)
        counts = [2**step for step in range(steps - 1)]
        counts.append(length - sum(counts))
        single = steps - self.num_blocks + 1
        return [counts[:single], *([count] for count in counts[single:])]


class MaskGit(Rule):
    """MaskGIT's schedules (arXiv 2202.04200): after the share r of a block's steps
    floor(gamma(r) length) positions are still masked.

    gamma: linear 1 - r; cosine cos(pi r / 2); pow 1 - r^power; log -log2(r) / log2(length);
        exp 1 - length^(r - 1); clipped to [1e-6, 1].
    running_confidence: RCR of MDPO (arXiv 2508.13148).  Every step fills all masks and then masks
        the planned number again, those with the lowest confidence at their last commitment,
        in earlier blocks too.
    """

    spends_steps = "all"
    rule: Literal["maskgit"] = "maskgit"
    gamma: Literal["linear", "cosine", "pow", "log", "exp"] = "cosine"
    power: Positive = 2.0
    running_confidence: bool = False

    @property
    def looks_back(self) -> bool:
        return self.running_confidence

    def share_masked(self, r: float, length: int) -> float:
        """gamma(r) for a block of ``length`` tokens."""
        if self.gamma == "cosine":
            share = math.cos(math.pi * r / 2)
        elif self.gamma == "pow":
            share = 1 - r**self.power
        elif self.gamma == "log":
            share = -math.log2(r) / math.log2(max(2, length))
        elif self.gamma == "exp":
            share = 1 - 2 ** (-math.log2(length) * (1 - r))
        else:
            share = 1 - r
        return min(1.0, max(1e-6, share))

    def quotas(self, steps: int, length: int) -> list[int]:
        """Positions per step of a block; 10 positions in 4 linear steps give [3, 2, 3, 2]."""
        shares = [self.share_masked((step + 1) / steps, length) for step in range(steps)]
        filled = [0, *(length - math.floor(length * share) for share in shares)]
        return [after - before for before, after in pairwise(filled)]


class Threshold(Rule):
    """Every position with c >= threshold, and always the best (Fast-dLLM, arXiv 2505.22618)."""

    limits_probability = True
    rule: Literal["threshold"] = "threshold"
    threshold: Probability = 0.9


class Factor(Rule):
    """The best, and then rank r as long as c >= 1 - factor / (r + 1) (Fast-dLLM, arXiv
    2505.22618).  As in its code, the last mask is not tested when all others pass."""

    limits_probability = True
    rule: Literal["factor"] = "factor"
    factor: Positive = 1.0


class Dynamic(AtLeastQuota):
    """All positions with c > threshold if those are at least the quota, else the quota's best
    (SDAR's low_confidence_dynamic, LLaDA2.0).  ``threshold`` 1 is the static rule."""

    limits_probability = True
    rule: Literal["dynamic"] = "dynamic"
    threshold: Probability = 0.9


class Sequential(AtLeastQuota):
    """The quota's number of positions from the first mask to the right (SDAR's sequential)."""

    rule: Literal["sequential"] = "sequential"


class EntropyBound(Rule):
    """The longest prefix, surest first, whose entropies (nats) stay within ``bound``.

    ``sum_minus_max``: sum - max <= bound, at least one (EB-Sampler, arXiv 2505.24857).
    ``prefix``: as many as there are prefix sums below ``bound``, at least one (SDAR, 0.35).
    """

    rule: Literal["entropy_bound"] = "entropy_bound"
    bound: float = Field(default=0.1, ge=0.0)
    form: Literal["sum_minus_max", "prefix"] = "sum_minus_max"


class Dream(Rule):
    """int(masks (1 - s/t)) positions on a time grid from 1 to eps (Dream's diffusion_generate).

    ``alg_temp`` > 0 draws them from softmax(c / alg_temp) instead of taking the best.
    """

    spends_steps = "all"
    rule: Literal["dream"] = "dream"
    eps: Positive = 1e-3
    alg_temp: float = Field(default=0.0, ge=0.0)


class DreamOrigin(Rule):
    """Every mask is committed with probability 1 - s/t (Dream's alg "origin")."""

    spends_steps = "all"
    rule: Literal["origin"] = "origin"
    eps: Positive = 1e-3


class DInferThreshold(Rule):
    """c >= min(threshold, max c - 1e-5), where the model does not prefer the mask token (dInfer,
    arXiv 2510.08666).

    ``credit_alpha`` > 0 (0.7 there) is its credit decoder: candidates and confidences come from
    logits + alpha log(credit + 1), where the best token of a masked position earns p^gamma a
    step and all credit decays by ``credit_decay``.
    """

    limits_probability = True
    rule: Literal["dinfer_threshold"] = "dinfer_threshold"
    threshold: Probability = 0.9
    credit_alpha: float = Field(default=0.0, ge=0.0)
    credit_gamma: Positive = 0.2
    credit_decay: Probability = 0.8


class Hierarchy(Rule):
    """The best of every run of masks if c > low_threshold, all with c > threshold, and always
    the single best (dInfer's hierarchical decoder, arXiv 2510.08666).

    ``remask_below`` (0.4 there): a committed position of the block whose new candidate has a
    lower confidence counts as masked; of all masked ones at least one more is committed than
    there are of these, and of these the rest is masked again.
    """

    limits_probability = True
    rule: Literal["hierarchy"] = "hierarchy"
    threshold: Probability | None = 0.9
    low_threshold: Probability = 0.4
    remask_below: Probability | None = None


class Klass(Rule):
    """Positions whose last ``history`` KL divergences between steps are below ``kl_threshold``
    and whose c > conf_threshold; otherwise the quota's best (KLASS, arXiv 2511.05664)."""

    spends_steps = "quota"
    limits_probability = True
    rule: Literal["klass"] = "klass"
    conf_threshold: Probability = 0.6
    kl_threshold: Positive = 0.015
    history: int = Field(default=2, gt=0)


class Saber(Rule):
    """All positions with c above the mean confidence of what was committed so far, at least
    ``n``; then max(n / 2, an eighth of them), but fewer than were committed, are masked again:
    those whose confidence fell the most since the step before (Saber, arXiv 2510.18165)."""

    limits_probability = True
    rule: Literal["saber"] = "saber"
    n: int = Field(default=2, gt=0)

    @property
    def looks_back(self) -> bool:
        return True


class Edit(Rule):
    """LLaDA2.1: commit masks with c > threshold (at least ``num_to_transfer``) and replace
    tokens of the block whose new candidate has c > editing_threshold, until nothing changes."""

    limits_probability = True
    rule: Literal["edit"] = "edit"
    threshold: Probability = 0.7
    editing_threshold: Probability = 0.5
    num_to_transfer: int = Field(default=1, gt=0)
    max_post_steps: int = Field(default=16, gt=0)

    def rounds(self, steps: int, length: int) -> int:
        return length + self.max_post_steps


Selection = Annotated[
    Schedule
    | Ascending
    | MaskGit
    | Threshold
    | Factor
    | Dynamic
    | Sequential
    | EntropyBound
    | Dream
    | DreamOrigin
    | DInferThreshold
    | Hierarchy
    | Klass
    | Saber
    | Edit,
    Field(discriminator="rule"),
]

RULES: dict[str, type[Rule]] = {
    rule.model_fields["rule"].default: rule for rule in get_args(get_args(Selection)[0])
}
