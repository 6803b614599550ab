"""Rules that commit what is sure enough, however many that is."""

from __future__ import annotations

import torch
from torch import Tensor

from dare.sampling.selection.base import (
    Decision,
    Round,
    Selector,
    even_shares,
    top_positions,
)


class ThresholdSelector(Selector):
    """Fast-dLLM: every mask with c >= threshold, and always the single best."""

    def choose(self, round: Round) -> Decision:
        sure = round.masked & (round.confidence >= self.rule.threshold)
        return Decision(sure | top_positions(round.confidence, 1))


class FactorSelector(Selector):
    """Fast-dLLM: ranks r = 2, 3, ... as long as c >= 1 - factor / (r + 1).

    Its code stops at the first rank that fails, counts the ranks before it, and adds one where
    that was the last rank: then all masks are committed.
    """

    def choose(self, round: Round) -> Decision:
        ordered = round.confidence.sort(dim=-1, descending=True).values
        rank = torch.arange(1, ordered.shape[1] + 1, device=ordered.device)
        limit = (1 - self.rule.factor / (rank + 1)).masked_fill(rank == 1, -torch.inf)
        masks = round.masked.sum(-1)
        passes = (ordered >= limit) & (rank <= masks[:, None])
        leading = passes.long().cumprod(-1).sum(-1)
        count = masks.where(leading >= masks - 1, leading)
        return Decision(top_positions(round.confidence, count))


class DynamicSelector(Selector):
    """SDAR and LLaDA2.0: all masks with c > threshold if they reach the quota, else its best.

    SDAR's published ``generate.py`` fills up a quota that exceeds the masks left with visible
    positions, and overwrites those, prompt tokens too.  Its evaluation code does not, nor do we.
    """

    def choose(self, round: Round) -> Decision:
        quotas = even_shares(self.config.block_length, self.config.steps_per_block)
        # After the schedule one position a round remains, so that the block always ends.
        quota = max(1, quotas[round.index]) if round.index < len(quotas) else 1
        sure = round.masked & (round.confidence > self.rule.threshold)
        enough = sure.sum(-1, keepdim=True) >= quota
        return Decision(sure.where(enough, top_positions(round.confidence, quota)))


class EntropyBoundSelector(Selector):
    """EB-Sampler and SDAR's entropy_bounded: as many as keep the summed entropy low.

    Positions are taken by confidence, surest first; with ``remasking`` "entropy" that is the
    negative entropy, which is then not computed twice.
    """

    def choose(self, round: Round) -> Decision:
        order = round.confidence.argsort(dim=-1, descending=True, stable=True)
        entropy = self._entropy(round).gather(-1, order)
        total = entropy.cumsum(-1)
        if self.rule.form == "prefix":
            within = total < self.rule.bound
        else:
            within = total - entropy.cummax(-1).values <= self.rule.bound
        count = within.sum(-1).clamp_min(1)
        return Decision(top_positions(round.confidence, count))

    def _entropy(self, round: Round) -> Tensor:
        """Entropies in nats (A, W), infinite where there is no mask."""
        if self.config.remasking == "entropy":
            return -round.confidence
        logp = round.logits.float().log_softmax(-1)
        return round.spread(-(logp.exp() * logp.clamp_min(-1e4)).sum(-1), torch.inf)
