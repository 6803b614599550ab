"""SDAR's sequential rule: autoregressive order inside a block."""

from __future__ import annotations

from torch import Tensor

from dare.sampling.selection.base import Decision, Round, Selector, even_shares


class SequentialSelector(Selector):
    """The quota's number of masks, from the left.  Only those can need logits."""

    @property
    def quotas(self) -> list[int]:
        return even_shares(self.config.block_length, self.config.steps_per_block)

    def scored(self, masked: Tensor, region: Tensor) -> Tensor:
        return _leftmost(masked, self.quotas[0])

    def choose(self, round: Round) -> Decision:
        # After the schedule one position a round remains, so that the block always ends.
        quota = max(1, self.quotas[round.index]) if round.index < len(self.quotas) else 1
        return Decision(_leftmost(round.masked, quota))


def _leftmost(masked: Tensor, count: int) -> Tensor:
    """The first ``count`` masks of each row, (A, W) bool."""
    return masked & (masked.cumsum(-1) <= count)
