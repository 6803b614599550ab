"""What a denoising step proposes: a token and a score for every position with logits.

Shapes: N scored positions, V vocabulary.  Exact savings live here: no noise at temperature 0,
confidence from a maximum and a log-sum-exp instead of a probability tensor, float32 noise for
the needed rows only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from dare.diffusion.keys import Key
from dare.sampling.config import SamplerConfig


@dataclass(frozen=True)
class SpecialTokens:
    """The ids a sampler must know; they come from the checkpoint.  ``stop`` ends a completion."""

    mask: int
    eos: int | None
    eot: int | None = None
    pad: int | None = None
    stop: tuple[int, ...] = ()

    @property
    def stops(self) -> tuple[int, ...]:
        """The ids that end a completion: ``stop``, or else eos and eot."""
        found = (token for token in (self.eos, self.eot) if token is not None)
        return self.stop or tuple(found)

    @classmethod
    def of(cls, model: Any) -> SpecialTokens:
        """Read from ``model.config``; a checkpoint without a mask token is refused."""
        config = model.config
        mask = getattr(config, "mask_token_id", None)
        if mask is None:
            raise ValueError("the checkpoint's config names no mask_token_id; it cannot be sampled")
        eos = getattr(config, "eos_token_id", None)
        return cls(
            mask=mask,
            eos=eos[0] if isinstance(eos, list | tuple) else eos,
            eot=getattr(config, "eot_token_id", None),
            pad=getattr(config, "pad_token_id", None),
            stop=tuple(getattr(config, "stop_token_ids", None) or ()),
        )


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


def filtered(logits: Tensor, top_k: int | None, top_p: float | None) -> Tensor:
    """Logits (N, V) with all but the kept tokens at -inf: first top-p, then top-k.

    top_p keeps the smallest set, likeliest first, whose probability exceeds it; the token that
    crosses is kept.  Ties with the k-th value are all kept.
    """
    if top_p is not None and top_p < 1:
        ordered, order = logits.sort(dim=-1, descending=True)
        before = ordered.softmax(-1).cumsum(-1).roll(1, -1)
        before[:, 0] = 0
        drop = torch.zeros_like(logits, dtype=torch.bool).scatter_(1, order, before > top_p)
        logits = logits.masked_fill(drop, -torch.inf)
    if top_k is not None and top_k < logits.shape[-1]:
        kth = logits.topk(top_k, dim=-1).values[:, -1:]
        logits = logits.masked_fill(logits < kth, -torch.inf)
    return logits


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
    no candidate; the distribution that scores are read from keeps it.
    """
    if config.logits_eos_inf and special.eos is not None:
        logits[:, special.eos] = -torch.inf
    tempered = logits.float() / config.temperature if config.temperature > 0 else logits
    kept = filtered(tempered, config.top_k, config.top_p)
    source = {"logits": logits, "tempered": tempered, "filtered": kept}[config.confidence_from]
    if allow_mask:
        tokens = propose(kept, noise)
    else:
        column = kept[:, special.mask].clone()
        kept[:, special.mask] = -torch.inf
        tokens = propose(kept, noise)
        kept[:, special.mask] = column
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
