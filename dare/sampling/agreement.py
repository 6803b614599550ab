"""How far an approximate sampler agrees with the exact one, and what it saves.

agreement(model, prompts, preset("fast-dllm", 16), preset("llada", 16)).mean
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from dare.diffusion.keys import Key
from dare.sampling.candidates import SpecialTokens
from dare.sampling.config import SamplerConfig
from dare.sampling.decode import Generation, generate


@dataclass(frozen=True)
class Agreement:
    """Two samplers on the same prompts.

    rows: for each prompt the share of equal tokens, from 0 to 1.  identical: the share of prompts
    whose completions are equal as far as they were compared.  nfe, exact_nfe: mean forwards per
    prompt.
    """

    rows: tuple[float, ...]
    identical: float
    nfe: float
    exact_nfe: float

    @property
    def mean(self) -> float:
        """The mean share of equal tokens over the prompts; 1 without prompts."""
        return sum(self.rows) / len(self.rows) if self.rows else 1.0

    @property
    def nfe_ratio(self) -> float:
        """Forwards of the approximate sampler for each of the exact one's."""
        return self.nfe / self.exact_nfe if self.exact_nfe else 1.0


def agreement(
    model: nn.Module,
    prompts: Sequence[Sequence[int]],
    config: SamplerConfig,
    exact_config: SamplerConfig,
    keys: Sequence[Key] | None = None,
    special: SpecialTokens | None = None,
) -> Agreement:
    """Generate with both and compare.  Raises ValueError for unequal lengths."""
    if config.gen_length != exact_config.gen_length:
        raise ValueError("completions of unequal length cannot be compared token by token")
    special = special or SpecialTokens.of(model)
    ours = generate(model, prompts, config, keys, special)
    exact = generate(model, prompts, exact_config, keys, special)
    return compare(ours, exact, special)


def compare(ours: Generation, exact: Generation, special: SpecialTokens) -> Agreement:
    """The agreement of two generations for the same prompts.

    A row is compared up to the first stop token of whichever completion is longer: what follows
    is no part of the answer, and would mostly be equal.
    """
    ends = torch.maximum(_lengths(ours.tokens, special), _lengths(exact.tokens, special))
    places = torch.arange(ours.tokens.shape[1], device=ends.device)
    compared = places < ends[:, None]
    equal = (ours.tokens == exact.tokens) & compared
    shares = equal.sum(-1) / compared.sum(-1)
    count = max(1, len(shares))
    return Agreement(
        rows=tuple(shares.tolist()),
        identical=float((equal == compared).all(-1).sum()) / count,
        nfe=float(ours.nfe.sum()) / count,
        exact_nfe=float(exact.nfe.sum()) / count,
    )


def _lengths(tokens: Tensor, special: SpecialTokens) -> Tensor:
    """Tokens (B,) up to the first stop token, which counts."""
    stops = torch.isin(tokens, torch.tensor(special.stops, device=tokens.device))
    first = stops.long().argmax(-1) + 1
    return first.where(stops.any(-1), torch.full_like(first, tokens.shape[1]))
