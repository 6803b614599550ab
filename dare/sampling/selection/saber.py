"""Saber: an adaptive threshold, and tokens that lose confidence are masked again."""

from __future__ import annotations

import torch
from torch import Tensor

from dare.sampling.selection.base import Decision, Round, Selector, top_positions


class SaberSelector(Selector):
    """All masks with c above the mean of the confidences of past commitments, at least n.

    Memory, both (B, gen_length) float32: the confidence at a position's last commitment, kept
    when it is masked again, and the confidence of every position in the step before.  Every
    round commits more than it masks again, and the block is not touched once it is complete.
    """

    scope = "region"

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.committed = self.last = torch.empty(0)

    def begin(self, block: int, masked: Tensor) -> None:
        if block == 0:
            shape = (self.batch, self.config.gen_length)
            self.committed = torch.full(shape, torch.nan, device=masked.device)
            # Nothing counts as fallen in the step in which its block is first looked at, but for
            # the first block, whose confidences are compared with 0.
            self.last = torch.full(shape, -torch.inf, device=masked.device)
            self.last[:, : masked.shape[1]] = 0.0

    def scored(self, masked: Tensor, region: Tensor) -> Tensor:
        return region

    def choose(self, round: Round) -> Decision:
        rows, width = round.rows, round.masked.shape[1]
        change = round.confidence - self.last[rows, :width]
        self.last[rows, :width] = round.confidence
        confidence = round.confidence.masked_fill(~round.masked, -torch.inf)
        limit = self.committed[rows].nanmean(-1, keepdim=True).nan_to_num(nan=1.0)
        above = confidence > limit
        n = self.rule.n
        enough = above.sum(-1, keepdim=True) >= n
        commit = above.where(enough, top_positions(confidence, n))
        kept = confidence.where(commit, self.committed[rows, :width])
        self.committed[rows, :width] = kept
        return Decision(commit, self._fallen(round, commit, change))

    def _fallen(self, round: Round, commit: Tensor, change: Tensor) -> Tensor:
        """What is masked again: max(n // 2, an eighth of the committed), but fewer than those."""
        n = self.rule.n
        count = commit.sum(-1).clamp_min(n)
        back = torch.minimum(((count + 7) // 8).clamp_min(n // 2), count - 1)
        stands = round.scored & (commit | ~round.masked)
        complete = (commit | ~round.masked).all(-1)
        return top_positions((-change).masked_fill(~stands, -torch.inf), back * ~complete)
