"""SPG's Monte Carlo bounds of the log-likelihood, per token, as its authors' code computes them.

With K draws s of masks, M[s, i] = 1 where completion token i counts and is masked in draw s,
lp[s, i] its log-probability there, n the number of counted tokens:

    ELBO = mean_s ( sum_i M lp / sum_i M )
    EUBO = mean_{i covered} (1/beta) log p_i,   p_i = mean_s ( exp(beta lp) M / t_s ),
           t_s = sum_i M[s, i] / n,             covered: masked in at least one draw
    MIX  = omega EUBO + (1 - omega) ELBO

Both are means over tokens, where the paper (arXiv 2510.09541, equations 5 and 9) writes sums.
p_i is kept as a logarithm, so a very unlikely token keeps its gradient; the code takes the
probability itself, which is zero below about exp(-100), and then leaves the token out.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def elbo(log_probs: Tensor, masked: Tensor) -> Tensor:
    """ELBO, (B,), of log_probs (B, K, C) at the masked (B, K, C) counted tokens.

    A draw that masks nothing enters the mean as zero.
    """
    per_draw = log_probs.where(masked, 0.0).sum(-1) / masked.sum(-1).clamp(min=1)
    return per_draw.mean(-1)


def eubo(log_probs: Tensor, masked: Tensor, counted: Tensor, beta: float) -> Tensor:
    """EUBO, (B,): log_probs and masked (B, K, C), counted (B,) = n, ``beta`` >= 1."""
    log_p = token_upper_bounds(log_probs, masked, counted, beta)
    covered = masked.any(1).sum(-1).clamp(min=1)
    return log_p.sum(-1) / covered / beta


def token_upper_bounds(log_probs: Tensor, masked: Tensor, counted: Tensor, beta: float) -> Tensor:
    """log p_i, (B, C); zero, with no gradient, for a token that no draw masks."""
    share = masked.sum(-1, keepdim=True).to(log_probs.dtype) / counted[:, None, None].clamp(min=1)
    terms = log_probs * beta - share.log()
    covered = masked.any(1, keepdim=True)
    # An uncovered column would be a log-sum-exp of nothing, whose gradient is NaN.
    terms = terms.masked_fill(~masked & covered, -math.inf).masked_fill(~covered, 0.0)
    log_p = terms.logsumexp(1) - math.log(log_probs.shape[1])
    return log_p.where(covered[:, 0], 0.0)


def mixture(
    log_probs: Tensor, masked: Tensor, counted: Tensor, beta: float, omega: float
) -> Tensor:
    """omega EUBO + (1 - omega) ELBO, (B,)."""
    upper = eubo(log_probs, masked, counted, beta)
    return omega * upper + (1 - omega) * elbo(log_probs, masked)
