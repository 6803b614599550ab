"""Linear head followed by log-softmax at the targets, in plain torch.

A small product N x V takes the plain path, which autograd differentiates.  A large one goes
through chunks of rows: the forward keeps one log-sum-exp per row, the backward recomputes a
chunk's logits.  Memory is then O(chunk_rows x V) instead of O(N x V), the gradient is exact,
and it takes one weight per log-probability, as token-level ratios need.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

# Elements of float32 logits: up to the first the plain path, then chunks of about the second.
PLAIN_ELEMENTS = 2**22
CHUNK_ELEMENTS = {"cpu": 2**23, "cuda": 2**27}


def linear_logp(
    hidden: Tensor, weight: Tensor, targets: Tensor, chunk_rows: int | None = None
) -> Tensor:
    """``log softmax(hidden @ weight.T)[targets]``, the softmax in at least float32.

    hidden (N, d); weight (V, d); targets (N,) or (N, K) int64, K targets read from one row.
    Returns targets' shape, float32 (float64 for float64 inputs).  ``chunk_rows`` forces the
    chunked path with that many rows.  Differentiable once, in ``hidden`` and ``weight``; a
    frozen one costs nothing in the backward.  Raises ``ValueError`` on shapes that do not fit.
    """
    _check(hidden, weight, targets)
    kind = hidden.device.type
    if torch.is_autocast_enabled(kind):
        low = torch.get_autocast_dtype(kind)
        hidden, weight = hidden.to(low), weight.to(low)
    columns = targets if targets.dim() == 2 else targets[:, None]
    rows, vocabulary = len(hidden), len(weight)
    if chunk_rows is None and rows * vocabulary <= PLAIN_ELEMENTS:
        logp = _logits(hidden, weight).log_softmax(-1).gather(1, columns)
    else:
        size = chunk_rows or max(1, CHUNK_ELEMENTS.get(kind, 2**27) // vocabulary)
        logp = _ChunkedLinearLogp.apply(hidden, weight, columns, size)
    return logp.reshape(targets.shape)


def _check(hidden: Tensor, weight: Tensor, targets: Tensor) -> None:
    if hidden.dim() != 2 or weight.dim() != 2 or hidden.shape[1] != weight.shape[1]:
        raise ValueError(
            f"hidden {tuple(hidden.shape)} and weight {tuple(weight.shape)} "
            "must be (N, d) and (V, d)"
        )
    if targets.dim() not in (1, 2) or len(targets) != len(hidden):
        raise ValueError(
            f"targets {tuple(targets.shape)} must be ({len(hidden)},) or ({len(hidden)}, K)"
        )


def _logits(hidden: Tensor, weight: Tensor) -> Tensor:
    logits = F.linear(hidden, weight)
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


class _ChunkedLinearLogp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, columns: Tensor, size: int) -> Tensor:
        dtype = torch.promote_types(hidden.dtype, torch.float32)
        logp = hidden.new_empty(columns.shape, dtype=dtype)
        normaliser = hidden.new_empty((len(hidden), 1), dtype=dtype)
        for start in range(0, len(hidden), size):
            rows = slice(start, start + size)
            logits = _logits(hidden[rows], weight)
            normaliser[rows] = logits.logsumexp(-1, keepdim=True)
            logp[rows] = logits.gather(1, columns[rows]) - normaliser[rows]
        ctx.save_for_backward(hidden, weight, columns, normaliser)
        ctx.size = size
        return logp

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        hidden, weight, columns, normaliser = ctx.saved_tensors
        wants_hidden, wants_weight = ctx.needs_input_grad[:2]
        d_hidden = torch.zeros_like(hidden) if wants_hidden else None
        d_weight = torch.zeros_like(weight, dtype=grad.dtype) if wants_weight else None
        # Tokens after the end of a completion, and clipped ones, send a zero back: no work.
        live = grad.ne(0).any(1).nonzero().squeeze(1)
        for rows in live.split(ctx.size):
            chunk = hidden[rows]
            d_logits = _logits(chunk, weight).sub_(normaliser[rows]).exp_()
            d_logits.mul_(-grad[rows].sum(1, keepdim=True))
            d_logits.scatter_add_(1, columns[rows], grad[rows])
            d_logits = d_logits.to(hidden.dtype)
            if d_hidden is not None:
                d_hidden[rows] = d_logits @ weight
            if d_weight is not None:
                d_weight += d_logits.T @ chunk
        return d_hidden, None if d_weight is None else d_weight.to(weight.dtype), None, None
