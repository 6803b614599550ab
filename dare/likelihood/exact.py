"""The oracle: exact likelihoods of tiny completions, by enumeration.

The generation process is any-order decoding: C times, one still masked position is chosen
uniformly at random and its token is drawn from the model's distribution there, given the prompt
and the tokens already revealed.  Then, over the C! orders sigma,

    log p(x | c) = log mean_sigma prod_j p(x_sigma(j) | c, x_sigma(<j))      exact likelihood
    ELBO         = mean_sigma sum_j log p(x_sigma(j) | c, x_sigma(<j))       Jensen's bound
                 = sum_{k=1..C} mean over k-subsets M of mean_{i in M} log p(x_i | c, x_not-M)

and the ELBO is what every masked-diffusion training loss estimates.  All of them need only the
table log p(x_i | c, x_S) over the 2^C revealed subsets S, so C is limited to 12.

A sampler must never draw the mask token itself: with it in ``exclude`` the conditionals are
renormalised over the other tokens, and the probabilities of all completions sum to one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

MAX_LENGTH = 12


def conditional_table(
    model: Any,
    prompt_ids: Tensor,
    completion_ids: Tensor,
    exclude: Sequence[int] = (),
    rows_per_forward: int = 1024,
) -> Tensor:
    """log p(x_i | prompt, x_S) for every subset S of revealed tokens: (2^C, C) float64.

    prompt_ids (P,), completion_ids (C,).  Row index S has bit i set where token i is revealed;
    the entries of revealed tokens are NaN.  Raises ``ValueError`` above 12 tokens.
    """
    length = len(completion_ids)
    if length > MAX_LENGTH:
        raise ValueError(
            f"{length} tokens need 2^{length} forwards; the limit is {MAX_LENGTH} tokens"
        )
    device = completion_ids.device
    revealed = _subsets(length).to(device)
    noisy = completion_ids.masked_fill(~revealed, model.config.mask_token_id)
    inputs = torch.cat((prompt_ids.expand(len(revealed), -1), noisy), 1)
    table = torch.full(revealed.shape, math.nan, dtype=torch.float64, device=device)
    with torch.no_grad():
        for start in range(0, len(inputs), rows_per_forward):
            part = slice(start, start + rows_per_forward)
            hidden = ~revealed[part]
            rows = torch.cat((hidden.new_zeros(len(hidden), len(prompt_ids)), hidden), 1)
            logits = model(inputs[part], None, positions=rows).double()
            logits[:, list(exclude)] = -math.inf
            targets = completion_ids.expand_as(hidden)[hidden]
            table[part][hidden] = logits.log_softmax(-1).gather(1, targets[:, None]).squeeze(1)
    return table


def any_order_log_likelihood(table: Tensor) -> Tensor:
    """Exact log p(x | c), a scalar, of the process above.

    f(S), the mean over the orders of S of its probability, obeys
    f(S) = 1/|S| sum_{i in S} f(S - i) p(x_i | x_{S - i}), which visits 2^C sets, not C! orders.
    """
    length = table.shape[1]
    members = _subsets(length).to(table.device)
    index = torch.arange(len(table), device=table.device)
    bits = 2 ** torch.arange(length, device=table.device)
    log_f = torch.zeros(len(table), dtype=table.dtype, device=table.device)
    for size in range(1, length + 1):
        sets = index[members.sum(-1) == size]
        before = (sets[:, None] - bits).clamp(min=0)
        steps = log_f[before] + table[before, torch.arange(length, device=table.device)]
        steps = steps.masked_fill(~members[sets], -math.inf)
        log_f[sets] = steps.logsumexp(-1) - math.log(size)
    return log_f[-1]


def chain_log_likelihood(table: Tensor, order: Sequence[int]) -> Tensor:
    """Exact log p(x | c) when tokens are revealed in the fixed ``order``, a scalar."""
    total, revealed = table.new_zeros(()), 0
    for position in order:
        total = total + table[revealed, position]
        revealed |= 1 << position
    return total


def exact_elbo(table: Tensor) -> Tensor:
    """The exact any-order ELBO, a scalar: a sum over tokens, never above the likelihood."""
    masked = ~_subsets(table.shape[1]).to(table.device)
    weight = _size_weight(masked) / masked.sum(-1).clamp(min=1)
    return (table.where(masked, 0.0).sum(-1) * weight).sum()


def exact_eubo(table: Tensor, beta: float) -> Tensor:
    """SPG's upper bound without its constant: sum_i (1/beta) log E[ 1[i masked] p_i^beta / t ].

    The expectation is exact, over k uniform in 1..C, a uniform k-subset masked, t = k / C; the
    weights of a token add up to one, so this is never below the ELBO.
    """
    masked = ~_subsets(table.shape[1]).to(table.device)
    weight = (_size_weight(masked) / masked.sum(-1).clamp(min=1))[:, None]
    powers = (beta * table).exp().where(masked, 0.0)
    return (powers * weight).sum(0).log().sum() / beta


def all_completions(alphabet: Sequence[int], length: int) -> Tensor:
    """Every sequence of ``length`` tokens over ``alphabet``: (len(alphabet)^length, length)."""
    return torch.tensor(list(itertools.product(alphabet, repeat=length)), dtype=torch.int64)


def _subsets(length: int) -> Tensor:
    """Membership (2^C, C) bool: row S, column i is bit i of S."""
    return (torch.arange(2**length)[:, None] >> torch.arange(length)) & 1 > 0


def _size_weight(masked: Tensor) -> Tensor:
    """One over the number of sets of the same size; zero for the empty set: (2^C,)."""
    length = masked.shape[1]
    weights = [0.0] + [1 / math.comb(length, size) for size in range(1, length + 1)]
    return torch.tensor(weights, dtype=torch.float64, device=masked.device)[masked.sum(-1)]
