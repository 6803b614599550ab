"""Dream's rules: how much is revealed follows from a time grid from 1 down to ``eps``.

Between the times t and s a share 1 - s/t of the masks is revealed, all of them in the last step.
Both rules let the mask token be a candidate, as Dream's ``diffusion_generate`` does: such a
position stays masked and counts again in the next step.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dare.sampling.selection.base import Decision, Round, Selector, top_positions


class _TimeGrid(Selector):
    """Step i of a block looks at the times i and i + 1 of its grid."""

    allow_mask = True

    @property
    def max_rounds(self) -> int:
        """With a cache the first step of a block may be spent on its first token alone, so
        that at least one more must follow."""
        steps = self.config.steps_per_block
        return steps if self.config.cache == "none" else max(2, steps)

    def share(self, index: int) -> float:
        """1 - s/t in float32, as the original has it; 1 in the last step."""
        steps = self.config.steps_per_block
        if index >= steps - 1:
            return 1.0
        times = torch.linspace(1.0, self.rule.eps, steps + 1)
        return float(1.0 - times[index + 1] / times[index])


class DreamSelector(_TimeGrid):
    """The int(masks * share) best positions of a row, or as many drawn from softmax(c / alg_temp).

    The original takes the average number of masks over the batch, which is the same as long as
    all rows have as many.  Its draw is a multinomial without replacement; ours is the Gumbel
    top-k of the same distribution, keyed by row.
    """

    def counts(self, masked: Tensor, index: int) -> Tensor:
        return (masked.sum(-1).float() * self.share(index)).long()

    def is_idle(self, masked: Tensor, index: int) -> bool:
        return not bool(self.counts(masked, index).any())

    def choose(self, round: Round) -> Decision:
        ranked = round.confidence
        if self.rule.alg_temp > 0:
            ranked = ranked / self.rule.alg_temp + round.gumbel()
        return Decision(top_positions(ranked, self.counts(round.masked, round.index)))


class OriginSelector(_TimeGrid):
    """Every mask is revealed with probability ``share``, whatever the confidence."""

    def choose(self, round: Round) -> Decision:
        share = self.share(round.index)
        if share == 1.0:
            return Decision(round.masked)
        return Decision(round.masked & (round.uniform() < share))
