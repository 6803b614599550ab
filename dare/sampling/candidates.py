"""What a denoising step proposes: a token and a score for every position with logits.

Shapes: N scored positions, V vocabulary.  Exact savings live here: no noise at temperature 0,
confidence from a maximum and a log-sum-exp instead of a probability tensor, float32 noise for
the needed rows only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from dare.diffusion.keys import Key
from dare.models.special import SpecialTokens
from dare.sampling.config import SamplerConfig


@dataclass(frozen=True)
class Noise:
    """Keyed noise for the rows of a batch.

    A draw is numbered ``kind * span + number``: ``number`` counts the denoising steps of a row,
    ``span`` is more than any row has, so that tokens (kind 0), scores (1) and choices (2) never
    share noise.  A row's noise comes from its key alone, whoever shares the batch.
    """

    keys: Sequence[Key]
    span: int
    device: torch.device

    def generators(self, rows: Sequence[int], numbers: Sequence[int], kind: int) -> list[Key]:
        return [
            replace(self.keys[row], draw=kind * self.span + number)
            for row, number in zip(rows, numbers, strict=True)
        ]

    def exponential(
        self,
        rows: Sequence[int],
        numbers: Sequence[int],
        counts: Sequence[int],
        width: int,
        kind: int = 0,
    ) -> Tensor:
        """Exponential(1) noise (sum(counts), width) float32, ``counts[i]`` lines for rows[i]."""
        noise = torch.empty(sum(counts), width, device=self.device)
        start = 0
        for key, count in zip(self.generators(rows, numbers, kind), counts, strict=True):
            generator = key.generator(self.device)
            noise[start : start + count].exponential_(generator=generator)
            start += count
        return noise


def filtered(
    logits: Tensor, top_k: int | None, top_p: float | None, top_k_first: bool = False
) -> Tensor:
    """Logits (N, V) with all but the kept tokens at -inf.

    The order matters, since the second filter sees the renormalised rest: probabilities
    .4 .3 .2 .1 with top_k 2 and top_p .5 keep two tokens if top-p comes first (Dream), and one
    if top-k does (SDAR, LLaDA2.x).
    """
    if top_k_first:
        return _nucleus(_largest(logits, top_k), top_p)
    return _largest(_nucleus(logits, top_p), top_k)


def _nucleus(logits: Tensor, top_p: float | None) -> Tensor:
    """The smallest set, likeliest first, whose probability exceeds ``top_p``; the token that
    crosses it is kept."""
    if top_p is None or top_p >= 1:
        return logits
    ordered, order = logits.sort(dim=-1, descending=True)
    before = ordered.softmax(-1).cumsum(-1).roll(1, -1)
    before[:, 0] = 0
    drop = torch.zeros_like(logits, dtype=torch.bool).scatter_(1, order, before > top_p)
    return logits.masked_fill(drop, -torch.inf)


def _largest(logits: Tensor, top_k: int | None) -> Tensor:
    """The ``top_k`` largest; ties with the last of them are all kept."""
    if top_k is None or top_k >= logits.shape[-1]:
        return logits
    kth = logits.topk(top_k, dim=-1).values[:, -1:]
    return logits.masked_fill(logits < kth, -torch.inf)


def propose(logits: Tensor, noise: Tensor | None) -> Tensor:
    """One token per row, (N,): the argmax, or a draw from softmax(logits).

    The draw is an exponential race in float32, the same distribution as LLaDA's Gumbel noise
    in float64: the smallest E_v / p_v wins, that is the largest logit - log E_v.
    """
    if noise is None:
        return logits.argmax(dim=-1)
    tiny = torch.finfo(torch.float32).tiny
    return (logits.float() - noise.clamp_min(tiny).log()).argmax(dim=-1)


def candidates(
    logits: Tensor,
    config: SamplerConfig,
    special: SpecialTokens,
    noise: Tensor | None,
    allow_mask: bool,
) -> tuple[Tensor, Tensor]:
    """Tokens (N,) and the logits (N, V) that the score is read from.

    noise (N, V) exponential, None at temperature 0.  Unless ``allow_mask``, the mask token is
    no candidate and takes no part in top-k and top-p; scores that are read from the unfiltered
    distribution still count its probability.
    """
    if config.logits_eos_inf and special.eos is not None:
        logits[:, special.eos] = -torch.inf
    tempered = logits.float() / config.temperature if config.temperature > 0 else logits
    column = None if allow_mask else tempered[:, special.mask].clone()
    if column is not None:
        tempered[:, special.mask] = -torch.inf
    kept = filtered(tempered, config.top_k, config.top_p, config.filters == "top_k_first")
    tokens = propose(kept, noise)
    if column is not None:
        tempered[:, special.mask] = column
    source = {"logits": logits, "tempered": tempered, "filtered": kept}[config.confidence_from]
    if config.confidence_eos_eot_inf:
        # The original blanks both ids at temperature 0; with noise its aliasing spares eos.
        if special.eot is not None:
            source[:, special.eot] = -torch.inf
        if special.eos is not None and config.temperature == 0:
            source[:, special.eos] = -torch.inf
    return tokens, source


def scores_of(measure: str, source: Tensor, tokens: Tensor) -> Tensor:
    """How sure the candidates are, (N,) float32, by ``remasking``; larger is surer.

    low_confidence: softmax(source) at the token.  margin: difference of the two largest
    probabilities.  entropy: sum p log(p + 1e-10), the negative entropy, as Dream computes it.
    """
    source = source.float()
    if measure == "margin":
        best = source.topk(2, dim=-1).values
        likely = (best - source.logsumexp(dim=-1, keepdim=True)).exp()
        return likely[:, 0] - likely[:, 1]
    if measure == "entropy":
        p = source.softmax(-1)
        return (p * (p + 1e-10).log()).sum(-1)
    chosen = source.gather(-1, tokens[:, None]).squeeze(-1)
    return (chosen - source.logsumexp(dim=-1)).exp()
