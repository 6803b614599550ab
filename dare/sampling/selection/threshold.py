"""Rules that commit what is sure enough, however many that is."""

from __future__ import annotations

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


class DynamicSelector(Selector):
    """SDAR and LLaDA2.0: all masks with c > threshold if they reach the quota, else its best."""

    def choose(self, round: Round) -> Decision:
        quotas = even_shares(self.config.block_length, self.config.steps_per_block)
        # After the schedule one position a round remains, so that the block always ends.
        quota = max(1, quotas[round.index]) if round.index < len(quotas) else 1
        sure = round.masked & (round.confidence > self.rule.threshold)
        enough = sure.sum(-1, keepdim=True) >= quota
        return Decision(sure.where(enough, top_positions(round.confidence, quota)))
