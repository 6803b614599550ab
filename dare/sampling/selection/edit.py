"""LLaDA2.1's rule: unmask and, in the same forward, correct what already stands in the block."""

from __future__ import annotations

import torch
from torch import Tensor

from dare.sampling.selection.base import Decision, Round, Selector, top_positions


class EditSelector(Selector):
    """Masks with c > threshold, at least ``num_to_transfer`` of them, and generated tokens whose
    new candidate differs and has c > editing_threshold.

    A row leaves a block after a round that found no mask and edited nothing, or after
    ``max_post_steps`` rounds without a mask.  Since every round with masks commits at least one
    and the mask token is never a candidate, that bounds the loop.
    """

    settled: Tensor
    post_steps: Tensor

    def begin(self, block: int, masked: Tensor) -> None:
        # A block without a mask at its start is prompt: nothing in it is to be edited.
        self.settled = ~masked.any(-1)
        self.post_steps = torch.zeros_like(self.settled, dtype=torch.int64)

    def goes_on(self, masked: Tensor, index: int) -> Tensor:
        left = self.rule.max_post_steps - self.post_steps
        return masked.any(-1) | (~self.settled & (left > 0))

    def scored(self, masked: Tensor, region: Tensor) -> Tensor:
        return region

    def choose(self, round: Round) -> Decision:
        unmask = self._unmask(round)
        edit = (
            (round.scored & ~round.masked)
            & (round.confidence > self.rule.editing_threshold)
            & (round.tokens != round.ids)
        )
        unmasked = ~round.masked.any(-1)
        self.post_steps[round.rows] += unmasked
        self.settled[round.rows] = unmasked & ~edit.any(-1)
        return Decision(unmask | edit)

    def _unmask(self, round: Round) -> Tensor:
        confidence = round.confidence.masked_fill(~round.masked, -torch.inf)
        sure = confidence > self.rule.threshold
        wanted = self.rule.num_to_transfer
        enough = sure.sum(-1, keepdim=True) >= wanted
        return sure.where(enough, top_positions(confidence, wanted))
