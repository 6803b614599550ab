"""The rules by which a denoising step decides what to commit: their settings.  No torch here.

A rule is one field of a :class:`~dare.sampling.config.SamplerConfig`; what it computes is in
``dare/sampling/selection/``.  Confidence c is the score that ``remasking`` names; a *quota* is
the number of positions that an even schedule gives to a step.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Probability = Annotated[float, Field(ge=0.0, le=1.0)]
Positive = Annotated[float, Field(gt=0.0)]


class Rule(BaseModel):
    """Base of the rules: immutable, and an unknown field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class EosRejection(Rule):
    """EOSER (arXiv 2509.23924): the confidence of an EOS candidate is multiplied by
    g_min + (g_max - g_min) progress, so that EOS is not committed early."""

    g_min: Probability = 0.4
    g_max: Probability = 1.0


class Schedule(Rule):
    """A fixed number of positions per step: equal shares, the surplus first (LLaDA)."""

    rule: Literal["schedule"] = "schedule"
    eos_rejection: EosRejection | None = None


class Ascending(Rule):
    """Step i commits 2^i positions (ASS, arXiv 2509.23924), in ``num_blocks`` blocks whose sizes
    follow from the length; ``steps`` is then the number of steps over all blocks."""

    rule: Literal["ascending"] = "ascending"
    num_blocks: int = Field(default=1, gt=0)
    eos_rejection: EosRejection | None = None


class MaskGit(Rule):
    """MaskGIT's concave schedules; with ``running_confidence`` RCR of MDPO (arXiv 2508.13148):
    what was committed with the lowest remembered confidence is masked again."""

    rule: Literal["maskgit"] = "maskgit"
    gamma: Literal["linear", "cosine", "pow2", "pow3", "log", "exp"] = "cosine"
    running_confidence: bool = False


class Threshold(Rule):
    """Every position with c >= threshold, and always the best (Fast-dLLM, arXiv 2505.22618)."""

    rule: Literal["threshold"] = "threshold"
    threshold: Probability = 0.9


class Factor(Rule):
    """The rank-dependent limit 1 - factor / (rank + 1) (Fast-dLLM, arXiv 2505.22618)."""

    rule: Literal["factor"] = "factor"
    factor: Positive = 1.0


class Dynamic(Rule):
    """All positions with c > threshold if those are at least the quota, else the quota's best
    (SDAR's low_confidence_dynamic, LLaDA2.0).  ``threshold`` 1 is the static rule."""

    rule: Literal["dynamic"] = "dynamic"
    threshold: Probability = 0.9


class Sequential(Rule):
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

    rule: Literal["dream"] = "dream"
    eps: Positive = 1e-3
    alg_temp: float = Field(default=0.0, ge=0.0)


class DreamOrigin(Rule):
    """Every mask is committed with probability 1 - s/t (Dream's alg "origin")."""

    rule: Literal["origin"] = "origin"
    eps: Positive = 1e-3


class DInferThreshold(Rule):
    """c >= min(threshold, max c - 1e-5); a mask candidate is not eligible (dInfer, arXiv
    2510.08666).  ``credit_alpha`` > 0 is its credit decoder: logits + alpha log(credit + 1),
    where a token's credit collects p^gamma over the steps and decays by ``credit_decay``."""

    rule: Literal["dinfer_threshold"] = "dinfer_threshold"
    threshold: Probability = 0.9
    credit_alpha: float = Field(default=0.0, ge=0.0)
    credit_gamma: Positive = 0.2
    credit_decay: Probability = 0.8


class Hierarchy(Rule):
    """The best of every run of masks if c > low_threshold, all with c > threshold, and always
    the single best (dInfer's hierarchical decoder, arXiv 2510.08666)."""

    rule: Literal["hierarchy"] = "hierarchy"
    threshold: Probability | None = 0.9
    low_threshold: Probability = 0.4
    remask_below: Probability | None = None


class Klass(Rule):
    """Positions whose last ``history`` KL divergences between steps are below ``kl_threshold``
    and whose c > conf_threshold; otherwise the quota's best (KLASS, arXiv 2511.05664)."""

    rule: Literal["klass"] = "klass"
    conf_threshold: Probability = 0.6
    kl_threshold: Positive = 0.015
    history: int = Field(default=2, gt=0)


class Saber(Rule):
    """Adaptive threshold with backtracking over the whole region (Saber, arXiv 2510.18165)."""

    rule: Literal["saber"] = "saber"
    n: int = Field(default=2, gt=0)
    max_rounds: int = Field(default=1024, gt=0)


class Edit(Rule):
    """LLaDA2.1: commit masks with c > threshold (at least ``num_to_transfer``) and replace
    tokens of the block whose new candidate has c > editing_threshold, until nothing changes."""

    rule: Literal["edit"] = "edit"
    threshold: Probability = 0.7
    editing_threshold: Probability = 0.5
    num_to_transfer: int = Field(default=1, gt=0)
    max_post_steps: int = Field(default=16, gt=0)


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
