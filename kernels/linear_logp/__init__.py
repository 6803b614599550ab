"""log p(target) under a linear head, without keeping the logits.

logp = linear_logp(hidden, weight, targets)     # (N, d), (V, d), (N,) -> (N,)
"""

from dare.kernels.linear_logp.reference import linear_logp

__all__ = ["linear_logp"]
