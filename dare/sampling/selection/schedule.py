"""Fixed schedules: the number of positions per step is known beforehand."""

from __future__ import annotations

from torch import Tensor

from dare.sampling.selection.base import Decision, Round, Selector, even_shares, top_positions


class ScheduleSelector(Selector):
    """LLaDA: the block's length in equal shares over its steps, the surplus first."""

    allow_mask = True

    @property
    def quotas(self) -> list[int]:
        return even_shares(self.config.block_length, self.config.steps_per_block)

    @property
    def max_rounds(self) -> int:
        return self.config.steps_per_block

    def is_idle(self, masked: Tensor, index: int) -> bool:
        return self.quotas[index] == 0

    def choose(self, round: Round) -> Decision:
        return Decision(top_positions(round.confidence, self.quotas[round.index]))
