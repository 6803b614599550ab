"""d1's mean-field estimate: one forward in which the whole completion is masked.

    log p(o | c)  ~  sum_k log p_theta(o_k | c', m ... m),      c' = c with some tokens masked

Source: d1 (arXiv 2504.12216), section 3.2; the authors' code masks prompt tokens with
probability .15 in every such pass.  It ignores what completion tokens tell about each other:
it is the exact likelihood of a model that draws all tokens at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dare.diffusion.masks import MaskingRule
from dare.likelihood.rows import Canvas, row_log_probs

if TYPE_CHECKING:
    from torch import Tensor


def one_step_rule(p_mask_prompt: float = 0.15) -> MaskingRule:
    """The masks of this estimator: all of the completion, each prompt token with probability p."""
    return MaskingRule("full", mc_samples=1, p_mask_prompt=p_mask_prompt)


def one_step_log_probs(
    model: Any,
    canvas: Canvas,
    masks: Tensor,
    mask_token_id: int,
    needed: Tensor | None = None,
) -> Tensor:
    """Log-probability of every completion token, (B, C); zero where not ``needed`` (B, C).

    masks (B, 1, L) from :func:`dare.diffusion.masks.draw_masks` under :func:`one_step_rule`.
    """
    length = canvas.completion_length
    if needed is None:
        needed = masks[:, 0, -length:]
    return row_log_probs(model, canvas, masks, needed[:, None], mask_token_id)[:, 0]
