"""Which positions to commit, and with what token: small pure functions on tensors.

Shapes: B rows, K positions of the current block, V vocabulary, N needed rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from dare.diffusion.keys import Key


def transfer_schedule(count: int, steps: int) -> list[int]:
    """How many of ``count`` masks each of ``steps`` commits: equal shares, the surplus first.

    LLaDA's ``get_num_transfer_tokens``: 10 masks in 4 steps give [3, 3, 2, 2].
    """
    share, surplus = divmod(count, steps)
    return [share + 1] * surplus + [share] * (steps - surplus)


def row_draws(
    keys: Sequence[Key], draw: int, counts: Sequence[int], width: int, device: torch.device
) -> Tensor:
    """Exponential(1) noise for the needed rows, (sum(counts), width) float32.

    Row b's noise comes from ``keys[b]`` alone, so it does not depend on who shares the batch.
    """
    noise = torch.empty(sum(counts), width, device=device)
    start = 0
    for key, count in zip(keys, counts, strict=True):
        generator = replace(key, draw=draw).generator(device)
        noise[start : start + count].exponential_(generator=generator)
        start += count
    return noise


def propose(logits: Tensor, temperature: float, noise: Tensor | None) -> Tensor:
    """One token per row, (N,): the argmax, or a draw from softmax(logits / temperature).

    The draw is an exponential race in float32, the same distribution as LLaDA's Gumbel noise
    in float64: the smallest E_v / p_v wins, that is the largest logit / T - log E_v.
    """
    if noise is None:
        return logits.argmax(dim=-1)
    scaled = logits.float() / temperature
    return (scaled - noise.clamp_min(torch.finfo(torch.float32).tiny).log()).argmax(dim=-1)


def confidence_of(logits: Tensor, tokens: Tensor) -> Tensor:
    """softmax(logits) at ``tokens``, (N,) float32, with no temperature and no (N, V) copy kept."""
    logits = logits.float()
    chosen = logits.gather(-1, tokens[:, None]).squeeze(-1)
    return (chosen - logits.logsumexp(dim=-1)).exp()


def top_positions(confidence: Tensor, count: int) -> Tensor:
    """The ``count`` most confident positions of each row, (B, K) bool; ties go to the left.

    Positions at -inf are never taken.
    """
    order = confidence.argsort(dim=-1, descending=True, stable=True)[:, :count]
    chosen = torch.zeros_like(confidence, dtype=torch.bool).scatter_(1, order, True)
    return chosen & (confidence > -torch.inf)
